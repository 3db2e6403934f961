"""The time limit of tests, tried on a run of its own."""

import os
import re
import subprocess
import sys
import textwrap

import pytest

pytestmark = pytest.mark.slow

HERE = os.path.dirname(os.path.abspath(__file__))


def test_a_test_that_hangs_fails_and_the_next_one_runs(tmp_path):
    """Its stacks and those of processes that it started are shown, and these are killed: a child,
    and an orphan in another session."""
    (tmp_path / "conftest.py").write_text(
        "from timelimit import pytest_runtest_call, pytest_runtest_makereport, "
        "pytest_runtest_setup, pytest_runtest_teardown  # noqa: F401\n"
    )
    (tmp_path / "test_it.py").write_text(
        textwrap.dedent(f"""
        import os, subprocess, sys, textwrap, threading

        pids = []
        ORPHAN = '''
        import subprocess
        quiet = subprocess.DEVNULL
        print(subprocess.Popen(["sleep", "1000"], start_new_session=True, stdout=quiet).pid)
        '''

        def hang_here():
            threading.Event().wait()

        def child_hangs_here():
            threading.Event().wait()

        def test_hangs():
            pids.append(os.fork())
            if not pids[0]:
                child_hangs_here()
            pids.append(subprocess.Popen(["sleep", "1000"]).pid)
            pids.append(int(subprocess.check_output([sys.executable, "-c", ORPHAN])))
            hang_here()

        SCRIPT = '''
        def script_hangs_here():
            import time
            time.sleep(1000)
        script_hangs_here()
        '''

        def test_waits_for_a_script():
            script = [sys.executable, "-c", textwrap.dedent(SCRIPT)]
            done = subprocess.run(script, stderr=subprocess.PIPE, text=True)
            assert not done.returncode, done.stderr

        def test_waits_in_vain_and_does_not_notice():
            subprocess.run(["sleep", "1000"])

        def test_has_a_time_limit_of_its_own():
            script = "echo was here >&2; exec sleep 1000"
            subprocess.run(["sh", "-c", script], stderr=subprocess.PIPE, timeout=2)

        def test_runs():
            with open({str(tmp_path / "pids")!r}, "w") as file:
                file.write(" ".join(map(str, pids)))
        """)
    )
    environment = {
        **os.environ,
        "TEST_LIMIT": "6",
        "PYTHONPATH": os.pathsep.join([HERE, os.environ.get("PYTHONPATH", "")]),
    }
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", str(tmp_path)]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert "4 failed, 1 passed" in done.stdout, done.stdout + done.stderr
    assert "in hang_here" in done.stdout
    assert "in child_hangs_here" in done.stdout
    assert "in script_hangs_here" in done.stdout
    assert len(re.findall(r"(?m)^E +Failed: took longer than 6 s", done.stdout)) == 2
    assert "was here" in done.stdout
    for pid in (tmp_path / "pids").read_text().split():
        assert not running(pid)


def test_a_test_that_ends_when_its_limit_does_passes():
    """The signal, which is on its way already, does no harm."""
    script = """
        import threading, timelimit

        expires = threading.Event()

        def started(_):
            expires.set()
            while not limit._over.is_set():
                pass
            return []

        timelimit.started = started
        limit = timelimit._Limit("it", 0)
        with limit:
            expires.wait()
        limit._timer.join()
        print("passed")
        """
    environment = {**os.environ, "PYTHONPATH": HERE}
    command = [sys.executable, "-c", textwrap.dedent(script)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.stdout == "passed\n", done.stderr


def running(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
