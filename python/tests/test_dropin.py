"""``ht.DataLoader`` in place of torch's: the same batches from the same script, for any dataset and
sampler, or an error.

The oracle is the installed torch's own loader, after the same seeds.
"""

import pickle
import random

import pytest

torch = pytest.importorskip("torch")
numpy = pytest.importorskip("numpy")

import hdmlp.torch as ht
from dropin import LOADERS, NUMBERS, Numbers, Stream, epochs, generator, same, seeded
from hdmlp import errors
from torch.utils.data import DataLoader, Dataset, Sampler, SequentialSampler

pytestmark = pytest.mark.usefixtures("real", "spawns_preloaded")


@pytest.mark.parametrize("name", LOADERS)
def test_batches_are_those_of_torch(name):
    theirs = seeded(LOADERS[name], DataLoader)
    want = epochs(theirs)
    if (
        getattr(theirs, "_iterator", None) is not None
    ):  # left to the garbage collector, workers that stay are waited for 5 s each
        theirs._iterator._shutdown_workers()
    ours = seeded(LOADERS[name], ht.DataLoader)
    assert isinstance(ours, DataLoader)
    got = epochs(ours)
    assert same(got[0], want[0])
    assert got[1] == want[1], "torch's generator is elsewhere"
    if name != "iterable":
        assert len(ours) == len(theirs)
    ours.close()


