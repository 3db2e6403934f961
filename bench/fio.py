"""What the disk gives, by fio: reads of one size, direct and at random, so many in progress."""

import json
import os
import shutil
import subprocess

from rounds import RoundFailed


def missing() -> bool:
    """Reports whether fio is not installed."""
    return shutil.which("fio") is None


def reads(path: str, size: int, depth: int, seconds: float) -> float:
    """Reads per second of `size` bytes of a file, with `depth` in progress.

    Raises:
        RoundFailed: with what fio said.
    """
    options = {
        "name": "reads",
        "filename": path,
        "rw": "randread",
        "bs": size,
        "direct": 1,
        "ioengine": "libaio",
        "iodepth": depth,
        "runtime": f"{seconds}s",
        "size": os.path.getsize(path) // size * size,
        "output-format": "json",
    }
    done = subprocess.run(
        [
            "fio",
            "--readonly",
            "--time_based",
            *(f"--{key}={value}" for key, value in options.items()),
        ],
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise RoundFailed(f"fio failed for {path}: {done.stderr[-2000:]}")
    # fio may print notes before the JSON.
    found = json.loads(done.stdout[done.stdout.index("{") :])
    return float(found["jobs"][0]["read"]["iops"])
