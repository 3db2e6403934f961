"""PNGs and WebPs that the daemon keeps with their pixels, JPEGs among them, and all of these with
what the first transforms make of them: the same results as from files, files for who needs these,
and nothing read for it."""

import io
import pathlib
import shutil

import numpy
import pytest

torch = pytest.importorskip("torch")

import hdmlp.torch as ht
from hdmlp import data
from hdmlp import transforms as T
from PIL import Image
from reference import picture, read
from waiting import until

pytestmark = pytest.mark.usefixtures("real")

TRAIN = [T.RandomResizedCrop(48), T.RandomHorizontalFlip(), T.ToTensor()]
#: What is kept with its pixels: mode, format, and options.
KEPT = [
    ("RGB", "PNG", {}),
    ("RGB", "WEBP", {"quality": 80}),
    ("RGB", "WEBP", {"lossless": True}),
    ("RGBA", "PNG", {}),
    ("L", "PNG", {}),
    ("LA", "PNG", {}),
    ("P", "PNG", {}),
    ("I;16", "PNG", {}),
    ("RGBA", "WEBP", {"quality": 70}),
    ("1", "PNG", {}),
]
ROUNDS, JPEGS, PROGRESSIVE, OTHERS = 9, 12, 4, 6
MEMORY = "64MiB"


def image_of(rng, mode):
    """A picture with grain, without which files are too small for their pixels to be kept."""
    width, height = rng.integers(60, 120, 2).tolist()
    levels = numpy.asarray(picture(rng, width, height)) + rng.normal(0, 12, (height, width, 1))
    image = Image.fromarray(levels.clip(0, 255).astype(numpy.uint8))
    if mode == "I;16":
        return Image.fromarray(numpy.asarray(image.convert("L")).astype(numpy.uint16) * 3)
    if mode.endswith("A"):
        image.putalpha(image.convert("L"))
    return image.convert(mode)


def encoded(image, **options):
    file = io.BytesIO()
    image.save(file, **options)
    return file.getvalue()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """PNGs and WebPs of all kinds, turned ones among them, JPEGs, an animated PNG, and animated
    WebPs, which are left to Pillow and have no form."""
    root = tmp_path_factory.mktemp("images")
    rng = numpy.random.default_rng(5)
    number = 0

    def add(suffix, file):
        nonlocal number
        path = root / "ab"[number % 2] / f"{number:04d}.{suffix}"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(file)
        number += 1

    exif = Image.Exif()
    for i in range(ROUNDS):
        for mode, kind, options in KEPT:
            turned = {"exif": exif} if i % 3 == 1 and mode == "RGB" else {}
            exif[0x0112] = 1 + (i + number) % 8
            add(kind.lower(), encoded(image_of(rng, mode), format=kind, **options, **turned))
    for i in range(JPEGS):
        image = image_of(rng, "RGB")
        add("jpg", encoded(image, format="JPEG", quality=90, progressive=i < PROGRESSIVE))
    for kind in ["WEBP"] * OTHERS + ["PNG"]:
        frames = [image_of(rng, "RGB").resize((80, 70)) for _ in range(2)]
        file = encoded(frames[0], format=kind, save_all=True, append_images=frames[1:])
        add(kind.lower(), file)
    return str(root)


@pytest.fixture(scope="module")
def copied(folder, tmp_path_factory):
    """A copy of the folder with other names: of what is cached of the folder nothing suits it."""
    root = tmp_path_factory.mktemp("copy")
    for name in "ab":
        shutil.copytree(f"{folder}/{name}", root / f"copied-{name}")
    return str(root)


#: Of the folder: the animated one is kept with the pixels that Pillow shows.
FORMED = ROUNDS * len(KEPT) + JPEGS + 1


@pytest.fixture(autouse=True)
def lingers(monkeypatch):
    monkeypatch.setenv("HDMLP_LINGER", "60s")


def opened(folder, transforms=TRAIN, **options):
    options = {"memory": MEMORY, "shuffle": True, "seed": 3, "num_workers": 0} | options
    return ht.DataLoader(ht.ImageFolder(folder, transforms), 16, **options)


