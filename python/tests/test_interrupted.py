"""Exceptions of signal handlers in next(), where the loop goes on: no batch is lost or repeated."""

import gc
import linecache
import signal
import sys
import threading

import pytest

torch = pytest.importorskip("torch")
torchvision = pytest.importorskip("torchvision")
pytest.importorskip("PIL.Image")

import hdmlp.torch as ht
from hdmlp._lib.interrupts import interrupts, start
from hdmlp._workers.pool import Pool
from reference import jpegs

V = torchvision.transforms
pytestmark = pytest.mark.usefixtures("real")

COUNT = 60


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return jpegs(tmp_path_factory.mktemp("interrupted") / "data", {"ant": 30, "bee": 30})


class Late(Exception):
    """What the handler raises."""


class Anything(Exception):
    """What no handler raised, but something else that interrupts a program."""


def handler(number, frame):
    raise Late


class Alarm:
    """Has a signal's handler raise in one of our frames: at the nth event that a trace reports.

    The signal is raised from a trace function, so the handler runs at that point of our code and
    nowhere else, and no time is involved. ``at``: only events of that line count. ``last``: where
    the last one struck.
    """

    at = last = None

    def __init__(self, nth):
        self.left = nth
        self.struck = False

    def __enter__(self):
        self.before = signal.signal(signal.SIGUSR1, handler)
        gc.disable()  # Python ignores what finalizers raise
        sys.settrace(self.trace)
        return self

    def __exit__(self, *_):
        sys.settrace(None)
        gc.enable()
        signal.signal(signal.SIGUSR1, self.before)

    def trace(self, frame, event, argument):
        at = frame
        while at is not None and at.f_code.co_name != "__del__":
            at = at.f_back
        ours = frame.f_globals.get("__name__", "").startswith("hdmlp.")
        return self.strike if ours and at is None else None

    def strike(self, frame, event, argument):
        line = linecache.getline(frame.f_code.co_filename, frame.f_lineno)
        # Python runs no handler between the last call in next() and its return, nor between the
        # last line of a "with" statement and __exit__, where a trace reports its first line again.
        apart = line.strip() != "return batch" and not line.strip().startswith("with ")
        if event == "line" and not self.struck and apart and self.at in {None, line.strip()}:
            self.left -= 1
            if self.left == 0:
                self.struck, Alarm.last = True, (frame.f_code.co_filename, frame.f_lineno)
                signal.raise_signal(signal.SIGUSR1)
        return self.strike


def plain(image):
    """A transform that HDMLP does not know."""
    return image


class Items(torch.utils.data.Dataset):
    def __len__(self):
        return COUNT

    def __getitem__(self, index):
        return torch.full((3,), index), index


KINDS = {
    "the daemon": ("daemon", {"shuffle": True, "seed": 1}),
    "the daemon, and Python here": ("python", {"shuffle": True, "seed": 1, "num_workers": 0}),
    "the daemon, and workers": ("python", {"shuffle": True, "seed": 1, "num_workers": 1}),
    "a drawn order": ("daemon", {"shuffle": True, "generator": 5}),
    "a drawn order, and workers": (
        "python",
        {"shuffle": True, "generator": 5, "num_workers": 1},
    ),
    "items here": ("items", {"shuffle": True, "generator": 5, "num_workers": 0}),
    "items of workers": ("items", {"shuffle": True, "generator": 5, "num_workers": 1}),
}


def made(folder, kind):
    what, options = KINDS[kind]
    if "generator" in options:
        options = {**options, "generator": torch.Generator().manual_seed(options["generator"])}
    if what == "items":
        return ht.DataLoader(Items(), 4, **options)
    steps = [V.CenterCrop(16), *([plain] if what == "python" else []), V.ToTensor()]
    return ht.DataLoader(ht.ImageFolder(folder, V.Compose(steps)), 4, **options)


def taken(iterator, nth=0):
    """The next batch; the handler raises at the nth line before, if there are as many."""
    if nth:
        try:
            with Alarm(nth):
                batch = next(iterator)
        except Late:
            return None
        return batch
    return next(iterator)


#: By how many lines the handler strikes further on with each batch. Those that workers are started
#: anew for strike fewer lines each, and not the same ones.
STEPS = {"the daemon, and workers": 7, "a drawn order, and workers": 8, "items of workers": 9}


