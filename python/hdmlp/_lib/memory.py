"""Files without a name: shared memory, and the daemon's log."""

from __future__ import annotations

import array
import errno
import os
import resource
import tempfile

from ..errors import LimitError

#: The smallest limit on the size of files with which the daemon works, in bytes; `hdmlp serve`
#: checks it as well.
LEAST_FILE_SIZE = 1 << 20


def check_file_size(need: int, what: str) -> None:
    """Checks the limit on the size of files, which shared memory counts as.

    Args:
        need: The size needed, in bytes.
        what: What needs it, for the message.

    Raises:
        LimitError: The limit is below ``need``.
    """
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    if limit != resource.RLIM_INFINITY and limit < need:
        raise LimitError(
            f"file size: {what} needs files and shared memory of {need} bytes, and RLIMIT_FSIZE "
            f"allows {limit}; raise its hard limit (ulimit -Hf) before this process starts",
            {"need": need, "limit": limit},
        )


def create(name: str, size: int = 0) -> int:
    """Creates a file without a name.

    It is a memfd, or a temporary file where the system call is blocked or Python was built without
    it.

    Args:
        name: The memfd's name, for /proc.
        size: The file's size in bytes.

    Returns:
        The file's descriptor; the caller closes it.

    Raises:
        LimitError: RLIMIT_FSIZE, memory, disk or the number of open files does not suffice.
        OSError: The file cannot be created for another reason.
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
    """Returns the descriptor of a temporary file without a name, in memory if possible."""
    for directory in ("/dev/shm", None):
        try:
            with tempfile.TemporaryFile(dir=directory) as file:
                return os.dup(file.fileno())
        except OSError:
            if directory is None:
                raise
    raise AssertionError


def above_standard(fd: int) -> int:
    """Returns a descriptor above 2 of the same file; closes ``fd`` if that is another one.

    Where a standard stream is closed, a new descriptor may take its number, and what libraries
    print would get into the file.
    """
    if fd > 2:
        return fd
    import fcntl

    try:
        return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 3)
    finally:
        os.close(fd)


def listed(numbers: bytes | array.array[int]) -> int:
    """Returns the descriptor of memory that holds an array; the caller closes it."""
    fd = create("hdmlp-list")
    try:
        left = memoryview(numbers).cast("B")
        while left:
            left = left[os.write(fd, left) :]
    except BaseException:
        os.close(fd)
        raise
    return fd
