"""Policies against an oracle of their own: a listing made here, torch's DistributedSampler, and
what docs/OPERATIONS.md says of each order."""

import collections
import itertools
import json
import multiprocessing
import os

import pytest

torch = pytest.importorskip("torch")

import hdmlp.torch as ht
from hdmlp import errors
from torch.utils.data import BatchSampler, DistributedSampler, RandomSampler, SequentialSampler
from torchrun import free_port

pytestmark = pytest.mark.usefixtures("real")

SAMPLES = 41
SIZES = [100 + number for number in range(SAMPLES)]
SEED = 5

#: Policies that keep the order of DistributedSampler.
KEEPING = ["pytorch:workers=3", "deepio_ordered", "lbann_dynamic", "lbann_preloading"]
#: Policies with an order of their own, with options that make it differ from a shuffle.
OWN = ["sharded", "deepio_opportunistic", "tfdata:buffer=5:file_size=300B"]
#: Those with which a rank's epoch is not that of DistributedSampler.
DEALT = ["locality", *OWN]


@pytest.fixture
def root(tmp_path):
    """Files of different sizes, each of which begins with its number."""
    for number, size in enumerate(SIZES):
        directory = tmp_path / "data" / f"class{number * 3 // SAMPLES}"
        directory.mkdir(parents=True, exist_ok=True)
        (directory / f"{number:03}.jpg").write_bytes(content(number, size))
    return str(tmp_path / "data")


def content(number, size):
    return bytes([number]) * 4 + bytes((number * 7 + i) % 251 for i in range(size - 4))


def numbers(batch):
    """The numbers of a batch's samples, whose bytes and labels are compared with the files'."""
    got = []
    for data, label in batch:
        number = data[0]
        assert bytes(data) == content(number, SIZES[number])
        assert label == number * 3 // SAMPLES
        got.append(number)
    return got


def opened(root, policy, batch=8, **more):
    data = ht.ImageFolder(root, loader=bytes)
    return ht.DataLoader(
        data,
        batch,
        shuffle=True,
        seed=SEED,
        policy=policy,
        collate_fn=list,
        num_workers=0,
        **more,
    )


def epochs(root, policy, count=3, **more):
    with opened(root, policy, **more) as loader:
        return [[numbers(batch) for batch in loader] for _ in range(count)]


def wanted(epoch, batch=8, world=1, rank=0, drop_last=False):
    sampler = DistributedSampler(
        range(SAMPLES), world, rank, shuffle=True, seed=SEED, drop_last=drop_last
    )
    sampler.set_epoch(epoch)
    order = list(sampler)
    batches = [order[i : i + batch] for i in range(0, len(order), batch)]
    return [b for b in batches if len(b) == batch or not drop_last]


def flat(batches):
    return list(itertools.chain.from_iterable(batches))


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("policy", KEEPING)
def test_orders_that_are_kept(root, policy, drop_last):
    got = epochs(root, policy, drop_last=drop_last)
    assert got == [wanted(epoch, drop_last=drop_last) for epoch in range(3)]


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("policy", DEALT)
def test_own_orders_have_each_sample_once(root, policy, drop_last):
    got = epochs(root, policy, drop_last=drop_last)
    assert got == epochs(root, policy, drop_last=drop_last)
    assert len({tuple(flat(epoch)) for epoch in got}) == 3
    for number, epoch in enumerate(got):
        like = wanted(number, drop_last=drop_last)
        assert [len(batch) for batch in epoch] == [len(batch) for batch in like]
        assert len(set(flat(epoch))) == len(flat(epoch)) == len(flat(like))
        if policy == "locality":
            assert [set(batch) for batch in epoch] == [set(batch) for batch in like]


@pytest.mark.parametrize("policy", OWN[:2])
def test_what_does_not_fit_is_left_out_evenly(root, policy):
    for epoch in epochs(root, policy, memory="1000B"):
        counts = collections.Counter(flat(epoch))
        assert sum(counts.values()) == SAMPLES
        assert sum(SIZES[number] for number in counts) <= 1000
        assert max(counts.values()) - min(counts.values()) <= 1


