"""The end of a script after everything is measured."""

from __future__ import annotations

import contextlib
import os
import sys
import threading

#: Seconds that a script has to end by itself, before its process is ended.
GRACE = 5.0


class Ended(SystemExit):
    """Raised in the script's ``next()`` once everything is measured.

    ``except Exception`` does not catch it, and a process that it ends has the status 0, so that a
    launcher does not report a failure.
    """


def end_later() -> None:
    """Ends the process in a while, if the script catches what is raised, or hangs."""

    def end() -> None:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(AttributeError, OSError, ValueError):
                stream.flush()
        os._exit(0)

    timer = threading.Timer(GRACE, end)
    timer.daemon = True
    timer.start()
