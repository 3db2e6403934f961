"""The daemon decodes before transforms that it does not know: images of different sizes, as PIL
makes them."""

import random

import pytest

torch = pytest.importorskip("torch")
torchvision = pytest.importorskip("torchvision")
numpy = pytest.importorskip("numpy")
Image = pytest.importorskip("PIL.Image")
ImageOps = pytest.importorskip("PIL.ImageOps")

import hdmlp.torch as ht
from byhand import by_hand
from elsewhere import elastic
from hdmlp import errors
from hdmlp import transforms as T
from reference import decoded, jpegs, picture, read

V = torchvision.transforms
pytestmark = pytest.mark.usefixtures("real", "spawns_preloaded")

SEED = 3


def turned(image):
    """Rotates by the EXIF orientation."""
    return ImageOps.exif_transpose(image)


def by_size(image):
    """A function that draws random numbers and depends on the size."""
    # No assertion: pytest would have it use objects of its own, and workers would not be started.
    return image.rotate(random.randrange(360)).crop(
        (1, 2, image.width // 2 + 1, image.height // 2 + 2)
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Images of various sizes, modes and formats, among them some that the daemon leaves to PIL:
    BMP, GIF, rotated by EXIF, and large ones."""
    root = tmp_path_factory.mktemp("mixed") / "data"
    rng = numpy.random.default_rng(1)
    exif = Image.Exif()
    exif[0x0112] = 6
    kinds = [
        ("a.jpg", "RGB", {"quality": 80}),
        ("b.jpg", "L", {}),
        ("c.jpg", "CMYK", {}),
        ("d.jpg", "RGB", {"progressive": True, "subsampling": 0}),
        ("e.jpg", "RGB", {"exif": exif}),
        ("f.png", "RGB", {}),
        ("g.png", "L", {}),
        ("h.png", "P", {}),
        ("i.png", "RGBA", {}),
        ("j.webp", "RGB", {"lossless": True}),
        ("k.webp", "RGB", {"quality": 70}),
        ("l.bmp", "RGB", {}),
        ("m.jpg", "GIF", {"format": "GIF"}),
    ]
    for name in ("ant", "bee"):
        (root / name).mkdir(parents=True)
        for file, mode, how in kinds:
            width, height = rng.integers(40, 90, 2).tolist()
            image = picture(rng, width, height)
            image = image.convert("P" if mode == "GIF" else mode)
            image.save(root / name / file, **how)
    Image.radial_gradient("L").resize((1900, 1500)).save(root / "ant" / "z.jpg")  # 8.5 MB as RGB
    return str(root)


def made(folder, transform, epoch=0, seed=SEED):
    """What torchvision makes of all images, by sample, with the generators seeded as HDMLP
    documents."""
    out = []
    for i, (path, _) in enumerate(torchvision.datasets.ImageFolder(folder).samples):
        out.append(by_hand(transform, decoded(path), seed, epoch, i))
    return out


def equal(got, want):
    return (
        torch.equal(got, want)
        if isinstance(want, torch.Tensor)
        else (got.mode, got.size, got.tobytes()) == (want.mode, want.size, want.tobytes())
    )


LISTS = {
    "RandomApply": (
        [
            V.RandomApply([V.ColorJitter(0.4, 0.4, 0.4, 0.1), by_size], 0.5),
            V.RandomResizedCrop(32),
            V.ToTensor(),
        ],
        ["Ragged"],
    ),
    "ElasticTransform": ([elastic(), V.Resize((24, 32)), V.ToTensor()], ["Ragged"]),
    "RandomRotation, a function": (
        [
            V.RandomRotation(20, expand=True),
            V.RandomEqualize(),
            by_size,
            V.Resize((24, 32)),
            V.ToTensor(),
        ],
        ["RandomRotation", "RandomEqualize", "Ragged"],
    ),
    "a function": ([by_size, V.CenterCrop(24), V.ToTensor()], ["Ragged"]),
    "Resize, a function": (
        [V.Resize(36), by_size, V.CenterCrop(24), V.ToTensor()],
        ["Resize", "Ragged"],
    ),
    "Pad, flip, Grayscale, a function": (
        [
            V.Pad(3, 7),
            V.RandomVerticalFlip(1),
            V.Grayscale(1),
            by_size,
            V.CenterCrop(24),
            V.ToTensor(),
        ],
        ["Pad", "RandomVerticalFlip", "Grayscale", "Ragged"],
    ),
    "turned by EXIF": (
        [V.Resize(30), turned, V.CenterCrop(40), V.ToTensor()],
        ["Resize", "Ragged"],
    ),
    "a tensor at once": (
        [V.ToTensor(), elastic(), V.Resize((20, 20), antialias=True)],
        ["Ragged"],
    ),
}


@pytest.mark.parametrize(
    "name, workers",
    [*((name, 0) for name in LISTS), ("RandomRotation, a function", 2), ("a tensor at once", 2)],
)
def test_images_are_pils_to_the_bit(folder, name, workers):
    transform, native = LISTS[name]
    transform = V.Compose(transform)
    samples = torchvision.datasets.ImageFolder(folder).samples
    with ht.DataLoader(
        ht.ImageFolder(folder, transform), 5, shuffle=True, seed=SEED, num_workers=workers
    ) as loader:
        for epoch in range(2):
            want, seen = made(folder, transform, epoch), []
            for step, (images, labels) in enumerate(loader):
                ids = loader.explain(epoch, step).ids
                assert labels.tolist() == [samples[i][1] for i in ids]
                assert all(torch.equal(x, want[i]) for x, i in zip(images, ids))
                seen += ids
            assert sorted(seen) == list(range(len(samples)))
        preprocessing = loader.report()["preprocessing"]
        assert [t["name"] for t in preprocessing["transforms"]] == [
            "ImgDecode",
            *native,
        ]
        assert preprocessing["samples"] >= 2 * len(samples)


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"num_workers": 0}, id="here"),
        pytest.param(
            {"num_workers": 1, "multiprocessing_context": "spawn"},
            id="spawned",
            marks=pytest.mark.slow,
        ),
        pytest.param({"num_workers": 0, "staging_buffer": "64KiB"}, id="a small buffer"),
    ],
)
def test_kept_images_are_never_overwritten(folder, options):
    """A user's collate function keeps plain images, whose memory must not be reused."""
    want = made(folder, lambda image: image)
    with ht.DataLoader(
        ht.ImageFolder(folder), 4, shuffle=False, raw=False, collate_fn=list, **options
    ) as loader:
        assert [t["name"] for t in loader._opened()._session.transforms] == ["Ragged"]
        for _ in range(3):
            kept = [image for batch in loader for image, _ in batch]
            assert len(kept) == len(want)
            assert all(map(equal, kept, want))


def test_orders_drawn_by_samplers_are_served(folder):
    transform = V.Compose([V.Resize(30), turned, V.CenterCrop(24), V.ToTensor()])
    theirs = torch.utils.data.DataLoader(
        torchvision.datasets.ImageFolder(folder, transform),
        4,
        shuffle=True,
        generator=torch.Generator().manual_seed(5),
    )
    with ht.DataLoader(
        ht.ImageFolder(folder, transform),
        4,
        shuffle=True,
        generator=torch.Generator().manual_seed(5),
    ) as ours:
        for _ in range(2):
            for (x, y), (u, v) in zip(theirs, ours):
                assert torch.equal(x, u)
                assert torch.equal(y, v)


@pytest.mark.parametrize("workers", [0, 1])
def test_resuming_gives_the_same_images(folder, workers):
    transform = V.Compose(LISTS["Resize, a function"][0])

    def loader():
        return ht.DataLoader(
            ht.ImageFolder(folder, transform), 4, shuffle=True, seed=SEED, num_workers=workers
        )

    with loader() as first:
        batches = list(first)
        iterator = iter(first)
        later = [next(iterator) for _ in range(3)]
        state = first.state_dict()
        later += list(iterator)
    assert len(batches) == len(later) > 4
    with loader() as second:
        second.load_state_dict(state)
        rest = list(second)
    assert len(rest) == len(later) - 3
    assert all(torch.equal(x, u) and torch.equal(y, v) for (x, y), (u, v) in zip(rest, later[3:]))


@pytest.mark.parametrize("workers", [0, 2])
def test_damaged_images_are_named_or_left_out(tmp_path, workers):
    rng = numpy.random.default_rng(2)
    (tmp_path / "data" / "a").mkdir(parents=True)
    for i in range(12):
        picture(rng, 50 + i, 60 - i).save(tmp_path / "data" / "a" / f"{i:02d}.jpg")
    bad = [3, 4, 9]
    for i in bad:
        path = tmp_path / "data" / "a" / f"{i:02d}.jpg"
        path.write_bytes(read(path)[: 300 + i])
    root, transform = str(tmp_path / "data"), V.Compose([by_size, V.CenterCrop(20), V.ToTensor()])
    dataset = ht.ImageFolder(root, transform)
    kept = [i for i in range(12) if i not in bad]
    images = {}
    for i in kept:
        images[i] = by_hand(transform, decoded(root + f"/a/{i:02d}.jpg"), SEED, 0, i)
    for policy, want in (("skip", kept), ("substitute", [0, 1, 2, 5, 5, 5, 6, 7, 8, 10, 10, 11])):
        with ht.DataLoader(
            dataset,
            4,
            sampler=torch.utils.data.DistributedSampler(range(12), 1, 0, shuffle=False, seed=SEED),
            on_error=policy,
            num_workers=workers,
        ) as loader:
            got = [x for batch, _ in loader for x in batch]
            assert [f["sample"] for f in loader.report()["faults"]] == bad
        assert len(got) == len(want)
        assert all(torch.equal(x, images[i]) for x, i in zip(got, want))
    with ht.DataLoader(dataset, 4, shuffle=False, num_workers=workers) as loader:
        with pytest.raises(errors.SampleError) as caught:
            list(loader)
    assert caught.value.sample == 3


@pytest.mark.parametrize("workers", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_damaged_images_that_are_left_to_pil_obey_on_error(tmp_path, workers):
    """A format that the daemon does not decode."""
    (tmp_path / "data" / "a").mkdir(parents=True)
    image = picture(numpy.random.default_rng(3), 30, 40)
    for i in range(4):
        image.save(tmp_path / "data" / "a" / f"{i}.bmp")
    (tmp_path / "data" / "a" / "1.bmp").write_bytes(b"BM" + bytes(50))
    dataset = ht.ImageFolder(tmp_path / "data", V.Compose([by_size, V.CenterCrop(9), V.ToTensor()]))
    for policy, want in (("skip", [1, 2]), ("substitute", [2, 2])):
        with ht.DataLoader(dataset, 2, on_error=policy, num_workers=workers) as loader:
            assert [len(labels) for _, labels in loader] == want
            assert [f["sample"] for f in loader.report()["faults"]] == [1]
    with (
        ht.DataLoader(dataset, 2, num_workers=workers) as loader,
        pytest.raises(
            errors.SampleError, match=r"1\.bmp.*cannot be decoded and transformed in Python"
        ),
    ):
        list(loader)


def test_a_fixed_size_is_preferred(folder):
    for transform, native in (
        ([V.RandomResizedCrop(20), V.ToTensor(), abs], ["RandomResizedCrop", "ToTensor"]),
        ([V.Resize(30), V.CenterCrop(20), abs], ["Resize", "CenterCrop", "Ragged"]),
    ):
        with ht.DataLoader(
            ht.ImageFolder(folder, transform), 4, shuffle=False, num_workers=0
        ) as loader:
            assert [t["name"] for t in loader._opened()._session.transforms] == native


def test_hdmlps_transforms_after_unknown_ones_are_refused(folder):
    for transform, says in (
        (
            [by_size, T.CenterCrop(3)],
            "CenterCrop.*cannot run in Python after.*: use torchvision.transforms.CenterCrop there",
        ),
        (
            [T.Resize(30), by_size],
            "Resize.*cannot run in Python before.*use torchvision.transforms.Resize there",
        ),
        (
            [V.Resize(30), T.RandomHorizontalFlip(), by_size],
            "RandomHorizontalFlip.*use torchvision.transforms.RandomHorizontalFlip",
        ),
    ):
        with pytest.raises(errors.ConfigError, match=says):
            ht.DataLoader(ht.ImageFolder(folder, transform), 4)


def test_missing_workers_are_warned_of_once(folder, caplog, monkeypatch):
    monkeypatch.setattr("hdmlp._launch.processors.processors", lambda: 2)
    caplog.set_level("WARNING", "hdmlp")

    def said():
        messages = [r.getMessage() for r in caplog.records if "worker processes" in r.getMessage()]
        caplog.clear()
        return messages

    dataset = ht.ImageFolder(folder, LISTS["a function"][0])
    with ht.DataLoader(dataset, 4, shuffle=True, seed=1, multiprocessing_context="fork") as loader:
        assert loader.num_workers == 2
        for _ in range(2):
            list(loader)
        [message] = said()
        assert "2 worker processes" in message
        assert "num_workers=" in message
    for given, why in (
        ({"shuffle": False, "multiprocessing_context": "spawn"}, "spawn"),
        ({"shuffle": True}, "sampler's order"),
    ):
        with ht.DataLoader(dataset, 4, **given) as loader:
            assert loader.num_workers == 0
            [message] = said()
            assert why in message
            assert "give num_workers=2" in message
    for quiet in (
        dict(dataset=dataset, num_workers=0),
        dict(dataset=ht.ImageFolder(folder, [V.CenterCrop(9), V.ToTensor()])),
    ):
        with ht.DataLoader(batch_size=4, shuffle=False, **quiet):
            assert said() == []


@pytest.mark.parametrize(
    "shuffle, transform, warns",
    [
        (False, None, False),
        (False, V.ToTensor(), False),
        (False, V.Compose([V.Resize(8), V.Compose([V.ToTensor()])]), False),
        (False, V.Compose([V.Resize(8), V.RandomHorizontalFlip(), V.ToTensor()]), True),
        (False, V.Compose([V.CenterCrop(8), V.ToTensor()]), False),
        (False, V.Compose([V.RandomCrop(8), V.ToTensor()]), True),
        (False, by_size, True),
        (True, V.ToTensor(), True),
    ],
)
@pytest.mark.parametrize("offload", [True, False])
def test_repeating_an_epoch_warns_only_where_something_depends_on_it(
    tmp_path, caplog, shuffle, transform, warns, offload
):
    """Frameworks repeat the first epoch of validation, which is by ID."""
    data = ht.ImageFolder(jpegs(tmp_path / "data", {"a": 2}), transform)
    own = {"num_workers": 0, "offload": offload, "collate_fn": len}
    sampler = torch.utils.data.DistributedSampler(data, 1, 0, shuffle=shuffle)
    with ht.DataLoader(data, 1, sampler=sampler, **own) as loader:
        assert list(loader) == list(loader) == [1, 1]
    assert ("comes again" in caplog.text) == warns
