"""Makes the datasets that demo and benchmark read: folders of class folders of images, which are
JPEGs but for two kinds.

    make_dataset.py photos   DIR [--samples 3000] [--mean-bytes 113000]
    make_dataset.py large    DIR [--samples 300] [--mean-bytes 400000]
    make_dataset.py tiny     DIR [--samples 20000] [--mean-bytes 3000]
    make_dataset.py gratings DIR [--samples 2000]
    make_dataset.py blobs    DIR [--samples 64] [--mean-bytes 602112]
    make_dataset.py pngs     DIR [--samples 500] [--mean-bytes 113000]
    make_dataset.py webps    DIR [--samples 500] [--mean-bytes 113000]

pngs and webps are photos of so many bytes in another format.

The content is a function of kind and arguments alone: the same bytes every time. A
finished dataset carries a description beside it, DIR.json, and is not made again.

Needs numpy and PIL.
"""

import argparse
import io
import json
import math
import multiprocessing
import os
import shutil
import sys
from typing import Callable

import numpy
from PIL import Image

#: Raised whenever the content of a kind changes, so that old folders are made anew.
VERSION = 1

#: Classes of the gratings: their stripes lie 18 degrees apart.
CLASSES = 10

Maker = Callable[[int, int], bytes]


def _smooth(rng: numpy.random.Generator, width: int, height: int) -> numpy.ndarray:
    """A random colour gradient, as the blurred background of a photo."""
    coarse = rng.integers(40, 216, (4, 5, 3), dtype=numpy.uint8)
    return numpy.asarray(
        Image.fromarray(coarse).resize((width, height), Image.BICUBIC), dtype=numpy.float32
    )


def _jpeg(pixels: numpy.ndarray, quality: int) -> bytes:
    out = io.BytesIO()
    Image.fromarray(pixels.clip(0, 255).astype(numpy.uint8)).save(out, "JPEG", quality=quality)
    return out.getvalue()


def _sized(index: int, width: int, height: int, mean_bytes: int) -> bytes:
    """A JPEG whose size scatters by a fifth around the mean: its grain decides the size."""
    rng = numpy.random.default_rng([VERSION, index])
    want = mean_bytes * float(numpy.clip(rng.normal(1.0, 0.2), 0.5, 1.5))
    background = _smooth(rng, width, height)
    grain = rng.standard_normal((height, width, 1), dtype=numpy.float32)
    strength, closest = 24.0, b""
    for _ in range(3):
        data = _jpeg(background + strength * grain, 92)
        if not closest or abs(len(data) - want) < abs(len(closest) - want):
            closest = data
        strength *= (want / len(data)) ** 2.2
    return closest


def photo(index: int, mean_bytes: int) -> bytes:
    """A JPEG of 500x375, as ImageNet's."""
    return _sized(index, 500, 375, mean_bytes)


def _again(data: bytes, kind: str, **options: int) -> bytes:
    """An image in another format."""
    out = io.BytesIO()
    Image.open(io.BytesIO(data)).save(out, kind, **options)
    return out.getvalue()


def photo_png(index: int, mean_bytes: int) -> bytes:
    """What becomes of a photo as PNG."""
    return _again(photo(index, mean_bytes), "PNG")


def photo_webp(index: int, mean_bytes: int) -> bytes:
    """What becomes of a photo as lossy WebP."""
    return _again(photo(index, mean_bytes), "WEBP", quality=85)


def large(index: int, mean_bytes: int) -> bytes:
    """A JPEG of 1600x1200, as a camera's that was scaled down."""
    return _sized(index, 1600, 1200, mean_bytes)


def tiny(index: int, mean_bytes: int) -> bytes:
    """A JPEG of 60x60, as a thumbnail."""
    return _sized(index, 60, 60, mean_bytes)


def grating(index: int, mean_bytes: int) -> bytes:
    """Stripes under noise on 160x160: the class (index modulo CLASSES) is their direction.

    Phase, width, colours and contrast are random, so no single pixel gives the class.
    """
    del mean_bytes
    rng = numpy.random.default_rng([VERSION, index])
    angle = math.pi * (index % CLASSES + rng.uniform(-0.25, 0.25)) / CLASSES
    y, x = numpy.mgrid[0:160, 0:160].astype(numpy.float32)
    wave = numpy.sin(
        (x * math.cos(angle) + y * math.sin(angle)) * 2 * math.pi / rng.uniform(10, 18)
        + rng.uniform(0, 2 * math.pi)
    )
    colour = rng.uniform(25, 50, 3) * rng.choice([-1, 1])
    noise = rng.standard_normal((160, 160, 3), dtype=numpy.float32) * 40
    return _jpeg(_smooth(rng, 160, 160) + wave[..., None] * colour + noise, 92)


