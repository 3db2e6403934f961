"""Loaders with ``pin_memory=True``: what they yield, which thread pins it, errors, and what is left
when they are closed. CUDA is a fake."""

import gc
import os
import pickle
import threading

import pytest

torch = pytest.importorskip("torch")
torchvision = pytest.importorskip("torchvision")
pytest.importorskip("PIL")

import hdmlp.torch as ht
from hdmlp._workers.pool import Pool
from hdmlp.torch._engine import pinning as _pinning
from hdmlp.torch._engine.local import Local
from offloaded import REFERENCE, TENSOR, darker, folder  # noqa: F401
from pins import DEVICE, Pinned, cuda, threads  # noqa: F401
from reference import jpegs
from torch.utils.data import DataLoader, SubsetRandomSampler
from waiting import until

pytestmark = pytest.mark.usefixtures("real", "cuda")

V = torchvision.transforms
ITEMS = [(torch.full((2, 3), float(i)), i) for i in range(21)]
DARKER = V.Compose([REFERENCE, darker])


def native(folder, **more):
    return ht.DataLoader(ht.ImageFolder(folder, TENSOR), 4, shuffle=True, **more)


def python(folder, **more):
    return ht.DataLoader(ht.ImageFolder(folder, DARKER), 4, shuffle=True, **more)


def drawn(of, folder, **more):
    """A loader whose order its sampler draws."""
    data = ht.ImageFolder(folder, of)
    sampler = SubsetRandomSampler(range(21), torch.Generator().manual_seed(3))
    return ht.DataLoader(data, 4, sampler=sampler, **more)


#: Pinned by the thread.
AHEAD = {
    "native": lambda f, **more: native(f, seed=3, **more),
    "native, drawn": lambda f, **more: drawn(TENSOR, f, **more),
    "raw": lambda f, **more: ht.DataLoader(ht.ImageFolder(f), 4, seed=3, shuffle=True, **more),
    "workers": lambda f, **more: python(f, seed=3, num_workers=2, **more),
    "workers that stay": lambda f, **more: python(
        f, seed=3, num_workers=2, persistent_workers=True, **more
    ),
    "workers, drawn": lambda f, **more: drawn(DARKER, f, num_workers=2, **more),
    "items in workers": lambda f, **more: ht.DataLoader(ITEMS, 4, num_workers=2, **more),
    "items in workers that stay": lambda f, **more: ht.DataLoader(
        ITEMS, 4, num_workers=2, persistent_workers=True, **more
    ),
}
#: The user's code makes them in next(), which pins them.
HERE = {
    "here": lambda f, **more: python(f, seed=3, num_workers=0, **more),
    "here, drawn": lambda f, **more: drawn(DARKER, f, num_workers=0, **more),
    "items here": lambda f, **more: ht.DataLoader(ITEMS, 4, num_workers=0, **more),
}


def plain(batch, pinned):
    """A batch as a list, of which all tensors must be pinned, or none."""
    assert type(batch) is (tuple if isinstance(batch[0], list) else list)
    out = []
    for part in batch:
        if isinstance(part, torch.Tensor):
            assert type(part) is (Pinned if pinned else torch.Tensor)
            out.append(part.as_subclass(torch.Tensor).tolist())
        else:
            out.append([bytes(view) for view in part])
    return out


def walk(make, folder, pinned):
    """What a loader yields over epochs, with a break, a jump and a state to resume from."""
    out = []
    with make(folder, pin_memory=pinned) as loader:
        for _ in range(2):
            out.append([plain(batch, pinned) for batch in loader])
        for batch in loader:
            out.append([plain(batch, pinned)])
            break
        batches = iter(loader)
        out.append([plain(next(batches), pinned) for _ in range(3)])
        state = loader.state_dict()
        del batches
        loader.set_epoch(6)
        out.append([plain(batch, pinned) for batch in loader])
    with make(folder, pin_memory=pinned) as loader:
        loader.load_state_dict(state)
        for _ in range(2):
            out.append([plain(batch, pinned) for batch in loader])
    return out, {k: v for k, v in state.items() if k in ("epoch", "step")}


@pytest.mark.parametrize("make", [*AHEAD.values(), *HERE.values()], ids=[*AHEAD, *HERE])
def test_batches_are_those_of_a_loader_that_does_not_pin(folder, cuda, make):
    torch.manual_seed(5)
    want = walk(make, folder, False)
    assert not cuda.begun
    torch.manual_seed(5)
    assert walk(make, folder, True) == want
    if make in AHEAD.values():
        assert not cuda.here
        assert {device for _, device in cuda.devices} == {DEVICE}
    else:
        assert cuda.here == len(cuda.begun)
        assert not cuda.devices


