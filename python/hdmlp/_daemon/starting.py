"""Starting a daemon, and what is known of its end."""

from __future__ import annotations

import logging
import os
import re
import subprocess
import threading
import time

from .._lib import memory
from .._lib.interrupts import start
from ..errors import DaemonDiedError, DaemonNotFoundError, LimitError
from .binary import find_binary

log = logging.getLogger("hdmlp")

#: Variables that say which keys and proxies a process has: the daemon has none of its own.
_OF_JOBS = re.compile("AWS_|(HTTP|HTTPS|ALL|NO)_PROXY$", re.IGNORECASE)

#: Daemons by the process that started them and their own process ID: only that process, and no fork
#: of it, can learn their exit status.
_children: dict[tuple[int, int], subprocess.Popen[bytes]] = {}


class Starter:
    """A daemon that this process started.

    Attributes:
        log: Descriptor of the file that the daemon's log goes to.
        process: The daemon.
    """

    def __init__(self) -> None:
        binary = find_binary()
        memory.check_file_size(memory.LEAST_FILE_SIZE, "the daemon")
        try:
            self.log = memory.create("hdmlp-log")
        except (OSError, LimitError) as error:
            log.warning(
                "cannot make a file for the daemon's log, so its errors will not be shown: %s",
                error,
            )
            self.log = os.open(os.devnull, os.O_RDWR)
        self.log = memory.above_standard(self.log)
        try:
            self.process = subprocess.Popen(
                [binary, "serve", "--from-process"],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=self.log,
                start_new_session=True,
                close_fds=True,
                cwd="/",
                env={k: v for k, v in os.environ.items() if not _OF_JOBS.match(k)},
            )
        except OSError as error:
            os.close(self.log)
            raise DaemonNotFoundError(f"cannot run {binary}: {error}") from None
        _children[os.getpid(), self.process.pid] = self.process
        self._ended: float | None = None
        # Reaps the daemon when it ends, so that no zombie stays.
        start(threading.Thread(target=self.process.wait, name="hdmlp-reaper", daemon=True))
        log.debug("started %s, pid %d", binary, self.process.pid)

    def ended_for(self) -> float:
        """Returns the seconds since the daemon was first seen to have ended; 0 while it runs."""
        if self.process.poll() is None:
            return 0.0
        now = time.monotonic()
        if self._ended is None:
            self._ended = now
        return now - self._ended + 1e-9

    def close(self) -> None:
        """Closes the log."""
        os.close(self.log)


def exit_status(pid: int) -> int | None:
    """Returns a daemon's exit status if this process started it, as ``subprocess`` has it.

    A daemon's socket is closed a moment before the daemon can be waited for.
    """
    child = _children.get((os.getpid(), pid))
    if child is None:
        return None
    try:
        return child.wait(timeout=1.0)
    except subprocess.TimeoutExpired:
        return None


def last_words(fd: int | None, limit: int = 4096) -> str:
    """Returns the end of a daemon's log: at most 20 lines; empty if there is none.

    Args:
        fd: The log's descriptor, or None.
        limit: Bytes at most.
    """
    if fd is None:
        return ""
    try:
        size = os.fstat(fd).st_size
        text = os.pread(fd, limit, max(0, size - limit)).decode("utf-8", "replace")
    except OSError:
        return ""
    return "\n".join([line for line in text.splitlines() if line.strip()][-20:])


def died(what: str, fd: int | None) -> DaemonDiedError:
    """Returns the error for a daemon that has ended, with the end of its log.

    Args:
        what: What happened, and what to do.
        fd: The log's descriptor, or None.
    """
    words = last_words(fd)
    return DaemonDiedError(
        f"{what}. The end of its log:\n{words}" if words else f"{what}. Its log is empty"
    )
