"""Distribution schemes (thesis 4.1.3): which samples of a global batch each rank gets."""

import os
import subprocess

import preloaded
import pytest
from hdmlp import Job, data, errors
from hdmlp._loading.options import share_of
from raw import read

pytestmark = pytest.mark.usefixtures("real")

SAMPLES, BATCH, RANKS = 25, 3, 4


def shares(scheme, m, world):
    """The places of a batch of m that each rank gets, written down once more."""
    if scheme == "whole":
        return [list(range(m))] * world
    if scheme == "strided":
        return [list(range(rank, m, world)) for rank in range(world)]
    if scheme == "uniform":
        size = -(-m // world)
        return [list(range(m))[rank * size : (rank + 1) * size] for rank in range(world)]
    ends, sum_of = [0], sum(4 if rank < world // 2 else 1 for rank in range(world))
    for rank in range(world):
        ends.append(ends[-1] + (4 if rank < world // 2 else 1))
    return [
        list(range(m * begin // sum_of, m * end // sum_of)) for begin, end in zip(ends, ends[1:])
    ]


def order(folder, epoch):
    """The epoch's samples, as one rank gets them."""
    with data.DataLoader(folder, SAMPLES, seed=5) as loader:
        loader.set_epoch(epoch)
        [batch] = loader
        return read(batch.samples)


def dealt(samples, scheme, m, drop_last):
    """The batches of each rank."""
    batches = [samples[at : at + m] for at in range(0, len(samples), m)]
    if drop_last and len(batches[-1]) < m:
        batches.pop()
    return [
        [
            [batch[place] for place in own]
            for batch in batches
            for own in [shares(scheme, len(batch), RANKS)[rank]]
        ]
        for rank in range(RANKS)
    ]


@pytest.mark.parametrize(
    "scheme, drop_last",
    [("uniform", True), ("whole", True), ("whole", False), ("imbalanced", True)],
)
def test_each_rank_gets_its_share(folder, scheme, drop_last):
    m = BATCH * (1 if scheme == "whole" else RANKS)
    loaders = [
        data.DataLoader(
            folder,
            BATCH,
            seed=5,
            scheme=scheme,
            drop_last=drop_last,
            rank=rank,
            world_size=RANKS,
            name=scheme,
            verify=True,
        )
        for rank in range(RANKS)
    ]
    try:
        for epoch in range(2):
            # Checks of an epoch wait for all ranks, so their batches are taken in turn.
            got = [list(batches) for batches in zip(*loaders)]
            want = dealt(order(folder, epoch), scheme, m, drop_last)
            assert [[read(one.samples) for one in batches] for batches in got] == [
                list(batches) for batches in zip(*want)
            ]
            assert {len(loader) for loader in loaders} == {len(want[0])}
    finally:
        for loader in loaders:
            loader.close()


def test_a_rank_without_samples_is_an_error(folder):
    for scheme, batch_size, what in [
        ("uniform", 3, "an epoch's last batch, which has 1 of the 25 samples"),
        ("imbalanced", 1, "a batch of 4 samples: give a larger batch_size"),
    ]:
        with pytest.raises(errors.ConfigError, match="gets no sample of") as caught:
            data.DataLoader(folder, batch_size, scheme=scheme, rank=0, world_size=RANKS, name="x")
        assert what in str(caught.value)
    with pytest.raises(errors.ConfigError, match="must be 'strided', 'uniform', 'whole'"):
        data.DataLoader(folder, scheme="hybrid")


def test_a_job_takes_each_scheme(folder):
    samples = len(order(folder, 0))
    for scheme in ("uniform", "whole", "imbalanced", "strided"):
        with Job(folder, 4, 1, scheme, seed=5) as job:
            got = [bytes(job.get()[1]) for _ in range(samples)]
            assert len(set(got)) == samples
            with pytest.raises(errors.EndError):
                job.get()
    with pytest.raises(errors.ConfigError, match="distr_scheme='balanced': must be"):
        Job(folder, 4, 1, "balanced")


@pytest.mark.parametrize("scheme", ["uniform", "imbalanced", "strided"])
def test_a_jobs_length_is_what_its_rank_gets(folder, scheme):
    """The last batch has 1 of the 25 samples, which one rank gets."""
    pytest.importorskip("torch")
    code = """
import sys
import hdmlp.torch as ht
from hdmlp import Job
with Job(sys.argv[1], 4, 1, sys.argv[2], seed=5) as job:
    dataset = ht.HDMLPDatasetFolder(sys.argv[1], job, loader=bytes)
    loader = ht.HDMLPDataLoader(dataset, collate_fn=list)
    print(len(loader), sum(1 for _ in loader))
"""
    ranks = [
        subprocess.Popen(
            [preloaded.PYTHON, "-c", code, folder, scheme],
            env={**os.environ, "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}
            | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    said = [rank.communicate(timeout=100)[0] for rank in ranks]
    assert sorted(said) == ["6 6\n", "7 7\n"]


def test_a_rank_of_a_job_without_samples_is_an_error(folder, monkeypatch):
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "4")
    for scheme, batch_size, rank in [
        ("uniform", 2, 2),
        ("uniform", 5, 3),  # slices of 2
        ("strided", 3, 3),
        ("imbalanced", 4, 2),
    ]:
        what = f"batch_size={batch_size}: rank {rank} of 4 would get no sample of a batch, with"
        with pytest.raises(errors.ConfigError, match=what):
            Job(folder, batch_size, 1, scheme)
    Job(folder, 2, 1, "whole")
    monkeypatch.setenv("WORLD_SIZE", "12")
    job = Job(folder, 1200, 1)
    with pytest.raises(errors.ConfigError, match=r"rank 9 of 12 .* one batch of 25 samples"):
        job.setup()


def test_shares_add_up():
    for scheme in ("uniform", "imbalanced", "strided"):
        for world in range(1, 6):
            for m in range(40):
                own = [share_of(scheme, m, rank, world) for rank in range(world)]
                assert own == [len(places) for places in shares(scheme, m, world)]
                assert sum(own) == m


def test_a_state_of_another_scheme_is_refused(folder):
    with data.DataLoader(folder, 5, seed=5, scheme="uniform") as loader:
        next(iter(loader))
        state = loader.state_dict()
    with data.DataLoader(folder, 5, seed=5, scheme="imbalanced") as loader:
        with pytest.raises(errors.MismatchError, match="scheme is 'imbalanced' here"):
            loader.load_state_dict(state)


class TestTorch:
    """The same of ``hdmlp.torch``'s loader."""

    @pytest.fixture(autouse=True)
    def _torch(self):
        pytest.importorskip("torch")

    def loaders(self, folder, scheme, **keys):
        import hdmlp.torch as ht

        return [
            ht.DataLoader(
                ht.ImageFolder(folder),
                BATCH,
                shuffle=True,
                seed=5,
                scheme=scheme,
                rank=rank,
                world_size=RANKS,
                name=scheme,
                raw=True,
                **keys,
            )
            for rank in range(RANKS)
        ]

    @pytest.mark.parametrize("scheme", ["uniform", "whole", "imbalanced"])
    def test_each_rank_gets_its_share(self, folder, scheme):
        loaders = self.loaders(folder, scheme, drop_last=True, verify=True)
        m = BATCH * (1 if scheme == "whole" else RANKS)
        want = dealt(order(folder, 0), scheme, m, True)
        got = [[read(samples) for samples, _ in batches] for batches in zip(*loaders)]
        assert got == [list(batches) for batches in zip(*want)]
        assert {len(loader) for loader in loaders} == {len(want[0])}
        assert {loader.global_batch_size for loader in loaders} == {m}
        for loader in loaders:
            loader.close()

    def test_random_numbers_of_the_whole_batch_are_the_same_on_all_ranks(self, folder):
        import hdmlp.torch as ht
        import torch

        def drawn(_):
            return torch.rand(1)

        loaders = [
            ht.DataLoader(
                ht.ImageFolder(folder, drawn, loader=bytes),
                BATCH,
                shuffle=True,
                seed=5,
                scheme="whole",
                rank=rank,
                world_size=2,
                name="drawn",
                batch_transform=lambda batch: (batch[0], torch.rand(1)),
            )
            for rank in range(2)
        ]
        for (one, mixed), (other, too) in zip(*loaders):
            assert torch.equal(one, other)
            assert torch.equal(mixed, too)
        for loader in loaders:
            loader.close()

    def test_what_cannot_deal_so_is_refused(self, folder):
        import hdmlp.torch as ht
        import torch

        images = ht.ImageFolder(folder)
        ranks = {"rank": 0, "world_size": 2, "name": "refused"}
        for keys, what in [
            ({}, "scheme='whole' without shard=True"),
            ({**ranks, "batch_size": None}, "scheme='whole' with batch_size=None"),
            ({"sampler": torch.utils.data.RandomSampler(images)}, "without shard=True"),
        ]:
            with pytest.raises(errors.ConfigError, match=what):
                ht.DataLoader(images, scheme="whole", **keys)
        with pytest.raises(errors.ConfigError, match="the batches of a Mix are shared as torch"):
            ht.DataLoader(ht.Mix([images], [1]), scheme="whole", **ranks)
        own = torch.utils.data.TensorDataset(torch.arange(4))
        with pytest.raises(errors.ConfigError, match="scheme='whole': no meaning for a dataset"):
            ht.DataLoader(own, scheme="whole", **ranks)
        loader = ht.DataLoader(images, 5, scheme="whole", **ranks)
        for use in (len, iter):
            with pytest.raises(errors.ConfigError, match="the daemon deals the batches"):
                next(iter(use(loader.sampler)))
        loader.close()