def pinning(loader):
    engine = loader._engine
    if isinstance(engine, Local):
        if engine.pools._open:
            return engine.pools._open[0].batches
        engine = engine.jobs.given
    return engine._feeds[0].source


def settle(loader):
    """Waits until all that the thread was given is copied."""
    until(lambda: all(copy.wait(0) for copy in list(pinning(loader)._copies)), "copies")


def arrived(source, count):
    """Reports whether so many batches are made; nothing is begun with them."""
    source = source._source
    if isinstance(source, Pool):
        source._turn(5)
        made = [task.result is not None for task, _ in source._order]
        return len(made) >= count and all(made[:count])
    source._make_the_rest()
    return len(source._made) >= count


@pytest.mark.parametrize("make", AHEAD.values(), ids=AHEAD)
def test_next_finds_a_batch_pinned_if_the_loader_is_ahead(folder, cuda, make):
    """As the next() before has begun its copy."""
    with make(folder, pin_memory=True) as loader:
        batches = iter(loader)
        for step in range(6):
            if step:
                source = pinning(loader)
                left = min(2, 6 - step)
                until(lambda: arrived(source, left), "the next batches are made")  # noqa: B023
            if step > 1:
                settle(loader)
                source._wait = lambda copy: pytest.fail("next() waits for a copy")
                cuda.gate.clear()
            plain(next(batches), True)
            cuda.gate.set()
        assert next(batches, None) is None
    assert not cuda.here


@pytest.mark.parametrize("make", AHEAD.values(), ids=AHEAD)
@pytest.mark.parametrize("at", [0, 2, 5])
def test_a_failed_copy_is_raised_by_the_next_of_its_batch(folder, cuda, make, at):
    torch.manual_seed(5)
    with make(folder) as loader:
        want = list(loader)
    part = 1 if isinstance(want[0][0], list) else 0
    wanted = [torch.as_tensor(batch[part]).clone() for batch in want]
    failed = []

    def fails(tensor):
        if torch.equal(tensor, wanted[at]) and not failed:
            failed.append(True)
            raise RuntimeError("CUDA error: out of memory")

    torch.manual_seed(5)
    with make(folder, pin_memory=True) as loader:
        cuda.fails, got, batches = fails, [], iter(loader)
        for step in range(6):
            if step == at:
                with pytest.raises(RuntimeError, match="out of memory"):
                    next(batches)
            else:
                got.append(plain(next(batches), True))
            if step < 5:
                assert loader.state_dict()["step"] == step + 1
        assert next(batches, None) is None
    del want[at]
    assert got == [plain(batch, False) for batch in want]


@pytest.mark.parametrize("policy", ["skip", "substitute"])
def test_samples_that_python_cannot_decode_are_treated_alike(tmp_path, cuda, policy):
    """The daemon sends the batch again, and what was begun after it is given up."""
    root = jpegs(tmp_path / "data", {"ant": 7, "bee": 6, "cat": 8})
    for bad, _ in torchvision.datasets.ImageFolder(root).samples[3:20:7]:
        os.remove(bad)
        with open(f"{bad[:-4]}.bmp", "wb") as file:  # which the daemon leaves to Python
            file.write(b"BM")
    got = []
    for pinned in (False, True):
        with AHEAD["workers"](root, pin_memory=pinned, on_error=policy) as loader:
            got.append([plain(batch, pinned) for _ in range(2) for batch in loader])
    assert got[0] == got[1]
    assert not cuda.here


ENDS = {
    "closed": lambda loader, batches: loader.close(),
    "dropped": lambda loader, batches: None,
    "at its end": lambda loader, batches: list(batches),
}


@pytest.mark.parametrize("make", AHEAD.values(), ids=AHEAD)
@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
def test_no_thread_is_left(folder, cuda, make, end):
    loader = make(folder, pin_memory=True)
    batches = iter(loader)
    kept = [next(batches), next(batches)]
    assert len(threads()) == 1
    end(loader, batches)
    del loader, batches
    gc.collect()
    until(lambda: not threads(), "the thread ends")
    assert all(isinstance(batch[1], Pinned) for batch in kept)


@pytest.mark.parametrize("make", ["workers", "workers, drawn", "items in workers"])
def test_workers_end_with_their_epoch(folder, cuda, make):
    """As without pinning, so that those of the next one see the program as it is then."""
    with AHEAD[make](folder, pin_memory=True) as loader:
        for _ in range(2):
            batches = iter(loader)
            next(batches)
            source = pinning(loader)._source
            assert len(source._workers) == 2
            list(batches)
            assert not source._workers


def test_each_iterator_has_a_thread(folder, cuda):
    with native(folder, seed=3, pin_memory=True) as loader:
        one, two = iter(loader), iter(loader)
        got = [[plain(x, True) for x in pair] for pair in zip(one, two)]
        assert len(threads()) == 2
        loader.set_epoch(0)
        assert [plain(x, True) for x in loader] == [x for x, _ in got]
    assert not threads()


