"""A rank that cannot continue ends all ranks of its job: through worker processes and the thesis's
interface as well.

Both ranks of a job are in this process, and take turns. That of jobs over several nodes is in
test_nodes_faults.
"""

import os

import hdmlp.data as data
import pytest
from hdmlp import errors
from hdmlp._launch import membership
from hdmlp.job import Job
from waiting import until

STEP = 4


def shorten(loader, rank):
    """Removes a sample of the rank's batch of STEP; returns the path, and a function that restores
    the sample."""
    path = str(loader.explain(0, STEP, rank).paths[-1])
    if not os.path.isabs(path):
        path = os.path.join(str(loader.dataset.root), path)
    with open(path, "rb") as file:
        whole = file.read()
    times = os.stat(path)
    os.truncate(path, 1)

    def mend():
        with open(path, "wb") as file:
            file.write(whole)
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))  # as of a copy that is put back

    return os.path.basename(path), mend


def check(stopped, other, name):
    """Checks that the rank that stopped reports what happened, and the other one also where."""
    assert name in str(stopped)
    assert stopped.rank is None
    assert (other.sample, other.path, other.rank) == (stopped.sample, stopped.path, 1)
    assert str(other) == f"rank 1 stopped: {stopped}"


def tensor(view):
    import torch

    return torch.tensor([len(view)])


@pytest.mark.parametrize("workers", [None, 0, 2])
def test_both_ranks_end_before_the_same_step(real, folder, workers):
    """The second rank stops; the first one, to which later batches were sent and whose workers have
    made some of them, ends before the same step. Both start over and get the stream."""
    arguments = dict(
        batch_size=2, epochs=1, seed=7, world_size=2, name="stops", memory="64B"
    )  # which holds next to nothing
    if workers is None:
        ranks = [data.DataLoader(folder, rank=rank, **arguments) for rank in range(2)]
    else:
        pytest.importorskip("torch")
        import hdmlp.torch as ht

        ranks = [
            ht.DataLoader(
                ht.ImageFolder(folder, loader=tensor),
                rank=rank,
                num_workers=workers,
                **arguments,
                shuffle=True,
            )
            for rank in range(2)
        ]
    try:
        name, mend = shorten(ranks[1], 1)
        start = [loader.state_dict() for loader in ranks]
        first, second = map(iter, ranks)
        next(first)
        for _ in range(STEP):
            next(second)
        with pytest.raises(errors.SampleError) as stopped:
            next(second)
        for _ in range(STEP - 1):
            next(first)
        with pytest.raises(errors.SampleError) as other:
            next(first)
        check(stopped.value, other.value, name)
        mend()
        for loader, state in zip(ranks, start):
            loader.load_state_dict(state)
        assert [len(list(loader)) for loader in ranks] == [len(loader) for loader in ranks]
    finally:
        for loader in ranks:
            loader.close()


def test_a_rank_whose_workers_have_all_batches_of_the_epoch_is_told(real, folder):
    """Its stream ends before batches that its workers have: the error comes after these."""
    pytest.importorskip("torch")
    import hdmlp.torch as ht

    ranks = [
        ht.DataLoader(
            ht.ImageFolder(folder, loader=tensor),
            4,
            rank=rank,
            world_size=2,
            num_workers=2,
            timeout=60,
            prefetch_batches=8,
            epochs=2,
            seed=7,
            name="stops",
            memory="64B",
            shuffle=True,
        )
        for rank in range(2)
    ]
    try:
        first = iter(ranks[0])
        next(first)
        feed = ranks[0]._engine._feeds.first()
        pool = feed.source
        until(lambda: pool._turn(0) or len(pool._order) == 3, "the rest of the epoch")
        path = str(ranks[1].explain(0, 2, 1).paths[-1])
        os.remove(os.path.join(str(ranks[1].dataset.root), path))
        second = iter(ranks[1])
        with pytest.raises(errors.SampleError):
            for _ in range(4):
                next(second)
        until(lambda: feed.stream.ends(2), "the stop of rank 1")
        next(first)
        with pytest.raises(errors.SampleError):
            next(first)
    finally:
        for loader in ranks:
            loader.close()


