"""Answers, line by line, what PIL and torchvision make of an image, for conformance_test.go.

A request is a JSON object on a line of stdin:

    {"image": {"seed": 1, "width": 500, "height": 375, "mode": "RGB", "save": {"format": "JPEG", "quality": 90}}}
        makes an image; the answer is the file
    {"file": "/tmp/x", "steps": [{"name": "RandomCrop", "args": {"size": 224}, "drawn": [["top", 3], ["left", 5]]}, ...]}
        applies transforms, with what was drawn instead of what torchvision would draw

    {"numbers": {"key": "12345"}}
        numbers that torch, random and numpy draw after they are seeded with the key, as float64
    {"normal": {"key": "12345", "sizes": [3, 40]}}
        that many normal numbers of torch, and a uniform one after each, as float64
    {"parts": {"keys": ["1", ...], "width": 500, "height": 375, "scale": [0.08, 1], "ratio": [0.75, 1.33], "timm": false}}
        what RandomResizedCrop draws with each key; the answer is top, left, height, width of each, as float64
    {"draw": {"n": 1000, "width": 500, "height": 375, "scale": [0.08, 1], "ratio": [0.75, 1.33]}}
        draws RandomResizedCrop's parameters; the answer is n times top, left, height, width, as float64

An answer is a JSON object on a line ({"bytes": n, "shape": [...], "dtype": "...", "error": null}), and n bytes.
"""

import io
import json
import math
import random
import sys
import warnings

import numpy as np
import torch
import torchvision.transforms as T
import torchvision.transforms.functional as F
from PIL import Image, ImageFilter, ImageOps
from torchvision.transforms import InterpolationMode

warnings.simplefilter("ignore")


def make(seed, width, height, mode, save):
    """An image with smooth parts, edges, texture and all colours."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[0:height, 0:width].astype(np.float64)
    planes = []
    for _ in range(4 if mode == "CMYK" else 3):
        f = rng.uniform(0.5, 9, 4)
        p = (
            127
            + 70 * np.sin(x / max(width, 2) * f[0] * 6 + f[1])
            + 55 * np.cos(y / max(height, 2) * f[2] * 6 + f[3])
        )
        for _ in range(6):
            cx, cy, r = (
                rng.uniform(0, width),
                rng.uniform(0, height),
                rng.uniform(1, 1 + min(width, height) / 3),
            )
            p[(x - cx) ** 2 + (y - cy) ** 2 < r * r] = rng.uniform(0, 255)
        planes.append(p + rng.normal(0, 6, p.shape))
    a = np.clip(np.dstack(planes), 0, 255).astype(np.uint8)
    img = Image.fromarray(a[:, :, 0], "L") if mode == "L" else Image.fromarray(a, mode)
    out = io.BytesIO()
    save = dict(save)
    orientation = save.pop("orientation", None)
    if orientation:
        exif = Image.Exif()
        exif[0x0112] = orientation
        save["exif"] = exif
    img.save(out, **save)
    return out.getvalue()


#: Transforms that draw themselves, from generators seeded with the step's key.
SEEDED = [
    "RandAugment",
    "TrivialAugmentWide",
    "AutoAugment",
    "RandomRotation",
    "RandomAffine",
    "GaussianBlur",
    "RandomInvert",
    "RandomPosterize",
    "RandomSolarize",
    "RandomAdjustSharpness",
    "RandomAutocontrast",
    "RandomEqualize",
    "RandomGrayscale",
    "RandomApply",
    "RandomOrder",
    "RandomChoice",
    "RandomErasing",
]


def built(name, args):
    """torchvision's transform, with those within it."""
    args = dict(args)
    if isinstance(args.get("interpolation"), str):
        args["interpolation"] = InterpolationMode(args["interpolation"])
    if "policy" in args:
        args["policy"] = T.AutoAugmentPolicy(args["policy"])
    if name == "RandomPosterize" or name == "GaussianBlur" or name.endswith("Augment"):
        args = {
            k: int(v) if isinstance(v, float) and k != "sigma" and k != "p" else v
            for k, v in args.items()
        }
        if isinstance(args.get("kernel_size"), list):
            args["kernel_size"] = [int(k) for k in args["kernel_size"]]
    if name == "TrivialAugmentWide" and "num_magnitude_bins" in args:
        args["num_magnitude_bins"] = int(args["num_magnitude_bins"])
    if "transforms" in args:
        args["transforms"] = [inner(t) for t in args["transforms"]]
    return getattr(T, name)(**args)


def inner(t):
    if isinstance(t, list):
        return T.Compose([inner(one) for one in t])
    t = dict(t)
    name = t.pop("name")
    if name in ("CenterCrop", "RandomCrop", "RandomRotation") and isinstance(t.get("size"), float):
        t["size"] = int(t["size"])
    return built(name, t)


