"""The newest torch and the frameworks around it, from PyPI: `make setup-ci` builds their
environment in build/frameworks."""

import json
import os
import subprocess

from throttled import Unavailable

_ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

#: The environment's interpreter.
PYTHON = os.path.join(_ROOT, "build", "frameworks", "bin", "python")

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
    try:
        done = subprocess.run(
            [PYTHON, "-c", _VERSIONS, *packages], capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError) as error:
        raise Unavailable(
            f"{PYTHON} lacks {', '.join(packages)} (make setup-ci builds it): "
            f"{getattr(error, 'stderr', error)}"
        ) from None
    return json.loads(done.stdout)
