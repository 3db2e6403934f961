"""Datasets, samplers and ranks that change, and what a loader like torch's then delivers."""

import pytest

torch = pytest.importorskip("torch")

import hdmlp.torch as ht
import items
from hdmlp import Job, errors
from hdmlp._workers.results import Arena
from hdmlp.torch._order import foreseen as _foreseen
from hdmlp.torch._order.drawn import Generators
from hdmlp.torch._order.known import known
from hdmlp.torch._order.ranks import Ranks
from torch.utils.data import (
    BatchSampler,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    WeightedRandomSampler,
    default_collate,
)

EPOCHS = [[[0, 1, 2], [3]], [[4], [5, 6, 7]], [[8, 9], [10, 11]], [[1, 2], [3, 4]]]


class Uneven:
    """The same number of batches in each epoch, of other sizes."""

    def __init__(self):
        self.epoch = -1

    def __len__(self):
        return 2

    def __iter__(self):
        self.epoch += 1
        return iter(EPOCHS[self.epoch])


def number(data):
    return torch.tensor(int(bytes(data).split()[1]))


def test_batches_have_the_sizes_that_the_sampler_gives_them(real, folder):
    with ht.DataLoader(ht.ImageFolder(folder, loader=number), batch_sampler=Uneven()) as loader:
        assert [[images.tolist() for images, _ in loader] for _ in EPOCHS] == EPOCHS


def test_a_batch_size_far_beyond_the_dataset_is_served(real, folder, caplog):
    """The epoch is one batch of all samples, and not an order without an end."""
    data = ht.ImageFolder(folder, loader=number)
    with ht.DataLoader(data, 1 << 22, shuffle=True, num_workers=0) as loader:
        ((images, _),) = loader
        assert sorted(images.tolist()) == list(range(25))
        assert loader.report()["epochs"][0]["samples"] == 25
    assert "no __len__" not in caplog.text


@pytest.mark.parametrize("kind", ["whole", "resumed"])
def test_an_epoch_drawn_by_a_sampler_is_verified(real, folder, kind):
    """If it is delivered from its first batch on."""
    dataset = ht.ImageFolder(folder)
    with ht.DataLoader(dataset, 5, sampler=RandomSampler(dataset), verify=True) as loader:
        assert len(list(loader)) == 5
        batches = iter(loader)
        next(batches)
        if kind == "resumed":
            loader.load_state_dict(loader.state_dict())
            batches = iter(loader)
            next(batches)
        batches._audit += 1  # as if a batch had been another
        if kind == "whole":
            with pytest.raises(errors.AuditError):
                list(batches)
        else:
            assert len(list(batches)) == 3


class Stream(IterableDataset):
    def __iter__(self):
        return iter(range(10))


def test_a_state_of_an_iterable_dataset_continues_to_count():
    with ht.DataLoader(Stream(), 2) as loader:
        loader.load_state_dict({"version": 1, "kind": "iterable", "epoch": 3, "step": 2})
        batches = iter(loader)
        next(batches)
        assert (loader.state_dict()["epoch"], loader.state_dict()["step"]) == (3, 3)
        assert len(list(batches)) == 2
        assert loader.state_dict()["epoch"] == 4


@pytest.mark.parametrize(
    "a, b",
    [
        (torch.ones(3), torch.ones(3, dtype=torch.float64)),
        (torch.ones(3, dtype=torch.float64), torch.ones(3) / 3),
        (torch.ones(3, dtype=torch.int32), torch.ones(3) / 3),
        (torch.ones(3, dtype=torch.uint8), torch.full((3,), 300)),
        (torch.ones(3), torch.ones(4)),
        (torch.ones(3), torch.ones(1, 3)),
        (torch.ones(3), 1.0),
        (torch.ones(3), torch.ones(3, requires_grad=True)),
        (torch.ones(3), torch.ones(3)),
        (torch.ones(3), torch.ones(3).to_sparse()),
        (torch.ones(3), torch.nn.Parameter(torch.ones(3))),
        (torch.ones(20000, 2), torch.ones(20000, 2, requires_grad=True)),
        (torch.ones(20000, 2), torch.ones(20000, 2, dtype=torch.float64)),
        (torch.ones(20000, 2), torch.ones(20000, 3)),
        (torch.ones(20000, 2), torch.zeros(20000, 2)),
    ],
    ids=str,
)
def test_stacking_equals_torchs_collating(a, b):
    """For items of any types, in any order."""
    for batch in ([(a, 0), (b, 1)], [(b, 1), (a, 0)]):
        try:
            want = default_collate(batch)
        except (RuntimeError, TypeError, ValueError) as error:
            with pytest.raises(type(error)):
                ht.stack_into(batch, Arena())
            continue
        got = ht.stack_into(batch, Arena())
        assert got[0].dtype == want[0].dtype
        assert torch.equal(got[0], want[0])
        assert torch.equal(got[1], want[1])


