"""The loaders that are compared, each behind the same few lines.

A contender is a class with ``start()`` (import nothing, make the loader), ``epoch(e)``
(an iterator over (samples, labels) of one epoch) and ``finish()``. Samples are a list
of objects with a length in bytes, as a user who wants the encoded files would get them.
HDMLP and torch deliver in the order that DistributedSampler gives, plain reading in
another random one.
"""

import importlib
import os
import random
import socket
import struct
import sys
import time
from collections.abc import Iterator
from typing import Any, Callable, Optional

from recipe_lists import MEAN, ON_TENSORS, RECIPES, STD

Batch = tuple[Any, Any]


class Plain:
    """Reads the files in the sampler's order with open and read: no loader at all."""

    def __init__(self, spec: dict[str, Any]) -> None:
        self._spec = spec
        self._files: list[tuple[str, int]] = []

    def start(self) -> None:
        root = self._spec["path"]
        for label, name in enumerate(sorted(os.listdir(root))):
            self._files += [
                (os.path.join(root, name, file), label)
                for file in sorted(os.listdir(os.path.join(root, name)))
            ]

    def epoch(self, epoch: int) -> Iterator[Batch]:
        order = list(range(len(self._files)))
        random.Random(self._spec["seed"] + epoch).shuffle(order)
        mine = order[self._spec["rank"] :: self._spec["world_size"]]
        size = self._spec["batch_size"]
        for begin in range(0, len(mine), size):
            samples, labels = [], []
            for index in mine[begin : begin + size]:
                path, label = self._files[index]
                with open(path, "rb") as file:
                    samples.append(file.read())
                labels.append(label)
            yield samples, labels

    def finish(self) -> Optional[dict[str, Any]]:
        return None


def read_file(path: str) -> bytes:
    """A torchvision loader that leaves the sample encoded."""
    with open(path, "rb") as file:
        return file.read()


def as_lists(batch: list[tuple[bytes, int]]) -> Batch:
    """A collate function that leaves the samples as they are."""
    samples, labels = zip(*batch)
    return list(samples), list(labels)


def as_one_tensor(batch: list[tuple[bytes, int]]) -> Batch:
    """A collate function that packs a batch into one tensor, which travels in shared memory."""
    import torch

    packed = torch.frombuffer(bytearray(b"".join(sample for sample, _ in batch)), dtype=torch.uint8)
    ends = torch.tensor([len(sample) for sample, _ in batch]).cumsum(0)
    return (packed, ends), torch.tensor([label for _, label in batch])


class Torch:
    """ImageFolder, DistributedSampler and DataLoader of torch and torchvision."""

    def __init__(self, spec: dict[str, Any]) -> None:
        import torch.utils.data
        import torchvision.datasets

        self._data, self._datasets = torch.utils.data, torchvision.datasets
        self._spec = spec
        self._loader: Any = None

    def start(self) -> None:
        spec = self._spec
        dataset = self._datasets.ImageFolder(spec["path"], loader=read_file)
        self._load(dataset, as_one_tensor if spec.get("packed") else as_lists)

    def _load(self, dataset: Any, collate: Optional[Callable] = None) -> None:
        spec = self._spec
        self._sampler = self._data.DistributedSampler(
            dataset,
            num_replicas=spec["world_size"],
            rank=spec["rank"],
            shuffle=True,
            seed=spec["seed"],
        )
        self._loader = self._data.DataLoader(
            dataset,
            batch_size=spec["batch_size"],
            sampler=self._sampler,
            num_workers=spec["workers"],
            collate_fn=collate,
            persistent_workers=spec["workers"] > 0,
        )

    def epoch(self, epoch: int) -> Iterator[Batch]:
        self._sampler.set_epoch(epoch)
        return iter(self._loader)

    def finish(self) -> Optional[dict[str, Any]]:
        self._loader = None
        return None


class Pipeline(Torch):
    """Images made tensors by torchvision's transforms on PIL images, or by OpenCV, in
    DataLoader."""

    def start(self) -> None:
        import torch

        torch.set_num_threads(1)
        spec = self._spec
        made = {"transform": torch_transforms(spec["pipeline"])}
        if spec.get("opencv"):
            made = {"loader": read_file, "transform": OpenCV(spec["pipeline"])}
        dataset = self._datasets.ImageFolder(spec["path"], **made)
        self._load(dataset)


class Tensors(Torch):
    """Images decoded to tensors, and transformed by torchvision's v2 on these."""

    def start(self) -> None:
        import torch
        from torchvision.io import ImageReadMode, decode_image

        torch.set_num_threads(1)
        transform = ON_TENSORS[self._spec["pipeline"].partition("/")[2]]()

        def decoded(path: str) -> Any:
            return decode_image(path, ImageReadMode.RGB)

        self._load(
            self._datasets.ImageFolder(self._spec["path"], loader=decoded, transform=transform)
        )


