"""The random numbers of transforms: those of their libraries, wherever the list is split."""

import importlib.util
import random

import numpy
import pytest

torch = pytest.importorskip("torch")
torchvision = pytest.importorskip("torchvision")

import hdmlp.torch as ht
from byhand import by_hand, flat
from hdmlp import errors
from hdmlp._transforms import agreement
from hdmlp._transforms.keys import entry_key, item_key
from PIL import Image
from torch.utils.data import DistributedSampler, Subset, WeightedRandomSampler
from torchvision import transforms as V

SEED = 77


@pytest.fixture
def folder(tmp_path):
    """Two classes of JPEGs of different sizes, and a BMP, which the daemon leaves to Pillow."""
    rng = numpy.random.default_rng(4)
    for name in ("ant", "bee"):
        (tmp_path / name).mkdir()
        for i in range(9):
            height, width = rng.integers(30, 300, 2)
            levels = rng.integers(-9, 10, (height, width, 3)).cumsum(1).astype(numpy.uint8)
            Image.fromarray(levels).save(tmp_path / name / f"{i}.jpg", quality=90)
    Image.fromarray(levels).save(tmp_path / "ant" / "z.bmp")
    return str(tmp_path)


def unknown(value):
    """Changes nothing, and HDMLP does not know that: what follows runs in Python."""
    return value


def noisy(value):
    """Draws from each of the generators."""
    return value + torch.rand(1) + random.random() + numpy.random.rand()


def lists():
    """Lists of transforms of torchvision and timm."""
    mean = V.Normalize([0.5] * 3, [0.5] * 3)
    every = {
        "v1": [
            V.RandomResizedCrop(48),
            V.RandomHorizontalFlip(0.3),
            V.ColorJitter(0.4, 0.4, 0.4, 0.1),
            V.ToTensor(),
            mean,
        ],
        "crops": [
            V.Resize(60),
            V.RandomCrop(48, padding=4),
            V.RandomVerticalFlip(),
            V.RandomCrop((48, 40)),
            V.PILToTensor(),
        ],
        "python": [
            V.RandomResizedCrop(48),
            V.RandomApply([V.ColorJitter(0.4)], 0.5),
            V.RandomHorizontalFlip(),
            V.ToTensor(),
            noisy,
            V.RandomErasing(0.5),
        ],
        "nested": [V.Compose([V.RandomResizedCrop(48), V.RandomHorizontalFlip()]), V.ToTensor()],
    }
    if importlib.util.find_spec("torchvision.transforms.v2") is not None:
        from torchvision.transforms import v2

        every["v2"] = [
            v2.RandomResizedCrop(64, antialias=True),
            v2.RandomHorizontalFlip(0.3),
            v2.RandomCrop((64, 50)),
            v2.RandomCrop((64, 50)),
            v2.ColorJitter(0.2, 0.2, 0.2, 0.1),
            v2.PILToTensor(),
        ]
    return every


def opened(path):
    return Image.open(path).convert("RGB")


def order(dataset, epoch, seed=SEED):
    sampler = DistributedSampler(dataset, 1, 0, shuffle=True, seed=seed)
    sampler.set_epoch(epoch)
    return list(sampler)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("name", sorted(lists()))
def test_a_list_that_is_run_by_hand_gives_the_loaders_tensors(folder, name, workers):
    """Over two epochs, the second of which is resumed in the middle."""
    transform = V.Compose(lists()[name])
    dataset = ht.ImageFolder(folder, transform)

    def loader():
        return ht.DataLoader(
            dataset, 4, shuffle=True, seed=SEED, epochs=2, num_workers=workers, drop_last=False
        )

    got, state = [], None
    with loader() as first:
        got += [x for images, _ in first for x in images]
        for step, (images, _) in enumerate(first):
            got += list(images)
            if step == 1:
                state = first.state_dict()
                break
    with loader() as second:
        second.load_state_dict(state)
        got += [x for images, _ in second for x in images]
    want = [
        by_hand(transform, opened(dataset.samples[i][0]), SEED, epoch, i)
        for epoch in range(2)
        for i in order(dataset, epoch)
    ]
    assert len(got) == len(want)
    assert all(torch.equal(x, y) for x, y in zip(got, want))


