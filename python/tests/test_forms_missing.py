"""Images that the daemon only decodes, for transforms in Python, from other forms: of datasets of
which some samples lack the image, and of any others."""

import io

import numpy
import pytest

torch = pytest.importorskip("torch")
v2 = pytest.importorskip("torchvision.transforms.v2")
datasets = pytest.importorskip("datasets")

import hdmlp.torch as ht
import shards
from PIL import Image, PngImagePlugin
from reference import picture
from test_forms_records import forms, opened
from waiting import until

pytestmark = pytest.mark.usefixtures("real")

COUNT = 24
LACKING = 5
TRAIN = v2.Compose([v2.RandomResizedCrop(48), v2.RandomHorizontalFlip(), v2.PILToTensor()])


@pytest.fixture(autouse=True)
def lingers(monkeypatch):
    monkeypatch.setenv("HDMLP_LINGER", "60s")


def encoded(image, kind="JPEG", **options):
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def image_of(rng, width, height):
    levels = numpy.asarray(picture(rng, width, height)) + rng.normal(0, 12, (height, width, 1))
    return Image.fromarray(levels.clip(0, 255).astype(numpy.uint8))


@pytest.fixture(scope="module")
def files():
    """Baseline and progressive JPEGs."""
    rng = numpy.random.default_rng(11)
    images = [image_of(rng, *rng.integers(100, 200, 2).tolist()) for _ in range(COUNT)]
    return [encoded(x, quality=85, progressive=i % 4 == 0) for i, x in enumerate(images)]


def listed(root, files):
    paths = []
    for i, file in enumerate(files):
        (root / f"{i}.jpg").write_bytes(file)
        (root / f"{i}.txt").write_text(f"text {i}" * 300)
        paths.append((None if i == LACKING else str(root / f"{i}.jpg"), str(root / f"{i}.txt")))
    return ht.Files(paths, transform={"0": TRAIN})


def packed(root, files):
    samples = [(f"{i:03d}", {"jpg": f, "cls": b"%d" % i}) for i, f in enumerate(files)]
    del samples[LACKING][1]["jpg"]
    shards.write(str(root / "000.tar"), samples)
    return ht.WebDataset(str(root / "*.tar"), missing=None, transform={"jpg": TRAIN})


def table(root, files):
    features = datasets.Features({"image": datasets.Image(), "label": datasets.Value("int64")})
    images = [None if i == LACKING else {"bytes": f, "path": None} for i, f in enumerate(files)]
    rows = {"image": images, "label": list(range(COUNT))}
    datasets.Dataset.from_dict(rows, features=features).save_to_disk(str(root / "table"))
    loaded = datasets.load_from_disk(str(root / "table"))
    return ht.HFDataset(loaded, transform={"image": TRAIN})


def plain(value):
    """Tensors and images as their bytes."""
    if isinstance(value, torch.Tensor):
        return value.dtype, tuple(value.shape), value.numpy().tobytes()
    if isinstance(value, dict):
        return {name: plain(part) for name, part in value.items()}
    if isinstance(value, (memoryview, bytearray)):
        return bytes(value)
    return [plain(part) for part in value] if isinstance(value, (list, tuple)) else value


def epoch(loader):
    return [plain(batch) for batch in loader]


def compare(dataset, most, **options):
    """Compares epochs with and without forms, of which so many are made."""
    with opened(dataset, forms="off", **options) as loader:
        want = [epoch(loader) for _ in range(4)]
        read = loader.report()["source"]["bytes"]
    with opened(dataset, **options) as loader:
        assert epoch(loader) == want[0]
        until(lambda: forms(loader).get("converted", 0) >= most, "all are converted")
        assert forms(loader)["converted"] == most
        for i in (1, 2, 3):
            assert epoch(loader) == want[i]
        assert loader.report()["source"]["bytes"] <= read
        return forms(loader)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("make", [listed, packed, table])
def test_one_sample_lacks_the_image(tmp_path, files, make, workers):
    """All others have forms."""
    found = compare(make(tmp_path, files), COUNT - 1, num_workers=workers)
    assert found["samples"] == COUNT - 1
    assert not {"read_again", "damaged", "restored"} & found.keys()


def test_images_of_transforms_in_python(tmp_path):
    """They have what their files say; those that come encoded stay files once they were needed."""
    rng = numpy.random.default_rng(2)
    exif, turned = Image.Exif(), Image.Exif()
    exif[0x010E], turned[0x0112] = "described", 6
    text = PngImagePlugin.PngInfo()
    text.add_text("key", "value")
    image = image_of(rng, 150, 110)
    made = {
        "plain.jpg": encoded(image),
        "comment.jpg": encoded(image, comment=b"words", quality=90),
        "exif.jpg": encoded(image, exif=exif, icc_profile=b"profile" * 90),
        "progressive.jpg": encoded(image, progressive=True, exif=exif, dpi=(90, 80)),
        "gray.jpg": encoded(image.convert("L")),
        "turned.jpg": encoded(image, exif=turned),
        "text.png": encoded(image, "PNG", pnginfo=text),
        "alpha.png": encoded(image.convert("LA"), "PNG"),
        "exif.webp": encoded(image, "WEBP", exif=exif),
        "large.jpg": encoded(image_of(rng, 1800, 1600), quality=95),  # comes encoded
    }
    (tmp_path / "data" / "a").mkdir(parents=True)
    for name, file in made.items():
        (tmp_path / "data" / "a" / name).write_bytes(file)

    def described(image):
        info = {name: plain(value) for name, value in sorted(image.info.items())}
        return image.mode, image.size, image.tobytes(), str(info)

    dataset = ht.ImageFolder(str(tmp_path / "data"), described)
    found = compare(dataset, len(made), batch_size=3, collate_fn=list)
    assert found["samples"] == len(made) - 1
    assert found["restored"] == 1
