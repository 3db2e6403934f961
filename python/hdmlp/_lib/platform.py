"""Refuses to be imported on a platform that HDMLP does not support.

The package imports this module first: on another system the rest fails for lack of Linux's
interfaces, with messages that say nothing of the reason.
"""

from __future__ import annotations

import os
import platform
import struct
import sys

SUPPORTED = "HDMLP supports 64-bit Linux on x86-64 (x86_64) and 64-bit ARM (aarch64), glibc or musl"

#: The machines that wheels exist for, by the ``e_machine`` of their ELF binaries.
_MACHINES = {62: "x86_64", 183: "aarch64"}

_SYSTEMS = {"darwin": "macOS", "win32": "Windows", "cygwin": "Cygwin"}

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_BINARY = os.path.join(_PACKAGE, "bin", "hdmlp")


def check() -> None:
    """Checks the system, the machine, and the binary that the installed wheel carries.

    Raises:
        ImportError: HDMLP does not run here; the message says what is supported and what to do.
    """
    machine = platform.machine()
    if sys.platform != "linux":
        system = _SYSTEMS.get(sys.platform, sys.platform)
        raise ImportError(
            f"hdmlp cannot be imported on {system} ({machine or 'unknown machine'}): {SUPPORTED}. "
            "On other systems, run it in a Linux container or virtual machine",
            name="hdmlp",
        )
    if struct.calcsize("P") != 8:
        raise ImportError(
            f"hdmlp cannot be imported by a 32-bit Python ({sys.executable}): {SUPPORTED}. "
            "Install a 64-bit Python",
            name="hdmlp",
        )
    if machine not in _MACHINES.values():
        raise ImportError(
            f"hdmlp cannot be imported on Linux on {machine or 'an unknown machine'}: {SUPPORTED}",
            name="hdmlp",
        )
    built_for = None if os.environ.get("HDMLP_BINARY") else _machine_of(_BINARY)
    if built_for is not None and built_for != machine:
        raise ImportError(
            f"the installed hdmlp wheel is for {built_for}, and this machine is {machine}: "
            f"{_BINARY} cannot run here. Reinstall it on this machine: "
            "pip install --force-reinstall --no-cache-dir hdmlp",
            name="hdmlp",
        )


def _machine_of(path: str) -> str | None:
    """The machine that an ELF binary is for; None if there is no such file."""
    try:
        with open(path, "rb") as file:
            head = file.read(20)
    except OSError:
        return None
    if len(head) < 20 or not head.startswith(b"\x7fELF"):
        return None
    number = int.from_bytes(head[18:20], "little" if head[5] == 1 else "big")
    return _MACHINES.get(number, f"another machine (ELF {number})")


check()