def test_timms_lists_give_the_same_by_hand(folder):
    data = pytest.importorskip("timm.data")
    for options in (
        {"auto_augment": None, "color_jitter": 0.4},
        {"auto_augment": "rand-m9-mstd0.5-inc1", "re_prob": 0.25},
    ):
        transform = data.create_transform(48, is_training=True, interpolation="random", **options)
        dataset = ht.ImageFolder(folder, transform)
        with ht.DataLoader(dataset, 4, shuffle=True, seed=SEED) as loader:
            got = [x for images, _ in loader for x in images]
        for x, i in zip(got, order(dataset, 0)):
            want = by_hand(transform, opened(dataset.samples[i][0]), SEED, 0, i)
            assert torch.equal(x, want)


def test_a_list_may_be_split_anywhere(folder):
    """Two equal flips draw apart from each other, and what they draw does not depend on where."""
    entries = [V.Resize((20, 30)), V.RandomHorizontalFlip(), V.RandomHorizontalFlip(), V.ToTensor()]
    made = []
    for at in range(len(entries) + 1):
        # The positions of the others stay: the unknown one is where another does nothing.
        given = [*entries[:at], V.Lambda(unknown), *entries[at:]]
        known = [*entries[:at], torch.nn.Identity(), *entries[at:]]
        pair = []
        for transform in (given, known):
            dataset = ht.ImageFolder(folder, V.Compose(transform))
            with ht.DataLoader(dataset, 4, shuffle=True, seed=SEED) as loader:
                pair.append(torch.cat([images for images, _ in loader]))
        assert torch.equal(*pair)
        made.append(pair[0])
    flips = [
        [
            (
                torch_of(SEED, epoch, sample, 0, 1) < 0.5,
                torch_of(SEED, epoch, sample, 0, 2) < 0.5,
            )
            for sample in range(500)
        ]
        for epoch in range(4)
    ]
    both = sum(a and b for epoch in flips for a, b in epoch)
    assert 400 < both < 600  # of 2,000; the standard deviation is 19


def torch_of(seed, epoch, sample, occurrence, position):
    own = torch.Generator().manual_seed(ht.item_seed(seed, epoch, sample, occurrence, position))
    return torch.rand(1, generator=own).item()


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("rest", [False, True])
def test_each_occurrence_of_a_sample_draws_its_own_numbers(folder, workers, rest):
    """In a subset that repeats, whatever part of the list runs in Python."""
    transform = V.Compose(
        [V.RandomResizedCrop(24), V.ToTensor(), *([V.Lambda(unknown), noisy] if rest else [])]
    )
    dataset = ht.ImageFolder(folder, transform)
    ids = [3, 5, 3, 3, 8, 5]
    with ht.DataLoader(
        Subset(dataset, ids), 4, shuffle=True, seed=SEED, num_workers=workers
    ) as loader:
        got = [x for images, _ in loader for x in images]
    seen = {}
    for x, place in zip(got, order(ids, 0)):
        i = ids[place]
        occurrence = seen[i] = seen.get(i, -1) + 1
        want = by_hand(transform, opened(dataset.samples[i][0]), SEED, 0, i, occurrence)
        assert torch.equal(x, want)
    assert seen == {3: 2, 5: 1, 8: 0}