@pytest.mark.parametrize("size", [1, 300, 1000])
def test_a_shuffle_buffer_reaches_so_far_and_no_further(root, size):
    """With a buffer of one sample an epoch is whole files in any order; a larger one has a sample
    earlier by less than its size."""
    streams = [flat(e) for e in epochs(root, f"tfdata:buffer=1:file_size={size}B")]
    cuts = {
        number
        for stream in streams
        for number in range(1, SAMPLES)
        if stream.index(number) != stream.index(number - 1) + 1
    }
    edges = [0, *sorted(cuts), SAMPLES]
    files = [sum(SIZES[a:b]) for a, b in zip(edges, edges[1:])]
    largest = max(SIZES)
    assert all(size <= held < size + largest for held in files[:-1])
    for buffer in (2, 5):
        got = [flat(e) for e in epochs(root, f"tfdata:buffer={buffer}:file_size={size}B")]
        for stream, epoch in zip(streams, got):
            assert sorted(epoch) == list(range(SAMPLES))
            assert epoch != stream
            assert all(stream.index(n) < at + buffer for at, n in enumerate(epoch))


@pytest.mark.parametrize("policy", [*KEEPING, *DEALT])
def test_resuming_gives_the_rest(root, policy):
    whole = epochs(root, policy)
    with opened(root, policy) as loader:
        assert [numbers(batch) for batch in loader] == whole[0]
        iterator = iter(loader)
        assert [numbers(next(iterator)) for _ in range(2)] == whole[1][:2]
        state = json.loads(json.dumps(loader.state_dict()))
    with opened(root, policy) as loader:
        loader.load_state_dict(state)
        assert [numbers(batch) for batch in loader] == whole[1][2:]
        assert [numbers(batch) for batch in loader] == whole[2]


@pytest.mark.parametrize("policy", ["deepio_ordered", *DEALT])
def test_copies_that_another_policy_left_change_nothing(root, policy, tmp_path):
    """Neither the samples nor their order, and whatever the caches hold."""
    sizes = {"memory": "1500B", "cache_size": "1500B"}
    cold = epochs(root, policy, cache_dir=str(tmp_path / "cold"), **sizes)
    for other in ("cooperative", "sharded", policy):
        epochs(root, other, count=1, cache_dir=str(tmp_path / "warm"), **sizes)
    assert epochs(root, policy, cache_dir=str(tmp_path / "warm"), **sizes) == cold


@pytest.mark.parametrize("policy", DEALT)
def test_orders_of_samplers_are_refused_by_name(root, policy):
    data = ht.ImageFolder(root, loader=bytes)
    for given in (
        {"sampler": RandomSampler(data)},
        {"batch_sampler": BatchSampler(SequentialSampler(data), 4, False)},
    ):
        loader = ht.DataLoader(data, policy=policy, collate_fn=list, num_workers=0, **given)
        with loader, pytest.raises(errors.ConfigError, match=policy.partition(":")[0]):
            next(iter(loader))


def deliver(rank, world, port, root, policies, batch, results):
    os.environ.update(
        RANK=str(rank),
        LOCAL_RANK=str(rank),
        WORLD_SIZE=str(world),
        LOCAL_WORLD_SIZE=str(world),
        MASTER_ADDR="127.0.0.1",
        MASTER_PORT=str(port),
    )
    got = {}
    for policy in policies:
        got[policy] = epochs(root, policy, count=2, batch=batch, shard=True, verify=True)
    results.put((rank, got))


def test_two_ranks_of_a_node(root):
    """Equal sizes for each rank, DistributedSampler's global batches, and each sample as often."""
    world, batch = 2, 4
    policies = [*KEEPING[1:], "locality", "locality:copies=2", *OWN[:2]]
    context = multiprocessing.get_context("fork")
    results, port = context.Queue(), free_port()
    ranks = [
        context.Process(
            target=deliver, args=(rank, world, port, root, policies, batch, results), daemon=True
        )
        for rank in range(world)
    ]
    for rank in ranks:
        rank.start()
    got = dict(results.get(timeout=30) for _ in ranks)
    for rank in ranks:
        rank.join(10)
        assert rank.exitcode == 0
    for policy in policies:
        for epoch in range(2):
            mine = [got[rank][policy][epoch] for rank in range(world)]
            like = [wanted(epoch, batch, world, rank) for rank in range(world)]
            if policy in KEEPING:
                assert mine == like
                continue
            assert [[len(b) for b in rank] for rank in mine] == [
                [len(b) for b in rank] for rank in like
            ]
            if policy.startswith("locality"):
                assert [sorted(flat(step)) for step in zip(*mine)] == [
                    sorted(flat(step)) for step in zip(*like)
                ]
            else:
                counts = collections.Counter(flat(mine[0]) + flat(mine[1]))
                assert len(counts) == SAMPLES
                assert max(counts.values()) <= 2
                assert sum(counts.values()) == SAMPLES + 1  # one of them is padding
