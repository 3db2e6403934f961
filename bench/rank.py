"""One training process of a measurement: rank.py SPEC, with SPEC a JSON object.

Imports, prints {"event": "ready"}, waits for a line on its standard input, then runs
the epochs of the spec with one of the contenders of loaders.py, prints one line of
JSON at the end of every epoch, one with the result at the end, and waits for another
line before it ends. bench/rounds.py is at the other side.

A training step is emulated: it takes `step` seconds of sleep for a whole batch, and then, if
the spec has `barrier`, waits until all ranks have finished theirs. What is not in a step is
measured: `start` from the first line that a script would have to
write to make its loader until it asks for the first batch; `stall`, all time in which
the process asks for batches, the start and the end of an epoch included.
"""

import json
import os
import resource
import sys
import time
import zlib
from typing import Any, Optional

import rounds
from barrier import Member

#: What is counted of processes.
USED = {
    "cpu": rounds.process_cpu,
    "system": rounds.system_cpu,
    "switches": rounds.switches,
    "faults": rounds.major_faults,
    "device": rounds.device_bytes,
}


def say(**event: Any) -> None:
    print(json.dumps(event), flush=True)


def cpu_seconds() -> float:
    """Of this process and of its children that have ended."""
    total = 0.0
    for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN):
        usage = resource.getrusage(who)
        total += usage.ru_utime + usage.ru_stime
    return total


def daemon_of(contender: Any) -> Optional[int]:
    """The daemon that works for a contender."""
    return contender.daemon() if hasattr(contender, "daemon") else None


def used(daemon: Optional[int]) -> dict[str, float]:
    """What this process, its living children and the daemon that works for it have used so far, and
    with `daemon_` before it what the daemon has.

    `cpu` are seconds of processors, those of children that have ended included, `system` those in
    the kernel; `switches` voluntary context switches, `faults` page faults that waited for a disk,
    and `device` bytes that disks read.
    """
    own = [os.getpid(), *children(daemon)]
    found: dict[str, float] = {}
    for name, of in USED.items():
        found[f"daemon_{name}"] = of(daemon)
        found[name] = sum(map(of, own)) + found[f"daemon_{name}"]
    found["cpu"] += cpu_seconds() - rounds.process_cpu(os.getpid())  # which counts in ticks
    return found


def children(daemon: Optional[int]) -> set[int]:
    """This process's living children without the daemon."""
    with open(f"/proc/self/task/{os.getpid()}/children", encoding="ascii") as file:
        return {int(pid) for pid in file.read().split()} - {daemon}


def run_epochs(contender: Any, spec: dict[str, Any]) -> list[dict[str, float]]:
    """Trains all epochs; the clock of the times is the machine's monotonic one.

    `waited` is the time at the barrier. What all processes have used by the end of the epoch is as
    in `used`. `bytes` and `order`, a checksum of all labels and lengths in order, are those of the
    first epoch.
    """
    epochs = []
    clock = time.monotonic
    others = Member(spec["barrier"]) if spec.get("barrier") else None
    for epoch in range(spec["epochs"]):
        begin = clock()
        compute = waited = samples = size = longest = order = steps = 0
        batches = contender.epoch(epoch)
        asked = begin
        stall = 0.0
        while True:
            batch = next(batches, None)
            got = clock()
            stall += got - asked
            longest = max(longest, got - asked)
            if batch is None:
                break
            labels = batch[1]
            samples += len(labels)
            steps += 1
            if epoch == 0:
                lengths = batch_lengths(batch[0])
                size += sum(lengths)
                order = zlib.crc32(
                    json.dumps([[int(label) for label in labels], lengths]).encode(), order
                )
            del batch
            step = spec["step"] * len(labels) / spec["batch_size"]
            if step:
                time.sleep(step)
                compute += step
            finished = clock()
            if others:
                others.wait()
            asked = clock()
            waited += asked - finished
        end = clock()
        daemon = daemon_of(contender)
        epochs.append(
            {
                "begin": begin,
                "end": end,
                "stall": stall,
                "longest": longest,
                "compute": compute,
                "waited": waited,
                "samples": samples,
                "steps": steps,
                "bytes": size,
                "order": order,
                **used(daemon),
            }
        )
        say(event="epoch", epoch=epoch, daemon=daemon)
    return epochs


def batch_lengths(samples: Any) -> list[int]:
    """The size of each sample, of a list of samples or of (packed, ends)."""
    if isinstance(samples, tuple):
        ends = samples[1].tolist()
        return [end - begin for begin, end in zip([0, *ends], ends)]
    return [len(sample) for sample in samples]


def run_ready(contender: Any, spec: dict[str, Any]) -> list[dict[str, float]]:
    """Takes `batches` batches, each after a pause in which it became ready, and keeps the time of
    each."""
    times: list[float] = []
    epoch, batches = 0, contender.epoch(0)
    while len(times) < spec["batches"]:
        time.sleep(spec["pause"])
        begin = time.perf_counter()
        batch = next(batches, None)
        took = time.perf_counter() - begin
        if batch is None:
            epoch += 1
            batches = contender.epoch(epoch)
            continue
        times.append(took)
        del batch
    return times[spec["warm_up"] :]


def run_for(contender: Any, spec: dict[str, Any]) -> list[tuple[float, int]]:
    """Takes batches of the first epoch for a number of seconds; when, from the start on, and of
    how many samples."""
    trace: list[tuple[float, int]] = []
    begin = time.monotonic()
    for batch in contender.epoch(0):
        trace.append((time.monotonic() - begin, len(batch[1])))
        if trace[-1][0] > spec["seconds"]:
            break
    return trace


def write_group(spec: dict[str, Any], name: str, value: str) -> None:
    """Writes a file of the rank's control group."""
    path = os.path.join(spec["groups"][spec["rank"]], name)
    with open(path, "w", encoding="ascii") as file:
        file.write(value)


def main() -> None:
    spec = json.loads(sys.argv[1])
    if (
        "cores" in spec
    ):  # for all that it starts as well; other ranks have others, if they are apart
        first = spec["rank"] * spec["cores"] if spec.get("apart") else 0
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[first:][: spec["cores"]])
    if "groups" in spec:
        write_group(spec, "cgroup.procs", str(os.getpid()))
    import loaders
    import record_loaders
    import tf_loader

    known = {**loaders.CONTENDERS, **record_loaders.CONTENDERS, **tf_loader.CONTENDERS}
    contender = known[spec["contender"]](spec)  # imports
    say(event="ready", cpu=cpu_seconds())
    sys.stdin.readline()
    if "limit_group" in spec:  # imports are not limited
        write_group(spec, *spec["limit_group"])
    before, begin = used(None), time.monotonic()
    contender.start()
    result: dict[str, Any] = {"before": before, "begin": begin, "start": time.monotonic() - begin}
    if "seconds" in spec:
        result["trace"] = run_for(contender, spec)
    elif "batches" in spec:
        result["times"] = run_ready(contender, spec)
    else:
        result["epochs"] = run_epochs(contender, spec)
    result["end"] = time.monotonic()
    say(event="done", daemon=daemon_of(contender))
    sys.stdin.readline()
    result["report"] = contender.finish()
    say(event="result", result=result)


if __name__ == "__main__":
    main()