def blob(index: int, mean_bytes: int) -> bytes:
    """Random bytes, exactly as many as asked for: for readers that do not decode."""
    return numpy.random.default_rng([VERSION, index]).bytes(mean_bytes)


KINDS: dict[str, tuple[Maker, int, int]] = {
    # kind: maker, samples, mean bytes
    "photos": (photo, 3000, 113_000),
    "large": (large, 300, 400_000),
    "tiny": (tiny, 20_000, 3_000),
    "gratings": (grating, 2000, 0),
    "blobs": (blob, 64, 602_112),
    "pngs": (photo_png, 500, 113_000),
    "webps": (photo_webp, 500, 113_000),
}

#: The names' ending of those that are no JPEGs.
SUFFIXES = {"pngs": ".png", "webps": ".webp"}


#: Width and height of those that are decoded in benchmarks.
SIZES = {"photos": (500, 375), "large": (1600, 1200), "pngs": (500, 375), "webps": (500, 375)}


def _write(task: tuple[str, str, int, int]) -> int:
    kind, path, index, mean_bytes = task
    data = KINDS[kind][0](index, mean_bytes)
    with open(path, "wb") as file:
        file.write(data)
    return len(data)


def make(
    kind: str, directory: str, samples: int = 0, mean_bytes: int = 0, first: int = 0
) -> dict[str, object]:
    """Makes the dataset unless it is there, and returns its description.

    Args:
        kind: a key of KINDS.
        directory: where; a folder that this function made before is replaced if it is another
            dataset.
        samples: how many; 0: the kind's own.
        mean_bytes: bytes per sample; 0: the kind's own.
        first: the index of the first sample: datasets of one kind from disjoint indices share no
            sample.

    Raises:
        FileExistsError: the directory exists and was not made here.
    """
    samples = samples or KINDS[kind][1]
    mean_bytes = mean_bytes or KINDS[kind][2]
    wanted = {
        "kind": kind,
        "version": VERSION,
        "samples": samples,
        "mean_bytes": mean_bytes,
        "first": first,
    }
    note = directory.rstrip("/") + ".json"
    if os.path.exists(directory):
        try:
            with open(note, encoding="utf-8") as file:
                found = json.load(file)
        except FileNotFoundError:
            if os.listdir(directory):
                raise FileExistsError(
                    f"{directory} exists and was not made by make_dataset.py"
                ) from None
            found = {}
        if {key: found.get(key) for key in wanted} == wanted and "bytes" in found:
            return found
        shutil.rmtree(directory)
    os.makedirs(os.path.dirname(os.path.abspath(note)), exist_ok=True)
    with open(note, "w", encoding="utf-8") as file:  # without "bytes": not finished
        json.dump(wanted, file)
    tasks = []
    for number in range(CLASSES):
        os.makedirs(os.path.join(directory, f"class{number}"))
    for index in range(first, first + samples):
        path = os.path.join(
            directory, f"class{index % CLASSES}", f"{index:07d}{SUFFIXES.get(kind, '.jpg')}"
        )
        tasks.append((kind, path, index, mean_bytes))
    with multiprocessing.get_context("fork").Pool() as pool:
        total = 0
        for done, size in enumerate(pool.imap_unordered(_write, tasks, chunksize=32), 1):
            total += size
            if sys.stderr.isatty() and (done % 100 == 0 or done == samples):
                print(
                    f"\r{directory}: {done} of {samples}",
                    end="\n" if done == samples else "",
                    file=sys.stderr,
                )
    description = dict(wanted, bytes=total)
    with open(note, "w", encoding="utf-8") as file:
        json.dump(description, file)
    return description


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("kind", choices=sorted(KINDS))
    parser.add_argument("directory")
    parser.add_argument("--samples", type=int, default=0)
    parser.add_argument("--mean-bytes", type=int, default=0)
    args = parser.parse_args()
    print(json.dumps(make(args.kind, args.directory, args.samples, args.mean_bytes)))


if __name__ == "__main__":
    main()
