"""Conversions of tensors to other types, before and after Normalize, and their order in memory."""

import importlib.util

import numpy
import pytest

torch = pytest.importorskip("torch")
torchvision = pytest.importorskip("torchvision")

import hdmlp.torch as ht
from byhand import by_hand
from hdmlp import transforms as T
from PIL import Image
from torch.utils.data import DataLoader
from torchvision import transforms as V
from torchvision.datasets import ImageFolder

F32, F16, B16, U8 = torch.float32, torch.float16, torch.bfloat16, torch.uint8
NORM = V.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])
to = V.ConvertImageDtype


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """PNGs in which each channel has all levels; the widths are no multiples of vectors."""
    root = tmp_path_factory.mktemp("levels")
    rng = numpy.random.default_rng(3)
    for name in ("ant", "bee"):
        (root / name).mkdir()
        for i in range(3):
            levels = rng.permuted(numpy.tile(numpy.arange(45 * 35) % 256, (3, 1)), axis=1)
            image = levels.reshape(3, 45, 35).transpose(1, 2, 0).astype("uint8")
            Image.fromarray(image).save(root / name / f"{i}.png")
    return str(root)


SIZED = V.CenterCrop((45, 35))

#: Those that the daemon carries out.
NATIVE = {
    "v1": [V.ToTensor(), NORM],
    "v1 half at last": [V.ToTensor(), NORM, to(F16)],
    "v1 bfloat at last": [V.ToTensor(), NORM, to(B16)],
    "v1 half first": [V.ToTensor(), to(F16), NORM],
    "v1 bfloat first": [V.ToTensor(), to(B16), NORM],
    "v1 half and back": [V.ToTensor(), to(F16), NORM, to(F32)],
    "v1 half and bfloat": [V.ToTensor(), to(F16), NORM, to(F32), to(B16)],
    "v1 rounded": [V.ToTensor(), to(B16), to(F32)],
    "v1 of levels": [V.PILToTensor(), to(F32), NORM],
    "v1 half of levels": [V.PILToTensor(), to(F16), NORM],
    "v1 bfloat of levels": [V.PILToTensor(), to(B16)],
    "v1 levels again": [V.ToTensor(), to(U8)],
}
#: Those that Python carries out, because the tensor is rounded once more.
IN_PYTHON = {
    "v1 normalized, half and back": [V.ToTensor(), NORM, to(F16), to(F32)],
    "v1 half and back first": [V.ToTensor(), to(F16), to(F32), NORM],
    "v1 levels of halves": [V.ToTensor(), to(B16), to(U8)],
    "v1 three types": [V.ToTensor(), to(F16), to(B16), to(F16)],
}
if importlib.util.find_spec("torchvision.transforms.v2") is not None:
    from torchvision.transforms import v2

    if hasattr(v2, "ToImage"):
        NORM2 = v2.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])
        LEVELS = v2.Normalize([123.675, 116.28, 103.53], [58.395, 57.12, 57.375])
        NATIVE.update(
            {
                "v2": [v2.ToImage(), v2.ToDtype(F32, scale=True), NORM2],
                "v2 unnormalized": [v2.PILToTensor(), v2.ToDtype(F32, scale=True)],
                "v2 bfloat at last": [
                    v2.ToImage(),
                    v2.ToDtype(F32, scale=True),
                    NORM2,
                    v2.ToDtype(B16),
                ],
                "v2 half first": [v2.ToImage(), v2.ToDtype(F16, scale=True), NORM2],
                "v2 bfloat first": [v2.ToImage(), v2.ToDtype(B16, scale=True), NORM2],
                "v2 half between": [
                    v2.ToImage(),
                    v2.ToDtype(F32, scale=True),
                    v2.ToDtype(F16, scale=True),
                    NORM2,
                    v2.ToDtype(F32),
                ],
                "v2 unscaled": [v2.ToImage(), v2.ToDtype(F32), LEVELS],
                "v2 unscaled half": [v2.ToImage(), v2.ToDtype(F16), LEVELS],
                "v2 deprecated": [v2.PILToTensor(), v2.ConvertImageDtype(F32), NORM2],
                "v2 levels again": [
                    v2.ToImage(),
                    v2.ToDtype(F32, scale=True),
                    v2.ToDtype(U8, scale=True),
                ],
            }
        )
        IN_PYTHON.update(
            {
                "v2 cut levels": [v2.ToImage(), v2.ToDtype(F32, scale=True), v2.ToDtype(U8)],
                "v2 levels of levels": [
                    v2.ToImage(),
                    v2.ToDtype(F32),
                    v2.ToDtype(U8, scale=True),
                ],
            }
        )


