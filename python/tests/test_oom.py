"""Memory limits, by control groups of the test's own: jobs that would not fit are refused, and the
error of a killed process says why."""

import os
import signal

import pytest
from groups import MB, group, run  # noqa: F401
from hdmlp._daemon import oom

pytestmark = pytest.mark.usefixtures("real")


@pytest.fixture
def files(tmp_path):
    (tmp_path / "big" / "a").mkdir(parents=True)
    for i in range(160):
        with open(tmp_path / "big" / "a" / f"{i:03d}.jpg", "wb") as file:
            file.truncate(MB)
    return str(tmp_path / "big")


EPOCH = """
import sys
from hdmlp import data, errors
try:
    with data.DataLoader(sys.argv[1], batch_size=4, epochs=2, **eval(sys.argv[2])) as loader:
        for _ in range(2):
            print(sum(len(samples) for samples, *_ in loader))
except errors.LimitError as error:
    print("refused:", error)
"""


def test_jobs_that_together_exceed_the_limit_are_refused(group, files):
    out, _ = run(group, EPOCH, files, "dict(memory='150MB')").communicate(timeout=60)
    assert "refused: not enough memory for job" in out, out
    for part in (
        "143.1 MiB for the memory class (memory)",
        "32.0 MiB for staging buffers (1 of 32.0 MiB: staging_buffer)",
        f"control group {group.path} is limited to 190.7 MiB",
        "set memory to",
    ):
        assert part in out, out


@pytest.mark.parametrize("options", ["dict(memory='60MB')", "dict(memory='auto')"])
def test_an_admitted_job_fits(group, files, options):
    out, _ = run(group, EPOCH, files, options).communicate(timeout=120)
    assert out.split() == ["160", "160"], out


KILLED = """
import sys
from hdmlp import data, errors
loader = data.DataLoader(sys.argv[1], batch_size=4, prefetch_batches=1, memory="1MB")
batches = iter(loader)
next(batches)
print(loader._feeds[0].stream.daemon.pid, flush=True)
sys.stdin.readline()
try:
    for _ in range(100):
        next(batches)
except errors.DaemonDiedError as error:
    print(error)
"""
HOG = "import sys; x = []; sys.stdin.readline()\nwhile True: x.append(bytearray(4000000))"


def test_the_oom_killer_is_named(group, files):
    job = run(group, KILLED, files)
    pid = int(job.stdout.readline())
    with open(f"/proc/{pid}/oom_score_adj", "w") as file:
        file.write("1000")
    hog = run(group, HOG)
    hog.communicate("go\n", timeout=60)
    out, _ = job.communicate("go\n", timeout=60)
    assert (
        f"the kernel's OOM killer ended the HDMLP daemon (pid {pid}) because control group "
        f"{group.path} reached its memory limit of 190.7 MiB" in out
    ), out
    assert "lower memory=, or raise the limit" in out


def test_a_plain_kill_is_not_blamed_on_the_oom_killer(group, files):
    job = run(group, KILLED, files)
    pid = int(job.stdout.readline())
    os.kill(pid, signal.SIGKILL)
    out, _ = job.communicate("go\n", timeout=60)
    assert f"the HDMLP daemon (pid {pid}) died or was stopped" in out, out
    assert "kernel" not in out, out


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.mark.parametrize("level", ["inner", "outer"])
def test_kills_are_counted_in_cgroups_version_2(tmp_path, level):
    """There, each level of the hierarchy also counts the kills below it."""
    write(tmp_path / "proc/7/cgroup", "0::/outer/inner\n")
    write(tmp_path / "proc/self/mountinfo", "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup rw\n")
    root = tmp_path / "sys/fs/cgroup"

    def state(kills, reached):
        for name, path, limit in (
            ("outer", root / "outer", 300 << 20),
            ("inner", root / "outer" / "inner", 200 << 20),
        ):
            write(path / "memory.max", f"{limit}\n")
            write(
                path / "memory.events",
                f"low 0\nhigh 0\nmax 9\noom {int(name == reached)}\noom_kill "
                f"{kills}\noom_group_kill 0\n",
            )

    state(3, "")
    watch = oom.Watch(7, str(tmp_path))
    assert watch.reason(None) is None
    assert watch.reason(-9) is None
    state(4, level)
    path, limit = (root / "outer", 300) if level == "outer" else (root / "outer" / "inner", 200)
    for status in (None, -9):
        assert watch.reason(status) == (
            f"because control group {path} reached its memory limit of {limit}.0 MiB "
            f"({limit << 20} bytes); lower memory=, or raise the limit"
        )
    assert watch.reason(1) is None
