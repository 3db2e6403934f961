"""Applies PIL's and torchvision's operations for operations_test.go.

A request is a line of JSON and the pixels of an image:

    {"width": 5, "height": 4, "mode": "RGB", "operations": [["solarize", 128], ...]}

The answer has a line of JSON for each operation, with the pixels of its result or an error:

    {"width": 5, "height": 4, "mode": "RGB"}
    {"error": "bits must be between or equal to 1 and 8"}
"""

import json
import sys
import time

import numpy
import torch
import torchvision
from PIL import Image, ImageEnhance, ImageFilter, ImageOps
from torchvision.transforms import functional

try:
    from torchvision.transforms.v2 import functional as functional_v2
except ImportError:  # before torchvision 0.15
    functional_v2 = None

FILTERS = {"nearest": Image.NEAREST, "bilinear": Image.BILINEAR, "bicubic": Image.BICUBIC}


def solarize_add(img, add, threshold):
    """timm.data.auto_augment.solarize_add."""
    table = [min(255, i + add) if i < threshold else i for i in range(256)]
    return img.point(table * len(img.getbands()))


def transform(method):
    def apply(img, width, height, matrix, resample, fill):
        fill = tuple(fill) if img.mode == "RGB" else fill[0]
        return img.transform((width, height), method, matrix, FILTERS[resample], fillcolor=fill)

    return apply


def rotate(img, angle, resample, expand, center, fill):
    fill = tuple(fill) if img.mode == "RGB" else fill[0]
    center = tuple(center) if center else None
    return img.rotate(angle, FILTERS[resample], expand, center, fillcolor=fill)


def blur(img, x, y):
    return img.filter(ImageFilter.GaussianBlur(x if x == y else (x, y)))


def convolve_v2(img, size, sigma):
    if functional_v2 is None:
        raise ValueError("this torchvision has no transforms.v2")
    return functional_v2.gaussian_blur(img, size, sigma)


def mirror(img, flip):
    methods = {1: Image.FLIP_LEFT_RIGHT, 2: Image.FLIP_TOP_BOTTOM, 3: Image.ROTATE_180}
    return img.transpose(methods[flip])


def erase(img, left, top, right, bottom, colour):
    img = img.copy()
    img.paste(tuple(colour) if img.mode == "RGB" else colour[0], (left, top, right, bottom))
    return img


def paste(img, left, top):
    out = img.copy()
    out.paste(img, (left, top))
    return out


OPERATIONS = {
    "invert": ImageOps.invert,
    "posterize": ImageOps.posterize,
    "solarize": ImageOps.solarize,
    "solarize_add": solarize_add,
    "brightness": lambda img, factor: ImageEnhance.Brightness(img).enhance(factor),
    "contrast": lambda img, factor: ImageEnhance.Contrast(img).enhance(factor),
    "color": lambda img, factor: ImageEnhance.Color(img).enhance(factor),
    "sharpness": lambda img, factor: ImageEnhance.Sharpness(img).enhance(factor),
    "hue": functional.adjust_hue,
    "autocontrast": ImageOps.autocontrast,
    "equalize": ImageOps.equalize,
    "grayscale": functional.to_grayscale,
    "affine": transform(Image.AFFINE),
    "perspective": transform(Image.PERSPECTIVE),
    "rotate": rotate,
    "blur": blur,
    "convolve": functional.gaussian_blur,
    "convolve_v2": convolve_v2,
    "mirror": mirror,
    "erase": erase,
    "paste": paste,
}


def timings(img, operations):
    """Yields the microseconds that each operation takes at best."""
    for name, *arguments in operations:
        best = float("inf")
        end = time.perf_counter() + 0.3
        while time.perf_counter() < end:
            start = time.perf_counter()
            OPERATIONS[name](img, *arguments)
            best = min(best, time.perf_counter() - start)
        yield {"microseconds": best * 1e6}


def results(img, operations):
    for name, *arguments in operations:
        try:
            out = OPERATIONS[name](img, *arguments)
        except Exception as e:
            yield {"error": str(e) or type(e).__name__}, b""
            continue
        yield {"width": out.width, "height": out.height, "mode": out.mode}, out.tobytes()


def main():
    torch.set_num_threads(1)
    versions = {"pillow": Image.__version__, "torchvision": torchvision.__version__}
    sys.stdout.buffer.write(json.dumps(versions).encode() + b"\n")
    sys.stdout.buffer.flush()
    for line in sys.stdin.buffer:
        request = json.loads(line)
        width, height, mode = request["width"], request["height"], request["mode"]
        pixels = sys.stdin.buffer.read(width * height * len(mode))
        shape = (height, width, 3) if mode == "RGB" else (height, width)
        img = Image.fromarray(numpy.frombuffer(pixels, "uint8").reshape(shape))
        if request.get("time"):
            for answer in timings(img, request["operations"]):
                sys.stdout.buffer.write(json.dumps(answer).encode() + b"\n")
        else:
            for answer, data in results(img, request["operations"]):
                sys.stdout.buffer.write(json.dumps(answer).encode() + b"\n" + data)
        sys.stdout.buffer.flush()


main()
