"""PIL's limit on an image's pixels, which programs change."""

import pytest

torch = pytest.importorskip("torch")
torchvision = pytest.importorskip("torchvision")
Image = pytest.importorskip("PIL.Image")

import hdmlp.data
import hdmlp.torch as ht
from hdmlp import errors
from hdmlp import transforms as T

V = torchvision.transforms
pytestmark = pytest.mark.usefixtures("real")

CROP = V.Compose([V.CenterCrop(16), V.ToTensor()])
OURS = [T.CenterCrop(16), T.ToTensor()]
#: A function after the crop, and one before it.
PARTLY = V.Compose([V.CenterCrop(16), lambda image: image, V.ToTensor()])
OWN = V.Compose([lambda image: image, V.CenterCrop(16), V.ToTensor()])


def folder(root, width, height):
    (root / "data" / "a").mkdir(parents=True)
    image = Image.new("1", (width, height))
    image.paste(1, (width // 2 - 5, height // 2 - 3, width // 2, height // 2 + 4))
    image.save(root / "data" / "a" / "0.png")
    return str(root / "data")


@pytest.mark.parametrize("transform", [CROP, OURS, PARTLY, OWN], ids=["V", "T", "partly", "own"])
@pytest.mark.parametrize("limit", [1499, 1500, 10**9, None])
def test_it_is_as_the_program_sets_it(tmp_path, monkeypatch, transform, limit):
    """An image of 3,000 pixels: refused above twice the limit, as torchvision does."""
    root = folder(tmp_path, 60, 50)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", limit)
    dataset = ht.ImageFolder(root, transform)
    with ht.DataLoader(dataset, 1, num_workers=0) as loader:
        if limit == 1499:
            with pytest.raises(Image.DecompressionBombError):
                torchvision.datasets.ImageFolder(root)[0]
            with pytest.raises(errors.SampleError, match=r"0\.png"):
                list(loader)
            return
        ((images, _),) = loader
        assert torch.equal(images[0], CROP(torchvision.datasets.ImageFolder(root)[0][0]))


def test_large_images(tmp_path, monkeypatch):
    """One of 182 million pixels, which PIL refuses unless its limit is lifted."""
    root = folder(tmp_path, 14000, 13000)
    with ht.DataLoader(ht.ImageFolder(root, CROP), 1) as loader:
        with pytest.raises(errors.SampleError) as caught:
            list(loader)
        assert "ImgDecode(max_pixels=182000000)" in str(caught.value)
        assert "PIL.Image.MAX_IMAGE_PIXELS" in str(caught.value)
    decode = [T.ImgDecode(max_pixels=182_000_000), *OURS]
    with ht.DataLoader(ht.ImageFolder(root, decode), 1) as loader:
        ((given, _),) = loader
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", None)
    with Image.open(f"{root}/a/0.png") as image:
        middle = image.crop((6992, 6492, 7008, 6508)).convert("RGB")
    for transform in (CROP, OURS):
        with ht.DataLoader(ht.ImageFolder(root, transform), 1) as loader:
            ((images, _),) = loader
        assert torch.equal(images[0], V.ToTensor()(middle))
    assert torch.equal(given, images)


def test_without_torch(tmp_path, monkeypatch):
    root = folder(tmp_path, 60, 50)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 1000)
    with hdmlp.data.DataLoader(root, 1, transforms=OURS) as loader:
        with pytest.raises(errors.SampleError, match="the limit is 2000"):
            list(loader)
    mine = [T.ImgDecode(max_pixels=3000), *OURS]
    with hdmlp.data.DataLoader(root, 1, transforms=mine) as loader:
        assert len(list(loader)) == 1