@pytest.mark.parametrize(
    "name",
    [
        name
        for name in LOADERS
        if name not in ("iterable", "the same, dropped", "a batch larger than the dataset")
    ],
)
def test_resuming_is_exact(name):
    """From a state anywhere in two epochs another loader yields the rest."""
    loader = seeded(LOADERS[name], ht.DataLoader)
    states, batches = [], []
    for _ in range(2):
        for batch in loader:
            batches.append(batch)
            states.append(loader.state_dict())
    per_epoch = len(loader)
    loader.close()
    for at in (0, per_epoch // 2, per_epoch - 2, per_epoch + 1):
        if (at + 1) % per_epoch == 0:  # the next epoch's beginning: test_epoch_ends.py
            continue
        state = pickle.loads(pickle.dumps(states[at]))
        torch.manual_seed(99)
        copy = LOADERS[name](ht.DataLoader)
        copy.load_state_dict(state)
        assert copy.state_dict() == state
        rest = list(copy)
        end = per_epoch * (1 if at < per_epoch else 2)
        assert same(rest, batches[at + 1 : end]), at
        if at < per_epoch and name.startswith("generator"):  # it goes on as well
            assert same(list(copy), batches[per_epoch:])
        copy.close()


class Random(Dataset):
    """Random numbers of all three generators."""

    def __len__(self):
        return 20

    def __getitem__(self, i):
        return torch.tensor(
            [torch.rand(1).item(), random.random(), numpy.random.rand(), i], dtype=torch.float64
        )


@pytest.mark.parametrize("workers", [0, 1, 3])
def test_random_numbers_of_items_do_not_depend_on_workers_or_resuming(workers):
    """They differ between epochs, items, and occurrences of an item."""

    def make(number):
        torch.manual_seed(5)
        return ht.DataLoader(Random(), 4, sampler=[0, 0, 1, 2, 3, 3, 4, 5], num_workers=number)

    with make(0) as loader:
        want = [torch.cat(list(loader)) for _ in range(2)]
    with make(workers) as loader:
        assert same([torch.cat(list(loader)) for _ in range(2)], want)
    numbers = torch.cat(want)[:, :3]
    assert len(torch.unique(numbers)) == numbers.numel()
    with make(workers) as loader:
        first = next(iter(loader))
        state = loader.state_dict()
    with make(workers) as loader:
        loader.load_state_dict(state)
        assert same([first, *loader], list(want[0].split(4)))


def test_a_sampler_that_cannot_be_repeated_cannot_be_resumed():
    class Counts(Sampler):
        calls = 0

        def __init__(self):
            pass

        def __len__(self):
            return 10

        def __iter__(self):
            Counts.calls += 1
            return iter([(i + Counts.calls) % 10 for i in range(10)])

    with ht.DataLoader(NUMBERS, 2, sampler=Counts()) as loader:
        batches = iter(loader)
        next(batches), next(batches)
        state = loader.state_dict()
    with ht.DataLoader(NUMBERS, 2, sampler=Counts()) as loader:
        loader.load_state_dict(state)
        with pytest.raises(
            errors.MismatchError,
            match="the sampler yields other indices than when the state was saved",
        ):
            iter(loader)


def test_errors_of_items_and_samplers_are_raised():
    class Bad(Numbers):
        def __getitem__(self, i):
            if i == 11:
                raise KeyError("eleven")
            return super().__getitem__(i)

    def broken():
        yield 1
        raise RuntimeError("the sampler's own")

    for workers in (0, 2):
        with ht.DataLoader(Bad(), 4, num_workers=workers) as loader:
            with pytest.raises(KeyError, match="eleven") as caught:
                list(loader)
            assert caught.value.sample == 11
        with ht.DataLoader(NUMBERS, 1, sampler=broken(), num_workers=workers) as loader:
            with pytest.raises(RuntimeError, match="the sampler's own"):
                list(loader)


@pytest.mark.parametrize("order", [{}, {"shuffle": True, "seed": 1}])
@pytest.mark.parametrize("failing", [2, 9])
def test_a_batch_that_failed_does_not_come_again(order, failing):
    """With any number of workers: neither in this loop nor after resuming."""

    class Bad(Numbers):
        bad = True

        def __getitem__(self, i):
            if self.bad and i == bad:
                raise KeyError(i)
            return i

    with ht.DataLoader(Bad(), 4, **order) as loader:
        loader.dataset.bad, bad = False, 0
        whole = [batch.tolist() for batch in loader]
    bad = whole[failing][0]
    found = []
    for workers in (0, 1, 2):
        with ht.DataLoader(Bad(), 4, num_workers=workers, **order) as loader:
            batches = iter(loader)
            for _ in range(failing):
                next(batches)
            with pytest.raises(KeyError):
                next(batches)
            state = loader.state_dict()
            found.append((state["epoch"], state["step"], loader.stats[:2]))
            assert [batch.tolist() for batch in batches] == whole[failing + 1 :]
        with ht.DataLoader(Bad(), 4, num_workers=workers, **order) as loader:
            loader.load_state_dict(state)
            if failing == 2:
                assert [batch.tolist() for batch in loader] == whole[3:]
    assert found[1:] == found[:-1]
    assert found[0][:2] == ((0, 3) if failing == 2 else (1, 0))


def info(_):
    worker = torch.utils.data.get_worker_info()
    worker.dataset.told = worker.id, worker.num_workers


class Told(Numbers):
    def __getitem__(self, i):
        return torch.tensor(self.told)


@pytest.mark.slow
@pytest.mark.parametrize("context", ["fork", "spawn"])
def test_workers_have_torchs_worker_info(context):
    with ht.DataLoader(
        Told(), 1, num_workers=2, worker_init_fn=info, multiprocessing_context=context
    ) as loader:
        assert {tuple(batch[0].tolist()) for batch in loader} == {(0, 2), (1, 2)}


def test_new_workers_see_the_dataset_as_it_is():
    """As in torch: workers of a new epoch do, persistent ones do not."""

    class Scaled(Numbers):
        scale = 1

        def __getitem__(self, i):
            return i * self.scale

    for stay, want in ((False, 74), (True, 37)):
        data = Scaled()
        with ht.DataLoader(data, 37, num_workers=1, persistent_workers=stay) as loader:
            list(loader)
            data.scale = 2
            assert next(iter(loader)).sum() == want * 18


def test_meaningless_arguments_are_refused(folder):
    data = ht.ImageFolder(folder)
    for make, says in (
        (
            lambda: ht.DataLoader(data, seed=1),
            "seed=1, but neither shuffle nor sampler is given: .* give shuffle=True",
        ),
        (lambda: ht.DataLoader(data, epochs=9), "epochs=9, but neither shuffle nor sampler"),
        (lambda: ht.DataLoader(data, memory="much"), "memory"),
        (lambda: ht.DataLoader(data, shuffle=True, memory="much"), "memory"),
        (
            lambda: ht.DataLoader(NUMBERS, memory="1GB"),
            "memory='1GB': no meaning for a dataset of the class Numbers",
        ),
        (lambda: ht.DataLoader(NUMBERS, verify=True), "verify=True: no meaning"),
        (
            lambda: ht.DataLoader(Stream(), shard=True),
            "shard=True: no meaning for the iterable dataset Stream",
        ),
        (lambda: ht.DataLoader(data, in_order=False), "in_order=False"),
        (
            lambda: ht.DataLoader(data, shuffle=True, seed=1, generator=generator()),
            "generator contradicts seed",
        ),
        (
            lambda: ht.DataLoader(data, shuffle=True, shard=True, generator=generator()),
            "generator contradicts shard",
        ),
        (
            lambda: ht.DataLoader(data, shard=True, sampler=SequentialSampler(data)),
            "shard=True contradicts sampler",
        ),
        (
            lambda: ht.DataLoader(data, shard=False, rank=0, world_size=2),
            "shard=False contradicts rank",
        ),
        (lambda: ht.DataLoader(data, rank=0), "rank is given without world_size"),
    ):
        with pytest.raises(errors.ConfigError, match=says):
            make()
    for make in (
        lambda: ht.DataLoader(data, shuffle=True, sampler=SequentialSampler(data)),
        lambda: ht.DataLoader(data, batch_size=None, drop_last=True),
        lambda: ht.DataLoader(data, num_workers=0, persistent_workers=True),
        lambda: ht.DataLoader(data, timeout=0, batch_sampler=[[1]], batch_size=3),
    ):
        with pytest.raises(ValueError, match="option"):  # torch's own
            make()
    with ht.DataLoader(data, 4) as loader, pytest.raises(ValueError, match="batch_size"):
        loader.batch_size = 8