def epoch(loader):
    """The pixels and labels of an epoch, copied."""
    return [(x.clone(), y.clone()) for x, y in loader]


def same(got, want):
    return len(got) == len(want) and all(
        torch.equal(x, u) and torch.equal(y, v) for (x, y), (u, v) in zip(got, want)
    )


def forms(loader):
    return loader.report()["classes"][0].get("forms", {})


def converted(loader):
    """Waits until all that have forms are kept in these."""
    until(lambda: forms(loader).get("samples", 0) >= FORMED, "all samples are converted")
    assert forms(loader)["samples"] == FORMED


def source_bytes(loader):
    return loader.report()["source"]["bytes"]


def size_of(folder):
    return sum(path.stat().st_size for path in pathlib.Path(folder).rglob("*.*"))


@pytest.mark.parametrize(
    "transforms",
    [
        TRAIN,
        [T.ImgDecode("L"), T.Resize(50), T.RandomCrop(40), T.ToTensor()],
        [T.ImgDecode(orient=True), T.RandomResizedCrop(30), T.ToTensor()],
        [T.RandomCrop(40), T.RandomHorizontalFlip(), T.ColorJitter(0.4, 0.4), T.ToTensor()],
    ],
    ids=["train", "gray", "turned", "in place"],
)
def test_pixels_are_the_same(folder, transforms):
    """Over 8 epochs, in which none, some and all are kept with their pixels, of which the source is
    read once."""
    with opened(folder, transforms) as loader:
        got = [epoch(loader)]
        converted(loader)
        got += [epoch(loader) for _ in range(7)]
        assert source_bytes(loader) == size_of(folder)
        held = forms(loader)
        assert held["bytes"] > 2 * held["as_read_bytes"]
        assert not {"read_again", "damaged"} & held.keys()
        assert "or with their pixels" in loader.report()["sentence"]
    with opened(folder, transforms, forms="off") as files:
        assert all(same(epoch(files), x) for x in got)
        # The forms of progressive JPEGs do not give their files, which this job does not need.
        until(lambda: forms(files).get("samples", 0) <= PROGRESSIVE, "all others are files")
        assert source_bytes(files) == 0


VALIDATE = [T.Resize(50), T.CenterCrop(40), T.ToTensor(), T.Normalize([0.5] * 3, [0.2] * 3)]


def with_results(loader, size, coefficients=0):
    """Waits until all that have forms are kept with so many bytes of results, except so many that
    are kept as coefficients, of files of up to 9 KB."""
    least = (FORMED - coefficients) * (48 + size)

    def are():
        held = forms(loader)
        more = held.get("bytes", 0) - held.get("as_read_bytes", 0) - least
        return held.get("samples") == FORMED and 0 <= more <= coefficients * 4500

    until(are, "all samples are kept with results")


@pytest.mark.parametrize(
    "transforms, size",
    [
        (VALIDATE, 40 * 40 * 3),
        ([T.ImgDecode("L", orient=True), T.Resize(50), T.CenterCrop(40), T.ToTensor()], 40 * 40),
        ([T.CenterCrop(40), T.RandomHorizontalFlip(), T.ColorJitter(0.4), T.ToTensor()], 4800),
    ],
    ids=["validation", "gray and turned", "random after it"],
)
def test_results_of_the_first_transforms(folder, copied, transforms, size):
    """Of all images that have forms, progressive JPEGs among them; other jobs decode the files."""
    with opened(folder, transforms) as loader:
        got = [epoch(loader)]
        with_results(loader, size)
        got += [epoch(loader) for _ in range(5)]
        with opened(folder, TRAIN) as trains:
            trained = [epoch(trains) for _ in range(2)]
            until(lambda: forms(trains)["bytes"] > 2 * forms(trains)["as_read_bytes"], "pixels")
            got.append(epoch(loader))
        # The coefficients of progressive JPEGs do not give their files, of which results are made.
        with_results(loader, size, coefficients=PROGRESSIVE)
        got.append(epoch(loader))
        assert source_bytes(loader) == size_of(folder)
        assert not {"read_again", "damaged"} & forms(loader).keys()
    with opened(copied, transforms, forms="off") as files:
        assert all(same(epoch(files), x) for x in got)
    with opened(copied, TRAIN, forms="off") as files:
        assert all(same(epoch(files), x) for x in trained)


