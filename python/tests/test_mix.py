"""Mixes of datasets: their order over epochs, ranks and restarts.

The oracle is mix_oracle.py, which computes orders one sample at a time.
"""

import collections
import json
import os
import subprocess

import preloaded
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torchvision")

import hdmlp.torch as ht
import mix_oracle
from hdmlp import errors
from hdmlp._daemon import connecting
from hdmlp._records.mixture import Mixture, Weights, checked_weights
from hdmlp._records.mixture import epoch_of as length_of
from hdmlp.torch._order.mixed import order_of_mix
from PIL import Image
from torch.utils.data import DistributedSampler, RandomSampler, Subset
from torchvision import transforms

pytestmark = pytest.mark.usefixtures("real")

VECTORS = os.path.join(
    os.path.dirname(__file__), "..", "..", "internal", "plan", "access", "testdata", "mixture.json"
)
TENSOR = transforms.Compose([transforms.CenterCrop(4), transforms.ToTensor()])
SIZES = (31, 7, 12)


def write(directory, count, first):
    """Images whose colours say which they are. Returns their paths."""
    directory.mkdir(parents=True)
    paths = []
    for i in range(count):
        paths.append(str(directory / f"{i:03d}.png"))
        Image.new("RGB", (6, 5), (first, i, 0)).save(paths[-1])
    return paths


@pytest.fixture
def datasets(tmp_path):
    return [
        ht.Files(write(tmp_path / str(d), n, d), [100 * d + i for i in range(n)], transform=TENSOR)
        for d, n in enumerate(SIZES)
    ]


def labels_of(samples):
    """The labels of samples of the mix of all datasets."""
    starts = [sum(SIZES[:d]) for d in range(len(SIZES))]
    found = []
    for sample in samples:
        d = max(d for d in range(len(SIZES)) if starts[d] <= sample)
        found.append(100 * d + sample - starts[d])
    return found


def expected(mix, seed, shuffle, count, unit=1):
    """The labels of each epoch by the oracle."""
    request = mix.mixture(unit).request()
    return [labels_of(x) for x in mix_oracle.epochs(request, seed, shuffle, count, unit)]


def joined(lists):
    return [x for one in lists for x in one]


