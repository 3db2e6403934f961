"""Runs one contender once: its ranks as processes, watched from outside.

What a process reports of itself are the times of its own loop; bytes come from the
mount's counters, processor time from the kernel.
"""

import contextlib
import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from typing import Any, Optional

import before
from barrier import Barrier
from namespaces import Nodes
from throttled import Throttled

_HERE = os.path.dirname(os.path.abspath(__file__))
_TICKS = os.sysconf("SC_CLK_TCK")

#: A round whose ranks print nothing for so many seconds has failed.
SILENCE = 300.0


class RoundFailed(Exception):
    """A rank ended early, or has printed nothing for too long."""


def machine_cpu() -> dict[str, float]:
    """Processor seconds of the whole machine so far: used by all processes, and taken by the
    host."""
    with open("/proc/stat", encoding="ascii") as file:
        user, nice, system, _, _, irq, softirq, steal = map(int, file.readline().split()[1:9])
    return {"used": (user + nice + system + irq + softirq) / _TICKS, "stolen": steal / _TICKS}


class Watch:
    """Measures the use of the machine from now on."""

    def __init__(self) -> None:
        self._before, self._began = machine_cpu(), time.monotonic()

    def shares(self, ours: float) -> dict[str, float]:
        """`others`, the share of the machine that other processes used, and `stolen`, its host;
        `ours`: processor seconds that were the measurement's own."""
        after, processors = machine_cpu(), (time.monotonic() - self._began) * os.cpu_count()
        return {
            "others": max(0.0, after["used"] - self._before["used"] - ours) / processors,
            "stolen": (after["stolen"] - self._before["stolen"]) / processors,
        }


def _stat(pid: Optional[int], *fields: int) -> int:
    """The sum of fields of a process in /proc, by their numbers; 0 if it has ended."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii") as file:
            values = file.read().rsplit(")", 1)[1].split()
    except FileNotFoundError:
        return 0
    return sum(int(values[field - 3]) for field in fields)


def process_cpu(pid: Optional[int]) -> float:
    """Processor seconds of a process and of its children that have ended; 0 if it has ended."""
    return _stat(pid, 14, 15, 16, 17) / _TICKS


def system_cpu(pid: Optional[int]) -> float:
    """Of these, the seconds in the kernel."""
    return _stat(pid, 15, 17) / _TICKS


def major_faults(pid: Optional[int]) -> int:
    """Page faults for which a process and its children that have ended waited for a disk."""
    return _stat(pid, 12, 13)


def switches(pid: Optional[int]) -> int:
    """Voluntary context switches of a process's threads; 0 if it has ended."""
    total = 0
    try:
        for task in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{task}/status", encoding="ascii") as file:
                for line in file:
                    if line.startswith("voluntary_ctxt_switches:"):
                        total += int(line.split()[1])
    except FileNotFoundError:
        pass
    return total


def device_bytes(pid: Optional[int]) -> int:
    """Bytes that a process has had read from disks; 0 if it has ended."""
    try:
        with open(f"/proc/{pid}/io", encoding="ascii") as file:
            return next(int(line.split()[1]) for line in file if line.startswith("read_bytes:"))
    except FileNotFoundError:
        return 0


def resident(pid: Optional[int]) -> int:
    """Bytes of a process's resident memory, at its highest; 0 if it has ended."""
    try:
        with open(f"/proc/{pid}/status", encoding="ascii") as file:
            for line in file:
                if line.startswith("VmHWM:"):
                    return int(line.split()[1]) * 1024
    except FileNotFoundError:
        pass
    return 0


def proportional(pid: int, *fields: str) -> int:
    """Bytes of a process's memory, of which it is charged its part where several map it; all of
    it, or of these kinds: Pss_Anon, Pss_File, Pss_Shmem; 0 if it has ended."""
    total = 0
    try:
        with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as file:
            for line in file:
                if line.split(":")[0] in (fields or ("Pss",)):
                    total += int(line.split()[1]) * 1024
    except (FileNotFoundError, ProcessLookupError):
        pass
    return total


def held(ranks: list["_Rank"]) -> int:
    """Bytes that a round's jobs hold beside what each process needs for itself: the daemon's
    memory, and what ranks map of it; without a daemon, 0."""
    daemons = {rank.find("epoch")["daemon"] for rank in ranks} - {None}
    if not daemons:
        return 0
    shared = sum(proportional(rank.process.pid, "Pss_Shmem") for rank in ranks)
    return shared + sum(map(proportional, daemons))


