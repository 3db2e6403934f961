"""Policies with an order of their own, and those that fill caches before training, as users have
them."""

import collections
import json

import pytest

torch = pytest.importorskip("torch")

import hdmlp.torch as ht
from hdmlp import errors
from torch.utils.data import DistributedSampler, RandomSampler, Subset

pytestmark = pytest.mark.usefixtures("real")

SAMPLES = 40
BATCH = 8


@pytest.fixture
def data(tmp_path):
    """Forty files, each of which has its number, 100 times."""
    for number in range(SAMPLES):
        directory = tmp_path / "data" / f"class{number % 4}"
        directory.mkdir(parents=True, exist_ok=True)
        (directory / f"{number // 4:03}.jpg").write_bytes(bytes([number]) * 100)
    return ht.ImageFolder(str(tmp_path / "data"), loader=bytes)


def opened(data, policy, **more):
    return ht.DataLoader(
        data, BATCH, shuffle=True, seed=5, policy=policy, collate_fn=list, num_workers=0, **more
    )


def epochs(loader, count):
    """The numbers of each batch of so many epochs."""
    return [[[item[0][0] for item in batch] for batch in loader] for _ in range(count)]


def wanted(data, epoch):
    sampler = DistributedSampler(data, 1, 0, shuffle=True, seed=5)
    sampler.set_epoch(epoch)
    order = [data[i][0][0] for i in sampler]
    return [order[i : i + BATCH] for i in range(0, SAMPLES, BATCH)]


KEEPING = ("pytorch", "pytorch:workers=1:prefetch_factor=1", "deepio_ordered", "lbann_dynamic",
           "lbann_preloading", "locality", "locality:copies=2")  # fmt: skip


@pytest.mark.parametrize("policy", KEEPING)
def test_batches_are_those_that_were_asked_for(data, policy):
    with opened(data, policy) as loader:
        got = epochs(loader, 2)
        report = loader.report()
    assert [[sorted(b) for b in e] for e in got] == [
        [sorted(b) for b in wanted(data, e)] for e in range(2)
    ]
    if not policy.startswith("locality"):
        assert got == [wanted(data, e) for e in range(2)]
    assert report["policy"] == policy
    preloads = policy in ("deepio_ordered", "lbann_preloading")
    assert (report.get("before_training_s", 0) > 0) == preloads
    if policy.startswith("locality"):
        assert report["order"]["keeps_global_batches"]
    else:
        assert "order" not in report


@pytest.mark.parametrize(
    "policy, memory, seen",
    [
        ("sharded", "1MB", 40),
        ("sharded", "2000B", 20),
        ("deepio_opportunistic", "1MB", 40),
        ("deepio_opportunistic", "1000B", 10),
        ("tfdata", "1MB", 40),
        ("tfdata:buffer=3:file_size=700B", "1MB", 40),
    ],
)
def test_orders_of_their_own(data, policy, memory, seen):
    """Each sample comes as often as others, give or take one; epochs differ; runs do not."""
    with opened(data, policy, memory=memory) as loader:
        got = epochs(loader, 3)
        for _ in range(100):
            order = loader.report()["order"]
            if order["share_of_dataset_seen"]:
                break
        state = loader.state_dict()
    assert state["order"].startswith(policy)
    assert not order["keeps_global_batches"]
    assert order["share_of_dataset_seen"] == pytest.approx(seen / SAMPLES)
    for epoch in got:
        counts = collections.Counter(n for batch in epoch for n in batch)
        assert len(counts) == seen
        assert max(counts.values()) - min(counts.values()) <= 1
        assert [len(batch) for batch in epoch] == [BATCH] * 5
    assert got[0] != got[1]
    if policy.startswith("tfdata:buffer=3"):  # neighbours of a file are near each other
        assert order["distance_from_full_shuffle"] >= 0
    with opened(data, policy, memory=memory) as loader:
        assert epochs(loader, 3) == got


def test_a_state_of_another_order_is_refused_within_an_epoch(data):
    with opened(data, "sharded") as loader:
        whole = epochs(loader, 2)
    with opened(data, "sharded") as loader:
        iterator = iter(loader)
        for _ in range(2):
            next(iterator)
        within = json.loads(json.dumps(loader.state_dict()))
        rest = list(iterator)
        start = json.loads(json.dumps(loader.state_dict()))
    for other in ("cooperative", "locality", "tfdata", "deepio_opportunistic"):
        with opened(data, other) as loader, pytest.raises(errors.MismatchError) as refused:
            loader.load_state_dict(within)
        assert "order is" in str(refused.value)
        assert "sharded" in str(refused.value)
        assert "begin at the start of an epoch" in str(refused.value)
    with opened(data, "sharded") as loader:
        loader.load_state_dict(within)
        assert [[item[0][0] for item in batch] for batch in loader] == whole[0][2:]
        assert len(rest) == 3
    with opened(data, "cooperative") as loader:
        loader.load_state_dict(start)
        assert epochs(loader, 1)[0] == wanted(data, 1)


@pytest.mark.parametrize("policy", ["sharded", "locality", "tfdata", "deepio_opportunistic"])
def test_what_a_sampler_draws_is_not_reordered(data, policy):
    with pytest.raises(errors.ConfigError) as refused:
        loader = ht.DataLoader(
            data, BATCH, sampler=RandomSampler(data), policy=policy, collate_fn=list
        )
        next(iter(loader))
    assert f"policy = {policy} cannot run this job" in str(refused.value)
    assert "sampler gives the order" in str(refused.value)


def test_a_part_of_a_dataset_is_not_sharded(data):
    with pytest.raises(errors.ConfigError, match="a part of it is to be read"):
        next(iter(opened(Subset(data, range(10)), "sharded")))


@pytest.mark.parametrize(
    "policy, message",
    [
        ("tfdata:bufer=3", "bufer=3 is none of its options"),
        ("tfdata:buffer=0", "allowed: a whole number from 1"),
        ("tfdata:buffer=1:buffer=2", "is given twice"),
        ("cooperative:buffer=1", "has no options"),
        ("pytorch:workers", "is none of its options"),
        ("shardet", "unknown value"),
    ],
)
def test_wrong_options_are_refused(data, policy, message):
    with pytest.raises(errors.ConfigError) as refused:
        next(iter(opened(data, policy)))
    assert message in str(refused.value)


def test_what_does_not_fit_is_refused_with_both_numbers(data):
    with pytest.raises(errors.ConfigError) as refused:
        next(iter(opened(data, "lbann_dynamic", memory="1000B")))
    assert "the dataset has 3.9 KiB, class 1 of all nodes together 1000 bytes" in str(refused.value)
