"""A line on the terminal while the daemon prepares something that takes long."""

from __future__ import annotations

import logging
import sys
import time
from typing import TextIO

log = logging.getLogger("hdmlp")


class Progress:
    """Shows PROGRESS frames on a terminal, after the first second. Their warnings go to the log.

    Call it with the frame's object, and with None at the end, which clears the line.

    Args:
        stream: Where the line is shown if it is a terminal; None means standard error.
    """

    def __init__(self, stream: TextIO | None = None):
        self._stream = sys.stderr if stream is None else stream
        self._since = time.monotonic()
        self._shown = 0

    def __call__(self, progress: dict[str, object] | None) -> None:
        if progress is None:
            if self._shown:
                self._write("")
                self._shown = 0
            return
        what, done, total = (progress.get(k) for k in ("what", "done", "total"))
        if progress.get("warning"):
            log.warning("%s", what)
            return
        try:
            if time.monotonic() - self._since < 1.0 or not self._stream.isatty():
                return
        except (AttributeError, ValueError):
            return
        share = f": {done:,} of {total:,}" if total else f": {done:,}" if done else ""
        self._write(f"hdmlp: {what}{share}")

    def _write(self, line: str) -> None:
        try:
            self._stream.write("\r" + line[:200].ljust(self._shown) + ("" if line else "\r"))
            self._stream.flush()
        except (OSError, ValueError):
            pass
        self._shown = len(line)
