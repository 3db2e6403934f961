"""Transforms in the daemon and what stays in Python: split lists, loaders of the user's, labels,
the thesis's interface."""

import ctypes
import io
import logging
import os
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")
torchvision = pytest.importorskip("torchvision")
numpy = pytest.importorskip("numpy")
Image = pytest.importorskip("PIL.Image")

import hdmlp
import hdmlp.torch as ht
from hdmlp import Job, data, errors
from hdmlp import _protocol as protocol
from hdmlp import transforms as T
from hdmlp._recipe import sample_key, seed_generators
from hdmlp._stream import _End
from reference import batches, decoded, jpegs, read

V = torchvision.transforms
pytestmark = pytest.mark.usefixtures("real")

TENSOR = [T.Resize((20, 16)), T.ToTensor()]
LIKEWISE = V.Compose([V.Resize((20, 16)), V.ToTensor()])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return jpegs(tmp_path_factory.mktemp("jpegs") / "data", {"ant": 7, "bee": 6, "cat": 8})


@pytest.fixture
def said(caplog):
    """What was logged of Python since the last call."""
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


def same(got, want):
    got, want = list(got), list(want)
    return len(got) == len(want) and all(
        torch.equal(x, u) and x.dtype == u.dtype and torch.equal(y, v)
        for (x, y), (u, v) in zip(got, want)
    )


# A list of which the daemon does the beginning.


def darker(x):
    return x * 0.5


@pytest.mark.parametrize("workers", [0, 2])
def test_a_rest_of_tensors(folder, workers, said):
    erasing = V.RandomErasing(p=1, value=9.0)
    for rest, name in ((V.Lambda(darker), "Lambda"), (darker, "darker")):
        want = batches(folder, 4, 1, 3, False, 0, 1, V.Compose([LIKEWISE, rest]))[0]
        with ht.DataLoader(
            ht.ImageFolder(folder, V.Compose([LIKEWISE, rest])),
            4,
            seed=3,
            num_workers=workers,
            shuffle=True,
        ) as loader:
            assert loader._engine._session.transforms == [t.describe() for t in TENSOR]
            assert same(loader, want)
        [message] = said()
        assert name in message and "runs in Python, after what the daemon applies" in message
    plain = batches(folder, 4, 1, 3, False, 0, 1, LIKEWISE)[0]
    with ht.DataLoader(
        ht.ImageFolder(folder, [*TENSOR, erasing]), 4, seed=3, num_workers=workers, shuffle=True
    ) as loader:
        for step, (images, _) in enumerate(loader):
            for i, sample in enumerate(loader.explain(0, step).ids):
                seed_generators(sample_key(3, 0, sample))
                assert torch.equal(images[i], erasing(plain[step][0][i]))


@pytest.mark.parametrize("workers", [0, 2])
def test_a_rest_of_images(folder, workers, said):
    for channels, mode in ((3, "RGB"), (1, "L")):

        def upside_down(image):
            assert isinstance(image, Image.Image) and image.mode == mode and image.size == (18, 24)
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
            ]
            assert same(loader, want)
        [message] = said()
        assert (
            message
            == "upside_down runs in Python, after what the daemon applies: it is not a transform "
            "that HDMLP knows; because of it also: ToTensor()"
        )


def test_all_of_it_in_python(folder, said):
    def load(view):
        return Image.open(io.BytesIO(view)).convert("RGB")

    want = batches(folder, 4, 1, 3, False, 0, 1, LIKEWISE)[0]
    dataset = ht.ImageFolder(folder, LIKEWISE)
    for loader in (
        ht.DataLoader(dataset, 4, seed=3, offload=False, shuffle=True),
        ht.DataLoader(dataset, 4, seed=3, offload=False, num_workers=2, shuffle=True),
        ht.DataLoader(ht.ImageFolder(folder, LIKEWISE, loader=load), 4, seed=3, shuffle=True),
    ):
        with loader:
            assert (
                loader._engine._session.transforms is None
                and loader.output is None
                and same(loader, want)
            )
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
        ] and next(iter(loader))[0].shape == (4, 3, 16, 16)
    [message] = said()
    assert (
        message
        == "forward runs in Python, after what the daemon applies: it is not a transform that "
        "HDMLP knows; because of it also: ToTensor()"
    )


def test_ours_are_not_for_python(folder):
    for given in (dict(offload=False), dict(loader=decoded)):
        dataset = ht.ImageFolder(folder, TENSOR, loader=given.pop("loader", None))
        with pytest.raises(
            errors.ConfigError, match=r"Resize.* cannot run in Python (with offload|after a loader)"
        ):
            ht.DataLoader(dataset, 4, **given, shuffle=True)
    with pytest.raises(errors.ConfigError, match=r"CenterCrop.* cannot run in Python after"):
        ht.DataLoader(ht.ImageFolder(folder, [darker, T.CenterCrop(3)]), 4, shuffle=True)
    with pytest.raises(errors.ConfigError, match="RandomRotation"):
        data.DataLoader(folder, 4, transforms=[V.Resize((9, 9)), V.RandomRotation(3)])


