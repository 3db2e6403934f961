"""A stream's connection to the daemon."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from .._lib import protocol
from ..errors import ClosedError, DaemonDiedError, HDMLPError
from . import connecting

#: What to do when the daemon has ended, in a job on one node and in one on several.
_THEN = (
    "catch this error and call next() on the same iterator, or restart the script from its last "
    "saved state"
)
_THEN_OF_NODES = (
    "restart all ranks, on all nodes, from their last saved state: a job that goes on on other "
    "nodes takes in no new daemon"
)

log = logging.getLogger("hdmlp")


class Link:
    """A greeted connection of one stream.

    That the daemon has ended is for the reader to find, because what the daemon sent before comes
    first. So sending to a daemon that has ended does nothing.

    Args:
        client: The connection; the link owns it.
        nodes: Whether the job may be on several nodes.

    Attributes:
        connection: Its frames.
        busy: A section is under way in which the stream's books do not match the daemon's. Set
            outside of a section, it means that an exception struck in one, in practice a
            KeyboardInterrupt, and that the link is of no more use.
    """

    def __init__(self, client: connecting.Client, nodes: bool = False):
        self.client = client
        self.connection = client.connection
        self.busy = False
        self._ended = False  # the daemon has ended, and the reader has noticed
        self._nodes = nodes

    @property
    def broken(self) -> bool:
        """Whether the link can no longer be used."""
        return self.busy or self.connection.unusable

    def close(self) -> None:
        """Closes the connection. Idempotent."""
        self.client.close()

    def send(self, frame: bytes) -> None:
        """Sends a frame.

        Raises:
            ClosedError: The link is broken.
        """
        if self._ended:
            return
        if self.broken:
            raise self.interrupted()
        try:
            self.connection.send(frame)
        except protocol.Disconnected as error:
            log.debug("cannot send to the daemon: %s", error)

    def send_fds(self, frame: bytes, fds: Sequence[int]) -> None:
        """Sends a frame with descriptors."""
        try:
            self.connection.send_fds(frame, fds)
        except protocol.Disconnected as error:
            log.debug("cannot send to the daemon: %s", error)

    def flush(self) -> None:
        """Sends what is queued, as far as the socket takes it."""
        if not self.connection.writing:
            return
        try:
            self.connection.flush()
        except protocol.Disconnected as error:
            log.debug("cannot send to the daemon: %s", error)

    def ended(self) -> HDMLPError:
        """Notes that the daemon hung up; returns the error that says why nothing more comes.

        A reader that asks again gets the same error: the first may have been met ahead of a batch,
        and given up with it.
        """
        if self._ended:
            return DaemonDiedError(self.client.end or "the HDMLP daemon died")
        if self.connection.unusable:
            return self.interrupted()
        error = self.client.died(_THEN_OF_NODES if self._nodes else _THEN)
        self.connection.close()
        self._ended = True
        return error

    @staticmethod
    def interrupted() -> ClosedError:
        """Returns the error for the use of a broken link."""
        return ClosedError(
            "the loader was closed or interrupted, or two threads took batches from it at once: "
            "iterate again, and in one thread; or make a loader for each thread"
        )
