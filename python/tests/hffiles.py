"""Datasets of Hugging Face's library, with images of all kinds, for tests."""

import io

import datasets
import numpy
from PIL import Image

datasets.disable_progress_bars()

#: Mode, format and EXIF orientation of images.
KINDS = [
    ("RGB", "PNG", 0),
    ("RGB", "JPEG", 0),
    *(("RGB", "JPEG", i) for i in range(1, 9)),
    ("RGB", "PNG", 6),
    ("RGB", "WEBP", 0),
    ("L", "PNG", 0),
    ("L", "JPEG", 5),
    ("P", "PNG", 0),
    ("RGBA", "PNG", 3),
    ("RGBA", "WEBP", 0),
    ("LA", "PNG", 0),
    ("1", "PNG", 0),
    ("I;16", "PNG", 0),
    ("CMYK", "JPEG", 0),
    ("RGB", "BMP", 0),
    ("RGB", "TIFF", 0),
    ("P", "GIF", 0),
]


def image(number, mode="RGB", kind="PNG", turn=0):
    """An encoded image of its own."""
    random = numpy.random.default_rng(number)
    width, height = 30 + number % 7, 24
    y, x = numpy.mgrid[:height, :width][..., None]
    levels = 128 + 90 * numpy.sin(x * random.uniform(0, 1, 4) + y * random.uniform(0, 1, 4))
    picture = Image.fromarray(levels.astype("u1"), "RGBA")
    if mode == "I;16":
        picture = Image.fromarray((levels[..., 0] * 200).astype("u2"))
    elif mode == "P":
        picture = picture.convert("RGB").quantize(7)
        picture.info["transparency"] = 3
    else:
        picture = picture.convert(mode)
    more = {}
    if turn:
        more["exif"] = Image.Exif()
        more["exif"][0x0112] = turn
    if kind == "WEBP":
        more["lossless"] = True
    file = io.BytesIO()
    picture.save(file, kind, **more)
    return file.getvalue()


FEATURES = {
    "image": datasets.Image(),
    "label": datasets.ClassLabel(names=["ant", "bee", "cat"]),
    "text": datasets.Value("string"),
    "half": datasets.Value("float32"),
    "even": datasets.Value("bool"),
    "box": datasets.List(datasets.Value("int64"), length=4),
}


def rows(count, images=None):
    """Rows by column; ``images``: what the column image has."""
    if images is None:
        images = [{"bytes": image(i), "path": f"{i}.png"} for i in range(count)]
    return {
        "image": images,
        "label": [i % 3 for i in range(count)],
        "text": [f"row {i}" for i in range(count)],
        "half": [i / 2 for i in range(count)],
        "even": [i % 2 == 0 for i in range(count)],
        "box": [[i, 1, 2, 3] for i in range(count)],
    }


def saved(directory, count=20, images=None, features=None, **options):
    """A dataset that lies in Arrow files."""
    features = datasets.Features({**FEATURES, **(features or {})})
    made = datasets.Dataset.from_dict(rows(count, images), features=features)
    made.save_to_disk(str(directory), **options)
    return datasets.load_from_disk(str(directory))


def of_all_kinds(directory, mode=None):
    """One image of each kind; mode: see datasets.Image."""
    images = [{"bytes": image(i, *kind), "path": None} for i, kind in enumerate(KINDS)]
    return saved(directory, len(images), images, {"image": datasets.Image(mode=mode)})