def transform(name, args, drawn, key):
    """The function from image to image that torchvision has for a step."""
    if name in SEEDED:
        t = built(name, args)

        def seeded(img):
            torch.manual_seed(int(key))
            random.seed(int(key))
            hwc = torch.is_tensor(img) and img.shape[-1] in (1, 3)
            img = t(img.permute(2, 0, 1) if hwc else img)
            return img.permute(1, 2, 0) if hwc else img

        return seeded
    args = dict(args)
    values = dict(map(tuple, drawn or []))
    if isinstance(args.get("interpolation"), list):  # as in timm: one is drawn
        args["interpolation"] = args["interpolation"][int(values["interpolation"])]
    if "interpolation" in args:
        args["interpolation"] = InterpolationMode(args["interpolation"])
    if name == "RandomHorizontalFlip":
        return F.hflip if values["flip"] else lambda img: img
    if name == "RandomVerticalFlip":
        return F.vflip if values["flip"] else lambda img: img
    if name == "ToTensor":
        if args.get("dtype") == "uint8":
            make = T.PILToTensor()
        else:
            make = T.ToTensor()
        return (lambda img: make(img).permute(1, 2, 0)) if args.get("layout") == "NHWC" else make
    if name == "ConvertImageDtype":
        return T.ConvertImageDtype(getattr(torch, args["dtype"]))
    t = getattr(T, name)(**args)
    if name == "RandomResizedCrop":
        t.get_params = lambda img, scale, ratio: [
            int(values[k]) for k in ("top", "left", "height", "width")
        ]
    elif name == "RandomCrop":
        if drawn:
            t.get_params = lambda img, size: (int(values["top"]), int(values["left"]), *size)
    elif name == "ColorJitter":
        names = ["brightness", "contrast", "saturation", "hue"]
        order = [names.index(k) for k, _ in drawn or []]
        t.get_params = lambda *a: (order, *(values.get(k) for k in names))
    return t


def apply(file, steps):
    decode = steps[0]["args"]
    img = Image.open(file)
    if decode.get("orient"):
        img = ImageOps.exif_transpose(img)
    img = img.convert(decode.get("mode", "RGB"))
    for s in steps[1:]:
        img = transform(s["name"], s["args"], s["drawn"], s["key"])(img)
    if isinstance(img, Image.Image):
        a = np.asarray(img)
        return a if a.ndim == 3 else a[:, :, None]
    img = img.contiguous()
    return (img.view(torch.int16) if img.dtype == torch.bfloat16 else img).numpy()


def draw(n, width, height, scale, ratio):
    """n times what RandomResizedCrop draws for an image of that size."""
    torch.manual_seed(1)
    img = Image.new("L", (width, height))
    return np.array(
        [T.RandomResizedCrop.get_params(img, scale, ratio) for _ in range(n)], np.float64
    )


def numbers(key):
    torch.manual_seed(int(key))
    random.seed(int(key))
    np.random.seed(int(key) >> 32)
    out = []
    for _ in range(5):
        out += [torch.rand(1).item(), torch.empty(1).uniform_(0.08, 1).item()]
        out += [torch.empty(1).uniform_(-0.2876821, 0.2876821).item()]
        out += [torch.randint(0, 1000, size=(1,)).item()]
    out += torch.randperm(4).tolist()
    for _ in range(300):
        out += [random.random(), random.uniform(0.08, 1), random.randint(5, 5) - 5]
        out += [random.choice(range(7)), random.randint(0, 1 << 20), random.gauss(3, 0.5)]
        out += [random.choices(range(7))[0], random.choices(range(3), [1, 2, 0.5])[0]]
        out += [*np.random.choice(7, 1), np.random.randint(15), np.random.randint(1)]
    order = list(range(9))
    random.shuffle(order)
    return np.array(out + order, np.float64)


def normal(key, sizes):
    torch.manual_seed(int(key))
    out = []
    for n in sizes:
        out += [*torch.empty(n).normal_().tolist(), torch.rand(1).item()]
    return np.array(out, np.float64)


def parts(keys, width, height, scale, ratio, timm):
    img = Image.new("L", (width, height))
    out = []
    for key in map(int, keys):
        torch.manual_seed(key)
        random.seed(key)
        if timm:
            out.append(timms_part(width, height, scale, ratio))
        else:
            out.append(T.RandomResizedCrop.get_params(img, scale, ratio))
    return np.array(out, np.float64)


def timms_part(width, height, scale, ratio):
    """What timm's RandomResizedCropAndInterpolation draws; python/tests compares with timm."""
    for _ in range(10):
        area = random.uniform(*scale) * (width * height)
        aspect = math.exp(random.uniform(math.log(ratio[0]), math.log(ratio[1])))
        w, h = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
        if 0 < w <= width and 0 < h <= height:
            top = random.randint(0, height - h)
            return top, random.randint(0, width - w), h, w
    w, h = width, height
    if width / height < ratio[0]:
        h = round(w / ratio[0])
    elif width / height > ratio[1]:
        w = round(h * ratio[1])
    return (height - h) // 2, (width - w) // 2, h, w


for line in sys.stdin:
    request = json.loads(line)
    try:
        if "image" in request:
            answer, about = make(**request["image"]), {}
        elif "numbers" in request:
            answer, about = numbers(**request["numbers"]).tobytes(), {}
        elif "normal" in request:
            answer, about = normal(**request["normal"]).tobytes(), {}
        elif "parts" in request:
            answer, about = parts(**request["parts"]).tobytes(), {}
        elif "draw" in request:
            answer, about = draw(**request["draw"]).tobytes(), {}
        else:
            a = apply(request["file"], request["steps"])
            answer, about = a.tobytes(), {"shape": a.shape, "dtype": str(a.dtype)}
        about["error"] = None
    except Exception as e:
        answer, about = b"", {"error": f"{type(e).__name__}: {e}"}
    about["bytes"] = len(answer)
    sys.stdout.buffer.write(json.dumps(about).encode() + b"\n" + answer)
    sys.stdout.buffer.flush()
