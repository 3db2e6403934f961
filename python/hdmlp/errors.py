"""Every exception that HDMLP raises.

All of them are :class:`HDMLPError`, which is a ``RuntimeError``; where Python has
a closer word (``ValueError``, ``FileNotFoundError``, ``PermissionError``,
``TimeoutError``) the subclass is that as well, so that code written for torch's
loaders catches what it caught before.

A script that does not catch one ends as with any other exception, with exit status 1: only the ``hdmlp``
command has status 2 for wrong input.
"""

from __future__ import annotations

from typing import Any, Dict, Optional

__all__ = [
    "HDMLPError",
    "ConfigError",
    "DatasetError",
    "DatasetNotFoundError",
    "SampleError",
    "MismatchError",
    "LimitError",
    "BusyError",
    "PermissionError_",
    "VersionError",
    "ProtocolError",
    "InternalError",
    "AuditError",
    "DaemonDied",
    "DaemonNotFoundError",
    "ClosedError",
    "StallTimeout",
    "WorkerDied",
    "EndError",
]


class HDMLPError(RuntimeError):
    """Anything that HDMLP reports.

    Attributes:
        kind: the error's kind in the protocol, such as ``"config"``.
        details: what the daemon said beside the message; a dict, often empty. Where the iteration ended because another
            rank's did, it has ``rank``, and in a job on several nodes ``node`` and ``host``.
    """

    kind = "internal"

    def __init__(self, message: str = "", details: Optional[Dict[str, Any]] = None):
        super().__init__(message)
        self.details = dict(details or {})


class _WrongInput(HDMLPError, ValueError):
    """A wrong value."""


class ConfigError(_WrongInput):
    """A wrong argument, configuration key or value. The message names it and what is allowed."""

    kind = "config"


class DatasetError(_WrongInput):
    """The dataset cannot be used: empty, or a class without samples."""

    kind = "dataset"


class DatasetNotFoundError(DatasetError, FileNotFoundError):
    """The dataset's directory does not exist."""

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""


class SampleError(HDMLPError):
    """A sample could not be read, here or on another rank of the job: it ends the iteration on all of them.

    Attributes:
        sample: its ID, an int in [0, number of samples), or None.
        path: its path, a str, or None.
        rank: another rank, if it is that one's iteration that could not go on; None: it is this one's.
    """

    kind = "sample"

    @property
    def sample(self) -> Optional[int]:
        return self.details.get("sample")

    @property
    def path(self) -> Optional[str]:
        return self.details.get("path")

    @property
    def rank(self) -> Optional[int]:
        return self.details.get("rank")


class MismatchError(_WrongInput):
    """Ranks of one job, or a saved state and a loader, disagree.

    Attributes:
        key: what they disagree about.
        mine, theirs: the two values.
    """

    kind = "mismatch"

    @property
    def key(self) -> Any:
        return self.details.get("key")

    @property
    def mine(self) -> Any:
        return self.details.get("mine")

    @property
    def theirs(self) -> Any:
        return self.details.get("theirs")


class LimitError(HDMLPError):
    """Not enough memory, disk or open files.

    Attributes:
        need, limit: what is needed and what there is, as the daemon states them.
    """

    kind = "limit"

    @property
    def need(self) -> Any:
        return self.details.get("need")

    @property
    def limit(self) -> Any:
        return self.details.get("limit")


class BusyError(HDMLPError):
    """Another process already is this rank of this job."""

    kind = "busy"


class PermissionError_(HDMLPError, PermissionError):
    """The dataset, or the daemon, belongs to somebody else."""

    kind = "permission"

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""


class VersionError(HDMLPError):
    """Package and daemon are not of the same version.

    Attributes:
        daemon, process: the two versions, where they speak the same protocol.
    """

    kind = "version"

    @property
    def daemon(self) -> Any:
        return self.details.get("daemon")

    @property
    def process(self) -> Any:
        return self.details.get("process")


class ProtocolError(HDMLPError):
    """The other side said something that the protocol does not allow: a defect, please report it."""

    kind = "protocol"


class InternalError(HDMLPError):
    """A defect in the daemon, please report it."""


class AuditError(HDMLPError):
    """The samples delivered are not the samples due, or their bytes are not those of the source (``verify=True``).

    ``details`` has ``sample`` and ``path`` if it is about the bytes of one sample.
    """

    kind = "audit"


class DaemonDied(HDMLPError):
    """The daemon is gone, or did not start. The message ends with its last words."""


class DaemonNotFoundError(HDMLPError, FileNotFoundError):
    """There is no ``hdmlp`` binary in the package, in ``HDMLP_BINARY`` or on ``PATH``."""

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""


class ClosedError(HDMLPError):
    """The loader was closed, or its iteration was overtaken by a newer one."""


class StallTimeout(HDMLPError, TimeoutError):
    """``timeout`` seconds went by without a batch."""

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""


class WorkerDied(HDMLPError):
    """A worker process of the loader ended by itself."""


class EndError(HDMLPError):
    """More epochs, or samples, were asked for than the job has."""


_KINDS = {
    cls.kind: cls
    for cls in (
        ConfigError,
        DatasetError,
        SampleError,
        MismatchError,
        LimitError,
        BusyError,
        PermissionError_,
        VersionError,
        ProtocolError,
        InternalError,
        AuditError,
    )
}


def from_answer(answer: Dict[str, Any]) -> HDMLPError:
    """The exception for an error object of the protocol: ``kind``, ``message``, ``details``."""
    cls = _KINDS.get(answer.get("kind", ""), HDMLPError)
    error = cls(str(answer.get("message", "unknown error")), answer.get("details"))
    error.kind = answer.get("kind", "internal")
    return error
