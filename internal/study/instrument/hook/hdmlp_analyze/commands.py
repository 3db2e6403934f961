"""The phases of a job whose ranks several ``hdmlp analyze`` measure, each on a node of its own.

Its ranks change phases at iterations that rank 0 announces in the store of torch.distributed:
schedule.py does the same for the ranks of one node. Nothing blocks: a rank asks the store in each
``next()``, and a training goes on until all ranks have come.

States: until all ranks have begun, and the commands are known (meeting.py), no phase is announced.
"""

from __future__ import annotations

import time

from . import meeting, place
from .channel import SETTINGS
from .meeting import Refused
from .schedule import AHEAD, Schedule

#: Seconds to wait for all ranks to begin, beyond thrice the time for the job as it is.
PATIENCE = 30.0


class Commands:
    """The schedule of a job whose ranks may belong to several commands.

    Args:
        where: This process's place.

    Raises:
        Refused: There is no store.
        Lost: The store does not answer.
    """

    def __init__(self, where: place.Place):
        self._ranks, self._meeting, self._store = (
            where.ranks,
            meeting.of(where),
            meeting.Store(where),
        )
        self._since = time.perf_counter()
        self._agreed: Schedule | None = None  # all ranks are of this command
        self._several = False  # all have begun, and are of several commands
        self._at: dict[int, int] = {}  # when phases begin
        self._store.add("begun", 1)

    @property
    def here(self) -> int:
        """How many ranks this command has."""
        return self._meeting.here

    def announce(self, phase: int, now: int) -> None:
        """Sets when a phase begins, if that is not set yet and all ranks have begun."""
        if self._agreed is not None:
            self._agreed.announce(phase, now)
        elif self._several and not self._at.get(phase):
            self._at[phase] = self._store.add(f"phase/{phase}", now + AHEAD)

    def has_begun(self, phase: int, now: int) -> bool:
        """Reports whether a phase begins with this iteration or began before it.

        Raises:
            Refused: Some ranks have not begun in time, or a node has several commands.
            Lost: The store does not answer.
        """
        if self._agreed is None and not self._several:
            self._meet()
        if self._agreed is not None:
            return self._agreed.has_begun(phase, now)
        if self._several and not self._at.get(phase):
            self._at[phase] = self._store.add(f"phase/{phase}", 0)
        at = self._at.get(phase, 0)
        return bool(at) and now >= at

    def _meet(self) -> None:
        """Finds out whether all ranks have begun, and who measures them."""
        begun = self._store.add("begun", 0)
        if not self._meeting.look() or begun < self._ranks:
            if time.perf_counter() - self._since > 3 * SETTINGS["as_is"] + PATIENCE:
                raise Refused(
                    f"only {begun} of the job's {self._ranks} ranks iterate a loader that is "
                    "measured: start hdmlp analyze on each node, once, with the same arguments"
                )
            return
        if self._meeting.commands == 1:
            self._agreed = Schedule(self._ranks)
        else:
            self._several = True
