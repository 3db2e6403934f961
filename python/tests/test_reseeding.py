"""Which generators are seeded for items of datasets of the program's own: never seen in results."""

import hashlib
import random
import sys

import pytest

torch = pytest.importorskip("torch")
numpy = pytest.importorskip("numpy")

import hdmlp.torch as ht
from hdmlp import errors
from hdmlp._transforms import generators
from hdmlp._transforms.keys import batch_key, place_key
from torch.utils.data import Dataset, DistributedSampler, default_collate

pytestmark = pytest.mark.usefixtures("real", "spawns_preloaded")

SEED, ITEMS, SIZE = 5, 150, 8
DRAWS = {
    "Python": lambda: random.gauss(0, 1),
    "torch": lambda: torch.randn(()).item(),
    "numpy": lambda: numpy.random.randn(),
}


def order_of(epoch):
    """The indices of an epoch."""
    sampler = DistributedSampler(range(ITEMS), 1, 0, seed=SEED)
    sampler.set_epoch(epoch)
    return list(sampler)


ORDERS = [order_of(epoch) for epoch in range(3)]


def number(value):
    return torch.tensor(value, dtype=torch.float64)


class Drawing(Dataset):
    """Items that draw from generators, from a place in the order and an epoch on."""

    def __init__(self, names, place=0, epoch=0):
        self.names, self.place, self.first = names, place, epoch
        self.epoch = 0  # the loop sets it

    def late(self, i):
        return ORDERS[self.epoch].index(i) >= self.place

    def __len__(self):
        return ITEMS

    def __getitem__(self, i):
        draws = self.late(i) and self.epoch >= self.first
        return [number(DRAWS[name]() if draws else i) for name in self.names] or number(i), i


class Whole(Drawing):
    """Items by lists of indices."""

    def __getitems__(self, indices):
        return [self[i] for i in indices]


class Raising(Drawing):
    """Items that depend on what they draw to raise nothing."""

    def __getitem__(self, i):
        item = super().__getitem__(i)
        if self.late(i) and item[0][0] != WANTED[self.epoch, i]:
            raise ValueError(f"item {i}")
        return item


class Private(Drawing):
    """Items that draw from a generator of the dataset's own as well."""

    def __init__(self, names, place=0):
        super().__init__(names, place)
        self.generator = random.Random(3)

    def __getitem__(self, i):
        return super().__getitem__(i), random.Random(i).random()


class Restoring(Drawing):
    """Items that seed a generator themselves, and restore it."""

    def __getitem__(self, i):
        python, numpys, torchs = random.getstate(), numpy.random.get_state(), torch.get_rng_state()
        for seed in (random.seed, numpy.random.seed, torch.manual_seed):
            seed(i)
        own = random.random() + numpy.random.randn() + torch.rand(()).item()
        random.setstate(python)
        numpy.random.set_state(numpys)
        torch.set_rng_state(torchs)
        return super().__getitem__(i), own


class Seeding(Drawing):
    """Items that seed all generators, and leave them."""

    def __getitem__(self, i):
        item = super().__getitem__(i)
        random.seed(7), numpy.random.seed(7), torch.manual_seed(7)
        return item


class Asking(Drawing):
    """Items that seed a generator of their own from the state of the program's."""

    def __getitem__(self, i):
        seeds = torch.initial_seed(), random.getstate()[1][5], int(torch.get_rng_state()[30])
        return super().__getitem__(i), [random.Random(seed).random() for seed in seeds]


class Late:
    """As ``Drawing.late`` in epoch 0."""

    def __init__(self, place):
        self.place = place

    def __call__(self, i):
        return ORDERS[0].index(i) >= self.place


def drawing_collate(batch):
    return default_collate(batch), [draw() for draw in DRAWS.values()]


def late_collate(batch):
    late = any(ORDERS[0].index(i) >= 100 for _, i in batch)
    return default_collate(batch), numpy.random.rand() if late else 0.0


