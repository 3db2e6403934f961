"""Maps of shared memory that keep no descriptor open.

A program may keep thousands of batches, each in memory of its own, and may often open no more than
1024 files.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import sys

_MAP_FIXED = 0x10  # Python has no name for it


class _Buffer(ctypes.Structure):
    """A ``Py_buffer``: the address, and what is not looked at."""

    _fields_ = (("address", ctypes.c_void_p), ("rest", ctypes.c_byte * 120))


def mapped(fd: int, size: int, flags: int, protection: int) -> mmap.mmap:
    """Maps memory.

    Args:
        fd: Descriptor of the memory; stays the caller's.
        size: The number of bytes.
        flags: ``MAP_SHARED`` or ``MAP_PRIVATE``.
        protection: ``PROT_READ``, maybe with ``PROT_WRITE``.

    Raises:
        OSError: It cannot be mapped.
    """
    if sys.version_info >= (3, 13):
        untracked: object = {"trackfd": False}
        return mmap.mmap(fd, size, flags, protection, **untracked)
    # Before, mmap keeps a duplicate of the descriptor. So memory without one is mapped, and then
    # replaced, in one step, by the file's; both are unmapped in the same way.
    area = mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, protection)
    address = address_of(area)
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = (
        ctypes.c_void_p,
        ctypes.c_size_t,
        ctypes.c_int,
        ctypes.c_int,
        ctypes.c_int,
        ctypes.c_longlong,
    )
    if libc.mmap(address, size, protection, flags | _MAP_FIXED, fd, 0) != address:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return area


def address_of(area: mmap.mmap | memoryview) -> int:
    """Returns where memory lies."""
    view, python = _Buffer(), ctypes.pythonapi
    if python.PyObject_GetBuffer(ctypes.py_object(area), ctypes.byref(view), 0):
        raise BufferError("the memory has no address")
    try:
        address: int = view.address
        return address
    finally:
        python.PyBuffer_Release(ctypes.byref(view))
