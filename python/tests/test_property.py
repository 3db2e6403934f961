"""One property: whatever the ranks, caches, workers, resume points and faults, the stream is the
same."""

import os
import random
import zlib
from collections import defaultdict

import pytest

torch = pytest.importorskip("torch")

import hdmlp.torch as ht
from hdmlp import errors
from hdmlp._daemon import connecting
from throttled import Throttled, Unavailable
from torch.utils.data import DistributedSampler

pytestmark = pytest.mark.slow

SEEDS = [int(s) for s in os.environ.get("TEST_SEEDS", "1 2 3 4 5 6 7 8 9 10 11 12").split()]


@pytest.fixture(autouse=True)
def real(socket_name, monkeypatch, tmp_path):
    """A daemon of the test's own."""
    try:
        connecting.find_binary()
    except errors.DaemonNotFoundError as error:
        pytest.skip(str(error))
    monkeypatch.setenv("HDMLP_LINGER", "0s")
    monkeypatch.setenv("HDMLP_INDEX_DIR", str(tmp_path / "index"))


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """97 files of 1 to 9,000 bytes in 3 classes, as (directory, [(bytes, class)] by ID)."""
    root = tmp_path_factory.mktemp("property")
    rng = random.Random(0)
    by_id = []
    for label, (name, count) in enumerate((("ant", 41), ("bee", 30), ("cat", 26))):
        (root / name).mkdir()
        for i in range(count):
            data = rng.randbytes(rng.randint(1, 9000))
            (root / name / f"{i:03d}.jpg").write_bytes(data)
            by_id.append((data, label))
    return str(root), by_id


class Position:
    """Stands in for a dataset of which a DistributedSampler needs the length."""

    def __init__(self, n):
        self.n = n

    def __len__(self):
        return self.n


def want(n, seed, epoch, rank, world, batch, drop_last):
    """The IDs of every batch of a rank, by torch's own sampler."""
    sampler = DistributedSampler(
        Position(n), world, rank, shuffle=True, seed=seed, drop_last=drop_last
    )
    sampler.set_epoch(epoch)
    ids = list(sampler)
    batches = [ids[i : i + batch] for i in range(0, len(ids), batch)]
    return [b for b in batches if len(b) == batch or not drop_last]


def whole(data):
    """A decoder whose result depends on every byte: length and CRC-32."""
    return torch.tensor([len(data), zlib.crc32(data)])


def noisy(value):
    """A random augmentation: the value, and a random number."""
    return torch.cat([value.to(torch.float64), torch.rand(1, dtype=torch.float64)])


@pytest.mark.parametrize("seed", SEEDS)
def test_the_stream_depends_on_seed_and_dataset_only(files, tmp_path, seed):
    root, by_id = files
    rng = random.Random(seed)
    total = sum(len(data) for data, _ in by_id)
    world = rng.choice([1, 2, 3, 4])
    batch = rng.randint(1, 12)
    epochs = rng.randint(1, 3)
    drop_last = rng.random() < 0.5
    workers = rng.choice([None, 0, 1, 3])  # None: encoded bytes
    options = {
        "memory": rng.choice([0, total // 3, total, "64MiB"]),
        "staging_buffer": rng.choice(["auto", "64KiB", 100_000]),
        "source_threads": rng.choice([1, 2, 16]),
        "prefetch_batches": rng.choice([1, 3, 64]),
        "policy": rng.choice(
            ["cooperative", "cooperative", "frequency", "minio", "staging", "naive"]
        ),
    }
    if rng.random() < 0.5:
        options["cache_dir"] = str(tmp_path / "cache")
        options["cache_size"] = rng.choice([total // 2, total])
    faulty = rng.random() < 0.5
    stops = sorted(rng.sample(range(1, 40), 2))  # batches after which the job is restarted
    said = (
        f"seed {seed}: world={world} batch={batch} epochs={epochs} drop_last={drop_last} "
        f"workers={workers} faulty={faulty} stops={stops} {options}"
    )
    print(said)

    source = Throttled(root, 0, 0.0, "--fail-rate=0.2", f"--fail-seed={seed}") if faulty else None
    try:
        shown = source.__enter__() if source else None
    except Unavailable as error:
        pytest.skip(str(error))
    noise = defaultdict(set)
    try:
        path = shown.path if shown else root
        state, seen = None, 0
        for stop in [*stops, None]:
            seen, state = run(
                path,
                by_id,
                seed,
                world,
                batch,
                epochs,
                drop_last,
                workers,
                options,
                state,
                seen,
                stop,
                noise,
            )
            if stop is None or state is None:
                break
    finally:
        if source:
            source.__exit__(None, None, None)
    steps = len(want(len(by_id), seed, 0, 0, world, batch, drop_last))
    assert seen == epochs * steps, said
    assert all(len(values) == 1 for values in noise.values()), said


def run(
    path, by_id, seed, world, batch, epochs, drop_last, workers, options, state, seen, stop, noise
):
    """Runs all ranks in turn from a state up to the given number of steps; returns the steps and a
    new state."""
    how = {} if workers is None else {"num_workers": workers}
    made = {} if workers is None else {"loader": whole, "transform": noisy}
    loaders = [
        ht.DataLoader(
            ht.ImageFolder(path, **made),
            batch,
            epochs=epochs,
            seed=seed,
            rank=rank,
            world_size=world,
            drop_last=drop_last,
            name="property",
            **how,
            **options,
            shuffle=True,
        )
        for rank in range(world)
    ]
    steps = len(loaders[0])
    try:
        if state is not None:
            for loader in loaders:
                loader.load_state_dict(state)
        while seen < epochs * steps:
            epoch = seen // steps
            expected = [
                want(len(by_id), seed, epoch, rank, world, batch, drop_last)
                for rank in range(world)
            ]
            for step, batches in enumerate(zip(*loaders), seen % steps):
                for rank, (samples, labels) in enumerate(batches):
                    ids = expected[rank][step]
                    assert labels.tolist() == [by_id[i][1] for i in ids]
                    if workers is None:
                        assert [bytes(s) for s in samples] == [by_id[i][0] for i in ids]
                    else:
                        assert samples[:, :2].tolist() == [
                            [len(by_id[i][0]), zlib.crc32(by_id[i][0])] for i in ids
                        ]
                        for i, value in zip(ids, samples[:, 2].tolist()):
                            noise[epoch, i].add(value)
                seen += 1
                if seen == stop:
                    return seen, loaders[0].state_dict()
        return seen, None
    finally:
        for loader in loaders:
            loader.close()