@pytest.mark.parametrize("rest", [False, True])
def test_ranks_with_orders_of_their_own_draw_apart(folder, rest):
    transform = V.Compose(
        [V.RandomResizedCrop(24), V.ToTensor(), *([V.Lambda(unknown)] if rest else [])]
    )
    dataset = ht.ImageFolder(folder, transform)
    image = opened(dataset.samples[3][0])
    for rank in range(2):
        torch.manual_seed(5)  # of both, as scripts do
        ids = WeightedRandomSampler([0] * 3 + [1] + [0] * 15, 6)
        ids.rank, ids.num_replicas = rank, 2
        with ht.DataLoader(dataset, 3, sampler=ids) as loader:
            batches = iter(loader)
            got = list(next(batches)[0])
            seed = loader.state_dict()["job_seed"]
            got += [x for images, _ in batches for x in images]
        for k, x in enumerate(got):
            assert torch.equal(x, by_hand(transform, image, seed, 0, 3, 2 * k + rank))


def uncertain(width, height, key):
    """Whether a side of the part depends on the last bit of the exponential."""
    own = torch.Generator().manual_seed(key)
    logs = torch.log(torch.tensor((3 / 4, 4 / 3)))
    for _ in range(10):
        area = width * height * torch.empty(1).uniform_(0.08, 1.0, generator=own).item()
        exact = torch.exp(torch.empty(1).uniform_(*logs.tolist(), generator=own).double())
        middle = exact.float()
        ratios = [
            torch.nextafter(middle, torch.tensor(0.0)).item(),
            middle.item(),
            torch.nextafter(middle, torch.tensor(9.0)).item(),
        ]
        sides = {(round((area * r) ** 0.5), round((area / r) ** 0.5)) for r in ratios}
        if len(sides) > 1:
            return True
        ((w, h),) = sides
        if 0 < w <= width and 0 < h <= height:
            return False
    return False


def test_where_torchs_rounding_decides_torch_draws(tmp_path, caplog):
    """The exponential of the aspect ratio is rounded differently from one release to the next."""
    (tmp_path / "a").mkdir()
    width, height = 2000, 1500
    Image.linear_gradient("L").resize((width, height)).save(tmp_path / "a" / "0.jpg")
    epoch = next(
        epoch
        for epoch in range(100_000)
        if uncertain(width, height, entry_key(item_key(SEED, epoch, 0), 0))
    )
    transform = V.Compose([V.RandomResizedCrop(32), V.ToTensor()])
    dataset = ht.ImageFolder(str(tmp_path), transform)
    with ht.DataLoader(dataset, 1, shuffle=True, seed=SEED) as loader:
        loader.set_epoch(epoch)
        ((images, _),) = list(loader)
    want = by_hand(transform, opened(dataset.samples[0][0]), SEED, epoch, 0)
    assert torch.equal(images[0], want)
    assert "decoded by Pillow" not in caplog.text


def test_exponentials_are_the_closest_or_beside_it():
    """Of all arguments that the aspect ratio of RandomResizedCrop may have."""
    low, high = torch.log(torch.tensor((3 / 4, 4 / 3)))
    for part in torch.arange(1 << 24, dtype=torch.int32).chunk(8):
        x = part.float() * 2.0**-24 * (high - low) + low
        closest = x.double().exp().float()
        steps = torch.exp(x).view(torch.int32) - closest.view(torch.int32)
        assert steps.abs().max() <= 1


def test_what_the_installed_torch_draws_otherwise_runs_in_python(folder, monkeypatch, caplog):
    transform = V.Compose(lists()["v1"])
    dataset = ht.ImageFolder(folder, transform)
    with ht.DataLoader(dataset, 4, shuffle=True, seed=SEED) as loader:
        want = torch.cat([images for images, _ in loader])
    assert "runs in Python" not in caplog.text
    monkeypatch.setitem(agreement.DAEMONS, "torch", [0.5] * 16)
    agreement._differing.cache_clear()
    try:
        dataset = ht.ImageFolder(folder, transform)
        with ht.DataLoader(dataset, 4, shuffle=True, seed=SEED) as loader:
            got = torch.cat([images for images, _ in loader])
    finally:
        agreement._differing.cache_clear()
    assert "the random numbers of torch" in caplog.text
    assert torch.equal(got, want)


