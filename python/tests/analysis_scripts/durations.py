"""How long a script's own parts take, in the file that $DURATIONS names: what an analysis of it
should find. A line for each, with a name and seconds; processes append to the same file."""

import os
import time

_FILE = os.environ.get("DURATIONS")
_DESCRIPTOR = os.open(_FILE, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600) if _FILE else None


class Timed:
    """Writes how long the block takes.

    Args:
        name: Of the block.
    """

    def __init__(self, name):
        self._name = name

    def __enter__(self):
        self._begin = time.perf_counter()

    def __exit__(self, *_):
        if _DESCRIPTOR is not None:
            seconds = time.perf_counter() - self._begin
            os.write(_DESCRIPTOR, f"{self._name} {seconds}\n".encode())
