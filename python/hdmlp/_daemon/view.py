"""What this process sees of a dataset: descriptors below which the daemon reads.

The daemon may run in another container than this process, with other files at the same path. So the
process opens the dataset's root, and its own ``/``, where absolute symbolic links start, and passes
both. Of a URL it passes how it reaches it.
"""

from __future__ import annotations

import errno
import logging
import os
import re
import threading
from typing import Callable, TypeVar

from .._lib import protocol
from .._lib.arguments import is_url
from .._lib.interrupts import start
from ..errors import AccessDeniedError, DatasetError, DatasetNotFoundError, LimitError
from .access import access

T = TypeVar("T")

log = logging.getLogger("hdmlp")

#: Seconds that a file system may take to open the root, unless ``source_timeout`` is given.
_TIMEOUT = 60.0
#: Seconds after which it is logged that it takes long.
_WARN_AFTER = 10.0

_UNITS = {"ms": 0.001, "s": 1.0, "": 1.0, "m": 60.0, "h": 3600.0}

#: What to do about the reasons for which a directory cannot be opened.
_REASONS = {
    errno.ENOENT: (
        "there is no such directory",
        "check the path, and that its file system is mounted on this node",
    ),
    errno.ENOTDIR: (
        "it is not a directory",
        "give the directory that holds one subdirectory per class",
    ),
    errno.EACCES: (
        "the directory cannot be read",
        "give this user permission to read and enter it (chmod a+rx)",
    ),
    errno.EPERM: (
        "the directory cannot be read",
        "give this user permission to read and enter it (chmod a+rx)",
    ),
    errno.ELOOP: ("the directory cannot be read", "check the symbolic links on its path"),
}


class View:
    """The dataset's root and ``/``, opened by this process; or how it reaches a URL.

    Args:
        path: The dataset's root, absolute; or its URL.
        timeout: Seconds after which the file system counts as hanging; None means 60.

    Attributes:
        fds: The two descriptors, or one of a URL; the view owns them.

    Raises:
        DatasetNotFoundError: The root does not exist, or is no directory.
        AccessDeniedError: This user may not read it.
        DatasetError: It cannot be opened for another reason.
        LimitError: Too many files are open.
    """

    def __init__(self, path: str, timeout: float | None = None):
        self.fds: tuple[int, ...] = ()
        if is_url(path):
            self.fds = (access(path),)
            return
        try:
            root = call_with_timeout(
                path,
                lambda: os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC),
                os.close,
                timeout,
            )
        except OSError as error:
            raise _failure(path, error) from None
        self.fds = (root,)
        try:
            self.fds = (root, os.open("/", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC))
        except OSError as error:
            self.close()
            raise _failure("/", error) from None

    def close(self) -> None:
        """Closes the descriptors. Idempotent."""
        fds, self.fds = self.fds, ()
        for fd in fds:
            os.close(fd)

    def __enter__(self) -> View:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def seconds(source_timeout: object) -> float | None:
    """Returns a ``source_timeout`` of the configuration in seconds.

    Returns:
        None if it is not given, or wrong, which the daemon reports.
    """
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(ms|s|m|h|)\s*", str(source_timeout))
    return float(found[1]) * _UNITS[found[2]] or None if found else None


def call_with_timeout(
    path: str,
    call: Callable[[], T],
    undo: Callable[[T], object] = lambda _: None,
    timeout: float | None = None,
) -> T:
    """Calls a function that may hang in the kernel if a file system does not answer.

    Args:
        path: A path on the file system, for the log.
        call: What is called.
        undo: Called with what ``call`` returns after the timeout.
        timeout: Seconds; None means 60.

    Returns:
        What ``call`` returns.

    Raises:
        OSError: What ``call`` raises; ETIMEDOUT if the time is up.
    """
    timeout = timeout or _TIMEOUT
    # done is free when the call has returned. An Event may raise another error if Ctrl-C comes.
    done, lock = threading.Lock(), threading.Lock()
    done.acquire()
    results: list[T] = []
    errors: list[BaseException] = []
    late: list[bool] = []

    def run() -> None:
        try:
            result = call()
        except BaseException as error:
            with lock:
                errors.append(error)
        else:
            with lock:
                results.append(result)
                if late:
                    undo(result)
        done.release()

    # In a thread of its own, because nothing interrupts a system call that hangs, not even Ctrl-C.
    try:
        start(threading.Thread(target=run, name="hdmlp-open", daemon=True))
    except RuntimeError:  # RLIMIT_NPROC
        return call()
    try:
        if not done.acquire(timeout=min(_WARN_AFTER, timeout)):
            if timeout > _WARN_AFTER:
                log.warning(
                    "%s has not answered for %.0f s; check whether its file system still answers",
                    path,
                    _WARN_AFTER,
                )
            done.acquire(timeout=timeout - min(_WARN_AFTER, timeout))
    finally:
        with lock:
            if not results and not errors:
                late.append(True)
    if errors:
        raise errors[0]
    if not results:
        raise OSError(errno.ETIMEDOUT, f"it has not answered for {timeout:g} s (source_timeout)")
    return results[0]


def advice(reason: int) -> str:
    """Returns why a directory cannot be opened, and what to do.

    Args:
        reason: The errno.
    """
    unknown = "the source did not answer", "check whether its file system still answers"
    return ": ".join(_REASONS.get(reason, unknown))


def _failure(path: str, error: OSError) -> Exception:
    if error.errno in (errno.EMFILE, errno.ENFILE):
        return LimitError(f"dataset {path}: {error.strerror}: raise RLIMIT_NOFILE (ulimit -n)")
    text = f"dataset {path}: {advice(error.errno or 0)} ({error.strerror})"
    kind = {
        errno.ENOENT: DatasetNotFoundError,
        errno.ENOTDIR: DatasetNotFoundError,
        errno.EACCES: AccessDeniedError,
        errno.EPERM: AccessDeniedError,
    }.get(error.errno or 0, DatasetError)
    return kind(text, {"path": path})


def answer(connection: protocol.Connection, path: str | None) -> None:
    """Answers a RENEW: opens the dataset at ``path`` again, and passes the descriptors."""
    reply: dict[str, object] = {"view": False, "error": "the process has no dataset"}
    if path is not None:
        try:
            with View(path) as view:
                reply = {"view": True, "error": ""}
                connection.send_fds(protocol.encode_json(protocol.VIEW, reply), view.fds)
                return
        except Exception as error:  # of any kind: the daemon has to know
            reply = {"view": False, "error": str(error)}
    connection.send(protocol.encode_json(protocol.VIEW, reply))
