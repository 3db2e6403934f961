"""The stall is the time that next() takes, by cause: what Python spends on a batch is Python's, the
rest is the source's, and so on.

No clock runs in here: the ones of the package are replaced by one that transforms set forward, or
that moves on whenever it is looked at.
"""

import multiprocessing
import multiprocessing.context
import os
import types

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("PIL")

import hdmlp.torch as ht
from hdmlp import Job, data
from hdmlp import transforms as T
from hdmlp._loading import bring
from hdmlp._workers import pool as _workers
from hdmlp.torch._engine import counted, epochs
from reference import jpegs

SECOND = 1_000_000_000


class Clock:
    """Stands still until the test sets it forward; replaces ``time`` in modules."""

    def __init__(self, monkeypatch, *modules):
        self.now = 0
        for module in modules:
            monkeypatch.setattr(
                module,
                "time",
                types.SimpleNamespace(
                    **{
                        **vars(module.time),
                        "perf_counter_ns": self.look,
                        "perf_counter": lambda: self.look() / 1e9,
                    }
                ),
            )

    def look(self):
        return self.now


class Ticking(Clock):
    """Advances by a second on each reading, and then calls ``at`` with the number of readings since
    ``at`` was set."""

    def __init__(self, monkeypatch, *modules):
        self.at, self.looks = None, 0
        super().__init__(monkeypatch, *modules)

    def look(self):
        self.now += SECOND
        self.looks += 1
        if self.at is not None:
            self.at(self.looks)
        return self.now

    def call(self, at):
        self.at, self.looks = at, 0


class Slow:
    """A transform that takes a second."""

    def __init__(self, clock):
        self.clock = clock

    def __getstate__(self):  # the clock is no part of what it does
        return {}

    def __call__(self, value):
        self.clock.now += SECOND
        return torch.zeros(3)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return jpegs(tmp_path_factory.mktemp("jpegs") / "data", {"ant": 7, "bee": 5})


def stalls(report):
    """The report's stall by cause, over all epochs."""
    causes = {}
    for epoch in report["epochs"]:
        for cause, seconds in epoch["stall"].items():
            causes[cause] = causes.get(cause, 0) + seconds
    assert abs(sum(causes.values()) - report["stall_seconds"]) < 1e-6
    return causes


@pytest.mark.parametrize("transform", ["all in Python", "after the daemon"])
def test_transforms_in_next_count_as_python(real, folder, monkeypatch, transform):
    clock = Clock(monkeypatch, bring)
    steps = (
        [Slow(clock)]
        if transform == "all in Python"
        else [T.Resize((8, 8)), T.ToTensor(), Slow(clock)]
    )
    dataset = ht.ImageFolder(folder, steps)
    with ht.DataLoader(dataset, 4, num_workers=0, seed=1, epochs=2, shuffle=True) as loader:
        for _ in range(2):
            assert len(list(loader)) == 3
        report, stats = loader.report(), loader.stats
    causes = stalls(report)
    assert causes["python"] == 24
    assert report["utilisation"] < 0.1
    assert "Python code that makes batches" in str(report)
    assert "num_workers" in str(report)
    assert stats.python == 24
    assert stats.waits == stats.batches == 6
    assert abs(stats.stall - report["stall_seconds"]) < 1e-3


def test_a_batch_that_is_made_again_counts_as_python(real, tmp_path, monkeypatch):
    """So does the time until a sample turned out to be no image."""
    clock = Clock(monkeypatch, bring)
    root = jpegs(tmp_path / "data", {"ant": 4})
    with open(os.path.join(root, "ant", "0002.jpg"), "wb") as file:
        file.write(b"no image")
    with ht.DataLoader(
        ht.ImageFolder(root, Slow(clock)), 4, num_workers=0, offload=False, on_error="skip"
    ) as loader:
        ((images, _),) = loader
        assert len(images) == 3
        assert stalls(loader.report())["python"] == loader.stats.python == 2 + 3