def epoch_of(loader):
    """The labels of an epoch; each image is checked to be that of its label."""
    labels = []
    for images, batch in loader:
        for image, label in zip(images, batch.tolist()):
            colour = (image[:, 0, 0] * 255).round().int().tolist()
            assert colour == [label // 100, label % 100, 0]
        labels += batch.tolist()
    return labels


def test_the_vectors_are_the_oracles():
    with open(VECTORS) as file:
        cases = json.load(file)
    assert cases == mix_oracle.vectors()
    for case in cases:
        mixture = Mixture(unit=case["unit"], **case["mix"])
        for epoch, want in case["epochs"].items():
            got = order_of_mix(mixture, case["seed"], case["shuffle"], int(epoch))
            assert got.tolist() == want


@pytest.mark.parametrize("shuffle", [True, False])
def test_epochs_are_the_oracles(datasets, shuffle):
    mix = ht.Mix(datasets, weights=[0.5, 0.2, 0.3], epoch_size=20)
    with ht.DataLoader(mix, 3, shuffle=shuffle, seed=5, epochs=6) as loader:
        assert len(loader) == 7
        epochs = [epoch_of(loader) for _ in range(6)]
        assert epochs == expected(mix, 5, shuffle, 6)
        for labels in epochs:
            count = collections.Counter(label // 100 for label in labels)
            assert (count[0], count[1], count[2]) == (10, 4, 6)
        read = loader.report()["tiers"][0]
    seen = {label for labels in epochs for label in labels}
    assert read["tier"] == "source"
    assert read["samples"] == len(seen)  # each once


def test_weights_may_differ_between_epochs(datasets):
    weights = [[1, 0, 0], [0, 1, 1]]
    mix = ht.Mix(datasets, weights=weights, epoch_size=12)
    with ht.DataLoader(mix, 4, shuffle=True, seed=1) as loader:
        epochs = [epoch_of(loader) for _ in range(4)]
    assert epochs == expected(mix, 1, True, 4)
    assert {label // 100 for label in epochs[0]} == {0}
    for labels in epochs[1:]:
        assert collections.Counter(label // 100 for label in labels) == {1: 6, 2: 6}


@pytest.mark.parametrize(
    "strategy, weights, size, counts",
    [
        ("first_exhausted", [2, 1, 1], 28, {0: 14, 1: 7, 2: 7}),
        ("all_exhausted", [2, 1, 1], 62, {0: 31, 1: None, 2: None}),
        ("first_exhausted", None, 50, {0: 31, 1: 7, 2: 12}),
        ("all_exhausted", [1, 1, 0], 62, {0: 31, 1: 31, 2: 0}),
        ("first_exhausted", [5, 5, 3], 18, {0: None, 1: None, 2: None}),
    ],
)
def test_a_strategy_says_how_long_an_epoch_is(datasets, strategy, weights, size, counts):
    mix = ht.Mix(datasets, weights, stopping_strategy=strategy)
    assert mix.epoch_size == size
    with ht.DataLoader(mix, 8, shuffle=True, seed=2) as loader:
        assert len(loader) == -(-size // 8)
        for _ in range(3):
            count = collections.Counter(label // 100 for label in epoch_of(loader))
            assert sum(count.values()) == size
            assert all(n is None or count[d] == n for d, n in counts.items())


@pytest.mark.parametrize(
    "sizes, weights",
    [
        ([25, 3], [0.1, 0.9]),  # 3 samples, 0.3 of them of the first one
        ([60, 60, 7], [0.05, 0.05, 0.9]),
        ([9, 5, 200], [0.5, 0.499, 0.001]),
        ([25, 10], [[0.1, 0.9], [0, 1]] * 100),
    ],
)
@pytest.mark.parametrize("strategy", ["first_exhausted", "all_exhausted", None])
def test_no_dataset_starves(sizes, weights, strategy):
    """Also where its share of an epoch is less than one sample, or weights alternate."""
    checked = checked_weights(weights, None, sizes)
    if checked.several and strategy is not None:
        return  # which is refused
    entries = length_of(sizes, checked, None if strategy else 1, strategy or "first_exhausted")
    mixture = Mixture(sizes, checked.rows, entries)
    taken, exact = [0] * len(sizes), [0.0] * len(sizes)
    for epoch in range(200):
        row = checked.rows[min(epoch, len(checked.rows) - 1)]
        counts = mixture.counts(epoch)
        assert sum(counts) == entries
        for d, count in enumerate(counts):
            share = row[d] * entries / sum(row)
            assert abs(count - share) < 1
            taken[d], exact[d] = taken[d] + count, exact[d] + share
            assert abs(taken[d] - exact[d]) < 2.5
    assert taken == mixture.before(200)
    assert all(n or few < 2.5 for n, few in zip(taken, exact))


@pytest.mark.parametrize("strategy", ["first_exhausted", "all_exhausted"])
def test_lengths_are_those_of_interleave_datasets(strategy):
    """Where the shares are exact at each step, `datasets` stops at the same number of samples."""
    lengths = (9, 6)

    def interleaved():
        gone, place, count = [False, False], [0, 0], 0
        while not (all if strategy == "all_exhausted" else any)(gone):
            d = (0, 1, 0)[count % 3]
            count, place[d] = count + 1, place[d] + 1
            if place[d] == lengths[d]:
                gone[d], place[d] = True, 0
        return count

    entries = length_of(lengths, Weights([[2, 1]], False), None, strategy)
    assert abs(entries - interleaved()) <= 1  # the last sample may be the next one


def test_batches_of_one_dataset_each(datasets):
    mix = ht.Mix(datasets, weights=[2, 1, 1], epoch_size=32, batches="one dataset each")
    with ht.DataLoader(mix, 4, shuffle=True, seed=9) as loader:
        assert len(loader) == 8
        for want in expected(mix, 9, True, 3, unit=4):
            batches = [labels.tolist() for _, labels in loader]
            assert joined(batches) == want
            assert all(len({label // 100 for label in labels}) == 1 for labels in batches)
            count = collections.Counter(labels[0] // 100 for labels in batches)
            assert count == {0: 4, 1: 2, 2: 2}
    for strategy, size in (("first_exhausted", 24), ("all_exhausted", 64)):
        mix = ht.Mix(datasets, [2, 1, 1], None, strategy, "one dataset each")
        with ht.DataLoader(mix, 8, shuffle=True, seed=9) as loader:
            assert sum(len(labels) for _, labels in loader) == size, strategy
    mix = ht.Mix(datasets, epoch_size=30, batches="one dataset each")
    with pytest.raises(errors.ConfigError, match="give 28 or 32"):
        len(ht.DataLoader(mix, 4, shuffle=True, seed=1))


def ranks_of(mix, world, batch, epochs, states=None, **options):
    """The labels of each epoch, in the order of steps and ranks, and the states of rank 0."""
    loaders = [
        ht.DataLoader(
            mix, batch, seed=4, rank=rank, world_size=world, name="mixed", shuffle=True, **options
        )
        for rank in range(world)
    ]
    found, kept = [], []
    if states is not None:
        for loader in loaders:
            loader.load_state_dict(states)
    for _ in range(epochs):
        labels, iterators = [], [iter(loader) for loader in loaders]
        for step in zip(*iterators):
            batches = [batch.tolist() for _, batch in step]
            labels.append([x for same in zip(*batches) for x in same])
            kept.append((len(found), loaders[0].state_dict()))
        found.append(labels)
    for loader in loaders:
        loader.close()
    return found, kept


@pytest.mark.parametrize("batches", ["mixed", "one dataset each"])
def test_any_step_resumes_with_any_number_of_ranks(datasets, batches):
    mix = ht.Mix(datasets, weights=[3, 1, 2], epoch_size=36, batches=batches)
    want = expected(mix, 4, True, 3, 1 if batches == "mixed" else 12)
    found, kept = ranks_of(mix, 2, 6, 3)
    assert [joined(labels) for labels in found] == want
    assert len(kept) == 9
    for number, (epoch, state) in enumerate(kept):
        state = json.loads(json.dumps(state))
        step = number % 3 + 1
        rest, _ = ranks_of(mix, (1, 3, 4)[number % 3], (12, 4, 3)[number % 3], 1, state)
        if step == 3:
            step, epoch = 0, epoch + 1
        if epoch < 3:
            assert joined(rest[0]) == want[epoch][step * 12 :]


def test_ranks_are_padded_as_by_a_distributed_sampler(datasets):
    mix = ht.Mix(datasets, weights=[1, 1, 1], epoch_size=10)
    (epoch,) = expected(mix, 4, True, 1)
    for drop in (False, True):
        for rank in range(3):
            options = {"rank": rank, "world_size": 3, "seed": 4, "shuffle": True}
            with ht.DataLoader(mix, 2, name=f"{drop}{rank}", drop_last=drop, **options) as loader:
                sampler = DistributedSampler(epoch, 3, rank, shuffle=False, drop_last=drop)
                want = [epoch[i] for i in sampler]
                assert labels_of(list(loader.sampler)) == want
                assert loader.explain(0, 0, rank).labels == want[:2]
                assert len(loader) == (1 if drop else 2)


def test_a_seed_is_drawn_from_torch_and_kept_in_states(datasets):
    mix = ht.Mix(datasets, epoch_size=20)

    def run():
        with ht.DataLoader(mix, 5, shuffle=True) as loader:
            first = epoch_of(loader)
            return first, loader.state_dict(), epoch_of(loader)

    torch.manual_seed(3)
    first, state, second = run()
    torch.manual_seed(3)
    assert run()[0] == first
    assert run()[0] != first
    with ht.DataLoader(mix, 5, shuffle=True) as loader:
        loader.load_state_dict(state)
        assert epoch_of(loader) == second


def test_epochs_can_be_set(datasets):
    mix = ht.Mix(datasets, epoch_size=20)
    want = expected(mix, 8, True, 6)
    with ht.DataLoader(mix, 5, shuffle=True, seed=8) as loader:
        loader.sampler.set_epoch(4)
        assert epoch_of(loader) == want[4]
        assert epoch_of(loader) == want[5]
        loader.set_epoch(1)
        assert epoch_of(loader) == want[1]


def test_a_sampler_of_a_mix_yields_the_order(datasets):
    """Frameworks may iterate it, or make another loader with it."""
    mix = ht.Mix(datasets, weights=[1, 2, 1], epoch_size=21)
    want = expected(mix, 8, True, 2)
    with ht.DataLoader(mix, 5, shuffle=True, seed=8) as loader:
        assert labels_of(list(loader.sampler)) == want[0]
        assert labels_of(list(loader.sampler)) == want[1]
    with ht.DataLoader(mix, 5, sampler=loader.sampler) as again:
        again.sampler.set_epoch(0)
        assert epoch_of(again) == want[0]
    theirs = torch.utils.data.DataLoader(mix, 5, sampler=loader.sampler)
    loader.sampler.set_epoch(1)
    assert epoch_of(theirs) == want[1]


@pytest.mark.parametrize("workers", [0, 2])
def test_what_python_makes_is_the_same(datasets, workers):
    """With a collate function of the program's, in workers or not."""
    mix = ht.Mix(datasets, weights=[1, 2, 1], epoch_size=21)

    def collate(items):
        return torch.stack([x for x, _ in items]), torch.tensor([y for _, y in items])

    options = {"collate_fn": collate, "num_workers": workers}
    with ht.DataLoader(mix, 5, shuffle=True, seed=8, offload=False, **options) as loader:
        assert [epoch_of(loader) for _ in range(2)] == expected(mix, 8, True, 2)


def test_states_of_other_mixes_are_refused(datasets):
    with ht.DataLoader(ht.Mix(datasets, epoch_size=20), 5, shuffle=True, seed=8) as loader:
        next(iter(loader))
        state = loader.state_dict()
    for other in (
        ht.Mix(datasets, epoch_size=25),
        ht.Mix(datasets, weights=[1, 1, 1], epoch_size=20),
        ht.Mix(datasets, epoch_size=20, batches="one dataset each"),
    ):
        with (
            ht.DataLoader(other, 5, shuffle=True, seed=8) as loader,
            pytest.raises(errors.MismatchError, match=r"mix is .*with the same datasets"),
        ):
            loader.load_state_dict(state)


def test_ranks_with_other_weights_are_refused(datasets):
    options = {"world_size": 2, "seed": 1, "shuffle": True, "name": "differ"}
    first = ht.DataLoader(ht.Mix(datasets, epoch_size=20), 5, rank=0, **options)
    with (
        first,
        pytest.raises(errors.MismatchError, match=r"mix is .*give all ranks the same datasets"),
    ):
        len(ht.DataLoader(ht.Mix(datasets, [1, 2, 3], epoch_size=20), 5, rank=1, **options))


def test_samples_that_cannot_be_read(datasets):
    mix = ht.Mix(datasets, weights=[1, 1, 1], epoch_size=30)
    number, own = mix.source_of(40)
    path, _ = datasets[number].sample(own)
    size = os.path.getsize(path)
    with open(path, "wb") as file:
        file.write(b"\0" * size)
    with (
        ht.DataLoader(mix, 5, shuffle=False) as loader,
        pytest.raises(errors.SampleError, match=os.path.basename(path)),
    ):
        for _ in range(2):
            list(loader)
    with ht.DataLoader(mix, 5, shuffle=False, on_error="skip", name="skips") as loader:
        labels = [x for _ in range(2) for x in epoch_of(loader)]
    bad = 100 * number + own
    assert bad not in labels
    assert len(labels) == 60 - sum(epoch.count(bad) for epoch in expected(mix, 0, False, 2))


def test_an_audit_proves_an_epoch(datasets):
    mix = ht.Mix(datasets, weights=[9, 1, 1], epoch_size=40)
    with ht.DataLoader(mix, 4, shuffle=True, seed=1, verify=True) as loader:
        for _ in range(3):
            epoch_of(loader)
        audit = loader.report()["epochs"]
    assert len(audit) == 3


def test_what_a_mix_does_not_take(datasets):
    mix = ht.Mix(datasets, epoch_size=20)
    for options, what in (
        ({"sampler": RandomSampler(mix)}, "sampler=RandomSampler with a Mix"),
        ({"sampler": DistributedSampler(mix, 2, 0)}, "shard=True instead"),
        ({"batch_sampler": [[0]]}, "batch_sampler=list with a Mix"),
        ({"batch_size": None, "shuffle": True}, "batch_size=None with a Mix"),
    ):
        with pytest.raises(errors.ConfigError, match=what):
            ht.DataLoader(mix, **options)
    with pytest.raises(errors.ConfigError, match="give the Mix Subsets"):
        ht.DataLoader(Subset(mix, [0]))
    with pytest.raises(errors.ConfigError, match="a ConcatDataset of a Mix"):
        ht.DataLoader(torch.utils.data.ConcatDataset([mix, datasets[0]]))


def test_the_example(tmp_path):
    for name in ("data", "more"):
        for kind in ("a", "b"):
            write(tmp_path / name / kind, 9, 3)
    example = os.path.join(os.path.dirname(__file__), "..", "..", "examples", "mixing.py")
    arguments = [str(tmp_path / name) for name in ("data", "more")]
    done = subprocess.run(
        [preloaded.PYTHON, example, *arguments], capture_output=True, text=True, timeout=120
    )
    taken = [line.partition("rank ")[2] for line in done.stdout.splitlines()]
    assert taken == [str({"data": of, "more": 320 - of}) for of in (320, 288, 160)], done.stderr
    wrong = subprocess.run([preloaded.PYTHON, example], capture_output=True, text=True, timeout=120)
    assert (wrong.returncode, "usage: " in wrong.stderr) == (1, True)


def test_a_run_is_proved_from_its_states(datasets, tmp_path):
    """By `hdmlp verify`, over launches with other numbers of ranks."""
    mix = ht.Mix(datasets, weights=[3, 1, 2], epoch_size=36)

    def launch(world, name, epochs, state=None):
        options = {"world_size": world, "seed": 4, "shuffle": True, "name": name}
        loaders = [ht.DataLoader(mix, 12 // world, rank=r, **options) for r in range(world)]
        for loader in loaders:
            if state is not None:
                loader.load_state_dict(state)
        for _ in range(epochs):
            list(zip(*loaders))
        last = zip(*loaders)
        next(last)
        states = [loader.state_dict() for loader in loaders]
        for loader in loaders:
            loader.close()
        for rank, saved in enumerate(states):
            (tmp_path / f"{name}{rank}.json").write_text(json.dumps(saved))
        return states[0]

    state = launch(2, "a", 1)
    launch(3, "b", 1, state)
    command = [connecting.find_binary(), "verify", *map(str, sorted(tmp_path.glob("*.json")))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    assert "each sample came exactly once, as the order has it" in done.stdout
    changed = json.loads((tmp_path / "b0.json").read_text())
    changed["mix"]["weights"] = [[3, 2, 2]]
    (tmp_path / "b0.json").write_text(json.dumps(changed))
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert "the states are of different runs: mix is " in done.stderr