def prepared(environment: dict[str, str]) -> dict[str, float]:
    """`samples` that the daemon has transformed for all of its jobs, and `seconds` that took."""
    binary = os.path.join(environment["PYTHONPATH"], "hdmlp", "bin", "hdmlp")
    answer = subprocess.run(
        [binary, "stats", "--json"], env=environment, capture_output=True, check=True
    )
    parts = [job.get("preprocessing") or {} for job in json.loads(answer.stdout)["jobs"]]
    return {
        "samples": sum(part.get("samples", 0) for part in parts),
        "seconds": sum(sum(part.get("seconds", {}).values()) for part in parts),
    }


_reserved: list[socket.socket] = []


def free_port() -> int:
    """A port where one program can listen; until this process ends, the system gives it to no other
    socket that asks for any port."""
    reserved = socket.socket()
    # Bound, not listening: only a socket that names the port and has this option, as torch's have,
    # can be bound to it as well.
    reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    reserved.bind(("127.0.0.1", 0))
    _reserved.append(reserved)
    return reserved.getsockname()[1]


class _Rank:
    """One rank's process; a thread of its own reads what it prints."""

    def __init__(
        self,
        spec: dict[str, Any],
        prefix: list[str],
        environment: dict[str, str],
        directory: str,
        heard: threading.Condition,
    ) -> None:
        self.spec = spec
        self.events: list[dict[str, Any]] = []
        self.ended = False
        self.stopped = False  # because the round took too long
        self.cpu = 0.0
        self._heard = heard
        self._errors = open(  # noqa: SIM115 - closed with the rank
            os.path.join(directory, f"rank{spec['rank']}.err"), "w+", encoding="utf-8"
        )
        self.process = subprocess.Popen(
            [
                *prefix,
                spec.get("python", sys.executable),
                os.path.join(_HERE, "rank.py"),
                json.dumps(spec),
            ],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def _listen(self) -> None:
        for line in self.process.stdout:
            if line.startswith("{"):
                with self._heard:
                    self.events.append(json.loads(line))
                    self._heard.notify_all()
        with self._heard:
            self.ended = True
            self._heard.notify_all()

    def find(self, event: str, **fields: Any) -> Optional[dict[str, Any]]:
        wanted = dict(fields, event=event)
        return next((e for e in self.events if wanted.items() <= e.items()), None)

    def go_on(self) -> None:
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def wait(self) -> None:
        """Waits until the process has ended; `cpu` is then all that it and its children used."""
        self._thread.join()
        _, status, usage = os.wait4(self.process.pid, 0)
        self.process.returncode = os.waitstatus_to_exitcode(status)
        self.cpu = usage.ru_utime + usage.ru_stime

    def last_words(self) -> str:
        self._errors.seek(0)
        return self._errors.read()[-4000:]

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self._errors.close()
        self.process.stdin.close()
        self.process.stdout.close()


def run(
    contender: dict[str, Any],
    spec: dict[str, Any],
    mount: Optional[Throttled] = None,
    nodes: Optional[Nodes] = None,
) -> dict[str, Any]:
    """Runs all ranks of one round to their end.

    Args:
        contender: what differs between contenders: `contender`, `workers`, ...; `before`, the
            commit whose HDMLP is to be run instead of this tree's.
        spec: what is the same for all: `path`, `batch_size` (per rank), `epochs`, `world_size`,
            ...; `index`, if the dataset's
            index is to be kept in a directory from round to round; `synchronous`, if ranks are to
            wait for each other after each step; `jobs`, if each rank is to be of a job of its own,
            with the fields of its entry in this list: its only rank, unless the entry has `rank`
            and `world_size`, and as `environment` the launcher's variables; `groups`, each rank's
            control group, and `limit_group`, the name and content of its file that limits it after
            the imports; `limit`, for how many seconds the round may go on after all ranks are
            ready.
        mount: where the path lies, if its bytes are to be counted.
        nodes: each rank's own node; without, all ranks are on this machine as it is.

    Returns:
        `ranks`, each rank's own result; `source`, what the mount delivered by the end of
        each epoch of the last rank; `cpu`, seconds by ranks, daemons and mount; `others`, the
        share of the machine that other processes used; `resident`, the daemons' peak memory.
        With `jobs`, also `memory`, what daemon and ranks hold (see `held`), at the end of the epoch
        of the earlier half in which it is most; and `made`, what the daemon's transforms have done
        for all jobs.

    Raises:
        RoundFailed: with what the rank said.
    """
    name = f"hdmlp-bench-{os.getpid()}-{secrets.token_hex(4)}"
    package = before.tree(contender["before"]) if "before" in contender else os.path.dirname(_HERE)
    directory = tempfile.mkdtemp(prefix="hdmlp-bench-")
    environment = dict(
        os.environ,
        WORLD_SIZE=str(spec["world_size"]),
        MASTER_ADDR="127.0.0.1",
        MASTER_PORT=str(free_port()),
        HDMLP_SOCKET=name,
        HDMLP_LINGER="0s",
        HDMLP_INDEX_DIR=spec.get("index") or os.path.join(directory, "index"),
        OMP_NUM_THREADS="1",
        PYTHONPATH=os.path.join(package, "python"),
    )
    heard = threading.Condition()
    watch, self_before = Watch(), time.process_time()
    mount_before = mount.counters() if mount else None
    jobs = spec.get("jobs")
    if jobs:
        for variable in ("WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
            del environment[variable]
    ranks = []
    ending = contextlib.ExitStack()
    try:
        if spec.get("synchronous"):
            meeting = ending.enter_context(Barrier(directory, spec["world_size"]))
            spec = dict(spec, barrier=meeting.path)
        for rank in range(len(jobs) if jobs else spec["world_size"]):
            own = dict(environment)
            if jobs:
                own.update(jobs[rank].get("environment", {}))
            else:
                own.update(RANK=str(rank), LOCAL_RANK=str(rank))
            if nodes:
                own.update(nodes.environment(rank))
            ranks.append(
                _Rank(
                    {**spec, **contender, "rank": 0, **jobs[rank]}
                    if jobs
                    else dict(spec, **contender, rank=rank),
                    nodes.command(rank) if nodes else [],
                    own,
                    directory,
                    heard,
                )
            )
        _all(heard, ranks, "ready")
        imports = [rank.find("ready")["cpu"] for rank in ranks]
        for rank in ranks:
            rank.go_on()
        if "limit" in spec:
            timer = threading.Timer(spec["limit"], _stop, [ranks])
            timer.start()
            ending.callback(timer.cancel)
        source, memory = [], 0
        if (mount or jobs) and "batches" not in spec and "seconds" not in spec:
            for epoch in range(spec["epochs"]):
                _all(heard, ranks, "epoch", epoch=epoch)
                if mount:
                    now = mount.counters()
                    source.append(
                        {key: now[key] - mount_before[key] for key in ("opens", "reads", "bytes")}
                    )
                # Adding it up takes processor time from what the later epochs show.
                if jobs and epoch < spec["epochs"] // 2:
                    memory = max(memory, held(ranks))
        _all(heard, ranks, "done")
        daemons = {rank.find("done")["daemon"] for rank in ranks}
        made = prepared(environment) if jobs and daemons != {None} else None
        daemon_cpu, daemon_memory = sum(map(process_cpu, daemons)), sum(map(resident, daemons))
        for rank in ranks:
            rank.go_on()
        _all(heard, ranks, "result")
        for rank in ranks:
            rank.wait()
        mount_cpu = (mount.counters()["cpu_ns"] - mount_before["cpu_ns"]) / 1e9 if mount else 0.0
        ours = (
            sum(rank.cpu for rank in ranks)
            + daemon_cpu
            + mount_cpu
            + time.process_time()
            - self_before
        )
        return {
            "contender": contender,
            "ranks": [rank.find("result")["result"] for rank in ranks],
            "source": source,
            "cpu": {
                "ranks": sum(rank.cpu for rank in ranks) - sum(imports),
                "daemon": daemon_cpu,
                "mount": mount_cpu,
            },
            "resident": daemon_memory,
            "memory": memory,
            "made": made,
            **watch.shares(ours),
            "errors": [words for words in (rank.last_words() for rank in ranks) if words],
        }
    finally:
        for rank in ranks:
            rank.close()
        ending.close()
        shutil.rmtree(directory, ignore_errors=True)


def _stop(ranks: list[_Rank]) -> None:
    """Ends a round that takes too long."""
    for rank in ranks:
        rank.stopped = True
        rank.process.kill()


def _all(heard: threading.Condition, ranks: list[_Rank], event: str, **fields: Any) -> None:
    """Waits until every rank has reported the event."""
    for rank in ranks:
        with heard:
            said = len(rank.events)
            while rank.find(event, **fields) is None:
                silent = not heard.wait_for(
                    lambda rank=rank, said=said: rank.ended or len(rank.events) > said, SILENCE
                )
                if rank.stopped and rank.find(event, **fields) is None:
                    raise RoundFailed(f"stopped after {rank.spec['limit']:.0f} s")
                if rank.ended and rank.find(event, **fields) is None:
                    raise RoundFailed(
                        f"rank {rank.spec['rank']} of {rank.spec['contender']} "
                        f"ended:\n{rank.last_words()}"
                    )
                if silent:
                    raise RoundFailed(
                        f"rank {rank.spec['rank']} of {rank.spec['contender']} has printed "
                        f"nothing for {SILENCE:.0f} s:\n{rank.last_words()}"
                    )
                said = len(rank.events)
