"""Datasets in an object store that is slow on purpose: HDMLP beside loaders that read S3 or HTTP.

The store is bench/objects: a bandwidth that all requests share, a latency, and a share of requests
that are late. It counts what it sends, so that what is read twice is seen.
"""

import os
from typing import Any

import newest
import record_data
import rounds
from object_server import BUCKET, ObjectServer
from records import RECORDS, Behind

from scenarios import Figures


class Stored(Behind):
    """JPEGs as objects, and as tar and MDS shards and litdata's chunks, behind a link."""

    key = "objects"
    shards, batch, epochs = 20, 32, 4
    megabits, latency, late, late_share = 400, 0.02, 0.5, 0.01
    bandwidth = megabits * 125_000
    contenders = [
        {
            "name": "webdataset over HTTP, 2 workers",
            "contender": "webdataset",
            "workers": 2,
            "python": newest.PEERS,
        },
        {
            "name": "mosaicml-streaming, 2 workers",
            "contender": "streaming",
            "workers": 2,
            "python": newest.PEERS,
        },
        {
            "name": "litdata, 2 workers",
            "contender": "litdata",
            "workers": 2,
            "python": newest.PEERS,
        },
        {
            "name": "torch's loader and s3torchconnector, 16 workers",
            "contender": "s3torchconnector",
            "workers": 16,
            "python": newest.PEERS,
        },
        {
            "name": "torch's loader and boto3, 16 workers",
            "contender": "boto3",
            "workers": 16,
            "python": newest.PEERS,
        },
        {"name": "HDMLP, objects", "source": "stored", "cached": 1.1, **RECORDS},
        {"name": "HDMLP, tar shards", "source": "shards", "cached": 1.1, **RECORDS},
        {"name": "HDMLP, tar shards, half cached", "source": "shards", "cached": 0.5, **RECORDS},
    ]
    columns = [
        *Behind.columns,
        ("requests", "requests/sample, epoch 0", "{:.3f}"),
        ("index", "index/dataset", "{:.4f}"),
    ]

    def prepare(self) -> None:
        super().prepare()
        self._versions = newest.peers(
            "torch", "webdataset", "mosaicml-streaming", "litdata", "s3torchconnector", "boto3"
        )
        self._tar, self._mds = f"{self._photos}-tar", f"{self._photos}-mds"
        self._of_tar = record_data.tar_shards(self._tar, self._photos, self.shards)
        limit = self._dataset["bytes"] // self.shards
        self._of_mds = record_data.mds_shards(self._mds, self._photos, limit)
        self._chunks = f"{self._photos}-litdata"
        self._of_chunks = record_data.litdata_chunks(self._chunks, self._photos, limit)
        self.title = (
            f"{self._samples:,} JPEGs, {self._dataset['bytes'] / 1e6:.0f} MB, in a store of "
            f"{self.megabits} Mbit/s and {self.latency * 1e3:.0f} ms, where "
            f"{self.late_share:.0%} of requests take {self.late * 1e3:.0f} ms longer, as objects "
            f"and as {self.shards} shards, "
            f"one rank, {self.epochs} epochs, batches of {self.batch}"
        )

    def _source(self, contender: dict[str, Any]) -> tuple[str, dict[str, Any]]:
        if contender["contender"] == "streaming":
            return self._mds, self._of_mds
        if contender["contender"] == "litdata":
            return self._chunks, self._of_chunks
        if contender["contender"] == "webdataset" or contender.get("source") == "shards":
            return self._tar, self._of_tar
        return self._photos, self._dataset

    def describe(self) -> Figures:
        return {**super().describe(), "versions": self._versions}

    def measure(self, contender: dict[str, Any]) -> dict[str, Any]:
        folder, found = self._source(contender)
        size = found["bytes"]
        spec = {
            "path": f"s3://{BUCKET}",
            "batch_size": self.batch,
            "epochs": self.epochs,
            "seed": 42,
            "step": self._step,
            "world_size": 1,
            "memory": int(contender["cached"] * size) if "cached" in contender else 0,
        }
        flags = {
            "latency": f"{self.latency}s",
            "late": f"{self.late}s",
            "late-share": str(self.late_share),
            "megabits": str(self.megabits),
        }
        with ObjectServer(folder, *(f"-{name}={value}" for name, value in flags.items())) as store:
            spec["plain"] = store.plain
            spec["names"] = sorted(name for name in os.listdir(folder) if name.endswith(".tar"))
            os.environ.update(store.environment(), S3_ENDPOINT_URL=store.url)
            result = rounds.run(contender, spec, store)
            counts = store.counts()
        result["figures"] = self._figures(result, size)
        first = result["source"][0]
        result["figures"]["requests"] = first["opens"] / self._samples
        result["figures"]["index"] = counts["bytes"] / size - result["source"][-1]["bytes"] / size
        return result


def all_stored(quick: bool) -> list[Stored]:
    """The scenarios with an object store."""
    return [Stored(400 if quick else 2000)]
