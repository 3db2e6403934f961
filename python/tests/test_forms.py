"""JPEGs that the daemon keeps as coefficients: the same pixels, and files for who needs these."""

import io
import itertools
import pathlib
import struct

import numpy
import pytest

torch = pytest.importorskip("torch")

import hdmlp.torch as ht
from hdmlp import data, errors
from hdmlp import transforms as T
from PIL import Image
from reference import picture, read
from waiting import until

pytestmark = pytest.mark.usefixtures("real")

TRAIN = [T.RandomResizedCrop(64), T.RandomHorizontalFlip(), T.ToTensor()]
BASELINE, PROGRESSIVE, OTHERS = 150, 30, 20
MEMORY = "64MiB"


def grain(rng, image):
    """The image with noise, without which forms of small JPEGs are more than 1.5 times as large."""
    levels = numpy.asarray(image) + rng.normal(0, 12, (image.height, image.width, 1))
    return Image.fromarray(levels.clip(0, 255).astype(numpy.uint8))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """JPEGs of all samplings, baseline and progressive, and some that have no form: of CMYK."""
    root = tmp_path_factory.mktemp("images")
    rng = numpy.random.default_rng(5)
    for i in range(BASELINE + PROGRESSIVE + OTHERS):
        path = root / "ab"[i % 2] / f"{i:04d}.jpg"
        path.parent.mkdir(exist_ok=True)
        image = grain(rng, picture(rng, *rng.integers(100, 300, 2).tolist()))
        if i >= BASELINE + PROGRESSIVE:
            image.convert("CMYK").save(path)
            continue
        if i % 7 == 0:
            image = image.convert("L")
        image.save(
            path,
            quality=int(rng.integers(60, 96)),
            subsampling=i % 3,
            progressive=i >= BASELINE,
            restart_marker_blocks=8 if i % 5 == 0 else 0,
        )
    return str(root)


@pytest.fixture(autouse=True)
def lingers(monkeypatch):
    monkeypatch.setenv("HDMLP_LINGER", "60s")


def opened(folder, **options):
    options = {"memory": MEMORY, "shuffle": True, "seed": 3, "num_workers": 0} | options
    return ht.DataLoader(ht.ImageFolder(folder, TRAIN), 16, **options)


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
    """Waits until all JPEGs are kept as coefficients."""
    most = BASELINE + PROGRESSIVE
    until(lambda: forms(loader).get("samples", 0) >= most, "all samples are converted")
    assert forms(loader)["samples"] == most


def source_bytes(loader):
    return loader.report()["source"]["bytes"]


def progressive(files):
    """The bytes of the progressive ones."""
    return sum(path.stat().st_size for path in files if Image.open(path).info.get("progressive"))


def test_pixels_are_the_same(folder):
    """Over epochs in which none, some and all samples are coefficients, after a restart of the job,
    and when it resumes within an epoch; and nothing is read again for it."""
    with opened(folder, forms="off") as loader:
        want = [epoch(loader) for _ in range(4)]
        read = source_bytes(loader)
        assert forms(loader) == {}
    with opened(folder) as loader:
        assert same(epoch(loader), want[0])
        converted(loader)
        assert same(epoch(loader), want[1])
        batches = iter(loader)
        first = [(x.clone(), y.clone()) for x, y in (next(batches) for _ in range(5))]
        state = loader.state_dict()
        assert source_bytes(loader) <= read
        held = forms(loader)
        assert held["as_read_bytes"] < held["bytes"] < 1.5 * held["as_read_bytes"]
        assert held["converted"] == held["samples"]
        assert not {"read_again", "damaged"} & held.keys()
        assert "as coefficients" in loader.report()["sentence"]
        del batches
    with opened(folder) as loader:  # over what the job before has left
        loader.load_state_dict(state)
        assert same(first + epoch(loader), want[2])
        assert same(epoch(loader), want[3])
        assert forms(loader)["samples"] == BASELINE + PROGRESSIVE
        assert source_bytes(loader) == 0


def trained(folder, stop=None, **options):
    """The weights after training a small network for four epochs, the second of which is left and
    gone on with after so many batches."""
    torch.manual_seed(1)
    network = torch.nn.Sequential(
        torch.nn.Conv2d(3, 4, 5, 2),
        torch.nn.ReLU(),
        torch.nn.AdaptiveAvgPool2d(2),
        torch.nn.Flatten(),
        torch.nn.Linear(16, 2),
    )
    optimizer = torch.optim.SGD(network.parameters(), 0.1, momentum=0.9)

    def train(batches):
        for x, y in batches:
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(network(x), y).backward()
            optimizer.step()

    loader, state = opened(folder, **options), None
    with loader:
        train(loader)
        if "forms" not in options:
            converted(loader)
        batches = iter(loader)
        train(itertools.islice(batches, stop))
        if stop is not None:
            state = loader.state_dict()
        else:
            train(loader)
            train(loader)
        del batches
    if state is not None:
        with opened(folder, **options) as loader:
            loader.load_state_dict(state)
            for _ in range(3):
                train(loader)
    return torch.cat([weights.detach().flatten() for weights in network.parameters()])


