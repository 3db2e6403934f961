"""Feeds training samples to machine-learning jobs, so accelerators never wait for storage.

:mod:`hdmlp.torch` has datasets and loaders for torch, :mod:`hdmlp.data` those that need nothing but
Python, and :class:`hdmlp.Job` is the interface of the HDMLP thesis. A daemon does the work, one per
node and user; the first loader starts it.

The package logs to ``logging.getLogger("hdmlp")``. In a program that configures no logging,
warnings go to standard error.
"""

from __future__ import annotations

from ._lib import platform as _platform  # noqa: F401  # refuses platforms that are not supported

# isort: split
from . import errors
from ._lib.version import __version__
from ._records.pack import pack
from .errors import (
    AccessDeniedError,
    AuditError,
    BusyError,
    ClosedError,
    ConfigError,
    DaemonDiedError,
    DaemonNotFoundError,
    DatasetError,
    DatasetNotFoundError,
    EndError,
    HDMLPError,
    InternalError,
    LimitError,
    MismatchError,
    ProtocolError,
    SampleError,
    StallTimeoutError,
    VersionError,
    WorkerDiedError,
)
from .job import Job

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
    "Job",
    "LimitError",
    "MismatchError",
    "ProtocolError",
    "SampleError",
    "StallTimeoutError",
    "VersionError",
    "WorkerDiedError",
    "__version__",
    "pack",
]


def __getattr__(name: str) -> type[HDMLPError]:
    return errors.deprecated(name, __name__)