@pytest.mark.parametrize("make", AHEAD.values(), ids=AHEAD)
def test_without_cuda_nothing_is_pinned(folder, cuda, make, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with make(folder, pin_memory=True) as loader:
        for batch in loader:
            plain(batch, False)
        assert not threads()
        assert not cuda.begun
        assert not cuda.devices


def test_a_gradient_can_be_computed_from_a_batch_of_inference_mode(folder):
    for make in (AHEAD["native"], AHEAD["workers"]):
        with make(folder, pin_memory=True) as loader:
            with torch.inference_mode():
                batches = list(loader)
            assert not any(part.is_inference() for batch in batches for part in batch)


def test_the_users_code_stays_in_its_thread(folder, cuda):
    """A batch type's own pin_memory() is called where torch calls it: in the thread."""
    called = []

    class Own(list):
        def pin_memory(self):
            called.append(("pin", threading.current_thread().name))
            return self

    def collate(items):
        called.append(("collate", threading.current_thread().name))
        return Own(items)

    data = ht.ImageFolder(folder, TENSOR, target_transform=str)
    with ht.DataLoader(data, 4, num_workers=0, collate_fn=collate, pin_memory=True) as loader:
        list(loader)
    assert called == [("collate", "MainThread"), ("pin", "MainThread")] * 6
    called.clear()
    with ht.DataLoader(ITEMS, 4, num_workers=1, collate_fn=Kept, pin_memory=True) as loader:
        assert {batch.pinned_by for batch in loader} == {"hdmlp-pin"}


class Kept:
    """A batch that records which thread pinned it."""

    def __init__(self, items):
        self.items = items

    def pin_memory(self):
        self.pinned_by = threading.current_thread().name
        return self


class Ticking:
    """The ``time`` of a module, where a second passes whenever it is looked at."""

    def __init__(self):
        self.now = 0

    def perf_counter_ns(self):
        self.now += 1_000_000_000
        return self.now


def test_waiting_for_a_copy_counts_as_python(folder, cuda, monkeypatch):
    """Being given one that is pinned counts as nothing."""
    monkeypatch.setattr(_pinning, "time", Ticking())
    with native(folder, seed=3, epochs=1, pin_memory=True) as loader:
        batches = iter(loader)
        next(batches)
        source, waits = pinning(loader), []
        wait = source._wait

        def opened(copy):
            waits.append(copy)
            cuda.gate.set()
            wait(copy)

        source._wait = opened
        before = loader.stats
        for step in range(1, 6):
            until(lambda: arrived(source, min(2, 6 - step)), "the next batches")  # noqa: B023
            settle(loader)
            if step > 3:  # the copies of these have to be waited for
                source.restart()
                cuda.gate.clear()
            next(batches)
        after = loader.stats
        assert len(waits) in (2, 3)  # the second batch may not have been there with the first
        assert after.python - before.python == len(waits)
        assert after.stall - before.stall >= len(waits)
        python = sum(epoch["stall"].get("python", 0) for epoch in loader.report()["epochs"])
        assert python == pytest.approx(after.python)


def test_a_forked_child_pins_its_own_batches(folder, cuda):
    with native(folder, seed=3, pin_memory=True) as loader:
        want = [plain(batch, True) for batch in loader]
        batches = iter(loader)
        next(batches)
        settle(loader)
        child = os.fork()
        if not child:
            status = 1
            try:
                loader.set_epoch(0)
                status = [plain(batch, True) for batch in loader] != want
            finally:
                os._exit(status)
        assert os.waitpid(child, 0)[1] == 0
        assert len(list(batches)) == 5


def test_a_copy_of_a_loader_pins(folder):
    with native(folder, seed=3, pin_memory=True) as loader:
        want = [plain(batch, True) for batch in loader]
        with pickle.loads(pickle.dumps(loader)) as copy:
            copy.set_epoch(0)
            assert [plain(batch, True) for batch in copy] == want


def test_state_counts_what_was_yielded(folder):
    with native(folder, seed=3, pin_memory=True) as loader:
        batches = iter(loader)
        for step in range(6):
            assert loader.state_dict()["step"] == step
            next(batches)
            settle(loader)


def test_a_loader_pins_like_torchs(folder, cuda):
    """Types and values; torch's own thread pins its."""
    make = {"num_workers": 1, "pin_memory": True, "multiprocessing_context": "fork"}
    theirs = DataLoader(torchvision.datasets.ImageFolder(folder, REFERENCE), 4, **make)
    with ht.DataLoader(ht.ImageFolder(folder, REFERENCE), 4, **make) as ours:
        for ours_, theirs_ in zip(ours, theirs):
            assert plain(ours_, True) == plain(theirs_, True)
