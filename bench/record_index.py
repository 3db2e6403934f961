"""Opens tar shards once and prints what that took: record_index.py SHARDS [WARMING]. With a number,
record_index.py SHARDS PART, what reading one in so many of their samples took.

If WARMING is given, a daemon runs already, which has opened the shards there, so that neither its
start nor imports count. bench/records.py is at the other side.
"""

import json
import os
import sys
import time
from typing import Any

import hdmlp.torch as ht
import loaders
import record_data
import rounds
import torch


def counters(daemon: int) -> dict[str, float]:
    """Processor seconds of this process and of the daemon, and bytes that the daemon has read: by
    system calls, and from disks."""
    with open(f"/proc/{daemon}/io", encoding="ascii") as file:
        io = {key: int(value) for key, value in (line.split(": ") for line in file)}
    return {
        "python": time.process_time(),
        "daemon": scheduled(daemon),
        "asked": io["rchar"],
        "device": io["read_bytes"],
        "clock": time.monotonic(),
    }


def scheduled(pid: int) -> float:
    """Processor seconds of a process, to the nanosecond."""
    total = 0
    for thread in os.listdir(f"/proc/{pid}/task"):
        try:
            with open(f"/proc/{pid}/task/{thread}/schedstat", encoding="ascii") as file:
                total += int(file.read().split()[0])
        except (FileNotFoundError, ProcessLookupError):
            continue
    return total / 1e9 or rounds.process_cpu(pid)


def opened(shards: str) -> Any:
    return ht.WebDataset(f"{shards}/*.tar", fields=["jpg", "cls"])


def read_part(dataset: Any, part: int) -> int:
    """Reads one in `part` of the samples, at random, and returns how many bytes that were."""
    chosen = torch.randperm(len(dataset), generator=torch.Generator().manual_seed(1))
    some = torch.utils.data.Subset(dataset, chosen[: len(dataset) // part].tolist())
    loader = ht.DataLoader(some, batch_size=64, shuffle=True, epochs=1, seed=1, memory="64MB")
    return sum(len(field) for batch in loader for fields in batch for field in fields)


def main() -> None:
    shards, *others = sys.argv[1:]
    part = int(others.pop()) if others and others[-1].isdigit() else 0
    dataset = opened(shards) if part or not others else opened(others[0])
    daemon = loaders.daemon()
    assert daemon is not None
    if part:
        record_data.forget_pages(shards)
    before, payload = counters(daemon), 0
    if part:
        payload = read_part(dataset, part)
    else:
        dataset = opened(shards)
    after = counters(daemon)
    found = {key: after[key] - before[key] for key in before}
    print(json.dumps({**found, "samples": len(dataset), "payload": payload}))


if __name__ == "__main__":
    main()
