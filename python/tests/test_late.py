"""What a process is sent while no batch comes."""

import os
import signal

import pytest
from hdmlp import data, errors
from hdmlp._batches.stall import causes, stalled
from waiting import until


def test_a_batch_that_does_not_come_in_time():
    assert "timeout=5 seconds: the source is slow" in str(stalled(5))
    assert "a worker process is still making it" in str(stalled(5, working=True))
    assert causes(0) == causes(os.getpid()) == causes(2**30)  # no process, one that runs, and none


def test_a_stopped_daemon_is_named(real, tmp_path):
    """It is no slow source; and once it runs again, the loop goes on where it was."""
    folder = tmp_path / "data" / "a"
    folder.mkdir(parents=True)
    for number in range(40):
        (folder / f"{number:02d}.jpg").write_bytes(bytes([number]) * 100)
    options = {"batch_size": 1, "seed": 1, "shuffle": "none", "prefetch_batches": 2}
    with data.DataLoader(folder.parent, **options) as loader:
        batches, got = iter(loader), []
        got.append(bytes(next(batches)[0][0]))
        pid = loader._feeds[0].stream.daemon.peer
        os.kill(pid, signal.SIGSTOP)
        loader.timeout = 0.3
        try:
            until(lambda: "is stopped by a signal" in causes(pid))
            with pytest.raises(errors.StallTimeoutError, match=f"kill -CONT {pid} continues it"):
                for batch in batches:  # what was sent before comes first
                    got.append(bytes(batch[0][0]))
        finally:
            os.kill(pid, signal.SIGCONT)
            loader.timeout = 0
        got.extend(bytes(batch[0][0]) for batch in batches)
    assert got == [bytes([number]) * 100 for number in range(40)]
