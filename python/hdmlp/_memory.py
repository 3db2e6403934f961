"""Files without a name: shared memory, and the daemon's log."""

from __future__ import annotations

import errno
import os
import resource
import tempfile
from typing import Any

from .errors import LimitError

#: Bytes that the daemon needs at least as the length of a file, as `hdmlp serve` checks again.
LEAST_FILE_SIZE = 1 << 20


def check_file_size(need: int, what: str) -> None:
    """Refuses a limit on the length of files, which shared memory is as well, that is below ``need`` bytes.

    Raises:
        LimitError: with both numbers.
    """
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    if limit != resource.RLIM_INFINITY and limit < need:
        raise LimitError(
            f"file size: {what} needs files and shared memory of {need} bytes, RLIMIT_FSIZE allows {limit}; "
            "raise its hard limit (ulimit -Hf) before this process starts",
            {"need": need, "limit": limit},
        )


def create(name: str, size: int = 0) -> int:
    """The descriptor of a new file of ``size`` bytes that has no name: a memfd, or a temporary file where there are none, because
    the system call is blocked, or Python was built without it.

    Raises:
        LimitError: RLIMIT_FSIZE, memory, disk or open files are too few.
        OSError: it cannot be made for another reason.
    """
    try:
        try:
            fd = os.memfd_create(name)
        except (AttributeError, PermissionError):
            fd = _temporary()
        except OSError as error:
            if error.errno != errno.ENOSYS:
                raise
            fd = _temporary()
        try:
            if size:
                os.ftruncate(fd, size)
        except BaseException:
            os.close(fd)
            raise
        return fd
    except OSError as error:
        limit = None
        if error.errno == errno.EFBIG:
            limit, advice = (
                resource.getrlimit(resource.RLIMIT_FSIZE)[0],
                "RLIMIT_FSIZE allows {}; raise it (ulimit -f)",
            )
        elif error.errno in (errno.EMFILE, errno.ENFILE):
            limit, advice = (
                resource.getrlimit(resource.RLIMIT_NOFILE)[0],
                "RLIMIT_NOFILE allows {} open files; raise it (ulimit -n)",
            )
        elif error.errno in (errno.ENOMEM, errno.ENOSPC):
            advice = "memory, or the disk of temporary files, is full"
        else:
            raise
        raise LimitError(
            f"shared memory {name} of {size} bytes: {error.strerror}: " + advice.format(limit),
            {"need": size, "limit": limit},
        ) from None


def _temporary() -> int:
    """A temporary file without a name, in memory if possible."""
    for directory in ("/dev/shm", None):
        try:
            with tempfile.TemporaryFile(dir=directory) as file:
                return os.dup(file.fileno())
        except OSError:
            if directory is None:
                raise
    raise AssertionError


def above_standard(fd: int) -> int:
    """``fd``, or, where it is one of 0 to 2 because a standard stream is closed, another descriptor of the same file, and ``fd`` closed:
    what libraries print must not get there.
    """
    if fd > 2:
        return fd
    import fcntl

    try:
        return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 3)
    finally:
        os.close(fd)


def listed(numbers: Any) -> int:
    """A descriptor of memory that holds the numbers; the caller closes it."""
    fd = create("hdmlp-list")
    try:
        left = memoryview(numbers).cast("B")
        while left:
            left = left[os.write(fd, left) :]
    except BaseException:
        os.close(fd)
        raise
    return fd
