"""A time limit for every test: one that hangs shows where, fails, and the others go on.

A directory's conftest.py takes part by importing the four hooks. Setup, call and teardown of a
test have the limit each:
300 seconds, or those of ``@pytest.mark.limit(seconds)``.

Processes that the test has started show their stacks on their own standard error, and are killed.
A test that waits for one of them then has a moment to fail by itself, with what the process wrote.
"""

import contextlib
import faulthandler
import os
import signal
import subprocess
import sys
import threading
import time
import uuid

import pytest

_LIMIT = float(os.environ.get("TEST_LIMIT", 300))
#: Interrupts the main thread, wherever it waits. Nothing else here uses it.
_SIGNAL = signal.SIGRTMIN + 5
#: Has a process show the stacks of its threads; forked ones inherit it.
_SHOW = signal.SIGRTMIN + 6
faulthandler.register(_SHOW, sys.__stderr__)
#: Seconds for a test to fail by itself, once the processes that it has started are killed.
_GRACE = 5
#: What the processes that tests start inherit, those as well that are no descendants of this one
#: any more.
_MARK = f"STARTED_BY_TESTS={uuid.uuid4().hex}"

os.environ.update([_MARK.split("="), ("PYTHONFAULTHANDLER", "1")])


class _Limit:
    """Fails what runs inside of it in the main thread, when it takes longer than so many
    seconds.

    Attributes:
        killed: A process was killed, so that what ran inside must not pass.
    """

    def __init__(self, what, seconds):
        self._what, self._seconds = what, seconds
        self.killed = False
        self._over = threading.Event()
        self._began = _ticks()
        self._timer = threading.Timer(seconds, self._expire)
        self._timer.daemon = True

    def __enter__(self):
        self._before = signal.signal(_SIGNAL, self._fail)
        self._timer.start()

    def __exit__(self, *_):
        self._over.set()
        self._timer.cancel()
        self._timer.join()  # its signal would end the process if the former handler were back
        signal.signal(_SIGNAL, self._before)

    def _expire(self):
        if not self._over.is_set():
            print(
                f"\n{self._what} takes longer than {self._seconds:g} s",
                file=sys.__stderr__,
                flush=True,
            )
            faulthandler.dump_traceback(sys.__stderr__)
            for pid in reversed(started(self._began)):  # those of commands before the commands
                if signum := _shows(pid):
                    print(f"\nprocess {pid}:", file=sys.__stderr__, flush=True)
                    _send(pid, signum)
                    time.sleep(0.5)  # it says so in its own time, and is killed next
            for pid in started(self._began):
                self.killed = True
                _send(pid, signal.SIGKILL)
            if not (self.killed and self._over.wait(_GRACE)):
                signal.pthread_kill(threading.main_thread().ident, _SIGNAL)

    def _fail(self, *_):
        if not self._over.is_set():
            pytest.fail(self.text)

    @property
    def text(self):
        return (
            f"took longer than {self._seconds:g} s: the stacks of all threads are in the captured "
            f"standard error"
        )


def _ticks():
    """The time since the machine started, as /proc/PID/stat has it."""
    return int(time.clock_gettime(time.CLOCK_BOOTTIME) * os.sysconf("SC_CLK_TCK"))


def _send(pid, signum):
    with contextlib.suppress(OSError):
        os.kill(pid, signum)


def _shows(pid):
    """The signal by which a process shows its stacks; None: there is none."""
    try:
        with open(f"/proc/{pid}/status") as file:
            caught = int(next(line for line in file if line.startswith("SigCgt")).split()[1], 16)
        program = os.path.basename(os.readlink(f"/proc/{pid}/exe"))
    except OSError:
        return None
    if program == "hdmlp":  # as every program of Go
        return signal.SIGQUIT
    return next((each for each in (_SHOW, signal.SIGABRT) if caught >> each - 1 & 1), None)


def started(since):
    """The processes that tests of this run have started since then."""
    parents, young, marked = {}, set(), set()
    for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):
        try:
            with open(f"/proc/{pid}/stat") as file:
                fields = file.read().rpartition(")")[2].split()
            with open(f"/proc/{pid}/environ", "rb") as file:
                environment = file.read().split(b"\0")
        except OSError:
            continue  # it has ended, or is another user's
        parents[pid] = int(fields[1])
        if int(fields[19]) >= since:
            young.add(pid)
        if _MARK.encode() in environment:
            marked.add(pid)

    def ours(pid):
        return pid in marked or (
            pid in parents and (parents[pid] == os.getpid() or ours(parents[pid]))
        )

    return [pid for pid in sorted(young - {os.getpid()}) if ours(pid)]


def _limited(item, phase):
    marker = item.get_closest_marker("limit")
    return _Limit(f"{phase} of {item.nodeid}", _LIMIT if marker is None else marker.args[0])


def _within(limit):
    with limit:
        outcome = yield
    if limit.killed and outcome.excinfo is None:
        pytest.fail(limit.text)


@pytest.hookimpl(hookwrapper=True, tryfirst=True)
def pytest_runtest_setup(item):
    yield from _within(_limited(item, "setup"))


@pytest.hookimpl(hookwrapper=True, tryfirst=True)
def pytest_runtest_call(item):
    yield from _within(_limited(item, "call"))


@pytest.hookimpl(hookwrapper=True, tryfirst=True)
def pytest_runtest_teardown(item):
    yield from _within(_limited(item, "teardown"))


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(call):
    """Shows what a command wrote that a test has waited for in vain."""
    outcome = yield
    error = call.excinfo and call.excinfo.value
    if isinstance(error, subprocess.TimeoutExpired):
        for name in ("stdout", "stderr"):
            written = getattr(error, name) or b""
            text = written if isinstance(written, str) else written.decode(errors="replace")
            outcome.get_result().sections.append((f"{name} of {error.cmd}", text))
    _escape(outcome.get_result())


def _escape(report):
    """Escapes names that are not UTF-8, which would keep a worker from sending the report."""
    report.sections = [(_printable(title), _printable(text)) for title, text in report.sections]
    if report.longrepr is not None and report.failed:
        text = str(report.longrepr)
        if _printable(text) != text:
            report.longrepr = _printable(text)


def _printable(text):
    return text.encode(errors="backslashreplace").decode()
