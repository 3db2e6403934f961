"""Datasets that are no folders: what finding their records costs, and how fast they are delivered.

Beside webdataset and mosaicml-streaming on the same data, and beside what the work at least takes:
the decoders, a copy in memory, the bytes of the dataset.
"""

import json
import os
import secrets
import subprocess
import tempfile
from typing import Any

import make_dataset
import newest
import record_data
import rounds
from throttled import Throttled

from scenarios import DATA, Figures, Scenario

_HERE = os.path.dirname(os.path.abspath(__file__))

OURS = {"contender": "framework", "python": newest.PYTHON}

#: HDMLP, in the newest environment; "source": one of record_loaders.py.
RECORDS = {"contender": "records", "python": newest.PYTHON}


class Index(Scenario):
    """The index of tar shards: found, and read again. Pages of the shards are forgotten before.

    Args:
        shards, samples: how many shards, and of how many samples each: two members per sample.
    """

    key = "records/index"
    contenders = [
        {"name": "index found", **OURS},
        {"name": "index found, shards in the page cache", "cached": True, **OURS},
        {"name": "index known", "known": True, **OURS},
        {"name": "a page per sample, in one thread", "alone": True, **OURS},
    ]
    columns = [
        ("device", "bytes from disk/member", "{:,.0f}"),
        ("asked", "bytes asked/member", "{:,.0f}"),
        ("cpu", "CPU us/member", "{:.2f}"),
        ("daemon", "daemon's", "{:.2f}"),
        ("seconds", "seconds", "{:.2f}"),
        ("share", "disk/shards", "{:.1%}"),
    ]

    def __init__(self, shards: int, samples: int) -> None:
        self._shards, self._samples = shards, samples
        self._path = os.path.join(DATA, f"members-{shards}x{samples}")
        self._warming = os.path.join(DATA, "members-1x10")

    def prepare(self) -> None:
        self._versions = newest.versions("torch")
        self._dataset = record_data.many_members(self._path, self._shards, self._samples, 25_000)
        record_data.many_members(self._warming, 1, 10, 1000)
        self.title = (
            f"the index of {self._shards} tar shards with {self._dataset['members']:,} members, "
            f"{self._dataset['bytes'] / 1e6:.0f} MB"
        )

    def describe(self) -> Figures:
        return {"dataset": self._dataset, "versions": self._versions}

    def measure(self, contender: dict[str, Any]) -> dict[str, Any]:
        watch = rounds.Watch()
        if "alone" in contender:
            found = record_data.read_pages(self._path, self._samples)
            return self._round(contender, watch, found)
        with tempfile.TemporaryDirectory(prefix="hdmlp-bench-") as index:
            if "known" in contender:
                open_shards(self._path, index, self._warming)
            if "cached" in contender:
                record_data.into_page_cache(self._path)
            else:
                record_data.forget_pages(self._path)
            found = open_shards(self._path, index, self._warming)
        assert found["samples"] == self._dataset["members"] / 2
        return self._round(contender, watch, found)

    def _round(
        self, contender: dict[str, Any], watch: rounds.Watch, found: dict[str, float]
    ) -> dict[str, Any]:
        members = self._dataset["members"]
        cpu = found["python"] + found["daemon"]
        figures = {
            "device": found["device"] / members,
            "asked": found["asked"] / members,
            "cpu": cpu / members * 1e6,
            "daemon": found["daemon"] / members * 1e6,
            "seconds": found["clock"],
            "share": found["device"] / self._dataset["bytes"],
        }
        return {
            "contender": contender,
            "figures": figures,
            "ranks": [{}],
            "errors": [],
            **watch.shares(cpu),
        }

    def conclusions(self, medians: dict[str, Figures]) -> list[str]:
        return [
            f"{name}: {figures['device']:,.0f} bytes from the disk and {figures['cpu']:.2f} us of "
            "processors per member (wanted: at most 4,096 and 3)"
            for name, figures in medians.items()
        ]


