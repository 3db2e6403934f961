"""What this process sends to the command that runs it: lines of JSON on a Unix socket."""

from __future__ import annotations

import json
import os
import socket
import sys
from typing import Any

_HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

#: Set by the command: ``command``, ``"analyze"`` or ``"learn"``; ``package``, the directory of the
#: hdmlp package that belongs to the command, "": none; and what the command's own modules need.
with open(os.path.join(_HERE, "settings.json"), encoding="utf-8") as _file:
    SETTINGS: dict[str, Any] = json.load(_file)

COMMAND: str = SETTINGS["command"]


class Gone(Exception):
    """The command has ended, so nothing needs to be sent any more."""


def path(name: str) -> str:
    """Returns the path of a file that the measured processes share."""
    return os.path.join(_HERE, name)


class Channel:
    """A connection."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._socket.connect(path("socket"))
        except OSError as error:
            self._socket.close()
            raise Gone(f"cannot reach hdmlp {COMMAND}: {error}") from None

    def send(self, event: str, **content: Any) -> None:
        """Sends an event.

        Raises:
            Gone: The other end has closed the connection.
        """
        line = json.dumps({"event": event, **content}) + "\n"
        try:
            self._socket.sendall(line.encode("utf-8", "surrogateescape"))
        except OSError as error:
            raise Gone(f"hdmlp {COMMAND} has ended: {error}") from None

    def note(self, about: str, text: str) -> None:
        """Sends what is to be known of a measurement, or why there is none.

        Args:
            about: Which measurement: a JSON name of what ``hdmlp analyze --json`` prints.
            text: A sentence.
        """
        self.send("note", about=about, text=text)

    def close(self) -> None:
        """Closes the connection."""
        self._socket.close()


def tell_started() -> None:
    """Tells that a Python process has loaded the hook."""
    try:
        channel = Channel()
        channel.send("python", version=sys.version.split()[0], pid=os.getpid())
        channel.close()
    except Gone:
        pass