class Dali:
    """DALI's pipeline on the processor, and its iterator for torch."""

    def __init__(self, spec: dict[str, Any]) -> None:
        from nvidia.dali import fn, pipeline_def, types
        from nvidia.dali.auto_aug import rand_augment, trivial_augment
        from nvidia.dali.plugin.pytorch import DALIClassificationIterator

        @pipeline_def(enable_conditionals=True)
        def pipeline() -> Any:
            files, labels = fn.readers.file(
                file_root=spec["path"],
                random_shuffle=True,
                name="files",
                shard_id=spec["rank"],
                num_shards=spec["world_size"],
            )
            images = fn.decoders.image_random_crop(files, device="cpu")
            images = fn.resize(images, size=[224, 224])
            images = fn.flip(images, horizontal=fn.random.coin_flip(probability=0.5))
            if name == "trivial":
                images = trivial_augment.trivial_augment_wide(images, shape=[224, 224])
            elif name == "rand":
                images = rand_augment.rand_augment(images, n=2, m=9, shape=[224, 224])
            images = fn.crop_mirror_normalize(
                images,
                dtype=types.FLOAT,
                mean=[255 * mean for mean in MEAN],
                std=[255 * std for std in STD],
            )
            return images, labels

        name = spec["pipeline"].partition("/")[2]
        self._pipeline = pipeline(
            batch_size=spec["batch_size"],
            num_threads=spec["workers"],
            device_id=None,
            seed=spec["seed"],
        )
        self._iterator_of, self._loader = DALIClassificationIterator, None

    def start(self) -> None:
        self._loader = self._iterator_of(self._pipeline, reader_name="files", auto_reset=True)

    def epoch(self, epoch: int) -> Iterator[Batch]:
        for batches in self._loader:
            yield batches[0]["data"], batches[0]["label"]

    def finish(self) -> Optional[dict[str, Any]]:
        self._loader = None
        return None


#: Seconds that an image takes in the pipeline `slow`, without a processor.
SLOW = 0.005


def wait(image: Any) -> Any:
    """A transform that takes time and no processor."""
    time.sleep(SLOW)
    return image


def torch_transforms(pipeline: str) -> Any:
    """The transforms of pipelines.PIPELINES, or with ``recipes/`` before it, of a recipe."""
    from torchvision import transforms as t

    if pipeline.startswith("recipes/"):
        return RECIPES[pipeline.partition("/")[2]][1]()
    if pipeline == "timm":
        import timm.data

        return timm.data.create_transform(224, is_training=True)
    if pipeline == "augment":
        return t.Compose(
            [
                t.RandomResizedCrop(224),
                t.RandomHorizontalFlip(),
                t.TrivialAugmentWide(),
                t.ToTensor(),
                t.Normalize(MEAN, STD),
                t.RandomErasing(0.1),
            ]
        )
    if pipeline == "slow":
        return t.Compose([t.CenterCrop(32), wait, t.ToTensor()])
    begin = {
        "crop": [t.RandomResizedCrop(224), t.RandomHorizontalFlip()],
        "center": [t.Resize(256), t.CenterCrop(224)],
    }[pipeline]
    return t.Compose([*begin, t.ToTensor(), t.Normalize(MEAN, STD)])


class OpenCV:
    """The same with OpenCV, which does not antialias: decode, crop, resize, colours, floats."""

    def __init__(self, pipeline: str) -> None:
        sys.path.append(
            os.path.join(
                os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "build", "opencv"
            )
        )
        import cv2
        import numpy

        cv2.setNumThreads(0)
        self._cv2, self._numpy, self._pipeline = cv2, numpy, pipeline
        self._mean = [255 * mean for mean in MEAN]
        self._scale = (1 / (numpy.array(STD, numpy.float32) * 255)).reshape(3, 1, 1)

    def __call__(self, data: bytes) -> Any:
        import torch
        from torchvision.transforms import RandomResizedCrop

        cv2, numpy = self._cv2, self._numpy
        image = cv2.imdecode(numpy.frombuffer(data, numpy.uint8), cv2.IMREAD_COLOR)
        height, width = image.shape[:2]
        if self._pipeline == "crop":
            top, left, rows, columns = RandomResizedCrop.get_params(
                torch.empty(1, height, width), (0.08, 1.0), (3 / 4, 4 / 3)
            )
            image = cv2.resize(
                image[top : top + rows, left : left + columns],
                (224, 224),
                interpolation=cv2.INTER_LINEAR,
            )
            if random.random() < 0.5:
                image = cv2.flip(image, 1)
        else:
            scale = 256 / min(height, width)
            image = cv2.resize(
                image, (round(width * scale), round(height * scale)), interpolation=cv2.INTER_LINEAR
            )
            top, left = (image.shape[0] - 224) // 2, (image.shape[1] - 224) // 2
            image = image[top : top + 224, left : left + 224]
        tensor = cv2.dnn.blobFromImage(image, mean=self._mean, swapRB=True)[0]
        tensor *= self._scale
        return torch.from_numpy(tensor)


def daemon() -> Optional[int]:
    """The daemon that answers on the socket of the environment."""
    with socket.socket(socket.AF_UNIX) as connection:
        try:
            connection.connect("\0" + os.environ["HDMLP_SOCKET"])
        except OSError:
            return None
        credentials = connection.getsockopt(
            socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("iII")
        )
    return struct.unpack("iII", credentials)[0]


