"""Where the ``hdmlp`` binary is."""

from __future__ import annotations

import os
import shutil
import subprocess

from ..errors import DaemonNotFoundError


def find_binary() -> str:
    """Returns the path of the ``hdmlp`` binary.

    It is ``HDMLP_BINARY``, else the package's, else the first on ``PATH``.

    Raises:
        DaemonNotFoundError: There is none, or ``HDMLP_BINARY`` is not executable.
    """
    named = os.environ.get("HDMLP_BINARY")
    if named:
        if not os.access(named, os.X_OK) or os.path.isdir(named):
            raise DaemonNotFoundError(f"HDMLP_BINARY={named} is not a program that can be run")
        return os.path.abspath(named)
    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    packaged = os.path.join(package, "bin", "hdmlp")
    if os.access(packaged, os.X_OK):
        return packaged
    found = _on_path()
    if found:
        return found
    raise DaemonNotFoundError(
        f"no hdmlp binary: not in HDMLP_BINARY, not at {packaged}, not on PATH; "
        "install the hdmlp wheel, or build one with `make build`"
    )


def version_of(binary: str) -> str:
    """Returns the version of an ``hdmlp`` binary; empty if it does not give one."""
    try:
        given = subprocess.run(
            [binary, "--version"], stdin=subprocess.DEVNULL, capture_output=True, timeout=10
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    words = given.stdout.decode(errors="replace").split()
    return words[2] if words[:2] == ["hdmlp", "version"] and len(words) == 3 else ""


def _on_path() -> str | None:
    """Returns the first ``hdmlp`` on ``PATH`` that is a binary.

    The package's console script, which is no binary, only calls back here.
    """
    for directory in os.environ.get("PATH", os.defpath).split(os.pathsep):
        found = shutil.which("hdmlp", path=directory or os.curdir)
        if not found:
            continue
        try:
            with open(found, "rb") as file:
                if file.read(4) == b"\x7fELF":
                    return os.path.abspath(found)
        except OSError:
            continue
    return None
