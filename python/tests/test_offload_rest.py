"""Transforms in the daemon and those that stay in Python: split lists, the user's loaders, labels,
arrays."""

import io
import logging
import os
import subprocess

import preloaded
import pytest

torch = pytest.importorskip("torch")
torchvision = pytest.importorskip("torchvision")
numpy = pytest.importorskip("numpy")
Image = pytest.importorskip("PIL.Image")

import hdmlp
import hdmlp.torch as ht
from elsewhere import elastic
from hdmlp import data, errors
from hdmlp import transforms as T
from offloaded import REFERENCE, TENSOR, darker, folder, same  # noqa: F401
from reference import batches, decoded, read

V = torchvision.transforms
pytestmark = pytest.mark.usefixtures("real")


@pytest.fixture
def said(caplog):
    """The warnings about Python since the last call."""
    caplog.set_level(logging.WARNING, "hdmlp")

    def take():
        messages = [
            r.getMessage()
            for r in caplog.records
            if r.name == "hdmlp"
            and "Python" in r.getMessage()
            and "worker processes" not in r.getMessage()
        ]
        caplog.clear()
        return messages

    return take


# A list of which the daemon does the beginning.


def carried_out(loader):
    """The transforms that the daemon was given, without how it decodes."""
    return [
        {key: value for key, value in t.items() if key != "decode"}
        for t in loader._engine._session.transforms
    ]


@pytest.mark.parametrize("workers", [0, 2])
def test_transforms_after_the_tensor_run_in_python(folder, workers, said):
    erasing = elastic()
    for rest, name in ((V.Lambda(darker), "Lambda"), (darker, "darker")):
        want = batches(folder, 4, 1, 3, False, 0, 1, V.Compose([REFERENCE, rest]))[0]
        with ht.DataLoader(
            ht.ImageFolder(folder, V.Compose([REFERENCE, rest])),
            4,
            seed=3,
            num_workers=workers,
            shuffle=True,
        ) as loader:
            assert carried_out(loader) == [t.describe() for t in TENSOR]
            assert same(loader, want)
        [message] = said()
        assert name in message
        assert "runs in Python, after what the daemon applies" in message
    plain = batches(folder, 4, 1, 3, False, 0, 1, REFERENCE)[0]
    with ht.DataLoader(
        ht.ImageFolder(folder, [*TENSOR, erasing]), 4, seed=3, num_workers=workers, shuffle=True
    ) as loader:
        for step, (images, _) in enumerate(loader):
            for i, sample in enumerate(loader.explain(0, step).ids):
                with ht.seeded(3, 0, sample, position=len(TENSOR)):
                    assert torch.equal(images[i], erasing(plain[step][0][i]))


@pytest.mark.parametrize("workers", [0, 2])
def test_transforms_of_images_run_in_python(folder, workers, said):
    for channels, mode in ((3, "RGB"), (1, "L")):

        def upside_down(image, mode=mode):
            assert isinstance(image, Image.Image)
            assert image.mode == mode
            assert image.size == (18, 24)
            return image.transpose(Image.ROTATE_180)

        transform = V.Compose(
            [V.CenterCrop((24, 18)), V.Grayscale(channels), upside_down, V.ToTensor()]
        )
        want = batches(folder, 4, 1, 3, False, 0, 1, transform)[0]
        with ht.DataLoader(
            ht.ImageFolder(folder, transform), 4, seed=3, num_workers=workers, shuffle=True
        ) as loader:
            assert [t["name"] for t in loader._engine._session.transforms] == [
                "CenterCrop",
                "Grayscale",
                "Ragged",
            ]
            assert same(loader, want)
        [message] = said()
        assert (
            message
            == "upside_down runs in Python, after what the daemon applies: it is not a transform "
            "that HDMLP has; because of it also: ToTensor()"
        )


