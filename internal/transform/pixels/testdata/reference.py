"""Writes what PIL and torchvision make of some images, for reference_test.go: DIR/cases.json and raw samples.

usage: reference.py DIR resize|pack
"""

import json
import random
import sys
from pathlib import Path

import numpy as np
import PIL
from PIL import Image

FILTERS = ["nearest", "box", "bilinear", "hamming", "bicubic", "lanczos"]
PIL_FILTERS = [
    Image.NEAREST,
    Image.BOX,
    Image.BILINEAR,
    Image.HAMMING,
    Image.BICUBIC,
    Image.LANCZOS,
]


def picture(rng, width, height, channels, kind):
    if kind == "noise":
        a = rng.integers(0, 256, (height, width, channels))
    elif kind == "extremes":  # overshoot of bicubic and lanczos
        a = rng.integers(0, 2, (height, width, channels)) * 255
    else:
        y, x = np.mgrid[0:height, 0:width]
        a = np.stack([(x * 3 + y * (c + 1)) // 2 % 256 for c in range(channels)], -1)
    return a.astype(np.uint8)


def resizes(out):
    rng, choose, cases = np.random.default_rng(7), random.Random(7), []
    sizes = [
        (1, 1),
        (2, 3),
        (5, 1),
        (17, 33),
        (64, 64),
        (100, 75),
        (500, 375),
        (333, 500),
        (257, 1),
        (1, 300),
    ]
    for n, (width, height) in enumerate(sizes * 9):
        channels = choose.choice([1, 3, 3])
        pixels = picture(rng, width, height, channels, choose.choice(["noise", "extremes", "ramp"]))
        image = Image.fromarray(pixels[:, :, 0] if channels == 1 else pixels)
        (out / f"{n}.src").write_bytes(pixels.tobytes())
        for f, name in enumerate(FILTERS):
            w, h = choose.choice(
                [
                    (224, 224),
                    (width, max(1, height // 2)),
                    (max(1, width // 3), height),
                    (width, height),
                    (256, 341),
                    (7, 5),
                    (1, 1),
                    (width * 2 + 1, height * 3),
                    (choose.randint(1, 300), choose.randint(1, 300)),
                ]
            )
            x, y = choose.randrange(w), choose.randrange(h)
            window = choose.choice(
                [(0, 0, w, h), (x, y, choose.randint(x + 1, w), choose.randint(y + 1, h))]
            )
            for order in range(2):
                made = resized(image, (w, h), PIL_FILTERS[f], order == 1).crop(window)
                (out / f"{n}.{f}.{order}").write_bytes(made.tobytes())
                cases.append(
                    dict(
                        Src=f"{n}.src",
                        W=width,
                        H=height,
                        Channels=channels,
                        Filter=f,
                        Order=order,
                        Width=w,
                        Height=h,
                        Window=window,
                        Out=f"{n}.{f}.{order}",
                    )
                )
    return cases


def resized(image, size, filter, as13):
    """What Pillow up to release 12, or from 13 on, makes; where it is not that which is installed, by two resizes of one axis each."""
    steep = as13 and image.height > size[1] and image.height - size[1] > 2 * (image.width - size[0])
    if filter == PIL_FILTERS[0] or as13 == (int(PIL.__version__.split(".")[0]) >= 13):
        return image.resize(size, filter)
    between = (image.width, size[1]) if steep else (size[0], image.height)
    return image.resize(between, filter).resize(size, filter)


def packs(out):
    import torch
    from torchvision import transforms

    rng, cases = np.random.default_rng(7), []
    means = [
        ([], []),
        ([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]),
        ([0.5], [0.5]),
        ([0.1, -3.0, 0.3], [0.7, 11.0, 1e-3]),
    ]
    for n, (width, height) in enumerate([(1, 1), (16, 2), (37, 5), (224, 3), (1100, 2)]):
        for channels in (1, 3):
            pixels = picture(rng, width, height, channels, "noise")
            name = f"{n}.{channels}.src"
            (out / name).write_bytes(pixels.tobytes())
            for m, (mean, std) in enumerate(means):
                if channels == 1 and len(mean) == 3:
                    continue
                tensor = transforms.ToTensor()(pixels)
                if mean:
                    tensor = transforms.Normalize(mean, std)(tensor)
                for kind, torch_type in enumerate(
                    [None, torch.float16, torch.bfloat16, torch.float32]
                ):
                    for flip in range(4):
                        if torch_type is None:
                            if mean:
                                continue
                            t = torch.from_numpy(pixels.transpose(2, 0, 1).copy())
                        else:
                            t = tensor.to(torch_type)
                        t = t.flip([d for bit, d in ((1, 2), (2, 1)) if flip & bit])
                        for last in (0, 1):
                            s = (t.permute(1, 2, 0) if last else t).contiguous()
                            path = f"{n}.{channels}.{m}.{kind}.{flip}.{last}"
                            raw = (
                                s.view(torch.int16).numpy() if s.element_size() == 2 else s.numpy()
                            )
                            (out / path).write_bytes(raw.tobytes())
                            cases.append(
                                dict(
                                    Src=name,
                                    W=width,
                                    H=height,
                                    Channels=channels,
                                    Type=kind,
                                    Layout=last,
                                    Flip=flip,
                                    Unit=torch_type is not None,
                                    Mean=mean,
                                    Std=std,
                                    Out=path,
                                )
                            )
    return cases


def main():
    out = Path(sys.argv[1])
    cases = {"resize": resizes, "pack": packs}[sys.argv[2]](out)
    (out / "cases.json").write_text(json.dumps(cases))


main()
