"""Random images with masks and boxes, and what torchvision makes of them."""

import io
import json

import hdmlp.torch as ht
import numpy
import torch
from byhand import flat
from PIL import Image
from reference import decoded, picture

#: The kinds of the fields of a triple.
KINDS = {"jpg": "image", "png": "mask", "json": "boxes"}

FORMATS = ("XYXY", "XYWH", "CXCYWH")


def mask(rng, width, height, depth):
    """A random mask: gray or with a palette (8), of 16 bits, or of one."""
    coarse = rng.integers(0, 2 if depth == 1 else 1 << depth, (height // 4 + 1, width // 5 + 1))
    whole = coarse.repeat(4, 0).repeat(5, 1)[:height, :width]
    if depth == 16:
        return Image.fromarray(whole.astype(numpy.uint16))
    if depth == 1:
        return Image.fromarray((whole * 255).astype(numpy.uint8)).convert("1")
    kind = rng.integers(3)
    if kind == 0:
        return Image.fromarray(whole.astype(numpy.uint8))
    made = Image.fromarray((whole % (16 if kind == 1 else 256)).astype(numpy.uint8), "P")
    made.putpalette(rng.integers(0, 256, 768).tolist())
    return made


def boxes(rng, width, height, form=None):
    """Random boxes in a random format, up to the edges of the image, as a field has them."""
    n = int(rng.integers(0, 7))
    corners = numpy.sort(rng.random((n, 2, 2)) * [width, height], axis=1).reshape(n, 4)
    if n > 2:
        corners[0] = [0, 0, width, height]
        corners[1] = corners[1].round()
    form = FORMATS[rng.integers(3)] if form is None else form
    if form != "XYXY":
        corners[:, 2:] -= corners[:, :2]
    if form == "CXCYWH":
        corners[:, :2] += corners[:, 2:] / 2
    labels = rng.integers(0, 90, n).tolist()
    return {"boxes": corners.tolist(), "labels": labels, "format": form}


def write(root, count, depth=8, seed=0, edges=(30, 130), others=True):
    """Writes triples, and returns their paths by field, as Files takes them.

    Some images are BMPs, which the daemon leaves to Pillow, if others.
    """
    rng = numpy.random.default_rng(seed)
    paths = []
    for i in range(count):
        width, height = rng.integers(*edges, 2).tolist()
        image = picture(rng, width, height)
        kind = i % 20 if others else 1 + i % 19
        suffix = "bmp" if kind == 0 else "png" if kind % 3 == 0 else "jpg"
        if kind == 6:
            image = image.convert("L")
        image.save(root / f"{i:04d}.{suffix}", quality=90)
        of = mask(rng, width, height, depth)
        bits = {"bits": 4} if of.mode == "P" and numpy.asarray(of).max() < 16 else {}
        of.save(root / f"{i:04d}_mask.png", **bits)
        (root / f"{i:04d}.json").write_text(json.dumps(boxes(rng, width, height)))
        paths.append(
            {
                "jpg": str(root / f"{i:04d}.{suffix}"),
                "png": str(root / f"{i:04d}_mask.png"),
                "json": str(root / f"{i:04d}.json"),
            }
        )
    return paths


def sample_of(paths):
    """A triple as v2 takes it: an image and a dict."""
    from torchvision import tv_tensors

    image = decoded(paths["jpg"])
    target = {}
    if "png" in paths:
        target["png"] = tv_tensors.Mask(Image.open(paths["png"]))
    if "json" in paths:
        with open(paths["json"]) as file:
            given = json.load(file)
        target["boxes"] = tv_tensors.BoundingBoxes(
            torch.tensor(given["boxes"], dtype=torch.float32).reshape(-1, 4),
            format=given["format"],
            canvas_size=(image.height, image.width),
        )
        target["labels"] = torch.tensor(given["labels"], dtype=torch.int64)
    return image, target


def of_v2(transform, paths, seed, epoch, index):
    """What v2 makes of a triple, with the random numbers that a loader draws for it."""
    image, target = sample_of(paths)
    for position, step in enumerate(flat(transform)):
        with ht.seeded(seed, epoch, index, 0, position):
            # torchvision takes a mask of one channel for that of the only box.
            sanitizes = type(step).__name__ == "SanitizeBoundingBoxes"
            kept = {"png": target.pop("png")} if sanitizes and "png" in target else {}
            image, target = step(image, target)
            target.update(kept)
    return image, target


def png_bytes(image):
    """An image as a PNG."""
    file = io.BytesIO()
    image.save(file, "png")
    return file.getvalue()