@pytest.mark.parametrize("kind", KINDS)
def test_no_batch_is_lost_or_repeated(folder, kind):
    """Whichever line of ours the handler strikes."""
    with made(folder, kind) as loader:
        want = [images.clone() for images, _ in loader]
    with made(folder, kind) as loader:
        nth, raised = 1, 0
        while nth < 400:
            if loader.generator is not None:
                loader.generator.manual_seed(5)
            loader.set_epoch(0)
            iterator = iter(loader)
            got = [next(iterator)[0].clone()]
            for _ in range(len(want) - 1):
                batch = taken(iterator, nth)
                if batch is None:
                    raised += 1
                    state = loader.state_dict()
                    assert state["step"] == len(got), (nth, Alarm.last)
                    batch = next(iterator, None)
                    assert batch is not None, (nth, Alarm.last)
                got.append(batch[0].clone())
                nth += STEPS.get(kind, 3)
            assert next(iterator, None) is None
            assert len(got) == len(want)
            assert all(torch.equal(a, b) for a, b in zip(got, want)), nth
    assert raised > 10


def test_an_epoch_without_a_batch_is_not_begun(folder):
    """An error at the first batch leaves the epoch to the next iteration."""
    for kind in KINDS:
        with made(folder, kind) as loader:
            iterator = iter(loader)
            assert taken(iterator, 3) is None
            state = loader.state_dict()
            assert (state["epoch"], state["step"], loader.epoch) == (0, 0, 0), kind
            del iterator
            batches = [images.clone() for images, _ in loader]
            assert len(batches) == COUNT // 4
            assert loader.epoch == 1, kind
        with made(folder, kind) as again:
            again.load_state_dict(state)
            assert all(torch.equal(a, b) for a, (b, _) in zip(batches, again)), kind


def test_exceptions_of_handlers_are_told_from_others():
    def fails():
        raise Late

    def called(number, frame):
        raise Late

    caught = []
    for function in (fails, lambda: called(3, None)):
        try:
            function()
        except Late as error:
            caught.append(interrupts(error))
    before = signal.signal(signal.SIGUSR1, lambda *given: fails())
    try:
        signal.raise_signal(signal.SIGUSR1)
    except Late as error:
        caught.append(interrupts(error))
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert caught == [False, False, True]
    assert interrupts(KeyboardInterrupt())


def test_a_thread_that_begins_meanwhile(monkeypatch):
    """What a handler raises is not replaced when the thread that is started has begun by then."""
    name = "_start_joinable_thread"
    name = name if hasattr(threading, name) else "_start_new_thread"
    begin, begun, end = getattr(threading, name), threading.Event(), threading.Event()

    def interrupted(*args, **options):
        begin(*args, **options)
        begun.wait()
        raise Late

    def run():
        begun.set()
        end.wait()

    for way, error in ((threading.Thread.start, KeyError), (start, Late)):
        with monkeypatch.context() as patched, pytest.raises(error):
            patched.setattr(threading, name, interrupted)
            way(threading.Thread(target=run))
        end.set()
        begun.clear()


@pytest.mark.parametrize("line", ["self._renew(feed, iteration.end)", "self._stop()"])
def test_an_epoch_is_taken_and_its_workers_are_not_renewed(folder, line):
    """The handler strikes between taking an epoch and telling the workers where it ends."""
    steps = V.Compose([V.CenterCrop(16), plain, V.ToTensor()])
    with ht.DataLoader(
        ht.ImageFolder(folder, steps), 4, shuffle=True, seed=1, num_workers=1
    ) as loader:
        want = [[images.clone() for images, _ in loader] for _ in range(2)][1]
        loader.set_epoch(0)
        next(iter(loader))
        iterator = iter(loader)
        with Alarm(1) as alarm:
            alarm.at = line
            with pytest.raises(Late):
                next(iterator)
        got = [images.clone() for images, _ in iterator]
    assert len(got) == len(want)
    assert all(torch.equal(a, b) for a, b in zip(got, want))


def test_an_exception_of_no_handler_loses_no_batch(monkeypatch):
    """Which batch comes next follows from how many came, not from what raised."""
    with made(None, "items of workers") as loader:
        loader.generator.manual_seed(5)
        want = [images.clone() for images, _ in loader]
        loader.generator.manual_seed(5)
        iterator = iter(loader)
        got = [next(iterator)[0].clone()]
        before = Pool.next
        for _ in want[1:]:

            def taken(*arguments):
                before(*arguments)
                raise Anything

            monkeypatch.setattr(Pool, "next", taken)
            with pytest.raises(Anything):
                next(iterator)
            monkeypatch.setattr(Pool, "next", before)
            got.append(next(iterator)[0].clone())
        assert next(iterator, None) is None
    assert all(torch.equal(a, b) for a, b in zip(got, want))
