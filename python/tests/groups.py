"""Control groups of a test's own, with limits of memory."""

import contextlib
import os
import signal
import subprocess
import sys
import time

import pytest
from hdmlp._daemon import oom

MB = 1_000_000


class Group:
    """A control group with a limit of memory."""

    def __init__(self, parent, name):
        self.v2 = parent.v2
        self.path = os.path.join(parent.path, name)
        if self.v2:
            with open(os.path.join(parent.path, "cgroup.subtree_control"), "w") as file:
                file.write("+memory")
        os.mkdir(self.path)

    def limit(self, size):
        with open(
            os.path.join(self.path, "memory.max" if self.v2 else "memory.limit_in_bytes"), "w"
        ) as file:
            file.write(str(size))

    def enter(self):
        """Moves the process that calls it."""
        with open(os.path.join(self.path, "cgroup.procs"), "w") as file:
            file.write(str(os.getpid()))

    def processes(self):
        with open(os.path.join(self.path, "cgroup.procs")) as file:
            return [int(line) for line in file]

    def close(self):
        deadline = time.monotonic() + 20
        while self.processes() and time.monotonic() < deadline:
            for pid in self.processes():
                with contextlib.suppress(ProcessLookupError):  # it has ended since
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.02)
        while True:
            try:
                return os.rmdir(self.path)
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.02)


def parent():
    """The nearest group of this process that counts memory; None: there is none.

    The root of version 2 has no limit, and so no counters of it.
    """
    for group in oom.groups(os.getpid()):
        if oom._counts(group) or os.path.exists(os.path.join(group.path, "memory.stat")):
            return group
    return None


@pytest.fixture
def group(socket_name):
    above = parent()
    if above is None:
        pytest.skip("no control groups for memory")
    try:
        made = Group(above, f"hdmlp-test-{os.getpid()}")
    except OSError as error:
        pytest.skip(f"no control group can be made: {error}")
    made.limit(200 * MB)
    yield made
    made.close()


def run(group, program, *arguments, **options):
    return subprocess.Popen(
        [sys.executable, "-c", program, *arguments],
        stdout=subprocess.PIPE,
        stdin=subprocess.PIPE,
        text=True,
        preexec_fn=group.enter,
        **options,
    )
