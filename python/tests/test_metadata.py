"""PIL images that the daemon hands over say of themselves what torchvision's do: info and EXIF."""

import os

import pytest

torch = pytest.importorskip("torch")
torchvision = pytest.importorskip("torchvision")
PIL = pytest.importorskip("PIL")
import carriers
import hdmlp.torch as ht
from hdmlp import transforms as T
from PIL import ImageOps

V = torchvision.transforms
pytestmark = [
    pytest.mark.usefixtures("real"),
    pytest.mark.filterwarnings("ignore::UserWarning"),  # of PIL, about damaged EXIF
]

MAJOR = int(PIL.__version__.split(".")[0])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    root = tmp_path_factory.mktemp("carriers") / "data"
    (root / "one").mkdir(parents=True)
    for name, file in carriers.all_files().items():
        (root / "one" / name).write_bytes(file)
    return str(root)


def said(image):
    """What an image has beside its pixels, and these."""
    try:
        exif = dict(image.getexif())
    except Exception as error:
        exif = type(error)
    return exif, image.info, image.format, image.mode, image.size, image.tobytes()


def turned(image):
    """An image as its EXIF has it; the exception's class if that cannot be read."""
    try:
        image = ImageOps.exif_transpose(image)
    except Exception as error:
        return type(error)
    return image.mode, image.size, image.tobytes()


def items(folder, transform):
    """What the loader makes of each file, by name."""
    with ht.DataLoader(
        ht.ImageFolder(folder, transform), 16, num_workers=0, collate_fn=list
    ) as loader:
        made = [item for batch in loader for item, _ in batch]
        steps = [t["name"] for t in loader.report()["preprocessing"]["transforms"]]
    names = [os.path.basename(path) for path, _ in loader.dataset.samples]
    assert len(made) == len(names)
    return dict(zip(names, made)), steps


def wanted(folder, transform):
    """What torchvision makes of each file, by name."""
    dataset = torchvision.datasets.ImageFolder(folder, transform)
    return {os.path.basename(path): item for (path, _), (item, _) in zip(dataset.samples, dataset)}


def differences(got, folder, transform):
    return [name for name, item in wanted(folder, transform).items() if got[name] != item]


LISTS = {
    "nothing": [],
    "CenterCrop": [V.CenterCrop(20)],
    "CenterCrop, padded": [V.CenterCrop(36)],
    "Resize": [V.Resize(18)],
    "Resize, fixed": [V.Resize((20, 30))],
    "RandomCrop, not padded": [V.RandomCrop((28, 40), pad_if_needed=True)],
    "RandomCrop, padded": [V.RandomCrop((32, 44), padding=2)],
    "flip": [V.CenterCrop(16), V.RandomHorizontalFlip(1)],
    "Pad": [V.CenterCrop(16), V.Pad(2)],
    "brightness": [V.CenterCrop(16), V.ColorJitter(brightness=(0.5, 0.5))],
    "contrast": [V.CenterCrop(16), V.ColorJitter(contrast=(0.5, 0.5))],
    "saturation": [V.CenterCrop(16), V.ColorJitter(saturation=(0.5, 0.5))],
    "hue": [V.CenterCrop(16), V.ColorJitter(hue=(0.25, 0.25))],
    "gray": [V.CenterCrop(16), V.Grayscale(1)],
    "gray of three": [V.CenterCrop(16), V.Grayscale(3)],
}


@pytest.mark.parametrize("name", LISTS)
def test_images_say_what_torchvisions_do(folder, name):
    transform = V.Compose([*LISTS[name], V.Lambda(said)])
    got, steps = items(folder, transform)
    assert steps[-1] == "Ragged"
    assert differences(got, folder, transform) == []


@pytest.mark.parametrize("workers", [0, 2])
def test_images_of_hdmlps_transforms_say_it_as_well(folder, workers):
    """Where files are left to PIL, torchvision's transforms of the same names are applied."""
    want = wanted(folder, V.Compose([V.CenterCrop(20), V.Lambda(said)]))
    dataset = ht.ImageFolder(folder, [T.CenterCrop(20)])
    with ht.DataLoader(dataset, 16, num_workers=workers, collate_fn=all_said) as loader:
        made = [item for batch in loader for item in batch]
    wrong = [name for (name, item), got in zip(want.items(), made) if item != got]
    assert wrong == []


def all_said(items):
    return [said(image) for image, _ in items]


@pytest.mark.parametrize("name", LISTS)
def test_images_are_turned_as_torchvisions_are(folder, name):
    readable = V.Compose([*LISTS[name], V.Lambda(turned)])
    got, _ = items(folder, readable)
    assert differences(got, folder, readable) == []


@pytest.mark.parametrize(
    "ours, theirs",
    [(T.Resize((24, 20)), V.Resize((24, 20))), (T.CenterCrop(20), V.CenterCrop(20))],
)
def test_the_daemon_turns_images_as_pil_does(folder, ours, theirs):
    transform = [T.ImgDecode(orient=True), ours]
    with ht.DataLoader(ht.ImageFolder(folder, transform), 16, num_workers=0) as loader:
        made = [image.numpy().tobytes() for batch, _ in loader for image in batch]
    want = wanted(folder, V.Compose([V.Lambda(turned_if), theirs, V.Lambda(tobytes)]))
    wrong = [name for (name, item), image in zip(want.items(), made) if image != item]
    assert "; ".join(name for name in wrong if not later(name)) == ""


def tobytes(image):
    return image.tobytes()


def turned_if(image):
    """An image as its EXIF has it, or as it is if that cannot be read."""
    try:
        return ImageOps.exif_transpose(image)
    except SyntaxError:
        return image


#: Parts of the names of files that Pillow turned otherwise, or not at all, before release 13.
LATER = ["xmp", "two segments", "marked twice", "exif marked.png", "too long", "orientation twice"]


def later(name):
    """Reports whether only later releases of Pillow than this one read a carrier as we do."""
    return MAJOR < 13 and any(part in name for part in LATER)
