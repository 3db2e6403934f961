"""Which files are opened while an item is made."""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
import sys
import sysconfig
import threading
from collections import Counter
from collections.abc import Iterable
from typing import Any, Protocol

from hdmlp_analyze.channel import SETTINGS

from .watching import Watch

#: How a file is opened that ``open`` did not open.
_OS_OPEN, _FILE_IO = "os.open", "io.FileIO"
_THREAD = "open in another thread"
#: No data is in such files, or below such directories.
_CODE = (".py", ".pyc", ".so", ".pyi")
_SYSTEM = ("/proc/", "/sys/", "/dev/")
_PROGRAMS = (*_SYSTEM, "/usr/", "/lib", "/memfd:", sys.prefix + "/", sys.base_prefix + "/")
#: How a file is opened of which only the kernel reports that it was.
BELOW = "below Python"
#: Where modules are, which read files when they are imported.
_LIBRARIES = {sysconfig.get_path("stdlib"), *(path for path in sys.path if "-packages" in path)}
_MODULES = tuple({f"{form(path)}/" for path in _LIBRARIES for form in (str, os.path.realpath)})


class _Opens(Protocol):
    """What is used of hdmlp's module that wraps ``open`` for ``files=``."""

    INSTALLED: Any

    def begin(self, copies: Any) -> None:
        """Has this thread's ``open`` ask for copies."""

    def end(self) -> None:
        """Ends that."""


def _wrappers() -> _Opens:
    """Imports hdmlp's, from the package that belongs to the command if there is no other."""
    package = SETTINGS["package"]
    try:
        from hdmlp._records import opens
    except ImportError:
        if not package:
            raise
        sys.path.append(package)
        try:
            from hdmlp._records import opens
        finally:
            sys.path.remove(package)
    return opens


class _Looks(threading.local):
    """The looks of a thread, the innermost last."""

    def __init__(self) -> None:
        self.stack: list[Look] = []


_looks = _Looks()
#: The looks of all threads of this process.
_current: list[Look] = []
_hooked = False


def _hook(event: str, arguments: tuple[Any, ...]) -> None:
    """Is called for each file that Python opens in this process."""
    if event == "open" and _current:
        path, mode, flags = arguments
        if isinstance(path, int) or path is None or flags & os.O_ACCMODE != os.O_RDONLY:
            return
        if _looks.stack:
            _looks.stack[-1].opened_by_python(os.fsdecode(path), mode)
        elif len(_current) == 1:
            _current[0].opened_in_thread(os.fsdecode(path))


class Look:
    """What is seen while one item is made, or several are at once.

    It has the methods by which ``files=`` would be asked for copies, and has none.

    Args:
        likely: Files that may be opened below Python.

    Attributes:
        how: By absolute path, how a file was opened; empty: by ``open``, so that ``files=`` would
            have served it.
        unseen: Bytes that the thread read beyond those of the files that were seen.
        held: Data files that were open before, as far as bytes were read that are unseen.
        mapped: Data files that are mapped into memory, if no file was opened.
    """

    def __init__(self, likely: Iterable[str]) -> None:
        global _hooked
        self._watch = Watch(likely)
        self._wrappers = _wrappers()
        self.how: dict[str, str] = {}
        self.unseen = 0
        self.held: list[str] = []
        self.mapped: list[str] = []
        self._opens: Counter[str] = Counter()
        if not _hooked:  # for good: an audit hook cannot be taken out
            _hooked = True
            sys.addaudithook(_hook)

    def begin(self) -> None:
        """Begins to look, in the thread that makes the item."""
        self._wrappers.INSTALLED.add()
        self._watch.begin()
        self._modules = len(sys.modules)
        self._read = _bytes_read()
        self._wrappers.begin(self)
        _looks.stack.append(self)
        _current.append(self)

    def end(self) -> None:
        """Ends that, in the same thread."""
        _current.remove(self)
        _looks.stack.remove(self)
        self._wrappers.end()
        read = _bytes_read() - self._read
        self._wrappers.INSTALLED.remove()
        self._watch.end()
        for path in self._watch.opened:
            self.how.setdefault(path, BELOW)
        self._opens.update(dict.fromkeys(self.how.keys() - self._opens.keys(), 1))
        if len(sys.modules) == self._modules:  # code that is imported is read below Python, too
            self.unseen = read - sum(size_of(path) * n for path, n in self._opens.items())
        self.how = {path: how for path, how in self.how.items() if is_data(path)}
        if self.unseen > 0:
            self.held = _held()
        if not self.how:
            self.mapped = _mapped()

    # As hdmlp._records.opens.Copies.

    def declares(self, path: str) -> bool:
        """Has :meth:`opened` be called for every file."""
        return True

    def opened(self, path: str, why_not: str) -> None:
        """Notes that ``open`` opens a file, or a function that takes the place of it."""
        self.how.setdefault(path, why_not)

    def opened_undeclared(self, path: str) -> None:
        """Is not called."""

    # Others.

    def opened_by_python(self, name: str, mode: object) -> None:
        """Notes that Python opens a file, be it for ``open``."""
        self._opened(name, _OS_OPEN if mode is None else _FILE_IO)

    def opened_in_thread(self, name: str) -> None:
        """Notes that another thread opens a file."""
        self._opened(name, _THREAD)

    def _opened(self, name: str, how: str) -> None:
        path = os.path.abspath(name)
        self._opens[path] += 1
        if not path.endswith(_CODE):
            self.how.setdefault(path, how)


def _bytes_read() -> int:
    """Returns how many bytes this thread has read by system calls; 0: not known."""
    try:
        with open("/proc/thread-self/io", "rb") as file:
            return int(file.read().split()[1])
    except (OSError, IndexError, ValueError):
        return 0


def size_of(path: str) -> int:
    """Returns a file's size in bytes; 0: it is gone, or no file."""
    try:
        return os.stat(path).st_size
    except OSError:
        return 0


def is_data(path: str) -> bool:
    """Reports whether a path is that of a regular file that may have data."""
    try:
        regular = stat.S_ISREG(os.stat(path).st_mode)
    except OSError:
        return False
    return regular and not path.startswith((*_SYSTEM, *_MODULES))


def _held() -> list[str]:
    """Returns the data files that are open for reading only."""
    found = []
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError, ValueError):
            path = os.readlink(f"/proc/self/fd/{name}")
            reads = fcntl.fcntl(int(name), fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY
            if reads and is_data(path) and not path.startswith(_PROGRAMS):
                found.append(path)
    return sorted(set(found))


def _mapped() -> list[str]:
    """Returns the data files that are mapped into memory."""
    found = set()
    with contextlib.suppress(OSError), open("/proc/self/maps", encoding="utf-8") as maps:
        for line in maps:
            fields = line.rstrip("\n").split(maxsplit=5)
            if len(fields) == 6 and fields[5].startswith("/"):
                path = fields[5]
                if not path.startswith(_PROGRAMS) and ".so" not in path and is_data(path):
                    found.add(path)
    return sorted(found)
