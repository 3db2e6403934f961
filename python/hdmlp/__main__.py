"""``python -m hdmlp`` and the console script: become the ``hdmlp`` binary."""

from __future__ import annotations

import os
import sys

from ._daemon.binary import find_binary
from .errors import DaemonNotFoundError


def main() -> None:
    """Replaces this process with the binary, with the same arguments."""
    try:
        binary = find_binary()
    except DaemonNotFoundError as error:
        sys.exit(f"hdmlp: {error}")
    os.execv(binary, ["hdmlp", *sys.argv[1:]])


if __name__ == "__main__":
    main()
