"""Files that are opened below Python, as the kernel reports it (inotify)."""

from __future__ import annotations

import contextlib
import ctypes
import os
import struct
from collections.abc import Iterable

#: IN_OPEN; and what a report begins with: the watch, its events, a cookie, the length of a name.
_OPENED = 0x20
_EVENT = struct.Struct("iIII")
#: So many files are watched at once.
_MOST = 64


class Watch:
    """Notes which of some files are opened, by whatever means, in this or in another process.

    Where the kernel does not allow it, none is noted.

    Args:
        paths: The files.

    Attributes:
        opened: Those that were opened.
    """

    def __init__(self, paths: Iterable[str]):
        self._paths = list(paths)[:_MOST]
        self.opened: list[str] = []
        self._fd = -1

    def begin(self) -> None:
        """Begins to watch."""
        if not self._paths:
            return
        self._fd = _libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        self._watches: dict[int, str] = {}
        if self._fd >= 0:
            for path in self._paths:
                watch = _libc.inotify_add_watch(self._fd, os.fsencode(path), _OPENED)
                if watch >= 0:
                    self._watches[watch] = path

    def end(self) -> None:
        """Sets ``opened``."""
        if self._fd < 0:
            return
        seen = set()
        with contextlib.suppress(BlockingIOError):
            while data := os.read(self._fd, 1 << 16):
                while data:
                    watch, _events, _cookie, length = _EVENT.unpack_from(data)
                    data = data[_EVENT.size + length :]
                    seen.add(watch)
        os.close(self._fd)
        self.opened = [path for watch, path in self._watches.items() if watch in seen]


_libc = ctypes.CDLL(None, use_errno=True)