def test_an_error_that_no_loop_has_raised_is_raised_later(real, folder):
    """Both loops break off right before the batch, of which both ranks know, and begin again: each
    raises the error there, although the sample can be read again; and then no more."""
    arguments = dict(batch_size=2, epochs=1, seed=7, world_size=2, name="stops", memory="64B")
    ranks = [data.DataLoader(folder, rank=rank, **arguments) for rank in range(2)]
    try:
        _, mend = shorten(ranks[1], 1)
        start = [loader.state_dict() for loader in ranks]
        for loader in reversed(ranks):
            iterator = iter(loader)
            for _ in range(STEP):
                next(iterator)
        until(lambda: ranks[0]._feeds.first().stream.ends(STEP), "the stop of rank 1")
        mend()
        for loader, state in zip(ranks, start):
            loader.load_state_dict(state)
            iterator = iter(loader)
            for _ in range(STEP):
                next(iterator)
            with pytest.raises(errors.SampleError):
                next(iterator)
        for loader, state in zip(ranks, start):
            loader.load_state_dict(state)
        assert [len(list(loader)) for loader in ranks] == [len(loader) for loader in ranks]
    finally:
        for loader in ranks:
            loader.close()


def test_a_rank_that_is_an_iteration_behind_is_told(real, folder):
    """Both ranks go back from the second epoch to a batch of the first one, which the second rank
    cannot get. It raises, and begins again, before the first one has gone back."""
    arguments = dict(batch_size=2, epochs=2, seed=7, world_size=2, name="stops", memory="64B")
    ranks = [
        data.DataLoader(folder, rank=rank, prefetch_batches=1, **arguments) for rank in range(2)
    ]
    try:
        for loader in ranks:  # what follows goes back to where both have been
            for _, _ in zip(range(STEP), loader):
                pass
        states = [loader.state_dict() for loader in ranks]
        for loader in ranks:
            loader.set_epoch(1)
        iterators = [iter(loader) for loader in ranks]
        for iterator in iterators:
            next(iterator)
        name, mend = shorten(ranks[1], 1)
        del iterator, iterators[1]
        ranks[1].load_state_dict(states[1])
        with pytest.raises(errors.SampleError) as stopped:
            next(iter(ranks[1]))
        mend()
        ranks[1].load_state_dict(states[1])
        kept = iter(ranks[1])
        next(kept)
        del iterators[0]
        ranks[0].load_state_dict(states[0])
        with pytest.raises(errors.SampleError) as other:
            next(iter(ranks[0]))
        check(stopped.value, other.value, name)
        del kept
        for loader, state in zip(ranks, states):
            loader.load_state_dict(state)
        left = [len(loader) - STEP for loader in ranks]
        assert [len(list(loader)) for loader in ranks] == left
    finally:
        for loader in ranks:
            loader.close()


def test_a_jobs_get_raises_the_same(real, folder, monkeypatch):
    """job.get() raises the same."""
    monkeypatch.setattr(membership, "next_ordinal", lambda: "stops")
    monkeypatch.setenv("HDMLP_MEMORY", "64B")
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    jobs = []
    for rank in "01":
        monkeypatch.setenv("RANK", rank)
        monkeypatch.setenv("LOCAL_RANK", rank)
        jobs.append(Job(folder, 4, 1, seed=7))
        jobs[-1].setup()
    try:
        name, _ = shorten(jobs[1]._loader, 1)
        with pytest.raises(errors.SampleError) as stopped:
            while True:
                jobs[1].get()
        with pytest.raises(errors.SampleError) as other:
            while True:
                jobs[0].get()
        check(stopped.value, other.value, name)
    finally:
        for job in jobs:
            job.destroy()
