"""Images with masks that the daemon keeps in other forms: results are those without forms."""

import io

import numpy
import pytest

torch = pytest.importorskip("torch")
v2 = pytest.importorskip("torchvision.transforms.v2")
datasets = pytest.importorskip("datasets")

import hdmlp.torch as ht
import shards
from hdmlp import transforms as T
from PIL import Image
from reference import picture
from test_forms_records import epoch, forms, opened, same
from waiting import until

pytestmark = pytest.mark.usefixtures("real")

COUNT = 24
JOINT = v2.Compose([v2.RGB(), v2.RandomResizedCrop(48), v2.RandomHorizontalFlip(), v2.ToImage()])
#: Modes of masks, and whether their classes have edges alone, or change from pixel to pixel.
MASKS = [(mode, flat) for mode in ("P", "L", "1", "I;16", "P4") for flat in (True, False)]


@pytest.fixture(autouse=True)
def lingers(monkeypatch):
    monkeypatch.setenv("HDMLP_LINGER", "60s")


def encoded(image, kind, **options):
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def image_of(rng):
    """A picture with grain."""
    width, height = rng.integers(80, 140, 2).tolist()
    levels = numpy.asarray(picture(rng, width, height)) + rng.normal(0, 12, (height, width, 1))
    return Image.fromarray(levels.clip(0, 255).astype(numpy.uint8))


def mask_of(rng, size, mode, flat):
    """A mask of a mode of PIL's; P4: with a palette and 4 bits."""
    width, height = size
    if flat:
        rows, columns = numpy.mgrid[:height, :width]
        levels = ((rows // 40 + columns // 50) % 5).astype(numpy.uint8)
    else:
        levels = rng.integers(0, 16, (height, width), dtype=numpy.uint8)
    if mode == "1":
        return encoded(Image.fromarray(levels % 2 > 0), "PNG")
    if mode == "I;16":
        return encoded(Image.fromarray(levels.astype(numpy.uint16) * 4000), "PNG")
    if mode == "RGB":
        return encoded(Image.fromarray(numpy.stack([levels * 9] * 3, 2)), "PNG")
    image = Image.fromarray(levels)
    if mode.startswith("P"):
        image.putpalette([c for i in range(16) for c in (i * 15, 255 - i, i)])
    return encoded(image, "PNG", **({"bits": 4} if mode == "P4" else {}))


def pairs(kind, mode, flat):
    rng = numpy.random.default_rng(3)
    made = []
    for _ in range(COUNT):
        image = image_of(rng)
        made.append((encoded(image, kind), mask_of(rng, image.size, mode, flat)))
    return made


def listed(root, made, kind, **options):
    """Lists of files."""
    paths = []
    for i, (image, mask) in enumerate(made):
        paths.append((str(root / f"{i}.{kind.lower()}"), str(root / f"{i}_mask.png")))
        for path, file in zip(paths[-1], (image, mask)):
            with open(path, "wb") as out:
                out.write(file)
    return ht.Files(paths, **options)


def packed(root, made, kind):
    """A tar shard."""
    suffix = kind.lower()
    samples = [(f"{i:03d}", {suffix: a, "seg.png": b}) for i, (a, b) in enumerate(made)]
    shards.write(str(root / "000.tar"), samples)
    kinds = {suffix: "image", "seg.png": "mask"}
    return ht.WebDataset(str(root / "*.tar"), kinds=kinds, transform=JOINT)


def compare(dataset, most=COUNT):
    """Compares epochs with and without forms, of which so many are made."""
    with opened(dataset, forms="off") as loader:
        want = [epoch(loader) for _ in range(3)]
        read = loader.report()["source"]["bytes"]
        assert forms(loader) == {}
    with opened(dataset) as loader:
        assert same(epoch(loader), want[0])
        until(lambda: forms(loader).get("samples", 0) >= most, "all are converted")
        assert forms(loader)["samples"] == most
        for i in (1, 2):
            assert same(epoch(loader), want[i])
        assert loader.report()["source"]["bytes"] <= read
        assert not {"read_again", "damaged"} & forms(loader).keys()
        return forms(loader)


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP"])
@pytest.mark.parametrize("mode, flat", MASKS)
def test_lists_of_images_and_masks(tmp_path, kind, mode, flat):
    made = pairs(kind, mode, flat)
    dataset = listed(tmp_path, made, kind, kinds={"0": "image", "1": "mask"}, transform=JOINT)
    found = compare(dataset)
    pixels = sum(3 * w * h for w, h in (Image.open(io.BytesIO(a)).size for a, _ in made))
    masks = sum(len(b) for _, b in made)
    if kind != "JPEG":  # the images alone have pixels, and masks of grain in gray
        beside = found["bytes"] - sum(len(a) for a, _ in made) - masks - pixels
        gray = pixels / 3 if (mode, flat) == ("L", False) else 0
        assert gray <= beside < gray + 200 * COUNT


@pytest.mark.parametrize("kind", ["PNG", "JPEG"])
@pytest.mark.parametrize("mode, flat", MASKS[:4])
def test_shards_of_images_and_masks(tmp_path, kind, mode, flat):
    compare(packed(tmp_path, pairs(kind, mode, flat), kind))


@pytest.mark.parametrize("mode", ["P", "L", "RGB"])
def test_masks_as_files(tmp_path, mode):
    """They are delivered as they are, beside images that the daemon transforms."""
    train = [T.RandomResizedCrop(64), T.RandomHorizontalFlip(), T.ToTensor()]
    made = pairs("PNG", mode, False)
    dataset = listed(tmp_path, made, "PNG", loader={"1": bytes}, transform={"0": train})
    compare(dataset)
    with opened(dataset, shuffle=False, batch_size=1) as loader:
        until(lambda: forms(loader).get("samples", 0) >= COUNT, "all are forms")
        assert [batch[1][0] for batch in loader] == [mask for _, mask in made]


def test_masks_with_colours_are_the_same_error(tmp_path):
    """One of them, in a dataset whose other masks have a palette."""
    made = pairs("PNG", "P", True)
    size = Image.open(io.BytesIO(made[5][0])).size
    made[5] = made[5][0], mask_of(numpy.random.default_rng(1), size, "RGB", False)
    dataset = listed(tmp_path, made, "PNG", kinds={"0": "image", "1": "mask"}, transform=JOINT)

    def faults(loader):
        """But for how often: batches are made ahead."""
        return [{**fault, "count": 0} for fault in loader.report()["faults"]]

    with opened(dataset, forms="off", on_error="skip") as loader:
        assert sum(len(batch[0]) for batch in epoch(loader)) == COUNT - 1
        want = faults(loader)
        assert [fault["sample"] for fault in want] == [5]
    with opened(dataset, on_error="skip") as first:
        epoch(first)
        # The one with the error may have been needed as read before.
        until(lambda: forms(first).get("converted", 0) >= COUNT - 1, "the others are converted")
        with opened(dataset, on_error="skip") as loader:  # which has not seen the error
            assert sum(len(batch[0]) for batch in epoch(loader)) == COUNT - 1
            assert faults(loader) == want
