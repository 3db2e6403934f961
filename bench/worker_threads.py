"""Items made by processes, and by threads in each: figure 7 of Yang and Cong.

Each worker process makes items of a dataset of the program's own: a file is opened and read from a
source that takes a while for each read. In (threads/read) its bytes are the item; in
(threads/decode) it is a JPEG, which Pillow decodes, and torchvision crops and makes a tensor. Rates
are those of epochs after the first one, in which workers exist already. Of each epoch, the first 32
items in a process are made one by one (docs/SEMANTICS.md).
"""

import io
import json
import os
import subprocess
import sys
import time
from typing import Any

import make_dataset
import newest
import rounds
from throttled import Throttled

from scenarios import DATA, Figures, Scenario

#: Seconds that the source takes for each read.
LATENCY = 0.02
#: Bytes per second of the source, which are not the limit.
BANDWIDTH = 1_000_000_000
WORKERS, THREADS = (1, 2, 4), (1, 2, 4, 8)
#: Bytes of a file that is only read, in the mean.
SIZE = 110_000
BATCH = 32


def named(workers: int, threads: int) -> str:
    return f"{workers} x {threads}"


class WorkerThreads(Scenario):
    """A contender is a number of workers and one of threads in each.

    Args:
        decode: Items are decoded images, and not bytes.
        samples: How many files an epoch has.
        epochs: How many there are; the first one does not count.
    """

    contenders = [
        {"name": named(workers, threads), "workers": workers, "threads": threads}
        for workers in WORKERS
        for threads in THREADS
    ]
    contenders = [{**contender, "contender": "hdmlp"} for contender in contenders]
    contenders += [
        {
            "name": f"torch, {workers} workers",
            "workers": workers,
            "threads": 0,
            "contender": "torch",
        }
        for workers in WORKERS
    ]
    columns = [("rate", "items/s", "{:.0f}"), ("busy", "processors in use", "{:.2f}")]

    def __init__(self, decode: bool, samples: int, epochs: int) -> None:
        self.key = "threads/decode" if decode else "threads/read"
        self._kind, self._samples, self._epochs = "photos" if decode else "blobs", samples, epochs
        self._path = os.path.join(DATA, f"{self._kind}-{samples}")

    def prepare(self) -> None:
        self._versions = newest.versions("torch", "torchvision", "pillow")
        size = SIZE if self._kind == "blobs" else 0
        self._dataset = make_dataset.make(self._kind, self._path, self._samples, size)
        items = "JPEGs" if self._kind == "photos" else "files"
        self.title = (
            f"{self._samples:,} {items} of {self._dataset['bytes'] / self._samples / 1e3:.0f} KB, "
            f"{1e3 * LATENCY:.0f} ms for each read: worker processes x threads in each, batches of "
            f"{BATCH}"
        )

    def describe(self) -> Figures:
        return {"versions": self._versions, "dataset": self._dataset, "epochs": self._epochs}

    def measure(self, contender: dict[str, Any]) -> dict[str, Any]:
        watch = rounds.Watch()
        before = os.times()
        with Throttled(self._path, BANDWIDTH, LATENCY) as mount:
            words = [mount.path, self._kind, contender["workers"], contender["threads"]]
            done = subprocess.run(
                [newest.PYTHON, __file__, *map(str, [*words, self._epochs])],
                capture_output=True,
                text=True,
                env={
                    **os.environ,
                    "PYTHONPATH": os.path.join(
                        os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "python"
                    ),
                    "OMP_NUM_THREADS": "1",
                },
            )
        if done.returncode:
            raise rounds.RoundFailed(f"{contender['name']} ended:\n{done.stderr[-4000:]}")
        epochs = json.loads(done.stdout)
        after = os.times()
        cpu = sum(after[2:4]) - sum(before[2:4])
        return {
            "contender": contender,
            "figures": {
                "rate": self._samples * len(epochs[1:]) / sum(epochs[1:]),
                "busy": cpu / sum(epochs),
            },
            "epochs": epochs,
            "ranks": [{}],
            "errors": [],
            **watch.shares(cpu),
        }

    def conclusions(self, medians: dict[str, Figures]) -> list[str]:
        said = []
        for workers in WORKERS:
            rates = {
                threads: medians[named(workers, threads)]["rate"]
                for threads in THREADS
                if named(workers, threads) in medians
            }
            if len(rates) == len(THREADS):
                best = max(rates, key=lambda threads: rates[threads])
                said.append(
                    f"{workers} workers: {rates[best] / rates[1]:.2f} times the rate with {best} "
                    "threads in each"
                )
        return said


def all_worker_threads(quick: bool) -> list[Scenario]:
    size = (300, 2) if quick else (1000, 2)
    return [WorkerThreads(decode, *size) for decode in (False, True)]


# In a process of its own.


def main(path: str, kind: str, workers: int, threads: int, epochs: int) -> list[float]:
    """The seconds of each epoch; 0 threads are torch's loader."""
    import hdmlp.torch
    import torch
    from PIL import Image
    from torchvision import transforms

    steps = transforms.Compose(
        [transforms.Resize(256), transforms.CenterCrop(224), transforms.ToTensor()]
    )
    files = [
        os.path.join(folder, name) for folder, _, names in os.walk(path) for name in sorted(names)
    ]

    class Files(torch.utils.data.Dataset):
        def __len__(self) -> int:
            return len(files)

        def __getitem__(self, i: int) -> Any:
            with open(files[i], "rb", buffering=0) as file:
                data = bytearray(file.read())
            if kind == "photos":
                return steps(Image.open(io.BytesIO(data)).convert("RGB"))
            return torch.frombuffer(data, dtype=torch.uint8)

    more = {"shuffle": True, "num_workers": workers, "persistent_workers": True}
    if threads:
        loader = hdmlp.torch.DataLoader(Files(), BATCH, worker_threads=threads, **more)
    else:
        loader = torch.utils.data.DataLoader(Files(), BATCH, **more)
    took = []
    for _ in range(epochs):
        begin = time.perf_counter()
        for _ in loader:
            pass
        took.append(time.perf_counter() - begin)
    return took


if __name__ == "__main__":
    json.dump(main(*sys.argv[1:3], *map(int, sys.argv[3:])), sys.stdout)