def test_a_distributed_sampler_of_another_dataset_is_iterated():
    """Though it yields as many indices as one of this dataset."""
    for length, expected in ((25, True), (24, False), (26, False), (20, False)):
        for replicas in (2, 5):
            sampler = DistributedSampler(range(length), replicas, 0)
            order = known(range(25), sampler, BatchSampler(sampler, 4, False))
            assert (order is not None) == expected, (length, replicas)


def test_a_rank_that_changed_is_refused(monkeypatch):
    for before, after in (((0, 2), (1, 2)), ((0, 2), (0, 4)), ((1, 4), (1, 2))):
        for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"):
            monkeypatch.delenv(name, raising=False)
        ranks = Ranks(True, None, None)
        for place in (before, before, after):
            monkeypatch.setenv("RANK", str(place[0]))
            monkeypatch.setenv("WORLD_SIZE", str(place[1]))
            if place == before:
                assert ranks() == before
            else:
                with pytest.raises(
                    errors.ConfigError,
                    match=f"began as rank {before[0]} of {before[1]} .* now rank {after[0]} of "
                    f"{after[1]}",
                ):
                    ranks()


@pytest.mark.parametrize("own", [None, 3])
def test_looking_ahead_restores_the_generators(own):
    generator = None if own is None else torch.Generator().manual_seed(own)
    for sampler in (
        RandomSampler(range(20), generator=generator),
        WeightedRandomSampler(torch.ones(20), 20, generator=generator),
    ):
        batches = BatchSampler(sampler, 4, False)
        generators = Generators(batches, generator)
        before = generators.state()
        foreseen = _foreseen.ahead(_foreseen.stand_in(batches, None), generator, None, None, 100)
        assert generators.state() == before
        torch.empty((), dtype=torch.int64).random_(
            generator=generator
        )  # as torch's loader does at the start of an epoch
        assert list(batches) == foreseen


def test_the_thesiss_dataset_has_its_jobs_samples(daemon, folder, tmp_path):
    (tmp_path / "other" / "a").mkdir(parents=True)
    job = Job(folder, 4, 1)
    with pytest.raises(errors.ConfigError, match="the job was made for"):
        ht.HDMLPImageFolder(str(tmp_path / "other"), job)
    ht.HDMLPImageFolder(folder + "/", job)
    job.destroy()


class BeginsAnew:
    """Iterators of themselves which begin anew in __iter__, as Lightning's for predictions."""

    def __init__(self, items, kind):
        self.items, self.kind = items, kind

    def __len__(self):
        return len(self.items)

    def __iter__(self):
        self.left = (x for x in self.items) if self.kind == "generator" else iter(self.items)
        self.first = torch.rand(1)  # drawn each time
        return self

    def __next__(self):
        return next(self.left)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("kind", ["list", "generator"])
@pytest.mark.parametrize("served", [False, True])
def test_a_sampler_may_begin_anew_in_its_iter(real, folder, kind, served, workers):
    data = ht.ImageFolder(folder, loader=items.length) if served else list(range(12))
    batches = [[3, 1], [4], [0, 2]]

    def epochs(loader):
        torch.manual_seed(1)
        made = [list(loader) for _ in range(2)]
        return made, torch.rand(1).item()

    sampler = BeginsAnew(batches, kind)
    with ht.DataLoader(data, batch_sampler=sampler, num_workers=workers) as loader:
        ours = epochs(loader)
    sampler = BeginsAnew(batches, kind)
    theirs = torch.utils.data.DataLoader(data, batch_sampler=sampler, num_workers=workers)
    reference = epochs(theirs)
    assert str(ours) == str(reference)