def test_loaders_of_torchvision(folder):
    from torchvision.datasets.folder import default_loader, pil_loader

    want = batches(folder, 4, 1, 3, False, 0, 1, LIKEWISE)[0]
    for load in (default_loader, pil_loader):
        dataset = ht.ImageFolder(folder, LIKEWISE, loader=load)
        assert dataset[0][0].shape == (3, 20, 16)
        with ht.DataLoader(dataset, 4, seed=3, shuffle=True) as loader:
            assert loader._engine._session.transforms == [t.describe() for t in TENSOR] and same(
                loader, want
            )
    assert not ht.ImageFolder(folder, loader=default_loader).raw


def test_objects_are_named_by_their_class(folder, said):
    class Darker:
        def __call__(self, x):
            return x * 0.5

    with ht.DataLoader(ht.ImageFolder(folder, [*TENSOR, Darker()]), 4, shuffle=True):
        assert said() == [
            "Darker runs in Python, after what the daemon applies: it is not a transform that "
            "HDMLP knows"
        ]


def test_no_transforms(folder):
    for given, message in (
        (dict(transform=[*TENSOR, 5]), r"transform\[2\]=5: must be callable"),
        (dict(transform="Resize"), "must be callable"),
        (dict(transform=TENSOR, transforms=TENSOR), "two names of one argument: give one"),
    ):
        with pytest.raises(errors.ConfigError, match=message):
            ht.ImageFolder(folder, **given)


def test_raw_stays_raw(folder):
    with ht.DataLoader(ht.ImageFolder(folder, TENSOR), 4, shuffle=False, raw=True) as loader:
        files = [read(path) for path, _ in loader.dataset.samples]
        assert [bytes(x) for samples, _ in loader for x in samples] == files


# What a batch is.


def test_collate(folder):
    want = batches(folder, 4, 1, 3, False, 0, 1, LIKEWISE)[0]

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


def test_labels(folder):
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
        want = batches(folder, 4, 1, 3, False, 0, 1, LIKEWISE, target_transform=None)[0]
        with ht.DataLoader(
            ht.ImageFolder(folder, TENSOR, target_transform=target), 4, seed=3, shuffle=True
        ) as loader:
            for (images, labels), (u, v) in zip(loader, want):
                assert torch.equal(images, u) and check(labels, v)


def test_numpy(folder):
    want = batches(folder, 4, 1, 3, False, 0, 1, LIKEWISE)[0]
    with data.DataLoader(folder, 4, seed=3, transforms=TENSOR) as loader:
        for (images, labels), (u, v) in zip(loader, want):
            assert (
                isinstance(images, numpy.ndarray)
                and images.dtype == numpy.float32
                and images.flags.writeable
            )
            assert (images == u.numpy()).all() and (labels == v.numpy()).all()
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


def by_label(loader, epochs=1):
    return [
        sorted(
            (y, x.numpy().tobytes())
            for images, labels in loader
            for x, y in zip(images, labels.tolist())
        )
        for _ in range(epochs)
    ]


def test_listing_4_6(folder):
    [want] = by_label(batches(folder, 4, 1, 3, False, 0, 1, LIKEWISE)[0])
    for given, images in ((TENSOR, None), (None, TENSOR), (None, LIKEWISE), (TENSOR, TENSOR)):
        job = Job(folder, 4, 2, "uniform", False, transforms=given, seed=3)
        dataset = ht.HDMLPImageFolder(folder, job, images)
        loader = ht.HDMLPDataLoader(dataset)
        assert len(dataset) == 21 and len(loader) == 6
        assert by_label(loader, 2) == [want] * 2
        assert [t.describe() for t in job.get_transforms()] == [t.describe() for t in TENSOR]
        assert job.get_metrics()["read_locations"]
        job.destroy()


def test_a_jobs_batches(folder):
    job = Job(folder, 4, 3, seed=3)
    dataset = ht.HDMLPImageFolder(folder, job, [T.Resize((20, 16))], target_transform=str)
    for images, labels in ht.HDMLPDataLoader(dataset):  # where the daemon wrote them
        assert (
            images.shape[1:] == (20, 16, 3)
            and images.dtype == torch.uint8
            and set(labels) <= {"0", "1", "2"}
        )
        assert any(
            s.writable and begin <= images.data_ptr() < begin + s.size
            for s, begin in (
                (s, ctypes.addressof(ctypes.c_char.from_buffer(s.map)))
                for s in job._loader._feeds[0].stream._staging.segments.values()
                if s.writable
            )
        )
    for pairs in ht.HDMLPDataLoader(dataset, collate_fn=list):
        assert all(isinstance(image, Image.Image) and image.size == (16, 20) for image, _ in pairs)
    job.destroy()
    job = Job(folder, 4, 1, seed=3)
    dataset = ht.HDMLPImageFolder(folder, job, [*TENSOR, darker])
    assert all(
        images.max() <= 0.5 and images.shape[1:] == (3, 20, 16)
        for images, _ in ht.HDMLPDataLoader(dataset)
    )
    job.destroy()