def test_all_work_in_python_counts_as_python(real, folder, monkeypatch):
    """target_transform, collate_fn with and without transforms, samplers, and loaders without
    torch."""
    clock = Clock(monkeypatch, bring)

    def slow(value):
        clock.now += SECOND
        return value

    native = [T.Resize((8, 8)), T.ToTensor()]
    sampler = torch.utils.data.SubsetRandomSampler(range(12), torch.Generator())
    for loader, want in (
        (
            ht.DataLoader(
                ht.ImageFolder(folder, native, slow), 4, num_workers=0, shuffle=True, seed=1
            ),
            12,
        ),
        (
            ht.DataLoader(
                ht.ImageFolder(folder, native),
                4,
                num_workers=0,
                collate_fn=slow,
                shuffle=True,
                seed=1,
            ),
            3,
        ),
        (
            ht.DataLoader(
                ht.ImageFolder(folder), 4, num_workers=0, collate_fn=slow, shuffle=True, seed=1
            ),
            3,
        ),
        (ht.DataLoader(ht.ImageFolder(folder, [*native, slow]), 4, sampler=sampler), 12),
        (data.DataLoader(folder, 4, collate_fn=slow, seed=1), 3),
    ):
        with loader:
            assert len(list(loader)) == 3
            assert stalls(loader.report())["python"] == loader.stats.python == want
    job = Job(folder, 4, 1)
    assert len(list(ht.HDMLPDataLoader(ht.HDMLPImageFolder(folder, job, [*native, slow])))) == 3
    assert stalls(job._loader.report())["python"] == 12
    assert job.get_metrics()["stall_time"] < 12
    job.destroy()


def test_a_transform_that_fails_counts(real, folder, monkeypatch):
    clock = Clock(monkeypatch, bring)

    def fails(value):
        clock.now += SECOND
        raise KeyError("mine")

    with ht.DataLoader(
        ht.ImageFolder(folder, fails), 4, num_workers=0, seed=1, shuffle=True
    ) as loader:
        batches = iter(loader)
        for _ in range(3):
            with pytest.raises(KeyError):
                next(batches)
        assert stalls(loader.report())["python"] == 3


def test_nothing_counts_as_python_if_the_daemon_does_all(real, folder, monkeypatch):
    Ticking(monkeypatch, bring)  # whatever is measured in Python takes a second
    for loader in (
        ht.DataLoader(
            ht.ImageFolder(folder, [T.Resize((8, 8)), T.ToTensor()]), 4, shuffle=True, seed=1
        ),
        data.DataLoader(folder, 4, seed=1),
    ):
        with loader:
            assert len(list(loader)) == 3
            assert "python" not in stalls(loader.report())
            assert loader.stats.python == 0


def test_waits_for_the_source_count_as_source(real, folder, monkeypatch):
    """The policy naive reads nothing ahead: each batch is waited for, and then takes a second per
    sample."""
    clock = Clock(monkeypatch, bring)
    with ht.DataLoader(
        ht.ImageFolder(folder, [Slow(clock)]),
        4,
        num_workers=0,
        seed=1,
        shuffle=True,
        policy="naive",
        offload=False,
    ) as loader:
        list(loader)
        causes = stalls(loader.report())
        assert causes["python"] == 12
        assert causes["source"] > 0
        assert abs(sum(causes.values()) - loader.stats.stall) < 1e-3


