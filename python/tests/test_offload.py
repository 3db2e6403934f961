"""Transforms in the daemon, end to end: the results are torchvision's, and depend only on the
sample."""

import ctypes
import os
import signal

import pytest

torch = pytest.importorskip("torch")
torchvision = pytest.importorskip("torchvision")
numpy = pytest.importorskip("numpy")
pytest.importorskip("PIL.Image")

import hdmlp.torch as ht
from hdmlp import errors
from hdmlp import transforms as T
from reference import batches, decoded, jpegs, read
from waiting import until

V = torchvision.transforms
pytestmark = pytest.mark.usefixtures("real")

COUNTS = {"ant": 14, "bee": 13, "cat": 10}  # 37: no multiple of anything
NORM = V.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return jpegs(tmp_path_factory.mktemp("jpegs") / "data", COUNTS)


def same(got, want):
    """Whether two batches are equal to the bit: types, shapes, values."""
    return all(a.dtype == b.dtype and torch.equal(a, b) for a, b in zip(got, want)) and len(
        got
    ) == len(want)


# What torchvision makes.


@pytest.mark.parametrize("world", [1, 2])
@pytest.mark.parametrize(
    "transforms",
    [
        [V.Resize(40), V.CenterCrop(32), V.ToTensor(), NORM],
        [V.CenterCrop((31, 60)), V.ToTensor()],
        [V.Resize((30, 20)), V.Pad((1, 2, 3, 4), fill=(9, 8, 7)), V.Grayscale(3), V.PILToTensor()],
        [
            V.Resize((23, 24), V.InterpolationMode.BICUBIC),
            V.Grayscale(),
            V.Pad(3, padding_mode="reflect"),
            V.ToTensor(),
        ],
        [V.Resize((9, 80)), V.ToTensor(), V.ConvertImageDtype(torch.float16)],
        [V.Resize((25, 25)), V.ToTensor(), NORM, V.ConvertImageDtype(torch.bfloat16)],
    ],
    ids=lambda ts: "-".join(type(t).__name__ for t in ts),
)
def test_results_are_torchvisions(folder, transforms, world):
    transform = V.Compose(transforms)
    loaders = [
        ht.DataLoader(
            ht.ImageFolder(folder, transform),
            5,
            seed=11,
            epochs=2,
            rank=rank,
            world_size=world,
            name="same",
            verify=True,
            shuffle=True,
        )
        for rank in range(world)
    ]
    want = [batches(folder, 5, 2, 11, False, rank, world, transform) for rank in range(world)]
    for epoch in range(2):
        for step, got in enumerate(zip(*loaders)):
            for rank, batch in enumerate(got):
                assert same(batch, want[rank][epoch][step])
        assert step + 1 == len(loaders[0])
    assert all(loader._engine._made.recipe is None for loader in loaders)
    for loader in loaders:
        loader.close()


def test_images_without_to_tensor_are_arrays(folder):
    with ht.DataLoader(
        ht.ImageFolder(folder, [T.Resize((20, 22))]), 5, shuffle=False, drop_last=True
    ) as loader:
        images = torch.cat([x for x, _ in loader])
    want = [
        numpy.asarray(decoded(path).resize((22, 20), 2))
        for path, _ in ht.ImageFolder(folder).samples[:35]
    ]
    assert images.dtype == torch.uint8
    assert (images.numpy() == numpy.stack(want)).all()


# What it depends on.

RANDOM = [
    T.RandomCrop(48, padding=4, pad_if_needed=True),
    T.RandomResizedCrop(24),
    T.RandomHorizontalFlip(),
    T.RandomVerticalFlip(),
    T.ColorJitter(0.4, 0.4, 0.4, 0.1),
    T.ToTensor(),
]


def pixels(
    folder,
    transforms=RANDOM,
    epochs=(0, 1),
    batch=4,
    seed=5,
    rank=None,
    world=None,
    state=None,
    **more,
):
    """What a rank gets: {(epoch, sample ID): tensor}."""
    found = {}
    more = {"shuffle": True, **more}
    with ht.DataLoader(
        ht.ImageFolder(folder, transforms), batch, seed=seed, rank=rank, world_size=world, **more
    ) as loader:
        if state is not None:
            loader.load_state_dict(state)
        for epoch in epochs:
            loader.set_epoch(epoch)
            begin = loader.state_dict()["step"]
            for step, (images, labels) in enumerate(loader, begin):
                said = loader.explain(epoch, step)
                assert labels.tolist() == said.labels
                for sample, image in zip(said.ids, images):
                    before = found.setdefault((epoch, sample), image.clone())
                    assert torch.equal(before, image)  # what pads the epoch comes twice
    return found


def equal(a, b):
    """Whether what both have is equal, and not empty."""
    common = a.keys() & b.keys()
    return bool(common) and all(torch.equal(a[k], b[k]) for k in common)


@pytest.fixture(scope="module")
def expected():
    return {}  # what the first test found, for the others


@pytest.mark.parametrize(
    "more",
    [
        dict(transform_threads=1),
        dict(transform_threads=2, source_threads=1),
        dict(transform_threads=4, source_threads=16),
        dict(memory="1B"),
        dict(memory="30kB"),
        dict(memory="1B", cache_dir="cache"),
        dict(staging_buffer="64KiB", prefetch_batches=1),
        dict(batch=7),
        dict(policy="naive"),
        dict(shuffle="feistel"),
    ],
    ids=str,
)
def test_results_do_not_depend_on_threads_and_caches(folder, expected, tmp_path, more):
    if "cache_dir" in more:
        more = {**more, "cache_dir": str(tmp_path / "cache")}
    found = pixels(folder, **more)
    assert len(found) == 74
    assert equal(found, expected.setdefault("all", found))
    if "cache_dir" in more:
        assert equal(pixels(folder, **more), found)


