"""Images that the daemon keeps in other forms and that are fields: of lists of files, tar shards
and Hugging Face's tables."""

import io
import json
import pathlib

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
from waiting import until

pytestmark = pytest.mark.usefixtures("real")

TRAIN = [T.RandomResizedCrop(64), T.RandomHorizontalFlip(), T.ToTensor()]
BASELINE, PROGRESSIVE, PNGS, OTHERS = 40, 8, 8, 6
ALL = BASELINE + PROGRESSIVE + PNGS + OTHERS
FORMED = ALL - OTHERS


def file_of(rng, number):
    """JPEGs, progressive ones among them, PNGs, and JPEGs of CMYK, which have no form."""
    image = picture(rng, *rng.integers(100, 200, 2).tolist())
    levels = numpy.asarray(image) + rng.normal(0, 12, (image.height, image.width, 1))
    image = Image.fromarray(levels.clip(0, 255).astype(numpy.uint8))
    made = io.BytesIO()
    if number < PNGS:
        image.save(made, "PNG")
    elif number < PNGS + OTHERS:
        image.convert("CMYK").save(made, "JPEG")
    else:
        progressive = number < PNGS + OTHERS + PROGRESSIVE
        image.save(made, "JPEG", quality=85, progressive=progressive)
    return made.getvalue()


@pytest.fixture(scope="module")
def files():
    rng = numpy.random.default_rng(11)
    return [file_of(rng, i) for i in range(ALL)]


@pytest.fixture(autouse=True)
def lingers(monkeypatch):
    monkeypatch.setenv("HDMLP_LINGER", "60s")


def listed(root, files):
    """Files and a label of each."""
    paths = []
    for i, file in enumerate(files):
        paths.append(str(root / f"{i:03d}.jpg"))
        (root / f"{i:03d}.jpg").write_bytes(file)
    return ht.Files(paths, [i % 7 for i in range(ALL)], transform=TRAIN)


def paths_in(root):
    """Two images of each sample, and a text."""
    return [[str(root / f"{i:03d}.{kind}") for kind in ("jpg", "jpeg", "txt")] for i in range(ALL)]


def paired(root, files):
    """Two images, with transforms of their own, and a text."""
    for i, paths in enumerate(paths_in(root)):
        for path, file in zip(paths, (files[i], files[-1 - i], b"text %d" % i * 300)):
            pathlib.Path(path).write_bytes(file)
    return ht.Files(paths_in(root), loader={"2": len}, transform={"0": TRAIN, "1": SMALL})


SMALL = [T.Resize((40, 50)), T.ToTensor()]


def packed(root, files):
    """A tar shard with images and larger texts."""
    text = json.dumps({"text": "words " * 400}).encode()
    samples = [(f"{i:03d}", {"jpg": f, "json": text}) for i, f in enumerate(files)]
    shards.write(str(root / "000.tar"), samples[: ALL // 2])
    shards.write(str(root / "001.tar"), samples[ALL // 2 :])
    return ht.WebDataset(str(root / "*.tar"), transform={"jpg": TRAIN})


def table(root, files):
    """A table of Hugging Face's, no name of which says what its images are."""
    features = datasets.Features({"image": datasets.Image(), "label": datasets.Value("int64")})
    rows = {"image": [{"bytes": f, "path": None} for f in files], "label": list(range(ALL))}
    datasets.Dataset.from_dict(rows, features=features).save_to_disk(str(root / "table"))
    loaded = datasets.load_from_disk(str(root / "table"))
    return ht.HFDataset(loaded, transform={"image": [T.Grayscale(3), *TRAIN]})


def masked(root, files):
    """Images, and masks of the same size that are cropped with them."""
    pairs = []
    for i, file in enumerate(files):
        image = Image.open(io.BytesIO(file))
        (root / f"{i:03d}.jpg").write_bytes(file)
        levels = numpy.random.default_rng(i).integers(0, 5, (image.height, image.width), "u1")
        Image.fromarray(levels).save(root / f"{i:03d}.png")
        pairs.append((str(root / f"{i:03d}.jpg"), str(root / f"{i:03d}.png")))
    joint = v2.Compose(
        [v2.RGB(), v2.RandomResizedCrop(48), v2.RandomHorizontalFlip(), v2.ToImage()]
    )
    return ht.Files(pairs, kinds={"0": "image", "1": "mask"}, transform=joint)


def epoch(loader):
    """The batches of an epoch, copied."""
    made = []
    for batch in loader:
        parts = batch.values() if isinstance(batch, dict) else batch
        made.append(
            [p.clone() if isinstance(p, torch.Tensor) else list(map(kept, p)) for p in parts]
        )
    return made


def kept(value):
    return bytes(value) if isinstance(value, (memoryview, bytearray)) else value


def same(got, want):
    return len(got) == len(want) and all(
        torch.equal(x, y) if isinstance(x, torch.Tensor) else x == y
        for a, b in zip(got, want)
        for x, y in zip(a, b, strict=True)
    )


def forms(loader):
    return loader.report()["classes"][0].get("forms", {})


def opened(dataset, **options):
    options = {"memory": "64MiB", "shuffle": True, "seed": 3, "num_workers": 0} | options
    return ht.DataLoader(dataset, **{"batch_size": 16} | options)


@pytest.mark.parametrize("make", [listed, paired, packed, table, masked])
def test_fields_are_the_same(tmp_path, files, make):
    """Before and after they are converted, and nothing is read again for it."""
    dataset = make(tmp_path, files)
    with opened(dataset, forms="off") as loader:
        want = [epoch(loader) for _ in range(4)]
        read = loader.report()["source"]["bytes"]
        assert forms(loader) == {}
    # Of pairs only those of two images without a form stay as they are.
    most = ALL if make is paired else FORMED
    with opened(dataset) as loader:
        assert same(epoch(loader), want[0])
        until(lambda: forms(loader).get("samples", 0) >= most, "all are converted")
        assert forms(loader)["samples"] == most
        for i in (1, 2, 3):
            assert same(epoch(loader), want[i])
        assert loader.report()["source"]["bytes"] <= read
        assert not {"read_again", "damaged"} & forms(loader).keys()


@pytest.mark.parametrize("make", [paired, packed])
def test_a_job_that_needs_the_fields_as_read(tmp_path, files, make):
    """Gets them, beside one that decodes; those with progressive JPEGs are read again, once."""
    dataset = make(tmp_path, files)
    with opened(dataset) as decodes:
        want = epoch(decodes)
        until(lambda: forms(decodes).get("samples", 0) >= FORMED, "all are converted")
        if make is packed:
            raw = ht.WebDataset(str(tmp_path / "*.tar"))
        else:
            raw = ht.Files(paths_in(tmp_path), loader=dict.fromkeys("012", bytes))
        with opened(raw, shuffle=False, batch_size=1) as loader:
            for i, batch in enumerate(loader):
                if make is packed:
                    assert bytes(batch["jpg"][0]) == files[i]
                else:
                    assert [batch[0][0], batch[1][0]] == [files[i], files[-1 - i]]
            until(lambda: forms(loader)["samples"] == 0, "all are as read")
        with opened(dataset) as again:
            assert same(epoch(again), want)