def test_files_are_copied_out_of_results(folder, copied):
    """For jobs that need these, also of progressive JPEGs."""
    with opened(copied, VALIDATE) as decodes:
        epoch(decodes)
        with_results(decodes, 40 * 40 * 3)
        with data.DataLoader(copied, 16, memory=MEMORY, shuffle=False, epochs=2) as raw:
            for _ in range(2):
                got = [bytes(x) for batch in raw for x in batch.samples]
                assert got == [read(path) for path in sorted(pathlib.Path(copied).rglob("*.*"))]
            until(lambda: forms(raw)["samples"] == 0, "all samples are files again")
            assert source_bytes(raw) == 0


@pytest.mark.parametrize("times", [0.5, 1, 2, 4])
def test_the_source_is_read_as_much_as_for_files(folder, copied, times):
    """With memory for a part of the dataset, or several times as much."""
    memory, read = int(times * size_of(folder)), []
    for path, options in ((folder, {"forms": "off"}), (copied, {})):
        with opened(path, memory=memory, epochs=8, **options) as loader:
            got = [epoch(loader)]
            if times > 1 and not options:
                until(lambda: forms(loader).get("samples", 0) > 0, "some are converted")
            got += [epoch(loader) for _ in range(7)]
            read.append((source_bytes(loader), got))
            assert times > 1 or forms(loader) == {}
    (files, want), (ours, got) = read
    assert all(same(x, y) for x, y in zip(got, want))
    if times < 1:  # what is read ahead, and not at all in the end, differs
        assert files > 4 * size_of(folder)
        assert ours < 1.1 * files
    else:
        assert ours == files == size_of(folder)


def test_a_job_that_needs_files_gets_them(folder):
    """From memory: nothing is read for it, but progressive JPEGs."""
    files = sorted(pathlib.Path(folder).rglob("*.*"))
    with opened(folder) as decodes:
        want = epoch(decodes)
        converted(decodes)
        with data.DataLoader(folder, 16, memory=MEMORY, shuffle=False, epochs=2) as raw:
            for _ in range(2):
                got = [bytes(x) for batch in raw for x in batch.samples]
                assert got == [read(path) for path in files]
            assert forms(raw)["paused"] is True
            until(lambda: forms(raw)["samples"] == 0, "all samples are files again")
            assert source_bytes(raw) == sum(
                path.stat().st_size for path in files if Image.open(path).info.get("progressive")
            )
        with opened(folder) as again:
            assert same(epoch(again), want)


@pytest.mark.parametrize("transforms", [TRAIN, VALIDATE], ids=["pixels", "results"])
def test_damaged_files_are_reported_as_without_forms(tmp_path, transforms):
    """In each epoch, in the same words, whether the others are kept with their pixels or not."""
    rng = numpy.random.default_rng(8)
    (tmp_path / "data" / "a").mkdir(parents=True)
    for i in range(24):
        kind = ("PNG", "WEBP")[i % 2]
        file = encoded(image_of(rng, "RGB"), format=kind)
        if i % 8 == 2:
            file = file[: len(file) * 2 // 3]
        elif i % 8 == 5:
            file = file[:-9]
        (tmp_path / "data" / "a" / f"{i:02d}.{kind.lower()}").write_bytes(file)
    said = []
    for forms_are in ("off", "auto"):
        options = {"forms": forms_are, "on_error": "skip", "name": forms_are}
        with opened(str(tmp_path / "data"), transforms, **options) as loader:
            for number in range(4):
                epoch(loader)
                if number == 1 and forms_are == "auto":
                    until(lambda: forms(loader).get("samples", 0) == 18, "all others are converted")
            faults = loader.report()["faults"]
            said.append(sorted((fault["sample"], fault["reason"]) for fault in faults))
    assert said[0] == said[1]
    assert {sample for sample, _ in said[0]} == {2, 5, 10, 13, 18, 21}