def test_all_transforms_may_run_in_python(folder, said):
    def load(view):
        return Image.open(io.BytesIO(view)).convert("RGB")

    want = batches(folder, 4, 1, 3, False, 0, 1, REFERENCE)[0]
    dataset = ht.ImageFolder(folder, REFERENCE)
    for loader in (
        ht.DataLoader(dataset, 4, seed=3, offload=False, shuffle=True),
        ht.DataLoader(dataset, 4, seed=3, offload=False, num_workers=2, shuffle=True),
        ht.DataLoader(ht.ImageFolder(folder, REFERENCE, loader=load), 4, seed=3, shuffle=True),
    ):
        with loader:
            assert loader._engine._session.transforms is None
            assert loader.output is None
            assert same(loader, want)
    assert said() == []
    with ht.DataLoader(
        ht.ImageFolder(folder, [V.Resize(20), V.CenterCrop(16).forward, V.ToTensor()]),
        4,
        seed=3,
        shuffle=True,
    ) as loader:
        assert [t["name"] for t in loader._engine._session.transforms] == [
            "Resize",
            "Ragged",
        ]
        assert next(iter(loader))[0].shape == (4, 3, 16, 16)
    [message] = said()
    assert (
        message
        == "forward runs in Python, after what the daemon applies: it is not a transform that "
        "HDMLP has; because of it also: ToTensor()"
    )


def test_hdmlps_transforms_do_not_run_in_python(folder):
    for given in (dict(offload=False), dict(loader=decoded)):
        dataset = ht.ImageFolder(folder, TENSOR, loader=given.pop("loader", None))
        with pytest.raises(
            errors.ConfigError, match=r"Resize.* cannot run in Python (with offload|after a loader)"
        ):
            ht.DataLoader(dataset, 4, **given, shuffle=True)
    with pytest.raises(errors.ConfigError, match=r"CenterCrop.* cannot run in Python after"):
        ht.DataLoader(ht.ImageFolder(folder, [darker, T.CenterCrop(3)]), 4, shuffle=True)
    with pytest.raises(errors.ConfigError, match="ElasticTransform"):
        data.DataLoader(folder, 4, transforms=[V.Resize((9, 9)), elastic()])


def test_torchvisions_loaders_are_offloaded(folder):
    from torchvision.datasets.folder import default_loader, pil_loader

    want = batches(folder, 4, 1, 3, False, 0, 1, REFERENCE)[0]
    for load in (default_loader, pil_loader):
        dataset = ht.ImageFolder(folder, REFERENCE, loader=load)
        assert dataset[0][0].shape == (3, 20, 16)
        with ht.DataLoader(dataset, 4, seed=3, shuffle=True) as loader:
            assert carried_out(loader) == [t.describe() for t in TENSOR]
            assert same(loader, want)
    assert not ht.ImageFolder(folder, loader=default_loader).raw


def test_warnings_name_objects_by_their_class(folder, said):
    class Darker:
        def __call__(self, x):
            return x * 0.5

    with ht.DataLoader(ht.ImageFolder(folder, [*TENSOR, Darker()]), 4, shuffle=True):
        assert said() == [
            "Darker runs in Python, after what the daemon applies: it is not a transform that "
            "HDMLP has"
        ]


def test_invalid_transforms_are_refused(folder):
    for given, message in (
        (dict(transform=[*TENSOR, 5]), r"transform\[2\]=5: must be callable"),
        (dict(transform="Resize"), "must be callable"),
        (dict(transform=TENSOR, transforms=TENSOR), "two names of one argument: give one"),
    ):
        with pytest.raises(errors.ConfigError, match=message):
            ht.ImageFolder(folder, **given)


def test_raw_ignores_transforms(folder):
    with ht.DataLoader(ht.ImageFolder(folder, TENSOR), 4, shuffle=False, raw=True) as loader:
        files = [read(path) for path, _ in loader.dataset.samples]
        assert [bytes(x) for samples, _ in loader for x in samples] == files


# What a batch is.


def test_collate_fn_gets_tensors(folder):
    want = batches(folder, 4, 1, 3, False, 0, 1, REFERENCE)[0]

    def pairs(batch):
        assert all(isinstance(x, torch.Tensor) and isinstance(y, int) for x, y in batch)
        return torch.stack([x for x, _ in batch]), torch.tensor([y for _, y in batch])

    for workers in (0, 2):
        with ht.DataLoader(
            ht.ImageFolder(folder, TENSOR),
            4,
            seed=3,
            collate_fn=pairs,
            num_workers=workers,
            shuffle=True,
        ) as loader:
            assert same(loader, want)


