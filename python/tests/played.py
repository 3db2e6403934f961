"""A worker of a pool that a test plays, frame by frame, in its own process."""

from types import SimpleNamespace

from hdmlp._lib import protocol
from hdmlp._workers import child


class Played:
    """A context for a pool whose worker is controlled by the test.

    Attributes:
        connection: The end of the worker that was started last.
        started: Those of all.
    """

    def __init__(self):
        self.started = []

    def Process(self, args, **_):
        self.connection = protocol.Connection(args[0].dup(), child.TO_WORKER_WITH_FD)
        self.started.append(self.connection)
        return SimpleNamespace(
            pid=0, exitcode=0, start=lambda: None, is_alive=lambda: False, join=lambda timeout: None
        )

    def heard(self):
        """The frames that the worker has received since: type and payload."""
        frames = []
        while self.connection.fill():
            pass
        while (frame := self.connection.frame()) is not None:
            frames.append((frame[0], bytes(frame[1])))
        return frames
