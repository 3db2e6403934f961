"""``open``, as it is while an item of a dataset is made whose files HDMLP has copies of.

One wrapper takes the place of ``builtins.open`` and ``io.open``. It does what they do unless this
thread makes such an item, and the file is one of the item's that is opened for reading: then the
file that it opens is a copy in memory, with a descriptor of its own. So whatever reads from a file
object reads the copy: PIL, numpy, json, torch. What opens a file below Python does not, except for
``cv2.imread`` and ``soundfile.SoundFile``, which are given the copy's path.
"""

from __future__ import annotations

import _io
import builtins
import functools
import io
import os
import pathlib
import sys
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from .._lib import memory
from ..errors import LimitError
from .manifest import made_absolute

#: Bytes of a path that a copy's name in /proc has.
_NAME = 200
#: Why a copy would not do.
_WRITTEN = "it was not opened for reading only"
_REPLACED = "open was replaced by a function of the program's"
_OPENER = "it was opened with an opener"


class Copies(Protocol):
    """The copies of the files of an item that is being made."""

    def declares(self, path: str) -> bool:
        """Reports whether the file at an absolute path is one of the item's."""

    def opened(self, path: str, why_not: str) -> memoryview | None:
        """Returns the bytes of a file that is opened; None: the file system has to open it.

        Args:
            path: The file's absolute path.
            why_not: Why a copy would not do, if it would not.
        """

    def opened_undeclared(self, path: str) -> None:
        """Notes that another file is opened for reading."""


class _Active(threading.local):
    """The items that this thread makes, the innermost last."""

    def __init__(self) -> None:
        self.stack: list[Copies] = []


_active = _Active()


def begin(copies: Copies) -> None:
    """Has this thread's ``open`` find copies, until :func:`end`. The wrappers are installed."""
    _active.stack.append(copies)


def end() -> None:
    """Ends what the last :func:`begin` of this thread began."""
    _active.stack.pop()


def _find(file: object, why_not: str = "") -> memoryview | None:
    """Returns the bytes of a copy; None: there is none, or this thread makes no item."""
    if not _active.stack or not isinstance(file, (str, bytes, os.PathLike)):
        return None
    try:
        name = os.fsdecode(file)
        if name.endswith(("/", "/.")):
            return None  # no file has such a name
        path = made_absolute(name, "/" if name[:1] == "/" else os.getcwd())
    except (ValueError, OSError, TypeError):  # open reports what is wrong
        return None
    for copies in reversed(_active.stack):
        if copies.declares(path):
            return copies.opened(path, why_not)
    if why_not != _WRITTEN:
        _active.stack[-1].opened_undeclared(path)
    return None


