"""Threads of worker processes that make items: worker_threads."""

import contextvars
import cProfile
import decimal
import logging
import random
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
numpy = pytest.importorskip("numpy")

import hdmlp.torch as ht
from hdmlp._transforms.touching import Touching
from hdmlp.errors import ConfigError
from torch.utils.data import Dataset, IterableDataset, Subset

pytestmark = pytest.mark.usefixtures("real", "spawns_preloaded")

ITEMS, SIZE, THREADS = 200, 8, 4


class Meeting(Dataset):
    """From the batch after those that are looked at on, items wait for others of their batch."""

    def __init__(self):
        self.meet = None

    def __len__(self):
        return ITEMS

    def __getitem__(self, i):
        if i < 40:
            return i, 0
        if self.meet is None:  # made in the worker: a barrier cannot be copied there
            with _LOCK:
                self.meet = self.meet or threading.Barrier(THREADS)
        return i, self.meet.wait(timeout=30) >= 0


_LOCK = threading.Lock()


class Drawing(Dataset):
    """Items that draw from torch's generator from an index on."""

    def __init__(self, first=0, fails=None):
        self.first, self.fails = first, fails

    def __len__(self):
        return ITEMS

    def __getitem__(self, i):
        if self.fails is not None and i >= self.fails:
            raise ValueError(f"item {i}")
        return i, torch.rand(()).item() if i >= self.first else 0.0


class Keeping(Dataset):
    """Items that seed a generator from an index on, draw, and restore it, as recipes have it."""

    def __init__(self, name, first, draws=True):
        self.name, self.first, self.draws = name, first, draws

    def __len__(self):
        return ITEMS

    def __getitem__(self, i):
        if i < self.first:
            return i, 0.0
        if self.name == "torch":
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(i)
                return i, torch.rand(1000).sum().item()
        if self.name == "Python":
            state = random.getstate()
            random.seed(i)
            value = sum(random.random() for _ in range(100))
            random.setstate(state)
            return i, value
        state = numpy.random.get_state()
        if not self.draws:
            return i, float(state[1][:9].sum())
        numpy.random.seed(i)
        value = numpy.random.randn(1000).sum()
        numpy.random.set_state(state)
        return i, value


def values(dataset, threads, **keys):
    keys = {"batch_size": SIZE, "shuffle": False, "seed": 5, "num_workers": 1, **keys}
    loader = ht.DataLoader(dataset, worker_threads=threads, **keys)
    with loader:
        return [[column.tolist() for column in batch] for batch in loader]


def test_items_of_a_batch_are_made_at_the_same_time_and_in_order():
    """Each item waits until as many are being made as there are threads."""
    made = values(Meeting(), THREADS)
    assert [i for ids, _ in made for i in ids] == list(range(ITEMS))
    assert all(met for _, mets in made[5:] for met in mets)


@pytest.mark.parametrize("first", [0, 10, 100, ITEMS])
def test_results_are_those_without_threads(first, caplog):
    """Items that draw late make the batch again, one after the other; a warning says so."""
    caplog.set_level(logging.WARNING, "hdmlp")
    one = values(Drawing(first), 1)
    caplog.clear()
    assert values(Drawing(first), THREADS) == one
    lines = [m for m in caplog.messages if "worker_threads has no effect" in m]
    assert len(lines) == (first < ITEMS)
    assert all("torch" in line for line in lines)


@pytest.mark.parametrize("first", [0, 100, ITEMS - 1])
@pytest.mark.parametrize("name", ["numpy", "Python", "torch"])
def test_items_that_restore_a_generator_are_noticed(name, first, caplog):
    """Its state is the same before and after a batch, and threads would draw from others' seeds."""
    dataset = Keeping(name, first)
    caplog.set_level(logging.WARNING, "hdmlp")
    made = values(dataset, THREADS)
    lines = [m for m in caplog.messages if "worker_threads has no effect" in m]
    assert len(lines) == 1
    assert f"from the generator of {name}" in lines[0]
    right = [dataset[i] for i in range(ITEMS)]
    assert [value for _, batch in made for value in batch] == [value for _, value in right]


def _in_a_thread(make):
    made = []
    thread = threading.Thread(target=lambda: made.append(make()))
    thread.start()
    thread.join()
    return made[0]


def _under_a_profiler(make):
    profile = cProfile.Profile()
    profile.enable()
    try:
        return make()
    finally:
        profile.disable()


def _without_profile(make):
    sys.setprofile(None)
    return make()


def _with_profile_put_back(make):
    before = sys.getprofile()
    sys.setprofile(None)
    try:
        return make()
    finally:
        sys.setprofile(before)


class Around(Dataset):
    """The items of another dataset, made in some way."""

    def __init__(self, dataset, how):
        self.dataset, self.how = dataset, how

    def __len__(self):
        return len(self.dataset)

    def __getitem__(self, i):
        return self.how(lambda: self.dataset[i])


class Pooled(Around):
    """As a library that keeps threads of its own has it."""

    def __init__(self, dataset):
        super().__init__(dataset, None)
        self.pool = None

    def __getitem__(self, i):
        if self.pool is None:
            self.pool = ThreadPoolExecutor(1)
        return self.pool.submit(self.dataset.__getitem__, i).result()


