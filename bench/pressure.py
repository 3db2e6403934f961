"""How fast a training process may grow into memory that the cache fills.

    python bench/pressure.py [--limit MB] [--rates 100,200,400] [--steps 0.02,0.1,0.5]

As root, with control groups of version 1 or 2. Each cell is a process in a control group of its
own: it reads samples of 1 MB, raw, which the daemon caches in all memory that is left; when the
first epoch is over it grows at the rate, by three quarters of what is cached. Printed is whether it
survived, the least memory that was left, and how much the cache gave back.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time

_ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path[:0] = [os.path.join(_ROOT, "python"), os.path.join(_ROOT, "python", "tests")]

from groups import MB, Group, parent

BATCH = 8

RANK = """
import json, sys, time
from hdmlp import data

files, memory, rate, growth, step, batch = sys.argv[1], *map(float, sys.argv[2:7])
kept, total, began = [], 0, None
loader = data.DataLoader(files, batch_size=int(batch), seed=1, memory=int(memory))
for epoch in range(1000):
    for samples, _ in loader:
        samples = None
        if epoch:
            began = began or time.monotonic()
            # A machine that is too slow for the rate must not keep the process from taking batches.
            most = total + 2 * rate * step
            while total < min(growth, most, rate * (time.monotonic() - began)):
                kept.append(bytearray(1 << 20))
                kept[-1][::4096] = b"x" * 256
                total += 1 << 20
        time.sleep(step)
        if total >= growth and time.monotonic() - began > growth / rate + 2:
            break
    if total >= growth:
        break
report = loader.report()
print(json.dumps({"took": time.monotonic() - began, "grown": total,
                  "classes": report["classes"], "sentence": report["sentence"]}))
"""


def available(group: Group) -> int:
    """Returns what processes of the group can still allocate, its page cache counted."""
    names = (
        ("memory.current", "memory.max")
        if group.v2
        else ("memory.usage_in_bytes", "memory.limit_in_bytes")
    )
    values = []
    for name in names:
        with open(os.path.join(group.path, name)) as file:
            values.append(int(file.read()))
    with open(os.path.join(group.path, "memory.stat")) as file:
        stat = dict(line.split() for line in file)
    prefix = "" if group.v2 else "total_"
    cache = int(stat[prefix + "inactive_file"]) + int(stat[prefix + "active_file"])
    return values[1] - values[0] + cache


def measure(files: str, limit: int, rate: float, step: float) -> str:
    """Returns one cell."""
    group = Group(parent(), f"hdmlp-bench-{os.getpid()}")
    group.limit(limit)
    cached = limit - 250 * MB
    environment = {
        **os.environ,
        "PYTHONPATH": os.path.join(_ROOT, "python"),
        "HDMLP_SOCKET": f"@hdmlp-bench-{time.monotonic_ns()}",
        "HDMLP_LINGER": "0s",
        "HDMLP_INDEX_DIR": tempfile.mkdtemp(),
    }
    arguments = [files, cached, rate, cached * 3 / 4, step, BATCH]
    try:
        job = subprocess.Popen(
            [sys.executable, "-c", RANK, *map(str, arguments)],
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
            preexec_fn=group.enter,
        )
        least, done = [available(group)], threading.Event()

        def watch() -> None:
            while not done.wait(0.02):
                least[0] = min(least[0], available(group))

        watcher = threading.Thread(target=watch)
        watcher.start()
        out, _ = job.communicate(timeout=300)
        done.set()
        watcher.join()
    finally:
        group.close()
    if job.returncode:
        return "killed"
    said = json.loads(out)
    returned = said["classes"][0].get("given_back") or {"bytes": 0}
    return f"{max(least[0], 0) // MB} MB left, {returned['bytes'] // MB} MB given back"


def main() -> None:
    """Prints a table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--limit", type=int, default=700, help="of the control group, in MB")
    parser.add_argument("--rates", default="100,200,400", help="of growth, in MB/s")
    parser.add_argument("--steps", default="0.02,0.1,0.5", help="of training, in seconds")
    chosen = parser.parse_args()
    limit = chosen.limit * MB
    with tempfile.TemporaryDirectory() as files:
        os.mkdir(os.path.join(files, "a"))
        for i in range((limit - 250 * MB) // MB):
            with open(os.path.join(files, "a", f"{i:05d}.jpg"), "wb") as file:
                file.truncate(MB)
        for step in map(float, chosen.steps.split(",")):
            for rate in map(float, chosen.rates.split(",")):
                got = measure(files, limit, rate * MB, step)
                print(f"step {step:g} s, growth {rate:g} MB/s: {got}", flush=True)


if __name__ == "__main__":
    main()