def test_results_do_not_depend_on_workers(folder):
    def last(x):
        return x * torch.rand(())

    transforms = [V.RandomResizedCrop(24), V.RandomHorizontalFlip(), V.ToTensor(), last]
    found = [pixels(folder, transforms, num_workers=workers) for workers in (0, 2)]
    assert len(found[0]) == len(found[1]) == 74
    assert equal(*found)


def test_results_do_not_depend_on_ranks_and_resuming(folder):
    one = pixels(folder)
    two = [pixels(folder, batch=2, rank=rank, world=2, name="two") for rank in (0, 1)]
    assert all(equal(one, part) for part in two)
    assert set(one) == {*two[0], *two[1]}
    with ht.DataLoader(ht.ImageFolder(folder, RANDOM), 4, seed=5, shuffle=True) as loader:
        loader.set_epoch(1)
        steps = iter(loader)
        for _ in range(3):
            next(steps)
        state = loader.state_dict()
    for rest in (
        pixels(folder, epochs=[1], state=state),
        pixels(folder, epochs=[1], batch=2, rank=1, world=2, state=state),
    ):
        assert 0 < len(rest) <= 25
        assert equal(rest, one)


def test_results_do_not_depend_on_the_daemons_life(folder):
    one = pixels(folder, epochs=[0])
    with ht.DataLoader(ht.ImageFolder(folder, RANDOM), 4, seed=5, shuffle=True) as loader:
        pid = loader._engine._feeds[0].stream.daemon.pid
        kept = next(iter(loader))[0]
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(errors.DaemonDiedError):
            for _ in range(10_000):
                for _ in loader:
                    pass
        loader.set_epoch(0)
        for step, (images, _) in enumerate(loader):
            assert all(
                torch.equal(one[0, i], x) for i, x in zip(loader.explain(0, step).ids, images)
            )
            assert step > 0 or torch.equal(images, kept)
        assert step == 9
        assert loader._engine._feeds[0].stream.daemon.pid != pid


def test_random_draws_depend_on_seed_epoch_and_sample(folder, tmp_path):
    one, other = pixels(folder), pixels(folder, seed=6)
    assert not any(torch.equal(one[k], other[k]) for k in one)
    assert not any(torch.equal(one[0, i], one[1, i]) for i in range(37))
    for name in ("a", "b"):
        (tmp_path / "twins" / name).mkdir(parents=True)
        for i in range(4):
            (tmp_path / "twins" / name / f"{i}.jpg").write_bytes(
                read(os.path.join(folder, "ant", "0000.jpg"))
            )
    twins = list(pixels(str(tmp_path / "twins"), epochs=[0]).values())
    assert len(twins) == 8
    assert not any(torch.equal(a, b) for i, a in enumerate(twins) for b in twins[:i])


# Where it lies.

TENSOR = [T.Resize((16, 16)), T.ToTensor()]


def spans(loader):
    """The addresses of the staging buffer and of its extra segments."""
    for segment in loader._engine._feeds[0].stream._staging.segments.values():
        if segment.writable:
            begin = ctypes.addressof(ctypes.c_char.from_buffer(segment.map))
            yield begin, begin + segment.size


def test_batches_are_in_shared_memory(folder):
    with ht.DataLoader(ht.ImageFolder(folder, TENSOR), 4, seed=1, shuffle=True) as loader:
        for images, labels in loader:  # noqa: B007 - used after the loop
            end = images.data_ptr() + images.numel() * 4
            assert any(a <= images.data_ptr() and end <= b for a, b in spans(loader))
            assert images.is_contiguous()
            assert images.data_ptr() % 64 == 0
        with open("/proc/self/maps") as maps:
            inside = [
                line
                for line in maps
                if "hdmlp-staging" in line
                for a, b in [line.split()[0].split("-")]
                if int(a, 16) <= images.data_ptr() < int(b, 16)
            ]
        assert len(inside) == 1
        assert inside[0].split()[1].startswith("rw")
        images.mul_(0), labels.add_(1)
        assert images.sum() == 0


def test_kept_batches_are_never_overwritten(folder):
    with ht.DataLoader(
        ht.ImageFolder(folder, TENSOR), 4, seed=1, staging_buffer="64KiB", shuffle=True
    ) as loader:
        kept = [(images.detach()[1:], images[1:].clone()) for images, _ in loader]
        for _ in range(5):
            for images, _ in loader:
                images.fill_(7)
        assert all(torch.equal(view, was) for view, was in kept)


@pytest.mark.parametrize(
    "derive",
    [
        lambda x: x,
        lambda x: x.detach()[-1:],
        lambda x: x.numpy()[0, 1:],
        lambda x: torch.from_numpy(x.numpy()).flatten()[3:],
        lambda x: memoryview(x.numpy()),
    ],
    ids=["tensor", "detach", "numpy", "torch", "memoryview"],
)
def test_slots_are_returned_with_the_last_view(folder, derive):
    def used():
        """The number of batches in the staging buffer."""
        staging = loader.report()["ranks"][0]["staging"]
        return (staging["used"] + staging["extra"]) / (4 * 3 * 16 * 16 * 4)

    with ht.DataLoader(
        ht.ImageFolder(folder, TENSOR), 4, seed=1, epochs=1, drop_last=True, shuffle=True
    ) as loader:
        kept = [derive(images) for images, _ in loader]
        until(lambda: used() == 9, "all 9 batches are kept")
        was = numpy.array(kept[0])
        del kept[1:]
        until(lambda: used() == 1, "only the first batch is kept")
        assert (numpy.asarray(kept[0]) == was).all()
        kept.clear()
        until(lambda: used() == 0, "no batch is kept")
