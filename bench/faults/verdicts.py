"""The outcomes of faults, and the list of all faults."""

from __future__ import annotations

import contextlib
import dataclasses
import re
from collections.abc import Iterator, Sequence
from typing import Callable

RIGHT, CLEAR = "right stream", "clear error"
WRONG, HANG, CRASH, KILLED, RAW, FOREIGN = (
    "WRONG DATA",
    "hang",
    "crash",
    "killed",
    "raw error",
    "foreign file touched",
)
SKIPPED, BROKEN = "not tried", "harness failed"
OUTCOMES = [RIGHT, CLEAR, WRONG, HANG, CRASH, KILLED, RAW, FOREIGN, BROKEN, SKIPPED]


class Verdict(Exception):
    """An outcome, and why."""

    def __init__(self, outcome: str, message: str) -> None:
        super().__init__(message)
        self.outcome, self.message = outcome, message


class Told(Exception):
    """An exception of a client."""

    def __init__(self, name: str, ours: bool, message: str, trace: str, seconds: float) -> None:
        super().__init__(f"{name}: {message}")
        self.name, self.ours, self.message, self.trace, self.seconds = (
            name,
            ours,
            message,
            trace,
            seconds,
        )


def wrong(message: str) -> Verdict:
    return Verdict(WRONG, message)


@dataclasses.dataclass
class Fault:
    name: str
    about: str
    run: Callable[..., None]  # of the harness that it does harm with
    clear: Sequence[str] | None
    item: int | None
    limit: float
    dies: bool
    theme: str


FAULTS: list[Fault] = []


def fault(
    about: str,
    clear: Sequence[str] | None = None,
    item: int | None = None,
    limit: float = 45,
    dies: bool = False,
) -> Callable:
    """Registers a fault.

    Args:
        about: the fault, in one sentence.
        clear: patterns that the message of a clear error must all match, ignoring case; None:
            only the right stream is accepted.
        item: its number in the harness's first list; None: it is newer.
        limit: seconds after which all its processes are killed.
        dies: the daemon's death is part of the fault, and not a crash.
    """

    def register(run: Callable[..., None]) -> Callable:
        theme = run.__module__
        FAULTS.append(
            Fault(
                f"{theme}.{run.__name__}",
                about,
                run,
                (clear,) if isinstance(clear, str) else clear,
                item,
                limit,
                dies,
                theme,
            )
        )
        return run

    return register


def lacking(e: Told, patterns: Sequence[str]) -> list[str]:
    return [p for p in patterns if not re.search(p, f"{e.name} {e.message}", re.IGNORECASE)]


@contextlib.contextmanager
def expecting(*patterns: str) -> Iterator[None]:
    """A context in which HDMLP must raise an error of its own that matches all patterns."""
    try:
        yield
    except Told as e:
        missing = lacking(e, patterns)
        if not e.ours or missing:
            raise Verdict(RAW, f"{e} (lacks {missing})") from None
        return
    raise wrong("no error where there must be one")