WANTED = {}
ALL = tuple(DRAWS)
DATASETS = {
    "nothing": (lambda: Drawing(()), None),
    **{name: (lambda name=name: Drawing((name,)), None) for name in DRAWS},
    "all": (lambda: Drawing(ALL), None),
    **{f"late {name}": (lambda name=name: Drawing((name,), 100), None) for name in DRAWS},
    "late all": (lambda: Drawing(ALL, 90), None),
    "second epoch": (lambda: Drawing(ALL, 0, 1), None),
    "late in the second epoch": (lambda: Drawing(("numpy",), 90, 1), None),
    "whole": (lambda: Whole(ALL), None),
    "whole, late": (lambda: Whole(("Python",), 100), None),
    "own generators": (lambda: Private(("torch",)), None),
    "own generators, late": (lambda: Private(("torch",), 100), None),
    "restoring": (lambda: Restoring(()), None),
    "restoring, late": (lambda: Restoring(("Python", "numpy"), 100), None),
    "asking": (lambda: Asking(()), None),
    "asking, late": (lambda: Asking(("numpy",), 100), None),
    "seeding": (lambda: Seeding(ALL), None),
    "seeding, late": (lambda: Seeding(ALL, 100), None),
    "collate": (lambda: Drawing(()), drawing_collate),
    "late collate": (lambda: Drawing(()), late_collate),
}


def digest(value):
    """A hash of all that a batch holds."""
    found = hashlib.blake2b(digest_size=8)

    def add(value):
        if isinstance(value, torch.Tensor):
            found.update(f"{value.dtype}{tuple(value.shape)}".encode() + value.numpy().tobytes())
        elif isinstance(value, (list, tuple)):
            found.update(f"{type(value).__name__}{len(value)}".encode())
            for one in value:
                add(one)
        else:
            found.update(repr(value).encode())

    add(value)
    return found.hexdigest()


