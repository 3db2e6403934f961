"""A search with Ray Tune, end to end: figures 22 and 23 of CoorDL, scaled down.

All trials train at the same time, each in a process of its own, with a learning rate of its own,
and to the end: no scheduler stops any, so that all contenders do the same work. The net is small,
so that what the loaders cost is seen. With torch's loader each trial reads and prepares all images;
with HDMLP's, trials share what is prepared once (`share=`), and MinIO keeps a part of what is read.

- (search/memory), figure 22: images in memory, by the number of trials.
- (search/ssd, search/hdd), figure 23: images on a throttled mount, and memory for 75 % of them.
  Torch's loader has no page cache in front of the mount, which the paper's had.
"""

import json
import os
import secrets
import subprocess
import sys
import tempfile
from typing import Any, Optional

import make_dataset
import newest
import rounds
from throttled import Throttled

from scenarios import DATA, Figures, Scenario, into_page_cache

TORCH, SHARED, MINIO = "torch", "coordinated prep", "coordinated prep, MinIO"

_ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

#: What memory holds of the dataset.
CACHED = 0.75
BATCH = 32

#: Bytes per second of a source, and seconds for each read.
SSD, HDD = (500_000_000, 0.0), (5_000_000, 0.0)


def named(kind: str, trials: int) -> str:
    return f"{trials} trials, {kind}"


class Search(Scenario):
    """A contender is a loader and a number of trials.

    Args:
        key: The scenario's.
        samples: How many images there are.
        epochs: How many each trial trains.
        trials: The numbers of trials.
        kinds: The loaders.
        source: Bytes per second, and seconds for each read; None: the images are in memory.
    """

    columns = [
        ("search", "search", "{:.1f} s"),
        ("training", "of this training", "{:.1f} s"),
        ("later", "later epochs", "{:.2f} s"),
        ("source", "read", "{:.2f} datasets"),
    ]

    def __init__(
        self,
        key: str,
        samples: int,
        epochs: int,
        trials: tuple[int, ...],
        kinds: tuple[str, ...],
        source: Optional[tuple[float, float]],
    ) -> None:
        self.key, self._samples, self._epochs, self._source = key, samples, epochs, source
        self.contenders = [
            {"name": named(kind, count), "contender": "hdmlp", "kind": kind, "trials": count}
            for count in trials
            for kind in kinds
        ]
        self._path = os.path.join(DATA, f"photos-{samples}")

    def prepare(self) -> None:
        self._versions = newest.versions("torch", "torchvision", "ray")
        self._dataset = make_dataset.make("photos", self._path, self._samples)
        where = (
            f"from a source of {self._source[0] / 1e6:.0f} MB/s" if self._source else "in memory"
        )
        self.title = f"a search with Ray Tune: {self._epochs} epochs of {self._samples:,} JPEGs, "
        self.title += f"{where}, batches of {BATCH}"
        into_page_cache(self._path)

    def describe(self) -> Figures:
        return {"versions": self._versions, "dataset": self._dataset, "epochs": self._epochs}

    def measure(self, contender: dict[str, Any]) -> dict[str, Any]:
        if self._source is None:
            return self._run(contender, self._path, 0)
        with Throttled(self._path, *self._source) as mount:
            result = self._run(contender, mount.path, int(CACHED * self._dataset["bytes"]))
            read = mount.counters()["bytes"]
        result["figures"]["source"] = read / self._dataset["bytes"]
        return result

    def _run(self, contender: dict[str, Any], path: str, memory: int) -> dict[str, Any]:
        watch = rounds.Watch()
        before = os.times()
        kind = contender["kind"]
        keys: dict[str, Any] = {}
        if kind != TORCH:
            keys = {"share": "search", "share_members": contender["trials"], "policy": "staging"}
        if kind == MINIO or (keys and not memory):
            keys |= {"policy": "minio", "memory": memory or int(1.1 * self._dataset["bytes"])}
        given = {"path": path, "trials": contender["trials"], "epochs": self._epochs, "keys": keys}
        with tempfile.TemporaryDirectory(prefix="hdmlp-bench-") as scratch:
            done = subprocess.run(
                [newest.PYTHON, __file__, json.dumps({**given, "scratch": scratch})],
                capture_output=True,
                text=True,
                env={
                    **os.environ,
                    "PYTHONPATH": os.path.join(_ROOT, "python"),
                    "OMP_NUM_THREADS": "1",
                    "HDMLP_SOCKET": f"hdmlp-bench-{secrets.token_hex(8)}",
                    "HDMLP_INDEX_DIR": os.path.join(scratch, "index"),
                },
            )
        if done.returncode:
            raise rounds.RoundFailed(f"{contender['name']} ended:\n{done.stderr[-4000:]}")
        found = json.loads(done.stdout.splitlines()[-1])
        after = os.times()
        begin = max(trial[0] for trial in found["trials"])
        ends = [max(at) for at in zip(*(trial[1:] for trial in found["trials"]))]
        return {
            "contender": contender,
            "figures": {
                "search": found["search"],
                "training": ends[-1] - begin,
                "later": (ends[-1] - ends[0]) / (self._epochs - 1),
                "source": 0.0,
            },
            "trials": found["trials"],
            "ranks": [{}],
            "errors": [],
            **watch.shares(sum(after[2:4]) - sum(before[2:4])),
        }

    def conclusions(self, medians: dict[str, Figures]) -> list[str]:
        said = []
        for contender in self.contenders:
            theirs = medians.get(named(TORCH, contender["trials"]))
            ours = medians.get(contender["name"])
            if contender["kind"] != TORCH and ours and theirs:
                said.append(
                    f"{contender['name']}: {theirs['search'] / ours['search']:.2f} times as fast "
                    f"as with torch's loader, {theirs['training'] / ours['training']:.2f} without "
                    f"the start of the trials, {theirs['later'] / ours['later']:.2f} in later "
                    "epochs"
                )
        return said