def test_torch_is_compared_also_if_it_is_imported_later(monkeypatch):
    agreement._differing.cache_clear()
    try:
        with monkeypatch.context() as patch:
            patch.delitem(agreement.sys.modules, "torch")
            assert agreement.disagreement() == ""
        monkeypatch.setitem(agreement.DAEMONS, "torch", [0.5] * 16)
        assert "the random numbers of torch" in agreement.disagreement()
    finally:
        agreement._differing.cache_clear()


def test_a_default_device_of_torchs_own_draws_in_python(folder, caplog):
    if not hasattr(torch, "set_default_device"):
        pytest.skip("this torch has no default device")
    torch.set_default_device("meta")
    try:
        assert "default device is meta" in agreement.disagreement()
    finally:
        torch.set_default_device("cpu")
    assert agreement.disagreement() == ""


def test_states_of_other_random_numbers_are_refused(folder):
    def loader(given):
        return ht.DataLoader(ht.ImageFolder(folder, V.Compose(lists()["v1"])), 4, **given)

    for given in ({"shuffle": True, "seed": 1}, {"shuffle": True}):
        with loader(given) as first:
            iterator = iter(first)
            next(iterator)
            state = first.state_dict()
            rest = [x for x, _ in iterator]
        assert state["random"] == 2
        old = {k: v for k, v in state.items() if k != "random"}
        with loader(given) as second:
            with pytest.raises(
                errors.ConfigError, match=r"HDMLP 0\.2 saved .* state\['random'\] = 2"
            ):
                second.load_state_dict(old)
            with pytest.raises(errors.ConfigError, match="a later release"):
                second.load_state_dict({**state, "random": 3})
            second.load_state_dict({**old, "random": 2})
            assert all(torch.equal(x, y) for (x, _), y in zip(second, rest))


def test_collate_functions_draw_from_the_batch(folder):
    """And not from what its samples have drawn."""

    def collate(items):
        return torch.rand(1).item(), random.random(), numpy.random.rand()

    drawn = []
    for transform in (None, V.Compose(lists()["v1"]), V.Compose(lists()["python"])):
        for workers in (0, 2):
            with ht.DataLoader(
                ht.ImageFolder(folder, transform),
                4,
                shuffle=True,
                seed=SEED,
                collate_fn=collate,
                num_workers=workers,
            ) as loader:
                drawn.append(list(loader))
    assert all(batches == drawn[0] for batches in drawn)
    assert len({x for batch in drawn[0] for x in batch}) == 3 * len(drawn[0])


def test_the_generators_of_the_process_stay(folder):
    before = torch.get_rng_state(), random.getstate(), numpy.random.get_state()[1].tolist()
    with ht.seeded(1, 2, 3) as key:
        assert key == ht.item_seed(1, 2, 3)
        assert torch.initial_seed() & 0xFFFFFFFF == key & 0xFFFFFFFF
    after = torch.get_rng_state(), random.getstate(), numpy.random.get_state()[1].tolist()
    assert torch.equal(before[0], after[0])
    assert before[1:] == after[1:]


@pytest.mark.parametrize(
    "given, says",
    [
        ((None, 0, 0), "seed=None"),
        ((-1, 0, 0), "seed=-1"),
        ((1, -1, 0), "epoch=-1"),
        ((1, 0, 1.5), "index=1.5"),
        ((1, 0, 0, "a"), "occurrence='a'"),
        ((1, 0, 0, 0, -2), "position=-2"),
    ],
)
def test_wrong_arguments_of_item_seed_are_errors(given, says):
    with pytest.raises(errors.ConfigError, match=says):
        ht.item_seed(*given)
    with pytest.raises(errors.ConfigError, match=says), ht.seeded(*given):
        raise AssertionError("not reached")


def test_positions_count_through_nested_lists():
    inner = V.Compose([V.RandomHorizontalFlip(), V.RandomVerticalFlip()])
    names = [type(t).__name__ for t in flat([V.Resize(3), inner, [V.ToTensor()]])]
    assert names == ["Resize", "RandomHorizontalFlip", "RandomVerticalFlip", "ToTensor"]