@pytest.mark.parametrize("name", ["Python", "torch"])
@pytest.mark.parametrize("first", [0, 100])
@pytest.mark.parametrize(
    "how", [_in_a_thread, _under_a_profiler, _without_profile, _with_profile_put_back, Pooled]
)
def test_items_that_restore_a_generator_out_of_sight_are_noticed(how, first, name, caplog):
    """In threads of the items' own, and where these replace the function that notes calls."""
    dataset = Keeping(name, first)
    around = Pooled(dataset) if how is Pooled else Around(dataset, how)
    caplog.set_level(logging.WARNING, "hdmlp")
    made = values(around, THREADS)
    (line,) = (m for m in caplog.messages if "worker_threads has no effect" in m)
    assert name in line
    right = [dataset[i][1] for i in range(ITEMS)]
    assert [value for _, batch in made for value in batch] == right


@pytest.mark.parametrize("threads", [1, THREADS])
def test_items_that_ask_for_their_seed_in_a_thread_have_their_own(threads):
    """Also without threads of the worker, so that results are the same with and without."""
    keys = {"batch_size": SIZE, "seed": 5, "shuffle": False, "num_workers": 1}
    with ht.DataLoader(Around(Seeds(), _in_a_thread), worker_threads=threads, **keys) as loader:
        made = torch.cat(list(loader)).tolist()
    assert len({*made}) == ITEMS


class Seeds(Dataset):
    def __len__(self):
        return ITEMS

    def __getitem__(self, i):
        return torch.initial_seed() % 2**62


def test_a_function_of_the_program_for_new_threads_stays():
    """It is not replaced, so that calls in threads cannot be noted, and count."""

    def profile(frame, event, function):
        pass

    touching = Touching()
    threading.setprofile(profile)
    try:
        with touching.noting():
            assert threading._profile_hook is profile
        assert threading._profile_hook is profile
    finally:
        threading.setprofile(None)
    assert {"Python", "torch"} <= touching.names
    touching.names.clear()
    with touching.noting():
        assert threading._profile_hook is not None
    assert threading._profile_hook is None
    assert not touching.names


def test_threads_of_items_are_no_longer_noted_after_the_last_that_is_looked_at():
    """A profile function makes all of their calls slower."""
    touching = Touching()
    with ThreadPoolExecutor(1) as pool:
        with touching.in_new_threads():
            pool.submit(random.random).result()
            assert pool.submit(sys.getprofile).result() is not None
        assert touching.names == {"Python"}
        pool.submit(random.random).result()
        assert pool.submit(sys.getprofile).result() is None


def test_items_that_ask_for_a_state_have_their_own(caplog):
    """As items that make a generator of numpy's global one."""
    dataset = Keeping("numpy", 100, draws=False)
    made = [value for _, batch in values(dataset, THREADS) for value in batch]
    assert len({*made[100:]}) == ITEMS - 100


class Sharing(Dataset):
    """Items that draw by an object which shares numpy's global bit generator."""

    def __init__(self, of):
        self.random = of(numpy.random.mtrand._rand._bit_generator)

    def __len__(self):
        return ITEMS

    def __getitem__(self, i):
        return i, float(self.random.random())


@pytest.mark.parametrize("of", [numpy.random.Generator, numpy.random.RandomState])
def test_what_shares_numpys_bit_generator_still_does(of, caplog):
    """It is not replaced, and numpy counts as called by all items, of which it is seeded."""
    caplog.set_level(logging.WARNING, "hdmlp")
    one = values(Sharing(of), 1)
    caplog.clear()
    assert values(Sharing(of), THREADS) == one
    (line,) = (m for m in caplog.messages if "worker_threads has no effect" in m)
    assert "numpy" in line
    drawn = [value for _, batch in one for value in batch]
    assert len({*drawn}) == ITEMS


def test_a_bit_generator_of_numpys_stays_what_it_was():
    """In a process of its own, where it was replaced by one that notes calls."""
    code = """
import copy, pickle, sys
import numpy
from hdmlp._transforms.touching import Touching
if sys.argv[1] == "other":
    numpy.random.mtrand._rand.__init__(numpy.random.PCG64(4))
else:
    numpy.random.seed(4)
    numpy.random.randn()
rand = numpy.random.mtrand._rand
want = copy.deepcopy(rand)
touching = Touching()
for _ in range(2):
    touching.attach()
same = pickle.loads(pickle.dumps(rand))
values = [r.randn(5).tolist() + [r.rand(), r.randint(9)] for r in (rand, same, want)]
assert values[0] == values[1] == values[2], values
assert not touching.names
for call in (rand.rand, rand.get_state, lambda: rand.shuffle([1, 2])):
    with touching.noting():
        call()
    assert touching.names == {"numpy"}
    touching.names.clear()
"""
    for kind in ("MT19937", "other"):
        command = [sys.executable, "-W", "ignore", "-c", code, kind]
        subprocess.run(command, check=True, timeout=60)


