"""Runs `hdmlp simulate` on the scenarios of CoorDL's figures."""

import json
import os
import subprocess
import threading
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Optional

import tomllib

HERE = os.path.dirname(os.path.abspath(__file__))
SCENARIOS = os.path.join(HERE, "..", "..", "scenarios", "coordl")
#: The GPUs of a server, for which the scenarios are.
GPUS = 8
#: The page cache of CoorDL's kernel, read in new orders (DALI-shuffle), and in the same order after
#: epochs in new orders (DALI-seq). docs/SIMULATOR.md, The page cache, says why.
SHUFFLED = "pagecache:even_lists=true"
SEQUENTIAL = "pagecache_sequential:even_lists=true:shuffled=3"
#: The same, of files that were never read in another order.
UNREAD = "pagecache_sequential:even_lists=true"
RAM = "storage_class.ram.capacity"
#: MB that the page cache has where the paper does not limit it: what 500 GiB have left. It follows
#: from DALI-shuffle's misses (table 6), and means that processes take 60 GB.
WHOLE = 477_000
#: The scenarios whose datasets are larger than the memory of a server.
LARGE = ("openimages", "openimages-hdd", "imagenet-22k", "fma")


@dataclass(frozen=True)
class Run:
    """What the simulator predicts of one policy. Times and bytes are of a later epoch, in which the
    page cache has what it has from then on: the mean of the last two but one, since nothing is read
    ahead for another epoch in the last one."""

    seconds: float
    gb: float  # that left the source, on all nodes and for all jobs
    dataset_gb: float
    epochs_gb: list[float]
    batches: list[tuple[float, float]] = field(repr=False)  # seconds, MB from the source

    @property
    def mbps(self) -> float:
        """What each job trains on."""
        return self.dataset_gb * 1e3 / self.seconds

    @property
    def misses(self) -> float:
        """What left the source, by the dataset."""
        return self.gb / self.dataset_gb


class Simulator:
    """Runs each simulation once, whichever figures ask for it; threads may ask at a time."""

    def __init__(self, program: str) -> None:
        self._program = program
        self._lock = threading.Lock()  # guards _runs
        self._runs: dict[tuple[str, ...], Future[Run]] = {}

    def run(
        self,
        scenario: str,
        policy: str,
        gpus: int = GPUS,
        nodes: int = 1,
        batches: bool = False,
        values: Optional[dict[str, Any]] = None,
        **keys: Any,
    ) -> Run:
        """Simulates a scenario of the folder under a policy: each job on `gpus` GPUs of each of
        `nodes` servers, with other values of the scenario's keys. Rates and batches are those of
        eight GPUs. A key without a dot may be given by its name. The page cache has the memory of
        a server, and what CoorDL manages the part of it that the scenario has."""
        path = os.path.join(SCENARIOS, scenario + ".toml")
        with open(path, "rb") as file:
            base = tomllib.load(file)
        values = {**(values or {}), **keys}
        if policy in (SHUFFLED, SEQUENTIAL) and scenario in LARGE:
            values.setdefault(RAM, WHOLE)
        compute = values.get("compute", base["environment"]["compute"])
        batch = values.get("global_batch_size", base["job"]["global_batch_size"])
        values["compute"] = compute * gpus / GPUS
        values["global_batch_size"] = max(batch * gpus // GPUS, 1) * nodes
        values["nodes"] = nodes
        command = [self._program, "simulate", path, "--policy", policy, "--json"]
        if batches:
            command.append("--batches")
        for key, value in sorted(values.items()):
            command += ["--set", f"{key}={str(value).lower()}"]
        with self._lock:
            future = self._runs.get(tuple(command))
            mine = future is None
            if future is None:
                future = self._runs[tuple(command)] = Future()
        if mine:
            try:
                future.set_result(_simulate(command, policy, base, values))
            except BaseException as error:
                future.set_exception(error)
                raise
        return future.result()

    def analyze(self, file: str) -> Any:
        """What `hdmlp analyze` concludes from rates in a file of the folder."""
        path = os.path.join(SCENARIOS, file)
        return _json([self._program, "analyze", "--from", path, "--json"])

    @property
    def count(self) -> int:
        """How many simulations were run."""
        return len(self._runs)


def _json(command: list[str]) -> Any:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}: {done.stderr}")
    return json.loads(done.stdout)


def _simulate(command: list[str], policy: str, base: Any, values: dict[str, Any]) -> Run:
    found = _json(command)["policies"][policy]
    if not found["supported"]:
        raise RuntimeError(f"{' '.join(command)}: {found['reason']}")
    dataset = base["dataset"]
    samples, size = values.get("samples", dataset["samples"]), values.get("mu", dataset["mu"])
    steady = slice(-3, -1)
    seconds, source = found["epochs_s"][steady], found.get("epochs_source_mb", [])[steady]
    return Run(
        sum(seconds) / len(seconds),
        sum(source) / len(source) / 1e3,
        samples * _mb(size) / 1e3,
        [mb / 1e3 for mb in found["epochs_source_mb"]],
        list(zip(found.get("batches_s", []), found.get("batches_source_mb", []))),
    )


def _mb(size: Any) -> float:
    """A size as the scenarios have it, in MB."""
    if isinstance(size, str):
        number, unit = size.split()
        return float(number) * {"KB": 1e-3, "MB": 1.0}[unit]
    return float(size)
