"""Hugging Face's datasets: what a sample costs by ``datasets`` in torch's loader, and by HDMLP.

Both read the same Arrow files, from the page cache, in one process after another: ``datasets`` with
2 workers, HDMLP with its daemon. Processor seconds are those of the process, of its workers and of
the daemon.
"""

import argparse
import gc
import json
import os
import secrets
import statistics
import subprocess
import sys
import tempfile
from collections import deque
from typing import Any, Callable

import make_dataset
import newest
import own_items
import rounds

from scenarios import DATA, Figures, Scenario

#: Bytes of a photo, on average.
MEAN = 30_000


class HuggingFace(Scenario):
    """A contender is what is made of images, and in which order.

    Args:
        images: how many photos there are.
        cropped: how many of them are decoded and cropped.
        epochs: of each loader.
    """

    key = "hf"
    contenders = [
        {"name": "bytes, in order", "case": "order", "contender": "framework"},
        {"name": "bytes, shuffled", "case": "shuffled", "contender": "framework"},
        {"name": "RandomResizedCrop(224), flip, float32", "case": "crop", "contender": "framework"},
    ]
    columns = [
        ("theirs0", "datasets, CPU us/sample, epoch 1", "{:,.0f}"),
        ("ours0", "HDMLP", "{:,.1f}"),
        ("theirs", "later: datasets", "{:,.0f}"),
        ("ours", "HDMLP", "{:,.1f}"),
        ("first", "HDMLP/datasets, epoch 1", "{:.3f}"),
        ("later", "later", "{:.3f}"),
    ]

    def __init__(self, images: int, cropped: int, epochs: int) -> None:
        self._images, self._cropped, self._epochs = images, cropped, epochs
        self._photos = os.path.join(DATA, f"photos-{images}-{MEAN}")
        self._saved = os.path.join(DATA, f"hf-{images}-{MEAN}")

    def prepare(self) -> None:
        self._versions = newest.versions("torch", "torchvision", "datasets", "pyarrow")
        self._dataset = make_dataset.make("photos", self._photos, self._images, MEAN)
        if not os.path.exists(self._saved):
            self._run("save", self._photos, self._saved)
        self.title = (
            f"{self._images:,} JPEGs of {MEAN / 1e3:.0f} KB in Arrow files, {self._cropped:,} "
            f"where they are cropped; {self._epochs} epochs, batches of 64"
        )

    def describe(self) -> Figures:
        return {"versions": self._versions, "dataset": self._dataset}

    def _run(self, *words: object) -> str:
        done = subprocess.run(
            [newest.PYTHON, __file__, *map(str, words)],
            capture_output=True,
            text=True,
            env={
                **os.environ,
                "PYTHONPATH": os.path.join(os.path.dirname(os.path.dirname(__file__)), "python"),
                "HDMLP_SOCKET": f"hdmlp-bench-{secrets.token_hex(8)}",
                "HDMLP_LINGER": "2s",
                "OMP_NUM_THREADS": "1",
                "HF_HUB_OFFLINE": "1",
            },
        )
        if done.returncode:
            raise rounds.RoundFailed(f"{words} ended:\n{done.stderr[-4000:]}")
        return done.stdout

    def measure(self, contender: dict[str, Any]) -> dict[str, Any]:
        watch = rounds.Watch()
        begin = os.times()
        count = self._cropped if contender["case"] == "crop" else self._images
        found = json.loads(self._run(contender["case"], self._saved, count, self._epochs))
        end = os.times()
        figures = {}
        for who in ("theirs", "ours"):
            figures[f"{who}0"], *later = found[who]
            figures[who] = statistics.median(later)
        figures["first"] = figures["ours0"] / figures["theirs0"]
        figures["later"] = figures["ours"] / figures["theirs"]
        return {
            "contender": contender,
            "figures": figures,
            "ranks": [{}],
            "errors": [],
            **watch.shares(sum(end[2:4]) - sum(begin[2:4])),
        }

    def conclusions(self, medians: dict[str, Figures]) -> list[str]:
        return [
            f"{name}: {row['first']:.3f} of the processor time of datasets in the first epoch, "
            f"{row['later']:.3f} later"
            for name, row in medians.items()
        ]


def all_hugging_face(quick: bool) -> list[Scenario]:
    return [HuggingFace(500, 100, 2) if quick else HuggingFace(4000, 1000, 4)]


# In a process of its own.


def save(photos: str, out: str) -> None:
    """Writes a folder of photos as a dataset."""
    import datasets

    datasets.disable_progress_bars()
    with tempfile.TemporaryDirectory() as cache:
        data = datasets.load_dataset("imagefolder", data_dir=photos, split="train", cache_dir=cache)
        data.save_to_disk(f"{out}.unfinished")
    os.rename(f"{out}.unfinished", out)


def steps() -> list[Any]:
    import torch
    from torchvision.transforms import v2

    return [
        v2.RandomResizedCrop(224),
        v2.RandomHorizontalFlip(),
        v2.PILToTensor(),
        v2.ToDtype(torch.float32, scale=True),
    ]


def costs(make: Callable[[], Any], epochs: int, count: int) -> list[float]:
    """Microseconds of processors per sample, by epoch; the first one with making the loader."""
    import loaders

    gc.collect()
    daemon, found = loaders.daemon(), []
    before = spent(daemon)
    loader = make()
    for _ in range(epochs):
        deque(loader, 0)
        found.append((spent(daemon) - before) / count * 1e6)
        gc.collect()
        before = spent(daemon)
    return found


def spent(daemon: Any) -> float:
    """Processor seconds of this process, of its workers that have ended, and of the daemon."""
    import record_index

    return own_items.spent() + (record_index.scheduled(daemon) if daemon else 0)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("case", choices=("save", "order", "shuffled", "crop"))
    parser.add_argument("paths", nargs="+")
    given = parser.parse_args()
    if given.case == "save":
        save(*given.paths)
        return
    import datasets
    import hdmlp.torch as ht
    import torch
    from torch.utils.data import DataLoader
    from torchvision.transforms import v2

    torch.set_num_threads(1)
    path, count, epochs = given.paths[0], int(given.paths[1]), int(given.paths[2])
    data = datasets.load_from_disk(path)
    if given.case != "order":
        data = data.shuffle(seed=1)
    data = data.select(range(count))
    if given.case == "crop":
        transform = v2.Compose(steps())
        theirs = data.with_transform(
            lambda batch: {**batch, "image": [transform(image) for image in batch["image"]]}
        )

        def wrapped() -> Any:
            return ht.HFDataset(data, transform={"image": steps()})
    else:
        theirs = data.cast_column("image", datasets.Image(decode=False))

        def wrapped() -> Any:
            return ht.HFDataset(theirs)

    shuffle = given.case != "order"
    options = {"batch_size": 64, "shuffle": shuffle}
    # Neither the daemon's start nor imports count. It stays while this loader is open.
    with ht.DataLoader(ht.HFDataset(data.select(range(64)), steps()), 8) as warming:
        deque(warming, 0)
        deque(DataLoader(theirs.select(range(64)), 8), 0)
        found = {
            "theirs": costs(lambda: DataLoader(theirs, **options, num_workers=2), epochs, count),
            "ours": costs(
                lambda: ht.DataLoader(wrapped(), **options, seed=1, epochs=epochs), epochs, count
            ),
        }
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
