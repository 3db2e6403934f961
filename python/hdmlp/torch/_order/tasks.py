"""The drawn indices of an epoch, as tasks for worker processes."""

from __future__ import annotations

import os
import pickle
from typing import ClassVar

from ..._batches.source import Taken
from ..._lib.interrupts import interrupts
from ..._lib.typing import Opened
from ...errors import HDMLPError
from .drawn import Drawn

#: A position is ``epoch * STEPS + step``. A sampler need not know how many steps an epoch has, so
#: this is more than it can have.
STEPS = 1 << 32


class EpochOverError(HDMLPError):
    """The epoch's last batch was taken."""


class SamplerFailedError(HDMLPError):
    """Stands for an exception of the sampler, which is its cause."""


class Draws:
    """A :class:`~hdmlp._batches.source.TaskSource` of the batches that a sampler draws."""

    opened: ClassVar[Opened] = {"seed": 0}
    steps = STEPS
    broken = False

    def __init__(self) -> None:
        # The descriptor that fileno() returns never becomes readable: poll() never waits.
        self._fds = [os.eventfd(0)] if hasattr(os, "eventfd") else list(os.pipe())
        self._drawn: Drawn | None = None
        self._seed = 0
        self.position: int | None = None

    def begin(self, drawn: Drawn, seed: int) -> None:
        """Sets the epoch that :meth:`seek` begins, and the seed of its items' random numbers."""
        self._drawn, self._seed = drawn, seed

    def base_seed(self, seed: int, epoch: int) -> int:
        """Returns what torch's loader would give this epoch's workers as their base seed."""
        assert self._drawn is not None
        return self._drawn.base_seed

    def fileno(self) -> int:
        """Returns a descriptor for poll()."""
        return self._fds[0]

    def close(self) -> None:
        """Closes the descriptor. Idempotent."""
        fds, self._fds = self._fds, []
        self._drawn = None
        for fd in fds:
            os.close(fd)

    def __del__(self) -> None:
        try:  # noqa: SIM105 - when Python ends, contextlib may be gone before
            self.close()
        except Exception:
            pass

    def restart(self) -> None:
        """Stops; :meth:`seek` begins again."""
        self.position = None

    def seek(self, position: int) -> None:
        """Begins at a position: where the sampler is, or one that was drawn before."""
        self.position = position

    def poll(self) -> Taken | None:
        """Draws the next batch; returns None before :meth:`seek`.

        Raises:
            EpochOverError: The sampler has ended.
            SamplerFailedError: The sampler raised.
        """
        if self.position is None or self._drawn is None:
            return None
        epoch, step = divmod(self.position, STEPS)
        try:
            indices = self._drawn.batch(step)
        except StopIteration:
            self.position = None
            raise EpochOverError("") from None
        except Exception as error:
            if interrupts(error):
                raise
            self.position = None
            raise SamplerFailedError(str(error)) from error
        self.position += 1
        payload = pickle.dumps((self._seed, epoch, step, indices))
        return Taken(None, payload, count(indices), epoch, step, 0)

    def ends(self, position: int) -> bool:
        """Reports that no batch is withdrawn."""
        return False

    def free(self, slots: bytes) -> None:
        """Does nothing: there is no staging buffer."""

    def return_slots(self) -> None:
        """Does nothing: there is no staging buffer."""

    def say_waiting(self) -> None:
        """Does nothing: there is no daemon to tell."""


def count(indices: object) -> int:
    """Returns the number of items of what a sampler yielded."""
    return len(indices) if isinstance(indices, (list, tuple)) else 1