def copied(path: str, data: memoryview) -> int:
    """Returns the descriptor of a file in memory with these bytes, open for reading.

    Raises:
        LimitError: There is no memory, or too many files are open.
    """
    fd = memory.create(os.fsencode(path)[-_NAME:].decode("ascii", "ignore"))
    try:
        while data:
            data = data[os.write(fd, data) :]
        try:
            return os.open(f"/proc/self/fd/{fd}", os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:  # /proc is not mounted: it can be written to, which does no harm
            os.lseek(fd, 0, os.SEEK_SET)
            return os.dup(fd)
    finally:
        os.close(fd)


# open.

_real: Callable[..., object] = _io.open


def _opener(args: Sequence[object], keys: Mapping[str, object], replaced: bool) -> object:
    """Returns the opener of a copy for a call of ``open``; None: the call is left as it is."""
    if not _active.stack:
        return None
    file = args[0] if args else keys.get("file")
    mode = args[1] if len(args) > 1 else keys.get("mode", "r")
    given = args[7] if len(args) > 7 else keys.get("opener")
    if isinstance(getattr(given, "__self__", None), pathlib.Path):
        given = None  # as Path.open has it until Python 3.9
    why_not = ""
    if replaced:
        why_not = _REPLACED
    elif not isinstance(mode, str) or not set(mode) <= set("rbt"):
        why_not = _WRITTEN
    elif given is not None:
        why_not = _OPENER
    data = _find(file, why_not)
    if data is None:
        return None
    view = data

    def opener(name: str, flags: int) -> int:
        try:
            return copied(os.fsdecode(name), view)
        except (LimitError, OSError):
            return os.open(name, flags, 0o666)

    return opener


class _Installed:
    """The wrappers, where they are installed.

    Attributes:
        users: How many loaders need them.
    """

    def __init__(self) -> None:
        self.users = 0
        self._turn = threading.Lock()
        self._undo: list[Callable[[], None]] = []
        self._patched: set[str] = set()

    def add(self) -> None:
        """Installs the wrappers for one more loader."""
        with self._turn:
            self.users += 1
            if self.users == 1:
                same = io.open is builtins.open
                self._replace(builtins, "open", _wrapped)
                self._replace(io, "open", (lambda _: builtins.open) if same else _wrapped)
        self.libraries()

    def libraries(self) -> None:
        """Installs those of libraries that were imported since."""
        for name, (where, attribute, wrap) in _LIBRARIES.items():
            module = sys.modules.get(name)
            if module is None or name in self._patched:
                continue
            with self._turn:
                owner = getattr(module, where, None) if where else module
                if self.users and name not in self._patched and hasattr(owner, attribute):
                    self._patched.add(name)
                    self._replace(owner, attribute, wrap)

    def _replace(
        self, owner: object, name: str, wrap: Callable[[Callable[..., object]], object]
    ) -> None:
        before = getattr(owner, name)
        wrapper = wrap(before)
        setattr(owner, name, wrapper)

        def undo() -> None:
            # What was put in its place since calls it, and goes on working.
            if getattr(owner, name) is wrapper:
                setattr(owner, name, before)

        self._undo.append(undo)

    def remove(self) -> None:
        """Takes the wrappers out again if no loader needs them."""
        with self._turn:
            self.users -= 1
            if self.users == 0:
                for undo in reversed(self._undo):
                    undo()
                self._undo.clear()
                self._patched.clear()


#: The wrappers that there are: a program's own may still call one that was taken out.
_wrappers: weakref.WeakSet[Callable[..., object]] = weakref.WeakSet()


def _wrapped(before: Callable[..., object]) -> Callable[..., object]:
    """Returns the wrapper of an ``open``."""
    replaced = before is not _real and before not in _wrappers

    @functools.wraps(before)
    def open(*args: object, **keys: object) -> object:
        opener = _opener(args, keys, replaced)
        if opener is None:
            return before(*args, **keys)
        if len(args) > 7:
            args = args[:7]
        return _real(*args, **{**keys, "opener": opener})

    open.__module__ = "io"  # where pickle finds it
    _wrappers.add(open)
    return open


# Libraries that open files themselves.


def _by_path(before: Callable[..., object], at: int, name: str) -> Callable[..., object]:
    """Returns a wrapper of a function which opens the file at a path, and needs it no longer.

    Args:
        before: The function.
        at: The place of the path among its arguments; before it is the object, if it is a method.
        name: Its name.
    """

    @functools.wraps(before)
    def wrapper(*args: object, **keys: object) -> object:
        given = args[at] if len(args) > at else keys.get(name)
        mode = args[at + 1] if len(args) > at + 1 else keys.get("mode", "r")
        writes = at > 0 and isinstance(mode, str) and set(mode) & set("wx+")
        data = _find(given, _WRITTEN if writes else "")
        if data is None or str(given).lower().endswith(".raw"):  # its name matters
            return before(*args, **keys)
        try:
            fd = copied(os.fsdecode(str(given)), data)
        except (LimitError, OSError):
            return before(*args, **keys)
        try:
            others = {key: value for key, value in keys.items() if key != name}
            made = before(*args[:at], f"/proc/self/fd/{fd}", *args[at + 1 :], **others)
        finally:
            os.close(fd)
        if at:
            vars(args[0])["_name"] = given
        return made

    return wrapper


#: By module: an attribute of it ("": itself), the name of a function there, and what wraps that.
_LIBRARIES: dict[str, tuple[str, str, Callable[[Callable[..., object]], object]]] = {
    "cv2": ("", "imread", lambda before: _by_path(before, 0, "filename")),
    "soundfile": ("SoundFile", "__init__", lambda before: _by_path(before, 1, "file")),
}

INSTALLED = _Installed()
