"""tf.data on TFRecord files, as a contender: its methods are those of loaders.py. Run with a folder
of class folders and one for the records, writes these: tf_loader.py IMAGES RECORDS FILES."""

import os
import sys
from collections.abc import Iterator
from typing import Any

from loaders import Batch
from recipe_lists import MEAN, STD

#: Samples of the buffer in which an order is shuffled.
BUFFER = 1000


class TFData:
    """The order of files is drawn, each is read from its begin to its end, and samples are shuffled
    in a buffer, as section 7 of the paper has it; decoded, cropped and flipped by threads."""

    def __init__(self, spec: dict[str, Any]) -> None:
        import tensorflow

        self._tf, self._spec = tensorflow, spec
        self._batches: Any = None

    def start(self) -> None:
        tf, spec = self._tf, self._spec
        names = sorted(os.path.join(spec["path"], name) for name in os.listdir(spec["path"]))
        files = tf.data.Dataset.from_tensor_slices(names).shard(spec["world_size"], spec["rank"])
        files = files.shuffle(len(names), seed=spec["seed"], reshuffle_each_iteration=True)
        records = tf.data.TFRecordDataset(files).shuffle(BUFFER, seed=spec["seed"])
        images = records.map(self._made, num_parallel_calls=spec["workers"])
        options = tf.data.Options()
        options.threading.private_threadpool_size = spec["workers"]
        batches = images.batch(spec["batch_size"], drop_remainder=False)
        self._batches = batches.prefetch(tf.data.AUTOTUNE).with_options(options)

    def _made(self, record: Any) -> Any:
        """An image of 224x224 and its label, as RandomResizedCrop and RandomHorizontalFlip."""
        tf = self._tf
        fields = {"jpg": tf.io.FixedLenFeature([], tf.string)}
        fields["cls"] = tf.io.FixedLenFeature([], tf.int64)
        found = tf.io.parse_single_example(record, fields)
        data, whole = found["jpg"], tf.zeros([1, 0, 4])
        begin, size, _ = tf.image.sample_distorted_bounding_box(
            tf.image.extract_jpeg_shape(data),
            whole,
            area_range=(0.08, 1.0),
            aspect_ratio_range=(3 / 4, 4 / 3),
            use_image_if_no_bounding_boxes=True,
        )
        window = tf.stack([begin[0], begin[1], size[0], size[1]])
        image = tf.image.decode_and_crop_jpeg(data, window, channels=3)
        image = tf.image.random_flip_left_right(tf.image.resize(image, [224, 224]))
        return (image / 255 - tf.constant(MEAN)) / tf.constant(STD), found["cls"]

    def epoch(self, epoch: int) -> Iterator[Batch]:
        return iter(self._batches.as_numpy_iterator())

    def finish(self) -> None:
        self._batches = None


CONTENDERS = {"tfdata": TFData}


def write(images: str, records: str, count: int) -> None:
    """Writes the images as Example records into so many files, each with its part of all classes,
    in an order that was drawn once."""
    import random

    import tensorflow as tf

    found = [
        (os.path.join(images, folder, name), label)
        for label, folder in enumerate(sorted(os.listdir(images)))
        for name in sorted(os.listdir(os.path.join(images, folder)))
    ]
    random.Random(1).shuffle(found)
    os.makedirs(records)
    for number in range(count):
        path = os.path.join(records, f"{number:03d}.tfrecord")
        with tf.io.TFRecordWriter(path) as file:
            for name, label in found[number::count]:
                with open(name, "rb") as image:
                    value = tf.train.BytesList(value=[image.read()])
                features = {
                    "jpg": tf.train.Feature(bytes_list=value),
                    "cls": tf.train.Feature(int64_list=tf.train.Int64List(value=[label])),
                }
                example = tf.train.Example(features=tf.train.Features(feature=features))
                file.write(example.SerializeToString())


if __name__ == "__main__":
    write(sys.argv[1], sys.argv[2], int(sys.argv[3]))
