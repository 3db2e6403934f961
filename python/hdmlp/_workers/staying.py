"""Whether the worker processes of one epoch may make the next one.

New processes have the program's objects, modules, memory and open files as they are when they
start. Processes that stay have those of their start. The difference can be neither seen nor waited
for if

- nothing of the program's own runs in them;
- they are given the recipe anew, as it is now;
- what else decides what libraries do is as it was (:mod:`hdmlp._transforms.surroundings`);
- no file, pipe or socket that they got by fork has been closed in this process since, and not much
  memory has been given back;
- they end after some seconds without an epoch (:data:`hdmlp._workers.processes.IDLE`).
"""

from __future__ import annotations

import io
import os
import pickle
import stat
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

from .._transforms.surroundings import Surroundings, surroundings
from .child import Maker

#: A larger recipe is not sent to processes: labels of records, for instance, are a part of it.
_MOST_BYTES = 1 << 20
#: Processes do not stay if this process has given back more memory since their start.
_MOST_GIVEN_BACK = 64 << 20


class _Start(NamedTuple):
    """How this process was when workers were started.

    Attributes:
        surroundings: What decides what libraries do.
        files: Device and inode of files, pipes and sockets, by descriptor.
        memory: Bytes of private memory.
    """

    surroundings: Surroundings
    files: dict[int, tuple[int, int]]
    memory: int


class Staying:
    """Decides whether a pool's processes may stay.

    Args:
        recipe: What the workers do.
        runs_code_of_the_program: Reports whether something of the program's own runs in them.
    """

    def __init__(self, recipe: Maker, runs_code_of_the_program: Callable[[], bool]):
        self._recipe, self._runs_code_of_the_program = recipe, runs_code_of_the_program
        self._start: _Start | None = None

    def started(self) -> None:
        """Notes how this process is before workers are started."""
        before, self._start = self._start, None
        if self._runs_code_of_the_program():
            return
        try:
            now = _Start(surroundings(), _files(), _memory())
        except Exception:  # what cannot be asked for cannot be compared
            return
        same = before is not None and before.surroundings == now.surroundings
        if same or not now.surroundings.code_of_the_program():
            self._start = now

    @property
    def possible(self) -> bool:
        """Reports whether processes may stay if nothing is changed meanwhile."""
        return self._start is not None and not self._runs_code_of_the_program()

    def recipe(self) -> bytes | None:
        """Returns the recipe, pickled, if processes may stay with it; else None."""
        start = self._start
        if start is None or self._runs_code_of_the_program():
            return None
        with suppress(Exception):
            files = _files()
            if any(files.get(number) != file for number, file in start.files.items()):
                return None
            if start.memory - _memory() > _MOST_GIVEN_BACK:
                return None
            if surroundings() == start.surroundings:
                return _pickled(self._recipe)
        return None


class _Bounded(io.BytesIO):
    """Memory for a pickle that is not large."""

    def write(self, data: object) -> int:
        """Writes.

        Raises:
            OverflowError: It is too much.
        """
        written = super().write(data)  # type: ignore[arg-type]
        if self.tell() > _MOST_BYTES:
            raise OverflowError
        return written


def _pickled(recipe: Maker) -> bytes:
    """Returns a recipe's pickle.

    Raises:
        Exception: It is too large, or there is none.
    """
    file = _Bounded()
    pickle.Pickler(file, protocol=5).dump(recipe)
    return file.getvalue()


def _files() -> dict[int, tuple[int, int]]:
    """Returns the open files which a process can wait for another one to close.

    Those are pipes, sockets, and files that have a name and may be locked.
    """
    found = {}
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):  # closed since: that of the listing
            status = os.fstat(int(name))
            kind = status.st_mode
            if (
                stat.S_ISFIFO(kind)
                or stat.S_ISSOCK(kind)
                or (stat.S_ISREG(kind) and status.st_nlink)
            ):
                found[int(name)] = status.st_dev, status.st_ino
    return found


def _memory() -> int:
    """Returns how many bytes of this process's memory are its own."""
    with open("/proc/self/status", encoding="ascii", errors="replace") as file:
        for line in file:
            if line.startswith("RssAnon:"):
                return int(line.split()[1]) << 10
    return 0