def test_the_jobs_samples_one_by_one(folder):
    with Job(folder, 4, 1, transforms=TENSOR, seed=3) as job:
        assert job.output.shape == (3, 20, 16) and job.output.type == "float32"
        label, view = job.get()
        assert label in ("ant", "bee", "cat") and torch.frombuffer(
            view, dtype=torch.float32
        ).shape == (960,)
    with Job(folder, 4, 1, transforms=TENSOR, seed=3) as job:
        dataset = ht.HDMLPImageFolder(folder, job, darker)  # after the job's own
        halves = [dataset[i] for i in range(21)]
        assert all(x.shape == (3, 20, 16) and x.max() <= 0.5 for x, _ in halves)
        with pytest.raises(errors.EndError):
            dataset[21]


def test_a_job_has_one_list(folder):
    with Job(folder, 4, 1, transforms=TENSOR) as job:
        with pytest.raises(errors.ConfigError, match="others"):
            ht.HDMLPImageFolder(folder, job, [T.Resize((3, 3)), T.ToTensor()])
    with Job(folder, 4, 1) as job:
        with pytest.raises(errors.ConfigError, match="set up already"):
            ht.HDMLPImageFolder(folder, job, TENSOR)


# Slots.


def acknowledged(stream):
    """How many slots of the ring the stream acknowledges from now on; a list of one."""
    count, send = [0], stream._connection.send

    def counted(frame):
        if frame[4] == protocol.ACK:
            count[0] += sum(
                not slot >> 31
                for (slot,) in protocol.U32.iter_unpack(frame[protocol.ACK_FRAME.size :])
            )
        send(frame)

    stream._connection.send = counted
    return count


@pytest.mark.parametrize("noted", [True, False])
def test_slots_are_noted(folder, noted):
    want = batches(folder, 4, 40, 3, False, 0, 1, LIKEWISE)
    with ht.DataLoader(
        ht.ImageFolder(folder, TENSOR), 4, seed=3, epochs=40, staging_buffer="64KiB", shuffle=True
    ) as loader:
        stream = loader._engine._feeds[0].stream
        offered, count = stream._staging.returns, acknowledged(stream)
        if not noted:  # as on processors that do not keep the order of stores
            stream._staging.returns = None
        kept = []
        for epoch in range(40):
            got = []
            for images, labels in loader:
                got.append((images.clone(), labels.clone()))
                kept = [*kept[-1:], (images, got[-1][0])]
                del images
                assert all(torch.equal(view, was) for view, was in kept)
                # So that next() does not wait, and return slots while it does.
                while not loader._engine._feeds[0].source._made and not any(
                    isinstance(item, (bytearray, _End)) for item in stream._items
                ):
                    if not stream.pump():
                        stream._connection.wait(None)
            assert same(got, want[epoch])
    if noted and offered is not None:
        assert offered._noted >= 200 and count[0] <= 20
    else:
        assert count[0] >= 200


def test_more_is_kept_than_can_be_noted(folder):
    """600 batches at once: in extra segments, and more than there are entries."""
    with ht.DataLoader(
        ht.ImageFolder(folder, TENSOR), 1, seed=3, epochs=60, staging_buffer="8MB", shuffle=True
    ) as loader:
        stream = loader._engine._feeds[0].stream
        for _ in range(3):
            kept = [(images, images.clone()) for _ in range(20) for images, _ in loader]
            assert len(kept) == 420 and all(torch.equal(view, was) for view, was in kept)
            del kept
        assert len(stream._staging.segments) <= 2 + len(stream._items)


# Arrays.


@pytest.mark.parametrize("kind, channels", [("float32", 16), ("int16", 3), ("uint8", 1)])
def test_arrays(tmp_path, kind, channels):
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
        assert got.dtype == numpy.float32 and numpy.allclose(got, want, rtol=1e-6)
    dataset = ht.ImageFolder(folder.root, transforms, extensions=[".bin"])
    with ht.DataLoader(dataset, 4, shuffle=False) as loader:
        assert (torch.cat([x for x, _ in loader])[:10].numpy() == got).all()
    transforms = [T.Reshape(4, 6, channels + 1, dtype=kind), T.ScaleShift16(1, 0)]
    with data.DataLoader(folder, 4, shuffle=False, transforms=transforms) as loader:
        with pytest.raises(errors.SampleError, match=rf"0\.bin.* has {arrays[0].nbytes} bytes"):
            list(loader)


@pytest.mark.slow
def test_who_configures_no_logging_is_told_too(folder):
    """What runs in Python is said once on the standard error of a plain script."""
    script = (
        "import sys, hdmlp.torch as ht, torchvision.transforms as V\n"
        "data = ht.ImageFolder(sys.argv[1], [V.Resize((8, 8)), V.ToTensor(), V.RandomErasing()])\n"
        "loader = ht.DataLoader(data, 4, seed=1, shuffle=True)\n"
        "for epoch in range(2):\n    for batch in loader: pass\n"
    )
    path = os.path.dirname(os.path.dirname(hdmlp.__file__))
    done = subprocess.run(
        [sys.executable, "-c", script, folder],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": path},
    )
    assert (
        done.stderr.count("RandomErasing") == 1
        and "runs in Python, after what the daemon applies" in done.stderr
    )