def test_what_comes_before_a_batch_counts(real, folder, monkeypatch):
    """Workers that start with an epoch's first batch, and a sampler that takes long."""
    clock = Clock(monkeypatch, bring)

    class Starts(multiprocessing.context.ForkContext):
        """Each process takes a second to start."""

        def Process(self, *given, **named):
            clock.now += SECOND
            return multiprocessing.context.ForkProcess(*given, **named)

    class Slowly(torch.utils.data.Sampler):
        """Each index takes a second."""

        def __init__(self):
            pass

        def __len__(self):
            return 12

        def __iter__(self):
            for index in range(12):
                clock.now += SECOND
                yield index

        def __deepcopy__(self, memo):
            raise TypeError("its order is not foreseen")

    with ht.DataLoader(
        ht.ImageFolder(folder, [len_of]),
        4,
        num_workers=2,
        multiprocessing_context=Starts(),
        seed=1,
        shuffle=True,
    ) as loader:
        for _ in range(2):
            assert len(list(loader)) == 3
        assert stalls(loader.report())["python"] >= 4
        assert loader.stats.stall >= 4
    native = [T.Resize((8, 8)), T.ToTensor()]
    with ht.DataLoader(ht.ImageFolder(folder, native), 4, sampler=Slowly()) as loader:
        assert len(list(loader)) == 3
        assert loader.report()["stall_seconds"] > 11.9
        assert loader.stats.stall > 11.9


class Gated:
    """A transform that waits for a byte in the pipe."""

    def __init__(self):
        self.reads, self.writes = os.pipe()

    def __call__(self, value):
        os.read(self.reads, 1)
        return torch.zeros(3)

    def open(self, count):
        os.write(self.writes, b"x" * count)


def test_waits_for_workers_count_as_python(real, folder, monkeypatch):
    clock, gate = Ticking(monkeypatch, _workers), Gated()
    with ht.DataLoader(
        ht.ImageFolder(folder, [gate]),
        4,
        num_workers=1,
        multiprocessing_context="fork",
        seed=1,
        shuffle=True,
    ) as loader:
        batches = iter(loader)
        gate.open(4)
        next(batches)
        before = loader.stats
        pool = loader._engine._feeds[0].source
        while not pool._order:  # the worker has the next batch
            pool._turn(50)
        clock.call(lambda looks: gate.open(4) if looks == 5 else None)
        next(batches)
        after, causes = loader.stats, stalls(loader.report())
    assert after.python - before.python == pytest.approx(after.stall - before.stall, abs=1e-9)
    assert after.python - before.python >= 4
    assert causes["python"] == pytest.approx(after.python, abs=1e-6)


def test_waits_for_the_daemon_do_not_count_as_python(daemon, folder, monkeypatch):
    """With workers, time in which the daemon has sent nothing is not theirs."""
    clock = Ticking(monkeypatch, _workers)
    with ht.DataLoader(
        ht.ImageFolder(folder, [len_of]),
        4,
        num_workers=2,
        multiprocessing_context="fork",
        seed=1,
        shuffle=True,
        offload=False,
    ) as loader:
        daemon.gate.clear()
        clock.call(lambda looks: daemon.gate.set() if looks == 5 else None)
        next(iter(loader))
        stats = loader.stats
    assert stats.stall - stats.python >= 4
    assert stats.stall > stats.python > 0


def len_of(image):
    return torch.tensor(image.size)


class Items(torch.utils.data.Dataset):
    def __init__(self, clock):
        self.clock = clock

    def __len__(self):
        return 12

    def __getitem__(self, i):
        self.clock.now += SECOND
        return i


def test_custom_datasets_count_as_python(socket_name, monkeypatch):
    clock = Clock(monkeypatch, counted, epochs)
    with ht.DataLoader(Items(clock), 4, num_workers=0) as loader:
        for _ in loader:
            clock.now += SECOND  # the training step
        report = loader.report()
        assert loader.stats == (3, 12, 3, 12.0, 12.0)
    assert report["stall"] == {"python": 12.0}
    assert report["stall_seconds"] == 12
    assert report["seconds"] == 14
    assert report["utilisation"] == pytest.approx(1 - 12 / 14)
    assert "12.000 s" in str(report)
    assert "num_workers" in str(report)
    clock = Ticking(monkeypatch, counted, epochs)
    with ht.DataLoader(Items(clock), 4, num_workers=2, multiprocessing_context="fork") as loader:
        list(loader)
        assert loader.stats.stall == loader.stats.python == 3 == loader.report()["stall_seconds"]
