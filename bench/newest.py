"""The newest torch and the frameworks around it, from PyPI: `make setup-ci` builds their
environment in build/frameworks. Other loaders are in build/peers, on top of it."""

import json
import os
import subprocess
from collections.abc import Sequence

from throttled import Unavailable

_ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

#: The environment's interpreter.
PYTHON = os.path.join(_ROOT, "build", "frameworks", "bin", "python")

#: The interpreter that has other loaders, too; `make bench` builds its environment.
PEERS = os.path.join(_ROOT, "build", "peers", "bin", "python")

_VERSIONS = """
import importlib.metadata, json, platform, sys
packages = {name: importlib.metadata.version(name) for name in sys.argv[1:]}
print(json.dumps({"python": platform.python_version(), **packages}))
"""


def versions(*packages: str) -> dict[str, str]:
    """The versions of Python and of packages in the environment.

    Raises:
        Unavailable: it was not built, or lacks one of them.
    """
    return _versions(PYTHON, packages, "make setup-ci")


def peers(*packages: str) -> dict[str, str]:
    """The versions of Python and of other loaders.

    Raises:
        Unavailable: they could not be installed.
    """
    return _versions(PEERS, packages, "make bench SCENARIO=records")


def _versions(python: str, packages: Sequence[str], built_by: str) -> dict[str, str]:
    try:
        done = subprocess.run(
            [python, "-c", _VERSIONS, *packages], capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError) as error:
        raise Unavailable(
            f"{python} lacks {', '.join(packages)} ({built_by} builds it): "
            f"{getattr(error, 'stderr', error)}"
        ) from None
    return json.loads(done.stdout)
