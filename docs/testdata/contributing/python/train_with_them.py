"""Reads images through a source, a storage class and a transform that were added.

The batches must hold the negatives of the images.
"""

import io
import pathlib
import struct
import sys

import numpy
from PIL import Image

import hdmlp.data
from hdmlp import transforms as T


class Strips(hdmlp.data.Folder):
    kind = "strips"


def png(level):
    out = io.BytesIO()
    framed = numpy.full((7, 9, 3), 99, numpy.uint8)
    framed[1:-1, 1:-1] = level
    Image.fromarray(framed).save(out, "PNG")
    return out.getvalue()


directory, configuration = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
for first, name in ((0, "cat"), (8, "dog")):
    samples = [png(level) for level in range(first, first + 8)]
    (directory / f"{name}.strip").write_bytes(
        b"".join(struct.pack("<I", len(s)) + s for s in samples)
    )
configuration.write_text('[[storage_class]]\nkind = "heap"\ncapacity = "1MB"\n')

dataset = Strips(directory)
assert len(dataset) == 16 and dataset.classes == ["cat", "dog"], (len(dataset), dataset.classes)
assert dataset.samples[9] == ("dog/000000001", 1), dataset.samples[9]
transforms = [T.TrimBorder(1), T.CenterCrop((5, 7)), T.ToTensor(dtype="uint8")]
with hdmlp.data.DataLoader(
    dataset,
    batch_size=4,
    shuffle=False,
    epochs=2,
    transforms=transforms,
    config_file=str(configuration),
) as loader:
    for _ in range(2):
        levels, labels = [], []
        for batch in loader:
            levels += [int(level) for level in batch.samples[:, 0, 0, 0]]
            labels += [int(label) for label in batch.labels]
        assert levels == list(range(16)) and labels == [0] * 8 + [1] * 8, (
            levels,
            labels,
        )
    classes = loader.report()["classes"]
assert [(c["name"], c["used"] > 0) for c in classes] == [("heap", True)], classes
