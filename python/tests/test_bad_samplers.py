"""Faulty samplers and datasets: an error with index and epoch, or what torch does, and never other
samples silently."""

import itertools

import pytest

torch = pytest.importorskip("torch")
import hdmlp.torch as ht
from dropin import Items, Numbers, length, same
from hdmlp import errors
from test_groups import ranks  # noqa: F401
from torch.utils.data import DataLoader, DistributedSampler, Sampler, Subset

pytestmark = pytest.mark.usefixtures("real")


class Yields(Sampler):
    """A sampler that yields the given values, epoch by epoch."""

    def __init__(self, *epochs, length=None):
        self.epochs, self.length, self.calls = epochs, length, 0

    def __len__(self):
        if self.length is None:
            raise TypeError("no length")
        return self.length

    def __iter__(self):
        self.calls += 1
        return iter(self.epochs[(self.calls - 1) % len(self.epochs)])


@pytest.mark.parametrize(
    "epoch, error, says",
    [
        (
            [0, 1, 2, 25],
            IndexError,
            "the sampler yields index 25 in batch 1 of epoch 1; the dataset has 25 samples",
        ),
        ([0, -26, 2, 3], IndexError, "the sampler yields index -26 in batch 0 of epoch 1"),
        (
            [0, 1, 2.5, 3],
            TypeError,
            "the sampler yields 2.5 in batch 1 of epoch 1; a folder's samples have whole numbers",
        ),
        ([0, 1, "2", 3], TypeError, "the sampler yields '2' in batch 1 of epoch 1"),
        ([0, 1, None, 3], TypeError, "the sampler yields None in batch 1 of epoch 1"),
    ],
)
def test_invalid_indices_raise(folder, epoch, error, says):
    with ht.DataLoader(
        ht.ImageFolder(folder), 2, sampler=Yields([3, 2, 1, 0], epoch, length=4)
    ) as loader:
        list(loader)
        with pytest.raises(error, match=says):
            list(loader)
        assert len(list(loader)) == 2  # the next one is sound


def test_invalid_batches_raise(folder):
    with (
        ht.DataLoader(
            ht.ImageFolder(folder), batch_sampler=Yields([[1, 2], 3], length=2)
        ) as loader,
        pytest.raises(
            TypeError,
            match="the batch sampler yields 3 in batch 1 of epoch 0; it must yield lists of "
            "indices",
        ),
    ):
        list(loader)


class Uncopyable(Yields):
    """One whose batches are given to the daemon as they are drawn."""

    def __reduce_ex__(self, protocol):
        raise TypeError("it cannot be copied")


def labels(batch):
    return [label for _, label in batch], len(batch)


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("sampler", [Yields, Uncopyable])
@pytest.mark.parametrize(
    "batches", [[[], [3, 1], [], [], [24, 1, 5], [9], []], [[2], [], [4]], [[], []]]
)
def test_empty_batches_are_collated_as_by_torch(folder, batches, sampler, workers):
    """Also after a state that was saved before, between or after them."""
    data = ht.ImageFolder(folder, loader=length)

    def options():
        made = sampler(batches, length=len(batches))
        return dict(batch_sampler=made, collate_fn=labels, num_workers=workers)

    theirs = list(DataLoader(Items(data), **options()))
    states = []
    with ht.DataLoader(data, **options()) as loader:
        for _ in range(2):
            mine = []
            for batch in loader:
                mine.append(batch)
                states.append((len(mine), loader.state_dict()))
            assert mine == theirs
    for done, state in states[: len(batches) - 1]:
        with ht.DataLoader(data, **options()) as loader:
            loader.load_state_dict(state)
            assert list(loader) == theirs[done:]
            assert list(loader) == theirs


def test_samplers_that_refuse_to_be_copied_are_served_as_by_torch(folder, caplog):
    data = ht.ImageFolder(folder, loader=length)
    theirs = list(DataLoader(Items(data), 2, sampler=[3, 1, 24]))
    with ht.DataLoader(data, 2, sampler=Uncopyable([3, 1, 24], length=3)) as loader:
        assert same(list(loader), theirs)
    assert "Uncopyable: what it yields depends" in caplog.text


def test_an_empty_batch_fails_as_with_torch(folder):
    data = ht.ImageFolder(folder, loader=length)
    with ht.DataLoader(data, batch_sampler=Yields([[1], [], [2]], length=3)) as loader:
        batches = iter(loader)
        next(batches)
        with pytest.raises(IndexError):
            next(batches)
        assert len(list(batches)) == 1


def test_indices_of_any_integer_type_are_accepted(folder):
    data = ht.ImageFolder(folder, loader=length)
    indices = [torch.tensor(3), True, -1, 4]
    with ht.DataLoader(data, 2, sampler=Yields(indices, length=4)) as loader:
        assert same(list(loader), list(DataLoader(Items(data), 2, sampler=[3, 1, -1, 4])))


