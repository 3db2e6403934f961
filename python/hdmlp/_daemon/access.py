"""How this process reaches what a URL names: the daemon has no keys of its own.

The ``hdmlp`` binary finds it, in a process of its own with this process's environment, and writes
it to memory that only its descriptor leads to, which then goes to the daemon.
"""

from __future__ import annotations

import json
import os
import subprocess

from .._lib.memory import create
from ..errors import AccessDeniedError, DatasetError
from .binary import find_binary

#: Seconds for which keys may be looked for. They may come from another process, or over a network.
_TIMEOUT = 90.0


def access(url: str) -> int:
    """Returns a descriptor of memory with how this process reaches a URL, and with its keys.

    Args:
        url: The URL.

    Raises:
        AccessDeniedError: There are no keys, or those of the environment are wrong.
        DatasetError: They cannot be looked for.
    """
    memory = create("hdmlp-access")
    try:
        done = subprocess.run(
            [find_binary(), "credentials", "--json", "--", url],
            stdin=subprocess.DEVNULL,
            stdout=memory,
            stderr=subprocess.PIPE,
            timeout=_TIMEOUT,
        )
    except subprocess.TimeoutExpired:
        os.close(memory)
        raise DatasetError(
            f"dataset {url}: its keys were not found within {_TIMEOUT:g} s: `hdmlp credentials "
            f"{url}` shows where they are looked for",
            {"path": url},
        ) from None
    except BaseException as error:
        os.close(memory)
        if isinstance(error, OSError):
            raise DatasetError(f"dataset {url}: {error}", {"path": url}) from None
        raise
    if done.returncode:
        os.close(memory)
        raise AccessDeniedError(f"dataset {_reason(done.stderr)}", {"path": url})
    return memory


def _reason(written: bytes) -> str:
    """Returns why the command failed: the last line that it wrote, which is JSON.

    What is before it is of a ``credential_process``, and may have keys.
    """
    *_, line = written.decode(errors="replace").strip().splitlines() or [""]
    try:
        return str(json.loads(line)["error"])
    except (ValueError, KeyError, TypeError):  # it was ended by a signal, for instance
        return "the command `hdmlp credentials` failed"