def wanted(data, collate, epochs=2, size=SIZE):
    """The batches if all generators are seeded for each item, with its place in the epoch."""
    collate = collate or default_collate
    found = []
    with generators.generators_kept():
        for epoch in range(epochs):
            data.epoch = epoch
            order = ORDERS[epoch]
            for step in range(0, ITEMS, size):
                items = []
                for place, index in enumerate(order[step : step + size]):
                    key = batch_key(SEED, epoch, step // size)
                    # A dataset with __getitems__ draws for its batch as a whole.
                    if not place or not hasattr(data, "__getitems__"):
                        generators.seed_generators(place_key(key, place))
                    items.append(data[index])
                found.append(digest(collate(items)))
    return found


def got(data, epochs=2, state=None, size=SIZE, stop=None, **options):
    """The batches of HDMLP's loader, and its state after the last; ``stop``: after so many."""
    found = []
    with ht.DataLoader(data, size, shuffle=True, seed=SEED, **options) as loader:
        if state is not None:
            loader.load_state_dict(state)
        for epoch in range(loader.epoch, epochs):
            data.epoch = epoch
            for batch in loader:
                found.append(digest(batch))
                if len(found) == stop:
                    return found, loader.state_dict()
    return found, None


PROCESSES = {
    "none": {"num_workers": 0},
    "fork": {"num_workers": 2, "multiprocessing_context": "fork"},
    "four": {"num_workers": 4, "multiprocessing_context": "fork"},
    "spawn": {"num_workers": 2, "multiprocessing_context": "spawn"},
}


#: Datasets by which workers that are more, or spawned, are tried: of each class one, that begins to
#: draw late.
FEW = (
    "late all",
    "whole, late",
    "own generators, late",
    "restoring, late",
    "seeding, late",
    "asking, late",
    "late collate",
)


@pytest.mark.parametrize(
    "processes, name",
    [
        *((processes, name) for processes in ("none", "fork") for name in DATASETS),
        *(
            pytest.param(processes, name, marks=pytest.mark.slow)
            for processes in ("four", "spawn")
            for name in FEW
        ),
    ],
)
def test_items_draw_what_they_would_if_all_generators_were_seeded(name, processes):
    make, collate = DATASETS[name]
    want = wanted(make(), collate)
    options = {**PROCESSES[processes], "collate_fn": collate}
    assert got(make(), **options)[0] == want
    if processes == "none" or (processes == "fork" and name in FEW):
        assert got(make(), **options, reseed="all")[0] == want
        first, state = got(make(), **options, stop=7)
        assert first + got(make(), state=state, **options)[0] == want


@pytest.mark.parametrize("name", ["torch", "late all", "late collate", "seeding, late"])
@pytest.mark.parametrize("context", ["fork", pytest.param("spawn", marks=pytest.mark.slow)])
def test_workers_that_stay(name, context):
    make, collate = DATASETS[name]
    options = {"num_workers": 2, "multiprocessing_context": context, "persistent_workers": True}
    data = make()
    data.late = Late(data.place)  # workers that stay do not see the epochs
    want = wanted(data, collate)
    assert got(data, collate_fn=collate, **options)[0] == want


@pytest.mark.parametrize("size", [1, 40, ITEMS])
@pytest.mark.parametrize("name", ["all", "late all", "collate", "late collate"])
def test_batches_of_any_size(name, size):
    make, collate = DATASETS[name]
    assert got(make(), size=size, collate_fn=collate)[0] == wanted(make(), collate, size=size)


def test_an_item_may_raise_for_what_it_drew_unseeded():
    WANTED.clear()
    data = Drawing(("numpy",), 100)
    with generators.generators_kept():
        for place, i in enumerate(ORDERS[0]):
            key = batch_key(SEED, 0, place // SIZE)
            generators.seed_generators(place_key(key, place % SIZE))
            WANTED[0, i] = data[i][0][0]
    want = wanted(Drawing(("numpy",), 100), None, epochs=1)
    assert got(Raising(("numpy",), 100), epochs=1)[0] == want


def states():
    return [generator.state() for generator in generators.present()]


@pytest.mark.parametrize("name", DATASETS)
def test_the_programs_generators_stay(name):
    """Also the second of two numbers that are drawn together, which a loop has left there."""
    make, collate = DATASETS[name]
    random.seed(1), numpy.random.seed(1), torch.manual_seed(1)
    found, want = [], []
    for numbers in (found, want):
        random.seed(1), numpy.random.seed(1), torch.manual_seed(1)
        data = make()
        loader = ht.DataLoader(data, SIZE, shuffle=True, seed=SEED, collate_fn=collate)
        batches = loader if numbers is found else range(len(loader))
        for epoch in range(2):
            loader.dataset.epoch = epoch
            if numbers is want:  # torch's loader draws a seed for its workers, and so does HDMLP
                torch.empty((), dtype=torch.int64).random_()
            for _ in batches:
                numbers.append([draw() for draw in DRAWS.values()])
    assert found == want


@pytest.mark.parametrize("name", ["asking", "late all"])
def test_a_program_may_be_profiled(name):
    make, _ = DATASETS[name]
    want, called = wanted(make(), None), []

    def profiler(*_):
        called.append(1)

    sys.setprofile(profiler)
    try:
        found = got(make())[0]
        assert sys.getprofile() is profiler
    finally:
        sys.setprofile(None)
    assert found == want


@pytest.fixture
def seeded(monkeypatch):
    """How often each generator is seeded in this process."""
    counts = dict.fromkeys(DRAWS, 0)
    for generator in generators.present():

        def seed(key, name=generator.name, real=generator.seed):
            counts[name] += 1
            real(key)

        monkeypatch.setattr(generator, "seed", seed)
    return counts


@pytest.mark.parametrize("used", [(), ("Python",), ("torch",), ("numpy",), ("Python", "numpy")])
def test_generators_are_seeded_that_items_use(seeded, used):
    """And the others for the first batches of 32 items in each epoch."""
    got(Drawing(used))
    assert seeded == {name: 2 * (ITEMS if name in used else 32) for name in DRAWS}


def test_all_are_seeded_if_that_is_asked_for(seeded):
    got(Drawing(()), reseed="all")
    assert seeded == dict.fromkeys(DRAWS, 2 * ITEMS)


class Counting(Drawing):
    """Counts its calls."""

    def __init__(self, names, place=0):
        super().__init__(names, place)
        self.calls = 0

    def __getitem__(self, i):
        self.calls += 1
        return super().__getitem__(i)


def test_a_batch_is_made_again_once_and_one_line_says_so(caplog):
    data = Counting(ALL, 100)
    got(data)
    assert data.calls == 2 * ITEMS + SIZE
    (line,) = [r.getMessage() for r in caplog.records if "reseed" in r.getMessage()]
    assert "Counting: items began to draw from the generator of Python and torch and numpy" in line
    assert "that batch was made again" in line
    assert "give reseed='all'" in line


def test_no_item_is_made_twice_if_all_are_seeded(caplog):
    data = Counting(ALL, 100)
    got(data, reseed="all")
    assert data.calls == 2 * ITEMS
    assert "reseed" not in caplog.text


@pytest.mark.parametrize("persistent", [False, True])
def test_workers_that_made_a_batch_again_say_so_once(caplog, persistent):
    got(Drawing(("numpy",), 100), epochs=3, num_workers=2, persistent_workers=persistent)
    (line,) = [r.getMessage() for r in caplog.records if "reseed" in r.getMessage()]
    assert "Drawing: items began to draw from the generator of numpy" in line


class Interrupted(Drawing):
    """Draws, and is interrupted once, while generators are watched."""

    stops = True

    def __getitem__(self, i):
        item = super().__getitem__(i)
        if self.late(i) and self.stops:
            self.stops = False
            raise KeyboardInterrupt
        return item


def test_an_interrupted_batch_leaves_the_programs_generators():
    want = wanted(Drawing(ALL, 100), None, epochs=1)
    data, found = Interrupted(ALL, 100), []
    with ht.DataLoader(data, SIZE, shuffle=True, seed=SEED) as loader:
        batches = iter(loader)
        while len(found) < len(want):
            before = states()
            try:
                found.append(digest(next(batches)))
            except KeyboardInterrupt:
                assert states() == before
    assert found == want


@pytest.mark.parametrize("name", DRAWS)
def test_a_generators_state_is_compared_and_restored(name):
    (generator,) = [g for g in generators.present() if g.name == name]
    with generators.generators_kept():
        for seed in range(3):
            generator.seed(2**63 + seed)
            for draws in range(3):  # the second number of a pair is there after one, gone after two
                state = generator.state()
                assert state == generator.state()
                want = [DRAWS[name]() for _ in range(700 if seed else 1)]
                assert state != generator.state()
                generator.restore(state)
                assert state == generator.state()
                assert [DRAWS[name]() for _ in want] == want, draws


@pytest.mark.parametrize("name", ["Python", "numpy"])
def test_a_generator_whose_memory_is_not_as_expected_is_asked(name, monkeypatch):
    monkeypatch.setattr(generators, "_memory", lambda address, said: None)
    monkeypatch.setattr(generators, "_found", {})
    test_a_generators_state_is_compared_and_restored(name)
    assert got(Drawing(ALL, 100))[0] == wanted(Drawing(ALL, 100), None)


def test_other_values_are_refused():
    with pytest.raises(errors.ConfigError, match="reseed='some': must be 'used' or 'all'"):
        ht.DataLoader(Drawing(()), reseed="some")


def test_an_iterable_dataset_seeds_itself():
    class Stream(torch.utils.data.IterableDataset):
        def __iter__(self):
            return iter(range(3))

    with pytest.raises(errors.ConfigError, match="reseed='all': no meaning for the iterable"):
        ht.DataLoader(Stream(), reseed="all")
