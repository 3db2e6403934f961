"""Which pages of a private mapping a process has written to (/proc/self/pagemap)."""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
import struct

_PAGE = mmap.PAGESIZE

# Linux's PAGEMAP_SCAN (6.7 and later, Documentation/admin-guide/mm/pagemap.rst): _IOWR('f', 16,
# struct pm_scan_arg), and categories of pages.
_SCAN = 0xC0606610
_ARGUMENT = struct.Struct("<12Q")
_RANGE = struct.Struct("<2Q")
_RANGE_AT = 16
_REGION = 24  # bytes
_OF_FILE, _PRESENT, _SWAPPED = 1 << 2, 1 << 3, 1 << 4

# What the highest byte of a page's entry of /proc/self/pagemap may be if the page is not the
# process's own: it is a file's (0x20), or neither in memory (0x80) nor swapped out (0x40).
_NOT_OWN = bytes(b for b in range(256) if b & 0x20 or not b & 0xC0)


class Pages:
    """The pages of a private mapping, for the process that has made it.

    Args:
        address: Where the mapping begins, in bytes.
    """

    __slots__ = ("_argument", "_fd", "_first", "_found", "_scans")

    def __init__(self, address: int):
        self._first = address // _PAGE
        self._found = ctypes.create_string_buffer(_REGION)  # which page it is does not matter
        # size, flags, start, end, walk_end, vec, vec_len, max_pages, category_inverted,
        # category_mask, category_anyof_mask, return_mask.
        self._argument = bytearray(
            _ARGUMENT.pack(
                *(_ARGUMENT.size, 0, 0, 0, 0, ctypes.addressof(self._found), 1, 1),
                *(_OF_FILE, _OF_FILE, _PRESENT | _SWAPPED, _PRESENT),
            )
        )
        self._scans = True
        try:
            self._fd = os.open("/proc/self/pagemap", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            self._fd = -1

    def __del__(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)

    def may_be_written(self, first: int, last: int) -> bool:
        """Reports whether the process may have copies of its own of some pages.

        What cannot be found out may be.

        Args:
            first: The number of the first page, from where the mapping begins.
            last: The number of the last page.
        """
        if self._fd < 0:
            return True
        first, last = self._first + first, self._first + last
        try:
            if self._scans:
                try:
                    return self._scan(first, last)
                except OSError:  # an older kernel
                    self._scans = False
            return self._read(first, last)
        except OSError:
            return True

    def _scan(self, first: int, last: int) -> bool:
        """Has the kernel look for one page: it skips what is not mapped, in pieces of 2 MiB."""
        _RANGE.pack_into(self._argument, _RANGE_AT, first * _PAGE, (last + 1) * _PAGE)
        return bool(fcntl.ioctl(self._fd, _SCAN, self._argument))

    def _read(self, first: int, last: int) -> bool:
        """Looks at the entries of all pages."""
        entries = os.pread(self._fd, 8 * (last - first + 1), 8 * first)
        own = entries[7::8].translate(None, _NOT_OWN)
        return bool(own) or len(entries) < 8 * (last - first + 1)