def test_target_transform_makes_labels(folder):
    names = "ant", "bee", "cat"
    for target, check in [
        (
            lambda y: 10 * y,
            lambda got, want: got.dtype == torch.int64 and torch.equal(got, 10 * want),
        ),
        (names.__getitem__, lambda got, want: got == tuple(names[y] for y in want.tolist())),
        (float, lambda got, want: got.dtype == torch.float64 and torch.equal(got, want.double())),
        (lambda y: {"class": y}, lambda got, want: torch.equal(got["class"], want)),
    ]:
        want = batches(folder, 4, 1, 3, False, 0, 1, REFERENCE, target_transform=None)[0]
        with ht.DataLoader(
            ht.ImageFolder(folder, TENSOR, target_transform=target), 4, seed=3, shuffle=True
        ) as loader:
            for (images, labels), (u, v) in zip(loader, want):
                assert torch.equal(images, u)
                assert check(labels, v)


def test_loaders_without_torch_give_arrays(folder):
    want = batches(folder, 4, 1, 3, False, 0, 1, REFERENCE)[0]
    with data.DataLoader(folder, 4, seed=3, transforms=TENSOR) as loader:
        for (images, labels), (u, v) in zip(loader, want):
            assert isinstance(images, numpy.ndarray)
            assert images.dtype == numpy.float32
            assert images.flags.writeable
            assert (images == u.numpy()).all()
            assert (labels == v.numpy()).all()
            assert not images.flags.owndata
    with data.DataLoader(
        folder,
        4,
        seed=3,
        transforms=V.Compose([V.Resize((20, 16))]),
        collate_fn=lambda batch: [(x.shape, str(x.dtype), y) for x, y in batch],
    ) as loader:
        assert next(iter(loader)) == [((20, 16, 3), "uint8", y) for y in want[0][1].tolist()]
    with pytest.raises(errors.ConfigError, match="bfloat16"):
        data.DataLoader(folder, 4, transforms=[*TENSOR, T.ConvertImageDtype("bfloat16")])


# The thesis's interface.


# Slots.


# Arrays.


@pytest.mark.parametrize("kind, channels", [("float32", 16), ("int16", 3), ("uint8", 1)])
def test_raw_arrays_are_reshaped_and_scaled(tmp_path, kind, channels):
    rng = numpy.random.default_rng(1)
    arrays = rng.integers(0, 200, (10, 4, 6, channels)).astype(kind)
    for i, array in enumerate(arrays):
        (tmp_path / "data" / "ab"[i % 2]).mkdir(parents=True, exist_ok=True)
        (tmp_path / "data" / "ab"[i % 2] / f"{i}.bin").write_bytes(array.tobytes())
    shift, scale = rng.random((2, channels)).astype("float32")
    folder = data.Folder(str(tmp_path / "data"), extensions=[".bin"])
    transforms = [
        T.Reshape(4, 6, channels, dtype=kind),
        T.ScaleShift16(scale=scale.tolist(), shift=shift.tolist()),
    ]
    order = [0, 2, 4, 6, 8, 1, 3, 5, 7, 9]
    want = (arrays[order].astype("float32") - shift) * scale
    with data.DataLoader(folder, 4, shuffle=False, transforms=transforms) as loader:
        got = numpy.concatenate([x for x, _ in loader])[:10]
        assert got.dtype == numpy.float32
        assert numpy.allclose(got, want, rtol=1e-6)
    dataset = ht.ImageFolder(folder.root, transforms, extensions=[".bin"])
    with ht.DataLoader(dataset, 4, shuffle=False) as loader:
        assert (torch.cat([x for x, _ in loader])[:10].numpy() == got).all()
    transforms = [T.Reshape(4, 6, channels + 1, dtype=kind), T.ScaleShift16(1, 0)]
    with data.DataLoader(folder, 4, shuffle=False, transforms=transforms) as loader:
        with pytest.raises(errors.SampleError, match=rf"0\.bin.* has {arrays[0].nbytes} bytes"):
            list(loader)


@pytest.mark.slow
def test_the_warning_is_shown_without_logging_configuration(folder):
    """Once, on the standard error of a plain script."""
    script = (
        "import sys, hdmlp.torch as ht, torchvision.transforms as V\n"
        "steps = [V.Resize((8, 8)), V.ToTensor(), V.ElasticTransform(2.0, 0.3)]\n"
        "data = ht.ImageFolder(sys.argv[1], steps)\n"
        "loader = ht.DataLoader(data, 4, seed=1, shuffle=True)\n"
        "for epoch in range(2):\n    for batch in loader: pass\n"
    )
    path = os.path.dirname(os.path.dirname(hdmlp.__file__))
    done = subprocess.run(
        [preloaded.PYTHON, "-c", script, folder],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": path},
    )
    assert done.stderr.count("ElasticTransform") == 1
    assert "runs in Python, after what the daemon applies" in done.stderr
