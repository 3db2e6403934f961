"""``python -m hdmlp`` and the console script: become the ``hdmlp`` binary."""

from __future__ import annotations

import os
import sys

from ._daemon.binary import find_binary
from ._launch import command
from .errors import ConfigError, DaemonNotFoundError


def main() -> None:
    """Replaces this process with the binary, with the same arguments.

    ``hdmlp probe`` gets further ones, from what the launcher gives of the nodes.
    """
    try:
        binary = find_binary()
        called = command.complete(sys.argv[1:])
    except DaemonNotFoundError as error:
        sys.exit(f"hdmlp: {error}")
    except ConfigError as error:
        print(f"hdmlp: {error}", file=sys.stderr)
        sys.exit(2)
    if called.instead:
        print(called.instead, file=sys.stderr)
        return
    os.environ.update(called.variables)
    os.execv(binary, ["hdmlp", *called.arguments])


if __name__ == "__main__":
    main()
