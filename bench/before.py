"""An earlier commit of this repository as a contender: built once, in build/baseline."""

import os
import shutil
import subprocess
import tempfile

from throttled import Unavailable

_ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

#: The last commit before the performance model drove the engine.
COMMIT = "432b8c4"


def tree(commit: str = COMMIT) -> str:
    """The directory of the commit's tree, with its program built.

    Raises:
        Unavailable: the repository lacks the commit, or it cannot be built here.
    """
    place = os.path.join(_ROOT, "build", "baseline", commit)
    binary = os.path.join("python", "hdmlp", "bin", "hdmlp")
    if os.path.exists(os.path.join(place, binary)):
        return place
    os.makedirs(os.path.dirname(place), exist_ok=True)
    made = tempfile.mkdtemp(dir=os.path.dirname(place))
    try:
        for command in (
            f"git -C '{_ROOT}' archive {commit} | tar -x -C '{made}'",
            f"'{made}/scripts/build' '{made}/{binary}'",
        ):
            done = subprocess.run(
                ["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True
            )
            if done.returncode != 0:
                raise Unavailable(f"commit {commit} cannot be built: {done.stderr.strip()}")
        shutil.rmtree(place, ignore_errors=True)
        os.rename(made, place)
    finally:
        shutil.rmtree(made, ignore_errors=True)
    return place