def open_shards(path: str, index: str, *arguments: str) -> dict[str, Any]:
    """Opens tar shards in a process of its own, with an index in a directory, and returns what
    record_index.py measured."""
    done = subprocess.run(
        [newest.PYTHON, os.path.join(_HERE, "record_index.py"), path, *arguments],
        capture_output=True,
        text=True,
        env={
            **os.environ,
            "HDMLP_SOCKET": f"hdmlp-bench-{secrets.token_hex(8)}",
            "HDMLP_INDEX_DIR": index,
            "HDMLP_LINGER": "2s",
            "PYTHONPATH": os.path.join(os.path.dirname(_HERE), "python"),
            "OMP_NUM_THREADS": "1",
        },
    )
    if done.returncode:
        raise rounds.RoundFailed(f"opening {path} failed:\n{done.stderr[-4000:]}")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


class Device(Scenario):
    """What the disk reads for samples that are read at random, where the kernel caches none.

    Args:
        shards, samples: as for :class:`Index`.
        part: one in so many samples is read, as by one of so many nodes.
    """

    key = "records/device"
    contenders = [
        {"name": "samples of 25 KB", "size": 25_000, **OURS},
        {"name": "samples of 2.5 KB", "size": 2_500, **OURS},
    ]
    columns = [
        ("device", "bytes from disk/sample's", "{:.3f}"),
        ("asked", "asked/sample's", "{:.3f}"),
        ("cpu", "CPU/sample", "{:.0f} us"),
    ]

    def __init__(self, shards: int, samples: int, part: int) -> None:
        self._shards, self._samples, self._part = shards, samples, part

    def _path(self, size: int) -> str:
        return os.path.join(DATA, f"members-{self._shards}x{self._samples}-{size}")

    def prepare(self) -> None:
        self._versions = newest.versions("torch")
        for contender in self.contenders:
            size = contender["size"]
            record_data.many_members(self._path(size), self._shards, self._samples, size)
        self.title = (
            f"one in {self._part} samples of {self._shards} tar shards with {self._samples:,} "
            "samples each, shuffled, cold"
        )

    def describe(self) -> Figures:
        return {"versions": self._versions}

    def measure(self, contender: dict[str, Any]) -> dict[str, Any]:
        watch = rounds.Watch()
        with tempfile.TemporaryDirectory(prefix="hdmlp-bench-") as index:
            found = open_shards(self._path(contender["size"]), index, str(self._part))
        cpu = found["python"] + found["daemon"]
        figures = {
            "device": found["device"] / found["payload"],
            "asked": found["asked"] / found["payload"],
            "cpu": cpu / (found["samples"] // self._part) * 1e6,
        }
        return {
            "contender": contender,
            "figures": figures,
            "ranks": [{}],
            "errors": [],
            **watch.shares(cpu),
        }


class Behind(Scenario):
    """One rank whose data is behind a throttled mount; a step takes a quarter of the time in which
    the source delivers a batch.

    Args:
        samples: how many photos there are.
    """

    bandwidth, latency, batch = 40_000_000, 0.002, 64
    epochs = 3
    columns = [
        ("total", "all epochs", "{:.2f} s"),
        ("epoch0", "epoch 0/throttle", "{:.3f}"),
        ("later", "later epochs", "{:.3f} s"),
        ("stall0", "stall, epoch 0", "{:.3f} s"),
        ("stall", "stall, later", "{:.4f} s"),
        ("share", "bytes/dataset", "{:.4f}"),
        ("later_share", "later bytes/dataset", "{:.3f}"),
        ("cpu0", "CPU/sample, epoch 0", "{:.0f} us"),
        ("cpu", "later", "{:.1f} us"),
        ("start", "start", "{:.3f} s"),
    ]

    def __init__(self, samples: int) -> None:
        self._samples = samples
        self._photos = os.path.join(DATA, f"photos-{samples}")
        self._sources: dict[str, tuple[str, dict[str, Any]]] = {}

    def prepare(self) -> None:
        self._dataset = make_dataset.make("photos", self._photos, self._samples)
        size = self._dataset["bytes"]
        self._step = self.batch * size / self._samples / (4 * self.bandwidth)
        self.title = (
            f"{self._samples:,} JPEGs, {size / 1e6:.0f} MB, behind a mount of "
            f"{self.bandwidth / 1e6:.0f} MB/s and {self.latency * 1e3:.0f} ms per open, one rank, "
            f"{self.epochs} epochs, batches of {self.batch}, a step of {self._step * 1e3:.1f} ms "
            "emulated by sleep"
        )

    def _source(self, contender: dict[str, Any]) -> tuple[str, dict[str, Any]]:
        """The directory of a contender's data, and what that has: `bytes`."""
        return self._photos, self._dataset

    def describe(self) -> Figures:
        return {
            "dataset": self._dataset,
            "step": self._step,
            "bandwidth": self.bandwidth,
            "latency": self.latency,
        }

    def measure(self, contender: dict[str, Any]) -> dict[str, Any]:
        folder, found = self._source(contender)
        size = found["bytes"]
        spec = {
            "batch_size": self.batch,
            "epochs": self.epochs,
            "seed": 42,
            "step": self._step,
            "world_size": 1,
            "memory": int(contender["cached"] * size) if "cached" in contender else 0,
        }
        with (
            Throttled(folder, self.bandwidth, self.latency) as mount,
            tempfile.TemporaryDirectory(prefix="hdmlp-bench-") as index,
        ):
            spec["path"] = mount.path
            if "known" in contender:
                spec["index"] = index
                open_shards(mount.path, index)
            result = rounds.run(contender, spec, mount)
        result["figures"] = self._figures(result, size)
        return result

    def _figures(self, result: dict[str, Any], size: int) -> Figures:
        rank = result["ranks"][0]
        first, *later = rank["epochs"]
        walls = [epoch["end"] - epoch["begin"] for epoch in rank["epochs"]]
        read = [source["bytes"] for source in result["source"]]
        count = len(later)
        return {
            "total": rank["end"] - rank["begin"],
            "epoch0": walls[0] / (size / self.bandwidth),
            "later": sum(walls[1:]) / count,
            "stall0": first["stall"],
            "stall": sum(epoch["stall"] for epoch in later) / count,
            "share": read[-1] / size,
            "later_share": (read[-1] - read[0]) / size / count,
            "cpu0": (first["cpu"] - rank["before"]["cpu"]) / first["samples"] * 1e6,
            "cpu": (later[-1]["cpu"] - first["cpu"]) / sum(e["samples"] for e in later) * 1e6,
            "start": rank["start"],
            "utilisation": sum(e["compute"] for e in later) / sum(walls[1:]),
        }

    def conclusions(self, medians: dict[str, Figures]) -> list[str]:
        return [
            f"{name}: {row['share']:.4f} of the dataset's bytes were read, the first epoch took "
            f"{row['epoch0']:.3f} of what the throttle allows, and later ones were utilised to "
            f"{row['utilisation']:.1%}"
            for name, row in medians.items()
        ]


class Shards(Behind):
    """The same photos as tar and MDS shards."""

    key = "records/shards"
    shards = 20
    contenders = [
        {
            "name": "webdataset, 2 workers",
            "contender": "webdataset",
            "workers": 2,
            "python": newest.PEERS,
        },
        {
            "name": "webdataset, 2 workers, cache_dir",
            "contender": "webdataset",
            "workers": 2,
            "copies": True,
            "python": newest.PEERS,
        },
        {
            "name": "mosaicml-streaming, 2 workers",
            "contender": "streaming",
            "workers": 2,
            "python": newest.PEERS,
        },
        {"name": "HDMLP, half cached", "source": "shards", "cached": 0.5, **RECORDS},
        {"name": "HDMLP, all cached", "source": "shards", "cached": 1.1, **RECORDS},
        {
            "name": "HDMLP, all cached, index known",
            "source": "shards",
            "cached": 1.1,
            "known": True,
            **RECORDS,
        },
    ]

    def prepare(self) -> None:
        super().prepare()
        self._versions = newest.peers("torch", "webdataset", "mosaicml-streaming")
        self._tar = f"{self._photos}-tar"
        self._mds = f"{self._photos}-mds"
        self._of_tar = record_data.tar_shards(self._tar, self._photos, self.shards)
        limit = self._dataset["bytes"] // self.shards
        self._of_mds = record_data.mds_shards(self._mds, self._photos, limit)
        self.title += f", as {self.shards} shards"

    def _source(self, contender: dict[str, Any]) -> tuple[str, dict[str, Any]]:
        if contender["contender"] == "streaming":
            return self._mds, self._of_mds
        return self._tar, self._of_tar

    def describe(self) -> Figures:
        return {**super().describe(), "versions": self._versions}


class Sources(Behind):
    """The same photos as files: by a list, and in datasets of one's own."""

    key = "records/sources"
    contenders = [
        {
            "name": "torch's loader, 2 workers",
            "contender": "own",
            "source": "files",
            "workers": 2,
            "python": newest.PYTHON,
        },
        {"name": "Files", "source": "files", "cached": 1.1, **RECORDS},
        {"name": "FileDataset", "source": "FileDataset", "cached": 1.1, **RECORDS},
        {"name": "files=", "source": "declared", "cached": 1.1, **RECORDS},
        {
            "name": "files=, 2 workers",
            "source": "declared",
            "cached": 1.1,
            "num_workers": 2,
            **RECORDS,
        },
    ]


class Warm(Scenario):
    """Everything in memory, one rank. A contender is compared with a bound, which is the sum of
    others: what its work takes alone.

    Attributes:
        bounds: the contenders of which a contender's bound is the sum, by its name.
        data: of the spec: where the data is.
    """

    epochs, batch = 6, 32
    columns = [
        ("cpu", "CPU/item", "{:,.0f} us"),
        ("wall", "time/item", "{:,.0f} us"),
        ("first", "first epoch", "{:.3f} s"),
    ]
    bounds: dict[str, list[str]] = {}
    data: dict[str, Any] = {}

    def measure(self, contender: dict[str, Any]) -> dict[str, Any]:
        spec = {
            **self.data,
            "batch_size": self.batch,
            "epochs": self.epochs,
            "seed": 42,
            "step": 0.0,
            "world_size": 1,
            "memory": int(1.2 * self._size * contender.get("copies", 1)),
        }
        result = rounds.run(contender, spec)
        epochs = result["ranks"][0]["epochs"]
        half = self.epochs // 2
        later = epochs[half:]
        items = sum(epoch["samples"] for epoch in later)
        result["figures"] = {
            "cpu": (epochs[-1]["cpu"] - epochs[half - 1]["cpu"]) / items * 1e6,
            "wall": sum(e["end"] - e["begin"] for e in later) / items * 1e6,
            "first": epochs[0]["end"] - epochs[0]["begin"],
        }
        return result

    def conclusions(self, medians: dict[str, Figures]) -> list[str]:
        said = []
        for name, parts in self.bounds.items():
            if {name, *parts} <= medians.keys():
                ratios = [
                    sum(medians[part][key] for part in parts) / medians[name][key]
                    for key in ("cpu", "wall")
                ]
                said.append(
                    f"{name}: {ratios[0]:.2f} of the speed of {' + '.join(parts)} by processor "
                    f"time, {ratios[1]:.2f} by time"
                )
        return said


class Pairs(Warm):
    """Image and mask, and pairs of images."""

    key = "records/pairs"
    contenders = [
        {"name": "one image, HDMLP", "source": "one image", **RECORDS},
        {"name": "two images, HDMLP", "source": "two images", "copies": 2, **RECORDS},
        {
            "name": "mask decoded in one process",
            "contender": "decoding",
            "source": "masks",
            "python": newest.PYTHON,
        },
        {
            "name": "image and mask decoded in one process",
            "contender": "decoding",
            "source": "pairs",
            "python": newest.PYTHON,
        },
        {
            "name": "image and mask, torch's loader, 2 workers",
            "contender": "own",
            "source": "pairs",
            "workers": 2,
            "python": newest.PYTHON,
        },
        {"name": "image and mask, HDMLP", "source": "pairs", **RECORDS},
    ]
    bounds = {
        "two images, HDMLP": ["one image, HDMLP", "one image, HDMLP"],
        "image and mask, torch's loader, 2 workers": ["image and mask decoded in one process"],
        "image and mask, HDMLP": ["one image, HDMLP", "mask decoded in one process"],
    }

    def __init__(self, samples: int) -> None:
        self._samples = samples
        self._path = os.path.join(DATA, f"photos-{samples}")

    def prepare(self) -> None:
        self._versions = newest.versions("torch", "torchvision", "pillow")
        photos = make_dataset.make("photos", self._path, self._samples)
        masks = record_data.masks(f"{self._path}-masks", self._path)
        self.data = {"path": self._path, "masks": f"{self._path}-masks"}
        self._size = photos["bytes"] + masks["bytes"]
        self.title = (
            f"{self._samples:,} JPEGs of 500x375 with masks, Resize(256), CenterCrop(224) and "
            f"ToTensor of the images, batches of {self.batch}, warm"
        )

    def describe(self) -> Figures:
        return {"bytes": self._size, "versions": self._versions}


class Segmentation(Pairs):
    """Image and mask with one list of v2's transforms, of which the daemon carries out all."""

    key = "records/segmentation"
    contenders = [
        {
            "name": "image and mask, in one process",
            "contender": "decoding",
            "source": "segmentation",
            "python": newest.PYTHON,
        },
        {
            "name": "image and mask, torch's loader, 2 workers",
            "contender": "own",
            "source": "segmentation",
            "workers": 2,
            "python": newest.PYTHON,
        },
        {"name": "image and mask, HDMLP", "source": "segmentation", **RECORDS},
    ]
    bounds = {
        "image and mask, torch's loader, 2 workers": ["image and mask, in one process"],
        "image and mask, HDMLP": ["image and mask, torch's loader, 2 workers"],
    }

    def prepare(self) -> None:
        super().prepare()
        self.title = (
            f"{self._samples:,} JPEGs of 500x375 with masks, RandomResizedCrop(224), flip, ToDtype "
            f"and Normalize of v2 for both, batches of {self.batch}, warm"
        )


class Volumes(Warm):
    """`.npy` volumes, which become a batch's tensor."""

    key = "records/volumes"
    batch = 4
    contenders = [
        {
            "name": "one copy in memory",
            "contender": "copy",
            "source": "volumes",
            "python": newest.PYTHON,
        },
        {
            "name": "torch's loader, in the process",
            "contender": "own",
            "source": "volumes",
            "workers": 0,
            "python": newest.PYTHON,
        },
        {"name": "HDMLP", "source": "volumes", **RECORDS},
    ]
    bounds = {
        "torch's loader, in the process": ["one copy in memory"],
        "HDMLP": ["one copy in memory"],
    }

    def __init__(self, count: int) -> None:
        self._count = count

    def prepare(self) -> None:
        self._versions = newest.versions("torch", "numpy")
        path = os.path.join(DATA, f"volumes-{self._count}")
        self._size = record_data.volumes(path, self._count)["bytes"]
        record_data.into_page_cache(path)
        self.data = {"path": path}
        self.title = (
            f"{self._count} volumes of 4 x 128 x 128 x 128 uint16, batches of {self.batch}, warm"
        )

    def describe(self) -> Figures:
        return {"bytes": self._size, "versions": self._versions}


def all_records(quick: bool) -> list[Scenario]:
    """The scenarios."""
    samples = 200 if quick else 1200
    return [
        Index(*((10, 50) if quick else (100, 500))),
        Device(*((10, 50) if quick else (100, 500)), 3),
        Shards(samples),
        Sources(samples),
        Pairs(100 if quick else 300),
        Segmentation(100 if quick else 300),
        Volumes(8 if quick else 24),
    ]