VARIABLE = contextvars.ContextVar("VARIABLE", default=0)


def _fraction(i):
    return float(decimal.Decimal(1) / decimal.Decimal(i + 3))


def _own_fraction(i):
    """Items that change decimal's context while others are made."""
    context = decimal.getcontext()
    before, context.prec = context.prec, i % 20 + 1
    value = sum(decimal.Decimal(1) / decimal.Decimal(3 + k) for k in range(200))
    made, context.prec = float(value), before
    return made


def _by_zero(_):
    try:
        return float(numpy.float64(1) / numpy.float64(0))
    except FloatingPointError:
        return -1.0


def _type(_):
    return float((torch.ones(8, 8) @ torch.ones(8, 8)).dtype == torch.bfloat16)


def _default_device(_):
    return float(torch.empty(0).device.type == "meta")


def _leaves_grad_mode(i):
    """An item that leaves a setting changed has its own effect only."""
    value = float(torch.is_grad_enabled())
    if i >= 40:
        torch.set_grad_enabled(True)
        with torch.no_grad():
            value = float(torch.is_grad_enabled())
    return value


def _sets(worker):
    decimal.getcontext().prec = 5
    numpy.seterr(all="raise")
    VARIABLE.set(7)
    torch.set_grad_enabled(False)
    _set_autocast()


def _set_autocast():
    if hasattr(torch, "get_autocast_dtype"):
        torch.set_autocast_enabled("cpu", True)
    else:
        torch.set_autocast_cpu_enabled(True)


_KEPT = []


def _sets_inference(worker):
    _KEPT.append(torch.inference_mode())  # which ends when it is deleted
    _KEPT[0].__enter__()


def _sets_device(worker):
    if hasattr(torch, "set_default_device"):
        torch.set_default_device("meta")


class Of(Dataset):
    def __init__(self, function):
        self.function = function

    def __len__(self):
        return ITEMS

    def __getitem__(self, i):
        return numpy.float64(self.function(i))


@pytest.mark.parametrize(
    "function, sets, want",
    [
        (_fraction, _sets, None),
        (_own_fraction, _sets, None),
        (_by_zero, _sets, -1.0),
        (lambda _: VARIABLE.get(), _sets, 7),
        (lambda _: float(torch.is_grad_enabled()), _sets, 0.0),
        (_leaves_grad_mode, _sets, 0.0),
        (_type, _sets, 1.0),
        (lambda _: float(torch.ones(1).is_inference()), _sets_inference, 1.0),
        (_default_device, _sets_device, float(hasattr(torch, "set_default_device"))),
    ],
)
def test_threads_have_what_the_workers_thread_has_set(function, sets, want):
    keys = {"batch_size": SIZE, "num_workers": 1, "worker_init_fn": sets, "collate_fn": list}
    made = []
    for threads in (1, THREADS):
        with ht.DataLoader(Of(function), worker_threads=threads, **keys) as loader:
            made.append([float(item) for batch in loader for item in batch])
    assert made[0] == made[1]
    assert want is None or {*made[0]} == {want}


def test_a_subset_has_threads_too():
    subset = Subset(Meeting(), range(ITEMS))
    assert [i for ids, _ in values(subset, THREADS) for i in ids] == list(range(ITEMS))


def test_the_first_item_that_fails_is_raised():
    with pytest.raises(ValueError, match="item 100") as raised:
        values(Drawing(ITEMS, fails=100), THREADS)
    assert raised.value.sample == 100


class Whole(Drawing):
    def __getitems__(self, indices):
        return [self[i] for i in indices]


class Stream(IterableDataset):
    def __iter__(self):
        return iter(range(3))


def test_where_there_are_no_threads_it_is_refused(folder):
    files = [str(path) for path in Path(folder).rglob("*") if path.is_file()]
    for dataset, keys, why in (
        (Drawing(), {"worker_threads": 0}, "worker_threads"),
        (Drawing(), {"worker_threads": 2**70}, "must be 1024 or less"),
        (Drawing(), {"num_workers": 0}, "give num_workers=1 or more"),
        (Drawing(), {"num_workers": None}, "give num_workers=1 or more"),
        (Drawing(), {"reseed": "all"}, "one item after the other; leave it out"),
        (Drawing(), {"batch_size": None}, "one item at a time; leave it out"),
        (Whole(), {}, "Whole has __getitems__"),
        (Subset(Whole(), [0]), {}, "Subset has __getitems__"),
        (Stream(), {}, "iterable dataset"),
        (Drawing(), {"files": lambda i: files[i % len(files)]}, "that the daemon reads ahead"),
        (Drawing(), {"files": lambda i: "/nowhere/x"}, "threads need a loader without files="),
        (Drawing(), {"files": lambda i: files[0]}, "threads need a loader without files="),
        (ht.ImageFolder(folder), {}, "transform_threads"),
    ):
        with pytest.raises(ConfigError, match="worker_threads=") as raised:
            ht.DataLoader(dataset, **{"num_workers": 1, "worker_threads": 2, **keys})
        assert why in str(raised.value)
