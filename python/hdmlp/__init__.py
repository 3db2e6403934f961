"""HDMLP feeds training samples to machine-learning jobs so that accelerators never wait for storage.

``hdmlp.torch`` has the datasets and loaders for torch, ``hdmlp.data`` those that need
nothing but Python, ``hdmlp.Job`` is the interface of the HDMLP thesis. The work is done by a
daemon, one per node and user, which the first loader starts.

Everything the package has to say goes to ``logging.getLogger("hdmlp")``: warnings reach the standard error of a program that
configures no logging.
"""

from __future__ import annotations

from . import _platform  # noqa: F401  # first: refuses platforms that are not supported
from ._version import __version__
from .errors import *  # noqa: F403
from .errors import __all__ as _errors
from .job import Job

__all__ = ["Job", "__version__", *_errors]
