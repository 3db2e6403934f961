"""Which process of a rank is measured, if a command starts several."""

from __future__ import annotations

import fcntl
import os

from . import channel

_MEASURED = b"measured"


class Claim:
    """The right of this process to be the one that is measured of its rank.

    It ends with the process. A process that ends while it measures the job as it is leaves it to
    a later one, as a script does that first prepares something and then trains.

    Args:
        rank: The rank.

    Raises:
        BlockingIOError: Another process has it.
        FileExistsError: Another process was measured.
    """

    def __init__(self, rank: int):
        self._file = os.open(channel.path(f"rank-{rank}"), os.O_CREAT | os.O_RDWR, 0o600)
        try:
            # A POSIX lock: forked processes, such as a loader's workers, do not have it.
            fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.read(self._file, len(_MEASURED)):
                raise FileExistsError
        except OSError as error:
            os.close(self._file)
            if isinstance(error, (FileExistsError, BlockingIOError)):
                raise
            raise BlockingIOError from error

    def keep(self) -> None:
        """Keeps it for good: enough was measured."""
        os.pwrite(self._file, _MEASURED, 0)
