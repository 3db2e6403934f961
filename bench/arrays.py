"""Arrays beside torch's loader: rows as TensorDataset and a memmap give them, images transformed,
and nanoGPT's windows beside its loop over a memmap.

    PYTHONPATH=python build/frameworks/bin/python bench/arrays.py [ROUNDS]

Each contender runs in a process of its own, in turn, ROUNDS (3) times. The first epoch warms up;
figures are medians over the second: microseconds per sample, as time and as processor time of all
processes, the daemon included.
"""

import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import Any, Callable

import numpy
import torch
import torch.utils.data

IMAGES, BATCH, TOKENS, WINDOW, WINDOWS = 50_000, 128, 20_000_000, 1024, 12
WORKERS = 2


def prepare(root: str) -> None:
    """Writes what the contenders read."""
    random = numpy.random.default_rng(1)
    numpy.save(f"{root}/x.npy", random.integers(0, 256, (IMAGES, 32, 32, 3), "u1"))
    numpy.save(f"{root}/y.npy", random.integers(0, 10, IMAGES))
    random.integers(0, 50257, TOKENS, "u2").tofile(f"{root}/train.bin")


def recipe() -> Any:
    from torchvision import transforms

    return transforms.Compose(
        [
            transforms.RandomCrop(32, padding=4),
            transforms.RandomHorizontalFlip(),
            transforms.ToTensor(),
            transforms.Normalize((0.49, 0.48, 0.45), (0.25, 0.24, 0.26)),
        ]
    )


class Rows(torch.utils.data.Dataset[Any]):
    """Rows of memory-mapped arrays, as one writes it."""

    def __init__(self, root: str, transform: Any = None) -> None:
        self.x = numpy.load(f"{root}/x.npy", mmap_mode="r")
        self.y = numpy.load(f"{root}/y.npy")
        self.transform = transform

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, i: int) -> Any:
        if self.transform is None:
            return torch.from_numpy(self.x[i].copy()), int(self.y[i])
        from PIL import Image

        return self.transform(Image.fromarray(self.x[i])), int(self.y[i])


def torchs(dataset: Any) -> Iterator[int]:
    loader = torch.utils.data.DataLoader(
        dataset, BATCH, shuffle=True, num_workers=WORKERS, persistent_workers=True
    )
    while True:
        yield sum(len(y) for _, y in loader)


def tensors(root: str) -> Iterator[int]:
    arrays = [torch.from_numpy(numpy.load(f"{root}/{name}.npy")) for name in "xy"]
    return torchs(torch.utils.data.TensorDataset(*arrays))


def ours(dataset: Any, batch: int) -> Iterator[int]:
    import hdmlp.torch as ht

    with ht.DataLoader(dataset, batch, shuffle=True, seed=1, epochs=2, memory="1GB") as loader:
        while True:
            yield sum(len(y) for _, y in loader)


def arrays(root: str, transform: Any = None) -> Iterator[int]:
    import hdmlp.torch as ht

    images = {"images": "0", "transform": {"0": transform}} if transform else {}
    return ours(ht.Arrays((f"{root}/x.npy", f"{root}/y.npy"), **images), BATCH)


def loop(root: str) -> Iterator[int]:
    """nanoGPT's get_batch, over as many windows as the others take in an epoch."""
    count = (TOKENS - WINDOW - 1) // WINDOW + 1
    while True:
        for _ in range(count // WINDOWS):
            data = numpy.memmap(f"{root}/train.bin", dtype=numpy.uint16, mode="r")
            starts = torch.randint(len(data) - WINDOW, (WINDOWS,))
            for shift in (0, 1):
                torch.stack(
                    [
                        torch.from_numpy(data[i + shift : i + shift + WINDOW].astype(numpy.int64))
                        for i in starts
                    ]
                )
        yield count // WINDOWS * WINDOWS


def windows(root: str) -> Iterator[int]:
    import hdmlp.torch as ht

    data = ht.Arrays(f"{root}/train.bin", dtype="uint16", window=WINDOW)
    return ours(data, WINDOWS)


CONTENDERS: dict[str, dict[str, Callable[[str], Iterator[int]]]] = {
    "rows": {
        "HDMLP, ht.Arrays": arrays,
        "torch, TensorDataset, 2 workers": tensors,
        "torch, numpy.memmap, 2 workers": lambda root: torchs(Rows(root)),
    },
    "crop, flip, normalize": {
        "HDMLP, ht.Arrays(images=)": lambda root: arrays(root, recipe()),
        "torchvision on PIL images, 2 workers": lambda root: torchs(Rows(root, recipe())),
    },
    "windows of 1024 tokens": {
        "HDMLP, ht.Arrays(window=)": windows,
        "nanoGPT's loop over numpy.memmap": loop,
    },
}


def processor_time() -> float:
    """Seconds of this process, its descendants and the daemon that it started."""
    ticks, own = 0, {os.getpid()}
    stats = {}
    for path in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            head, _, rest = path.read_text().rpartition(")")
        except OSError:
            continue
        stats[int(path.parent.name)] = (head.partition("(")[2], rest.split())
    for pid in sorted(stats):  # parents come before their children, but for rare wraps
        if int(stats[pid][1][1]) in own:
            own.add(pid)
    for pid, (name, fields) in stats.items():
        if pid in own or (name == "hdmlp" and _is_ours(pid)):
            ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def _is_ours(pid: int) -> bool:
    try:
        environment = pathlib.Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return False
    return os.environb[b"HDMLP_SOCKET"] in environment


def measure(kind: str, name: str, root: str) -> dict[str, float]:
    torch.set_num_threads(1)
    epochs = CONTENDERS[kind][name](root)
    next(epochs)
    begin, used = time.perf_counter(), processor_time()
    samples = next(epochs)
    return {
        "time": (time.perf_counter() - begin) / samples * 1e6,
        "cpu": (processor_time() - used) / samples * 1e6,
    }


def main() -> None:
    if len(sys.argv) > 2:
        print(json.dumps(measure(*sys.argv[1:4])))
        return
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    found: dict[tuple[str, str], list[dict[str, float]]] = {}
    with tempfile.TemporaryDirectory(prefix="hdmlp-arrays-") as root:
        prepare(root)
        for number in range(rounds):
            for kind, contenders in CONTENDERS.items():
                for name in contenders:
                    socket = f"bench-arrays-{os.getpid()}-{number}"
                    done = subprocess.run(
                        [sys.executable, __file__, kind, name, root],
                        env={**os.environ, "HDMLP_SOCKET": socket, "HDMLP_LINGER": "0"},
                        stdout=subprocess.PIPE,
                        check=True,
                    )
                    found.setdefault((kind, name), []).append(json.loads(done.stdout))
    print(
        "| | us per sample | CPU us per sample | of HDMLP's: time, CPU |\n| --- | --- | --- | --- |"
    )
    for kind, contenders in CONTENDERS.items():
        base: list[float] = []
        for name in contenders:
            medians = [statistics.median(r[k] for r in found[kind, name]) for k in ("time", "cpu")]
            base = base or medians
            ratios = [f"{m / b:.2f}" for m, b in zip(medians, base)]
            print(f"| {kind}: {name} | {medians[0]:.1f} | {medians[1]:.1f} | {', '.join(ratios)} |")


if __name__ == "__main__":
    main()