@pytest.mark.parametrize("name", [*NATIVE, *IN_PYTHON])
def test_conversions_give_torchs_bits(real, folder, name):
    transform = V.Compose([SIZED, *(NATIVE.get(name) or IN_PYTHON[name])])
    want = list(DataLoader(ImageFolder(folder, transform), 4))
    with ht.DataLoader(ht.ImageFolder(folder, transform), 4, num_workers=0) as loader:
        got = list(loader)
        assert (loader._engine._made.recipe is None) == (name in NATIVE)
    for (images, labels), (x, y) in zip(got, want):
        assert images.dtype == x.dtype
        assert torch.equal(images, x)
        assert torch.equal(labels, y)


#: Lists with a part erased between conversions.
ERASED = {
    "half, at last": [V.ToTensor(), to(F16), NORM, V.RandomErasing(1, value=0.3)],
    "half, before": [V.ToTensor(), to(F16), V.RandomErasing(1, value=0.3), NORM],
    "half, and back after": [V.ToTensor(), to(F16), NORM, V.RandomErasing(1, value=0.3), to(F32)],
    "half, back before": [V.ToTensor(), to(F16), NORM, to(F32), V.RandomErasing(1, value=0.3)],
    "bfloat after": [V.ToTensor(), NORM, V.RandomErasing(1, value=0.3), to(B16)],
    "levels": [V.PILToTensor(), V.RandomErasing(1, value=7), to(B16), NORM],
    "rounded": [V.ToTensor(), V.RandomErasing(1, value=0.3), to(B16), to(F32)],
}


@pytest.mark.parametrize("name", ERASED)
def test_erased_parts_are_converted_from_there_on(real, folder, name):
    transform = V.Compose([SIZED, *ERASED[name]])
    plain = ImageFolder(folder)
    with ht.DataLoader(ht.ImageFolder(folder, transform), 2, shuffle=False, seed=3) as loader:
        assert loader._engine._made.recipe is None
        images = [image for batch, _ in loader for image in batch]
    assert len(images) == len(plain)
    for i, image in enumerate(images):
        assert torch.equal(image, by_hand(transform, plain[i][0], 3, 0, i))


@pytest.mark.parametrize("dtype", ["uint8", "float16", "bfloat16", "float32"])
@pytest.mark.parametrize("workers", [0, 1])
def test_batches_are_channels_last(real, folder, dtype, workers):
    """As torch's, to the bit, in the shape of all others; also of single samples."""
    both = [
        [T.CenterCrop((45, 35)), T.RandomHorizontalFlip(), T.ToTensor(dtype=dtype, **options)]
        for options in ({}, {"memory_format": torch.channels_last})
    ]
    plain, last = (
        list(ht.DataLoader(ht.ImageFolder(folder, t), 4, shuffle=True, seed=1)) for t in both
    )
    for (images, _), (x, _) in zip(last, plain):
        assert images.shape == x.shape
        assert images.is_contiguous(memory_format=torch.channels_last)
        assert torch.equal(images, x)
        images += 1  # it is writable
    with ht.DataLoader(
        ht.ImageFolder(folder, both[1]),
        4,
        shuffle=True,
        seed=1,
        collate_fn=list,
        num_workers=workers,
    ) as loader:
        for items, (x, _) in zip(loader, plain):
            assert all(torch.equal(image, y) for (image, _), y in zip(items, x))


def test_memory_formats_are_checked():
    assert T.ToTensor(memory_format=torch.contiguous_format) == T.ToTensor()
    assert "memory_format='channels_last'" in repr(T.ToTensor(memory_format="channels_last"))
    with pytest.raises(ValueError, match="Got 'NHWC'"):
        T.ToTensor(memory_format="NHWC")
    with pytest.raises(ValueError, match="is for the layout 'NCHW'"):
        T.ToTensor("NHWC", memory_format="channels_last")