class Endless:
    """Unlike an itertools.cycle since Python 3.14, it can be copied."""

    def __iter__(self):
        return itertools.cycle(range(25))


@pytest.mark.parametrize(
    "sampler",
    [
        lambda: Yields(Endless()),
        lambda: Yields(Endless(), length=10),
        lambda: Yields([5, 4, 3, 2, 1]),
    ],
)
def test_endless_samplers_are_served_as_by_torch(folder, sampler, caplog):
    """They are asked no further ahead than by torch, the daemon still reads the files, and one
    warning says so."""
    data = ht.ImageFolder(folder, loader=length)
    theirs = list(itertools.islice(DataLoader(Items(data), 2, sampler=sampler()), 40))
    with ht.DataLoader(data, 2, sampler=sampler()) as loader:
        assert same(list(itertools.islice(loader, 40)), theirs)
        next(iter(loader))
    assert [
        r.message
        for r in caplog.records
        if "has no __len__, or a wrong one" in r.message and r.message.startswith("Yields")
    ].__len__() == 1


def test_resuming_with_a_sampler_of_another_order_names_the_epoch(folder):
    data = ht.ImageFolder(folder)
    with ht.DataLoader(data, 2, sampler=Yields([1, 2, 3, 4], [5, 6, 7, 8], length=4)) as loader:
        list(loader)
        next(iter(loader))
        state = loader.state_dict()
    with ht.DataLoader(data, 2, sampler=Yields([1, 2, 3, 4], length=4)) as loader:
        loader.load_state_dict(state)
        with pytest.raises(
            errors.MismatchError,
            match="other indices than when the state was saved, within the first 1 batches of "
            "epoch 1",
        ):
            iter(loader)
    with ht.DataLoader(data, 2, sampler=Yields([], length=4)) as loader:
        loader.load_state_dict(state)
        with pytest.raises(errors.MismatchError, match="ends after 0 batches of epoch 1"):
            iter(loader)


def test_resuming_with_another_dataset_is_refused(folder):
    """A state belongs to a dataset of one length, and to one subset."""
    data = ht.ImageFolder(folder)
    for seed, epoch in ((9, ""), (None, ", of epoch 0")):
        with ht.DataLoader(Subset(data, [1, 2, 3]), 1, shuffle=True, seed=seed) as loader:
            next(iter(loader))
            state = loader.state_dict()
        with (
            ht.DataLoader(Subset(data, [1, 2, 4]), 1, shuffle=True, seed=seed) as loader,
            pytest.raises(errors.MismatchError, match=rf"subset is .* in the saved state{epoch}:"),
        ):
            loader.load_state_dict(state)
    with (
        ht.DataLoader(Numbers(), 1, shuffle=True) as loader,
        pytest.raises(errors.MismatchError, match="samples is 37 here, but 3 in the saved state"),
    ):
        loader.load_state_dict(state)


class Grows(Numbers):
    """A dataset whose length the test sets."""

    def __init__(self):
        self.n = 8

    def __len__(self):
        return self.n


def test_a_dataset_that_changes_its_length_is_as_in_torch_or_refused():
    """Samplers that read the length in each epoch follow it, as in torch; a distributed sampler,
    which divided the old length, is an error."""
    data = Grows()
    torch.manual_seed(2)
    with ht.DataLoader(data, 4, shuffle=True) as loader:
        assert len(list(loader)) == 2
        data.n = 12
        assert sorted(torch.cat([i for _, i in loader]).tolist()) == list(range(12))
    data = Grows()
    with ht.DataLoader(data, 4, sampler=DistributedSampler(data, 2, 0)) as loader:
        list(loader)
        data.n = 12
        with pytest.raises(
            errors.ConfigError,
            match="epoch 1: the Grows has 12 items, and had 8 when the loader was made, which "
            "its DistributedSampler",
        ):
            iter(loader)


@pytest.mark.slow
def test_ranks_with_different_orders_raise(ranks):
    """The rank that comes later raises when its loader is made, the other one with its next
    batch."""
    said, _ = ranks(
        """
        from hdmlp import errors
        caught = None
        try:
            if me == 0:
                loader = ht.DataLoader(data, 4, sampler=DistributedSampler(data, 2, 0, seed=3))
                next(iter(loader))
                dist.barrier()
                dist.barrier()
                while True:
                    list(loader)
            else:
                dist.barrier()
                try:
                    ht.DataLoader(data, 4, sampler=DistributedSampler(data, 2, 1, seed=4))
                finally:
                    dist.barrier()
        except errors.MismatchError as error:
            caught = str(error)
        say(caught=caught)
    """,
        2,
    )
    assert len(said) == 2
    for r in said:
        assert "rank 1 disagrees with rank 0" in r["caught"]
        assert "seed is 4 on rank 1 and 3 on rank 0" in r["caught"]
