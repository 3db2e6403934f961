"""The exceptions that HDMLP raises.

All of them are :class:`HDMLPError`, which is a ``RuntimeError``. Where Python has a more specific
exception (``ValueError``, ``FileNotFoundError``, ``PermissionError``, ``TimeoutError``), the
subclass is that one as well, so code written for torch's loaders catches what it caught before.

A script that does not catch an exception exits with status 1. Only the ``hdmlp`` command exits with
status 2 for wrong input.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

__all__ = [
    "AccessDeniedError",
    "AuditError",
    "BusyError",
    "ClosedError",
    "ConfigError",
    "DaemonDiedError",
    "DaemonNotFoundError",
    "DatasetError",
    "DatasetNotFoundError",
    "EndError",
    "HDMLPError",
    "InternalError",
    "LimitError",
    "MismatchError",
    "ProtocolError",
    "SampleError",
    "StallTimeoutError",
    "VersionError",
    "WorkerDiedError",
]


class HDMLPError(RuntimeError):
    """Base class of the exceptions that HDMLP raises.

    Args:
        message: What happened, to what, why, and what to do.
        details: What the daemon said beside the message.

    Attributes:
        kind: The error's kind in the protocol, such as ``"config"``.
        details: What the daemon said beside the message; a dict, often empty. If the iteration
            ended because another rank's did, it has ``rank``, and in a job on several nodes
            ``node`` and ``host``.
    """

    kind = "internal"

    def __init__(self, message: str = "", details: Mapping[str, Any] | None = None):
        super().__init__(message)
        self.details = dict(details or {})


class _InputError(HDMLPError, ValueError):
    """A value that the user gave is wrong."""


class _MessageOnlyError(HDMLPError):
    """An error that is an ``OSError`` as well, whose text is its message without an errno."""

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""


class ConfigError(_InputError):
    """An argument, configuration key or value is wrong.

    The message names it and what is allowed.
    """

    kind = "config"


class DatasetError(_InputError):
    """The dataset cannot be used: it is empty, or a class of it has no samples."""

    kind = "dataset"


class DatasetNotFoundError(_MessageOnlyError, DatasetError, FileNotFoundError):
    """The dataset's directory does not exist."""


class SampleError(HDMLPError):
    """A sample could not be read, on this rank or on another rank of the job.

    It ends the iteration on all ranks.
    """

    kind = "sample"

    @property
    def sample(self) -> int | None:
        """The sample's ID, in [0, number of samples), or None if it is not known."""
        return self.details.get("sample")

    @property
    def path(self) -> str | None:
        """The sample's path, or None if it is not known."""
        return self.details.get("path")

    @property
    def rank(self) -> int | None:
        """The other rank whose iteration failed, or None if it is this rank's."""
        return self.details.get("rank")


class MismatchError(_InputError):
    """Ranks of one job, or a saved state and a loader, disagree."""

    kind = "mismatch"

    @property
    def key(self) -> Any:
        """What they disagree about, such as ``"seed"``."""
        return self.details.get("key")

    @property
    def mine(self) -> Any:
        """The value on this rank, or of this loader."""
        return self.details.get("mine")

    @property
    def theirs(self) -> Any:
        """The value on the other rank, or in the saved state."""
        return self.details.get("theirs")


class LimitError(HDMLPError):
    """There is not enough memory or disk space, or too many files are open."""

    kind = "limit"

    @property
    def need(self) -> Any:
        """What is needed, as the daemon states it; None if it does not."""
        return self.details.get("need")

    @property
    def limit(self) -> Any:
        """What is available, as the daemon states it; None if it does not."""
        return self.details.get("limit")


class BusyError(HDMLPError):
    """Another process already is this rank of this job."""

    kind = "busy"


class AccessDeniedError(_MessageOnlyError, PermissionError):
    """This process's user has no permission to read the dataset or to use the daemon."""

    kind = "permission"


class VersionError(HDMLPError):
    """The package and the daemon are of different versions."""

    kind = "version"

    @property
    def daemon(self) -> Any:
        """The daemon's version, or None if it speaks another protocol."""
        return self.details.get("daemon")

    @property
    def process(self) -> Any:
        """This process's version, or None if the daemon speaks another protocol."""
        return self.details.get("process")


class ProtocolError(HDMLPError):
    """The other side sent something that the protocol does not allow: a bug, please report it."""

    kind = "protocol"


class InternalError(HDMLPError):
    """The daemon failed because of a bug, please report it."""


class AuditError(HDMLPError):
    """The samples delivered are not the samples due, or not the source's bytes (``verify=True``).

    ``details`` has ``sample`` and ``path`` if the error is about the bytes of one sample.
    """

    kind = "audit"


class DaemonDiedError(HDMLPError):
    """The daemon ended, or did not start. The message ends with the last lines of its log."""


class DaemonNotFoundError(_MessageOnlyError, FileNotFoundError):
    """No ``hdmlp`` binary is in the package, in ``HDMLP_BINARY`` or on ``PATH``."""


class ClosedError(HDMLPError):
    """The loader was closed, or a newer iteration has replaced this one."""


class StallTimeoutError(_MessageOnlyError, TimeoutError):
    """No batch arrived within ``timeout`` seconds."""


class WorkerDiedError(HDMLPError):
    """A worker process of the loader ended."""


class EndError(HDMLPError):
    """More epochs or samples were asked for than the job has."""


_KINDS: dict[str, type[HDMLPError]] = {
    cls.kind: cls
    for cls in (
        ConfigError,
        DatasetError,
        SampleError,
        MismatchError,
        LimitError,
        BusyError,
        AccessDeniedError,
        VersionError,
        ProtocolError,
        InternalError,
        AuditError,
    )
}


def from_answer(answer: Mapping[str, Any]) -> HDMLPError:
    """Returns the exception for an error object of the protocol.

    Args:
        answer: The object: ``kind``, ``message`` and ``details``.
    """
    cls = _KINDS.get(answer.get("kind", ""), HDMLPError)
    error = cls(str(answer.get("message", "unknown error")), answer.get("details"))
    error.kind = answer.get("kind", "internal")
    return error


#: Names of earlier versions.
_DEPRECATED = {
    "DaemonDied": DaemonDiedError,
    "PermissionError_": AccessDeniedError,
    "StallTimeout": StallTimeoutError,
    "WorkerDied": WorkerDiedError,
}


def __getattr__(name: str) -> type[HDMLPError]:
    return deprecated(name, __name__)


def deprecated(name: str, module: str) -> type[HDMLPError]:
    """Returns the exception that had another name once.

    Args:
        name: Its deprecated name.
        module: Where it was looked up, for the message.

    Raises:
        AttributeError: No exception had that name.
    """
    try:
        cls = _DEPRECATED[name]
    except KeyError:
        raise AttributeError(f"module {module!r} has no attribute {name!r}") from None
    warnings.warn(
        f"hdmlp.errors.{name} is deprecated; use {cls.__name__}", DeprecationWarning, stacklevel=2
    )
    return cls