def all_searches(quick: bool) -> list[Scenario]:
    samples, epochs = (100, 2) if quick else (300, 4)
    return [
        Search("search/memory", samples, epochs, (4, 8), (TORCH, SHARED), None),
        Search("search/ssd", samples, epochs, (4,), (TORCH, SHARED, MINIO), SSD),
        Search("search/hdd", samples, epochs, (4,), (TORCH, SHARED, MINIO), HDD),
    ]


# In processes of their own.


def train(config: dict[str, Any]) -> None:
    """A trial: reports when it begins to train, and when each epoch ends."""
    import time

    import torch
    from ray import tune
    from torchvision import datasets, transforms

    torch.set_num_threads(1)
    steps = transforms.Compose(
        [
            transforms.RandomResizedCrop(224),
            transforms.RandomHorizontalFlip(),
            transforms.ToTensor(),
        ]
    )
    loader: Any
    if config["keys"]:
        import hdmlp.torch

        folder = hdmlp.torch.ImageFolder(config["path"], steps)
        order = {"shuffle": True, "seed": 42, "epochs": config["epochs"]}
        loader = hdmlp.torch.DataLoader(folder, BATCH, **order, **config["keys"])
    else:
        images = datasets.ImageFolder(config["path"], steps)
        loader = torch.utils.data.DataLoader(images, BATCH, shuffle=True)
    net = torch.nn.Sequential(
        torch.nn.AdaptiveAvgPool2d(4), torch.nn.Flatten(), torch.nn.LazyLinear(1000)
    )
    optimizer, times = None, [time.time()]
    loss = torch.zeros(())
    for _ in range(config["epochs"]):
        for inputs, labels in loader:
            loss = torch.nn.functional.cross_entropy(net(inputs), labels)
            if optimizer is None:  # the net is lazy until now
                optimizer = torch.optim.SGD(net.parameters(), config["rate"])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        times.append(time.time())
    tune.report({"loss": loss.item(), "times": times})


def main(given: dict[str, Any]) -> dict[str, Any]:
    """How long a search took, and the times of each trial."""
    import time

    import ray
    from ray import tune

    # Started here: Ray kills what a trial has started.
    binary = os.path.join(_ROOT, "python", "hdmlp", "bin", "hdmlp")
    daemon = subprocess.Popen([binary, "serve", "--set", "linger=10m"], stderr=subprocess.DEVNULL)
    try:
        ray.init("local", num_cpus=given["trials"], include_dashboard=False, logging_level="error")
        begin = time.perf_counter()
        results = tune.Tuner(
            train,
            param_space={
                **{key: given[key] for key in ("path", "epochs", "keys")},
                "rate": tune.loguniform(1e-4, 1e-1),
            },
            tune_config=tune.TuneConfig(metric="loss", mode="min", num_samples=given["trials"]),
            run_config=tune.RunConfig(storage_path=given["scratch"], verbose=0),
        ).fit()
        took = time.perf_counter() - begin
        times = [result.metrics["times"] for result in results]
        ray.shutdown()
    finally:
        daemon.terminate()
        daemon.wait()
    return {"search": took, "trials": times}


if __name__ == "__main__":
    print(json.dumps(main(json.loads(sys.argv[1]))))
