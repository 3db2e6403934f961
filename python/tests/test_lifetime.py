"""How long loaders hold their resources, and what a stopped daemon does to them."""

import contextlib
import gc
import os
import subprocess

import pytest
from hdmlp import data, errors
from hdmlp._daemon import connecting
from raw import read

torch = pytest.importorskip("torch")

import hdmlp.torch as ht
from numbered import dataset
from waiting import until


@pytest.fixture
def uncollected():
    """Switches the garbage collector off."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def descriptors():
    found = set()
    for fd in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # the directory's own
            found.add((fd, os.readlink(f"/proc/self/fd/{fd}")))
    return found


KINDS = {
    "data": lambda folder: data.DataLoader(folder, batch_size=4),
    "raw": lambda folder: ht.DataLoader(ht.ImageFolder(folder), 4),
    "sampler": lambda folder: ht.DataLoader(ht.ImageFolder(folder), 4, shuffle=True),
    "python": lambda folder: ht.DataLoader(dataset(folder), 4, num_workers=0),
    "workers": lambda folder: ht.DataLoader(dataset(folder), 4, num_workers=2),
    "persistent": lambda folder: ht.DataLoader(
        dataset(folder), 4, num_workers=2, persistent_workers=True
    ),
    "items": lambda folder: ht.DataLoader(list(range(100)), 4, num_workers=0),
    "items in workers": lambda folder: ht.DataLoader(list(range(100)), 4, num_workers=2),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_loader_dropped_after_break_closes_without_the_collector(real, folder, kind, uncollected):
    """Connections, shared memory and workers."""
    with data.DataLoader(folder, batch_size=4) as other:  # what the process opens once stays open
        next(iter(other))
        loader = KINDS[kind](folder)
        next(iter(loader))
        del loader
        gc.collect()
        before = descriptors()
        loader = KINDS[kind](folder)
        for batch in loader:  # noqa: B007 - held until after the loop
            break
        assert kind == "items" or descriptors() != before
        del loader, batch
        # A thread that reaps a worker may still hold its descriptor.
        until(lambda: descriptors() == before, "all descriptors are closed")


def test_the_error_of_a_stopped_daemon_says_how_to_continue(real, folder):
    with data.DataLoader(folder, batch_size=4, seed=7, prefetch_batches=2) as loader:
        batches = iter(loader)
        got = [read(next(batches).samples)]
        subprocess.run([connecting.find_binary(), "stop", "--force"], check=True)
        with pytest.raises(errors.DaemonDiedError, match=r"call next\(\) on the same iterator"):
            got.extend(read(batch.samples) for batch in batches)
        got += [read(batch.samples) for batch in batches]
        assert got == [list(loader.explain(0, step).ids) for step in range(len(loader))]


@pytest.mark.parametrize("kind", ["data", "sampler"])
def test_an_epoch_in_which_the_daemon_died_is_verified_from_there_on(real, folder, kind):
    options = {"verify": True, "prefetch_batches": 2}
    loader = (
        data.DataLoader(folder, batch_size=2, seed=7, **options)
        if kind == "data"
        else ht.DataLoader(ht.ImageFolder(folder), 2, shuffle=True, **options)
    )
    with loader:
        steps, died = len(list(loader)), 0
        batches = iter(loader)
        next(batches)
        subprocess.run([connecting.find_binary(), "stop", "--force"], check=True)
        taken = 1
        while True:
            try:
                next(batches)
                taken += 1
            except errors.DaemonDiedError:
                died += 1
            except StopIteration:
                break
        assert taken == steps
        assert died == 1
        assert len(list(loader)) == steps


def test_a_report_ends_with_its_daemon(real, folder, monkeypatch):
    """As in ``finally``: it neither starts a daemon nor waits for other nodes, and the job's next
    batch brings reports again."""
    with data.DataLoader(folder, batch_size=4, seed=7, prefetch_batches=2) as loader:
        batches = iter(loader)
        next(batches)
        subprocess.run([connecting.find_binary(), "stop", "--force"], check=True)
        with pytest.raises(errors.DaemonDiedError) as died:
            for _ in batches:
                pass
        with monkeypatch.context() as m:
            m.setattr(connecting, "connect", lambda: pytest.fail("the report opens the job"))
            for cluster in (False, True, False):
                with pytest.raises(errors.DaemonDiedError) as again:
                    loader.report(cluster)
                assert str(again.value) == str(died.value)
        next(batches)
        assert loader.report()["ranks"]