def test_training_is_the_same(folder):
    """To the last bit, by threads, and over a restart."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        want = trained(folder, forms="off")
        assert torch.equal(trained(folder, transform_threads=1), want)
        assert torch.equal(trained(folder, transform_threads=2), want)
        assert torch.equal(trained(folder, stop=5), want)
        assert torch.equal(trained(folder, stop=5, forms="off"), want)
    finally:
        torch.set_num_threads(before)


def test_files_that_pillow_decodes_are_read_once(tmp_path):
    """Progressive ones, whose form would not give the file: they have none."""
    V = pytest.importorskip("torchvision.transforms")
    rng = numpy.random.default_rng(7)
    entry = struct.pack(">HHHI", 1, 0x011A, 2, 2) + b"a\0\0\0"  # a resolution of one letter
    exif = b"Exif\0\0MM\0*\0\0\0\x08" + entry + bytes(4)
    root = tmp_path / "data"
    (root / "a").mkdir(parents=True)
    for i in range(48):
        made = io.BytesIO()
        grain(rng, picture(rng, 120, 100)).save(made, "JPEG", progressive=True)
        file = made.getvalue()
        if i % 2:
            file = b"\xff\xd8\xff\xe1" + struct.pack(">H", len(exif) + 2) + exif + file[2:]
        (root / "a" / f"{i}.jpg").write_bytes(file)
    dataset = ht.ImageFolder(str(root), V.Compose([V.RandomResizedCrop(64), V.ToTensor()]))

    def all_are_converted():
        epoch(loader)  # what was read for a job before is confirmed when it is needed
        return forms(loader).get("samples", 0) >= 24

    with ht.DataLoader(dataset, 8, shuffle=True, memory=MEMORY) as loader:
        until(all_are_converted, "all others are converted")
        for _ in range(3):
            assert len(epoch(loader)) == 6
        assert forms(loader)["samples"] == 24
        assert "read_again" not in forms(loader)
        size = sum(path.stat().st_size for path in (root / "a").iterdir())
        assert source_bytes(loader) == size


def test_a_job_that_needs_files_gets_them(folder):
    """Beside one that decodes. Progressive files are read again, once."""
    files = sorted(pathlib.Path(folder).rglob("*.jpg"))
    with opened(folder) as decodes:
        want = epoch(decodes)
        converted(decodes)
        with data.DataLoader(folder, 16, memory=MEMORY, shuffle=False, epochs=2) as raw:
            for _ in range(2):
                got = [bytes(x) for batch in raw for x in batch.samples]
                assert got == [read(path) for path in files]
            held = forms(raw)
            assert held["paused"] is True
            assert held["read_again"] == PROGRESSIVE
            until(lambda: forms(raw)["samples"] == 0, "all samples are files again")
            assert source_bytes(raw) == progressive(files)
        with opened(folder) as again:
            assert same(epoch(again), want)


@pytest.mark.parametrize("options", [{}, {"forms": "off"}])
def test_a_later_job_gets_what_it_needs(folder, options):
    """Of the memory that the job before has left, in which coefficients take more than files."""
    files = sorted(pathlib.Path(folder).rglob("*.jpg"))
    with opened(folder) as decodes:
        want = epoch(decodes)
        converted(decodes)
    if options:
        with opened(folder, **options) as loader:
            assert same(epoch(loader), want)
            assert source_bytes(loader) == 0
        return
    with data.DataLoader(folder, 16, memory=MEMORY, shuffle=False) as raw:
        want = [read(path) for path in files]

        def reads():
            before = source_bytes(raw)
            assert [bytes(x) for batch in raw for x in batch.samples] == want
            return source_bytes(raw) - before

        reads()
        # What is read ahead finds no room for the progressive ones until the others are files.
        assert source_bytes(raw) >= progressive(files)
        until(lambda: forms(raw).get("samples", 0) == 0, "all samples are files")
        until(lambda: reads() + reads() == 0, "all files are kept")
        assert forms(raw)["read_again"] == PROGRESSIVE


def test_verify_compares_files(folder):
    with opened(folder) as decodes, opened(folder, verify=True, name="verifies") as loader:
        want = epoch(decodes)
        assert same(epoch(loader), want)
        until(lambda: forms(loader).get("samples", 0) == 0, "all samples are files")


def test_images_that_python_gets_are_files(folder):
    """Transforms in Python get images as PIL opens them, with what their files say."""
    with opened(folder) as decodes:
        epoch(decodes)
        converted(decodes)
        dataset = ht.ImageFolder(folder, lambda image: torch.tensor(image.size))
        with ht.DataLoader(dataset, 16, memory=MEMORY, shuffle=False) as loader:
            sizes = [tuple(x) for batch, _ in loader for x in batch.tolist()]
    files = sorted(pathlib.Path(folder).rglob("*.jpg"))
    assert sizes == [Image.open(path).size for path in files]


def test_little_memory_keeps_files(folder):
    """Without room beside the samples, none is converted, and none is given up."""
    size = sum(path.stat().st_size for path in pathlib.Path(folder).rglob("*.jpg"))
    with opened(folder, memory=size) as loader:
        epoch(loader)
        before = source_bytes(loader)
        epoch(loader)
        assert forms(loader) == {}
        assert source_bytes(loader) == before


def test_wrong_values(folder):
    with pytest.raises(errors.ConfigError, match="forms"):
        opened(folder, forms="maybe")