class HDMLP:
    """HDMLP through its torch interface, samples left encoded or made tensors."""

    def __init__(self, spec: dict[str, Any]) -> None:
        import hdmlp.torch

        if "pipeline" in spec:
            importlib.import_module("torchvision")  # whose transforms are given to HDMLP
        self._ht = hdmlp.torch
        self._spec = spec
        self._loader: Any = None

    def start(self) -> None:
        spec = self._spec
        transform = None
        if "pipeline" in spec:
            from hdmlp import transforms

            transform = torch_transforms(spec["pipeline"])
            if spec.get("fast"):
                transform = [
                    transforms.ImgDecode(fast=True),
                    transforms.RandomResizedCrop(224),
                    transforms.RandomHorizontalFlip(),
                    transforms.ToTensor(),
                    transforms.Normalize(MEAN, STD),
                ]
        if spec.get("tensor"):  # files of float32 numbers, which become a tensor as they are
            from hdmlp import transforms

            transform = [transforms.Reshape(spec["bytes"] // spec["batch_size"] // 4, 1, 1)]
        dataset = self._ht.ImageFolder(spec["path"], transform)
        keys = (
            "memory", "policy", "cache_size", "prefetch_batches", "share", "share_members", "forms"
        )  # fmt: skip
        options = {key: spec[key] for key in keys if spec.get(key)}
        if "cache_dir" in spec:  # one for each node
            options["cache_dir"] = spec["cache_dir"].format(rank=spec["rank"])
        if "num_workers" in spec:  # of what runs in Python
            options["num_workers"] = spec["num_workers"]
        self._loader = self._ht.DataLoader(
            dataset,
            batch_size=spec["batch_size"],
            shuffle=True,
            epochs=spec["epochs"],
            seed=spec["seed"],
            shard=True,
            **options,
        )

    def epoch(self, epoch: int) -> Iterator[Batch]:
        if self._spec.get("copied"):
            return (
                ([bytes(sample) for sample in samples], labels) for samples, labels in self._loader
            )
        return iter(self._loader)

    def daemon(self) -> Optional[int]:
        """The process that answers on this round's socket."""
        return daemon()

    def finish(self) -> Optional[dict[str, Any]]:
        report = self._loader.report(cluster=self._spec.get("cluster", False))
        if "cluster" in self._spec:
            time.sleep(1)  # the other ranks ask for this one's part
        self._loader = None
        return (
            {key: report[key] for key in report}
            if hasattr(report, "keys")
            else {"text": str(report)}
        )


class Bare(HDMLP):
    """HDMLP without torch: raw samples of a folder, with any configuration keys."""

    keys = ("memory", "policy", "cache_dir", "disk_reserve", "source_threads")

    def __init__(self, spec: dict[str, Any]) -> None:
        import hdmlp.data
        import numpy  # noqa: F401  # as a training script has, when the first batch needs it

        self._data = hdmlp.data
        self._spec = spec
        self._loader: Any = None

    def start(self) -> None:
        spec = self._spec
        self._loader = self._data.DataLoader(
            self._data.Folder(spec["path"]),
            spec["batch_size"],
            epochs=spec["epochs"],
            seed=spec["seed"],
            **{key: spec[key] for key in self.keys if key in spec},
        )


class Ready:
    """Batches that are ready: torch's worker hands over a tensor that already lies in shared
    memory, again and again; or, if `collated`, as all do that train with DataLoader, one that the
    default collate function has made there of samples in memory."""

    def __init__(self, spec: dict[str, Any]) -> None:
        import torch.utils.data

        self._torch = torch
        self._spec = spec
        self._loader: Any = None

    def start(self) -> None:
        torch, spec = self._torch, self._spec

        class Same(torch.utils.data.IterableDataset):
            def __iter__(self) -> Iterator[Batch]:
                batch = torch.zeros(spec["bytes"], dtype=torch.uint8).share_memory_()
                while True:
                    yield batch, spec["batch_size"]

        class Made(torch.utils.data.Dataset):
            samples = [
                torch.randn(spec["bytes"] // spec["batch_size"] // 4)
                for _ in range(spec["batch_size"])
            ]

            def __len__(self) -> int:
                return 1 << 20

            def __getitem__(self, i: int) -> Any:
                return self.samples[i % len(self.samples)], i % 1000

        if spec.get("collated"):
            self._loader = torch.utils.data.DataLoader(
                Made(), batch_size=spec["batch_size"], num_workers=spec["workers"]
            )
        else:
            self._loader = torch.utils.data.DataLoader(
                Same(), batch_size=None, num_workers=spec["workers"]
            )

    def epoch(self, epoch: int) -> Iterator[Batch]:
        return iter(self._loader)

    def finish(self) -> Optional[dict[str, Any]]:
        self._loader = None
        return None


CONTENDERS = {
    "plain": Plain,
    "torch": Torch,
    "pipeline": Pipeline,
    "tensors": Tensors,
    "dali": Dali,
    "hdmlp": HDMLP,
    "bare": Bare,
    "ready": Ready,
}
