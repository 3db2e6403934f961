"""One rank of the demo: trains a small network on images that a loader brings.

With torch: a convolutional network under DistributedDataParallel. Without: a softmax
regression on histograms of edge directions, in numpy. Both learn from their own
data alone, and both can be right about stripes.

The accelerator is emulated: a training step is really computed, and then lasts until
`step` seconds are over, as if something faster than this machine's processors had been
busy for that long.
"""

import contextlib
import io
import multiprocessing
import os
import random
import time
from collections.abc import Iterator
from typing import Any

import numpy
from PIL import Image

try:
    if os.environ.get("DEMO_CONSUMER") == "numpy":
        raise ImportError("DEMO_CONSUMER=numpy")
    import torch
    import torch.distributed
    import torch.utils.data
    import torchvision.datasets
    import torchvision.transforms as transforms

    WITHOUT_TORCH = ""
except ImportError as error:
    WITHOUT_TORCH = str(error)

#: What a rank trains on: crops of this many pixels.
CROP = 96
CLASSES = 10


class TorchTrainer:
    """A network of two convolutions. Its gradients are averaged over the ranks by DDP."""

    def __init__(self, spec: dict[str, Any], exchange: Any) -> None:
        torch.set_num_threads(1)
        torch.manual_seed(spec["seed"])
        if not torch.distributed.is_initialized():
            torch.distributed.init_process_group(
                "gloo", rank=spec["rank"], world_size=spec["world_size"]
            )
        self._network = torch.nn.Sequential(
            torch.nn.Conv2d(3, 16, 7, stride=4),
            torch.nn.BatchNorm2d(16),
            torch.nn.ReLU(),
            torch.nn.Conv2d(16, 32, 3, stride=2),
            torch.nn.BatchNorm2d(32),
            torch.nn.ReLU(),
            torch.nn.AdaptiveAvgPool2d(1),
            torch.nn.Flatten(),
            torch.nn.Linear(32, CLASSES),
        )
        self._model = torch.nn.parallel.DistributedDataParallel(self._network)
        self._optimizer = torch.optim.Adam(self._model.parameters(), lr=3e-3)
        self._schedule = torch.optim.lr_scheduler.CosineAnnealingLR(self._optimizer, spec["steps"])

    def step(self, images: Any, labels: Any) -> None:
        loss = torch.nn.functional.cross_entropy(self._model(images), labels)
        self._optimizer.zero_grad()
        loss.backward()
        self._optimizer.step()
        self._schedule.step()

    def accuracy(self, folder: str) -> float:
        """The share of the folder's images that the network classifies right."""
        held = torchvision.datasets.ImageFolder(folder, torch_transform())
        self._network.eval()
        with torch.no_grad():
            right = sum(
                (self._network(images).argmax(1) == labels).sum().item()
                for images, labels in torch.utils.data.DataLoader(held, batch_size=100)
            )
        self._network.train()
        return right / len(held)

    def close(self) -> None:
        torch.distributed.destroy_process_group()


class NumpyTrainer:
    """A softmax regression. Gradients are averaged over the ranks through shared memory."""

    BINS = 40

    def __init__(self, spec: dict[str, Any], exchange: Any) -> None:
        gradients, self._barrier = exchange
        self._rank, self._world_size = spec["rank"], spec["world_size"]
        self._shared = numpy.frombuffer(gradients, dtype=numpy.float64).reshape(
            self._world_size, self.BINS + 1, CLASSES
        )
        self._weights = numpy.zeros((self.BINS + 1, CLASSES))

    def features(self, images: numpy.ndarray) -> numpy.ndarray:
        """How much of each image's contrast lies in which direction, and a constant."""
        grey = images.mean(axis=3)
        smooth = grey[:, ::2, ::2] + grey[:, 1::2, ::2] + grey[:, ::2, 1::2] + grey[:, 1::2, 1::2]
        dy, dx = numpy.gradient(smooth, axis=(1, 2))
        bins = ((numpy.arctan2(dy, dx) % numpy.pi) / numpy.pi * self.BINS).astype(int) % self.BINS
        energy = dx * dx + dy * dy
        found = numpy.stack(
            [numpy.bincount(b.ravel(), e.ravel(), self.BINS) for b, e in zip(bins, energy)]
        )
        found = numpy.log(found / found.mean(axis=1, keepdims=True) + 0.01)
        return numpy.hstack([found, numpy.ones((len(found), 1))])

    def _scores(self, features: numpy.ndarray) -> numpy.ndarray:
        scores = numpy.exp(features @ self._weights)
        return scores / scores.sum(axis=1, keepdims=True)

    def step(self, images: numpy.ndarray, labels: Any) -> None:
        labels = numpy.asarray(labels)
        features = self.features(images)
        error = self._scores(features)
        error[numpy.arange(len(labels)), labels] -= 1
        self._shared[self._rank] = features.T @ error / len(labels)
        self._barrier.wait()
        self._weights -= 0.3 * self._shared.mean(axis=0)
        self._barrier.wait()

    def accuracy(self, folder: str) -> float:
        """The share of the folder's images that the regression classifies right."""
        right = total = 0
        for label, paths in enumerate(classes(folder)):
            images = numpy.stack([decode(path) for path in paths])
            right += int((self._scores(self.features(images)).argmax(axis=1) == label).sum())
            total += len(paths)
        return right / total

    def close(self) -> None:
        pass


def classes(folder: str) -> list[list[str]]:
    """The files of each class, in order."""
    with os.scandir(folder) as entries:
        folders = sorted(entry.path for entry in entries if entry.is_dir())
    return [[os.path.join(path, name) for name in sorted(os.listdir(path))] for path in folders]


def decode(source: Any) -> numpy.ndarray:
    """The centre of an image."""
    pixels = numpy.asarray(Image.open(source).convert("RGB"), dtype=numpy.float32) / 255
    y, x = ((side - CROP) // 2 for side in pixels.shape[:2])
    return pixels[y : y + CROP, x : x + CROP]


def torch_transform() -> Any:
    """Nothing random: a random crop would be another one in each loader, whose generators differ,
    and so would the accuracies."""
    return transforms.Compose([transforms.CenterCrop(CROP), transforms.ToTensor()])


def hdmlp_torch(spec: dict[str, Any]) -> Any:
    """HDMLP as a script with torch uses it: a function from an epoch to its batches, and the
    loader."""
    import hdmlp.torch as ht

    dataset = ht.ImageFolder(spec["path"], transform=torch_transform())
    loader = ht.DataLoader(
        dataset,
        batch_size=spec["batch_size"],
        epochs=spec["epochs"],
        seed=spec["seed"],
        num_workers=2,
        shuffle=True,
        shard=True,
    )
    return lambda epoch: iter(loader), loader


def rival_torch(spec: dict[str, Any]) -> Any:
    """The same with torch's own loader."""
    dataset = torchvision.datasets.ImageFolder(spec["path"], torch_transform())
    sampler = torch.utils.data.DistributedSampler(
        dataset, num_replicas=spec["world_size"], rank=spec["rank"], seed=spec["seed"]
    )
    loader = torch.utils.data.DataLoader(
        dataset,
        batch_size=spec["batch_size"],
        sampler=sampler,
        num_workers=2,
        persistent_workers=True,
    )

    def batches(epoch: int) -> Iterator[Any]:
        sampler.set_epoch(epoch)
        return iter(loader)

    return batches, loader


def hdmlp_numpy(spec: dict[str, Any]) -> Any:
    """HDMLP without torch: samples arrive as bytes and are decoded here."""
    import hdmlp.data

    loader = hdmlp.data.DataLoader(
        hdmlp.data.Folder(spec["path"]),
        batch_size=spec["batch_size"],
        epochs=spec["epochs"],
        seed=spec["seed"],
    )

    def batches(epoch: int) -> Iterator[Any]:
        for samples, labels in loader:
            yield numpy.stack([decode(io.BytesIO(sample)) for sample in samples]), labels

    return batches, loader


def rival_numpy(spec: dict[str, Any]) -> Any:
    """What a script without any loader does: read and decode when a batch is needed."""
    files = [(path, label) for label, paths in enumerate(classes(spec["path"])) for path in paths]

    def batches(epoch: int) -> Iterator[Any]:
        order = list(range(len(files)))
        random.Random(spec["seed"] + epoch).shuffle(order)
        mine = order[spec["rank"] :: spec["world_size"]]
        for begin in range(0, len(mine), spec["batch_size"]):
            chosen = [files[index] for index in mine[begin : begin + spec["batch_size"]]]
            yield (
                numpy.stack([decode(path) for path, _ in chosen]),
                [label for _, label in chosen],
            )

    return batches, None


LOADERS = {
    ("torch", "hdmlp"): hdmlp_torch,
    ("torch", "rival"): rival_torch,
    ("numpy", "hdmlp"): hdmlp_numpy,
    ("numpy", "rival"): rival_numpy,
}


def main(spec: dict[str, Any], exchange: Any, say: Any, done: Any) -> None:
    """Trains all epochs and puts (rank, epoch, figures) into the queue `say` after each.

    Rank 0 counts its steps in the shared integer `done`.
    """
    os.environ.update(
        spec["environment"],
        RANK=str(spec["rank"]),
        LOCAL_RANK=str(spec["rank"]),
        WORLD_SIZE=str(spec["world_size"]),
    )
    # A process that was spawned spawns its own, unlike a script's: its loaders' workers would
    # import torch again.
    multiprocessing.set_start_method("fork", force=True)
    trainer = (TorchTrainer if spec["consumer"] == "torch" else NumpyTrainer)(spec, exchange)
    began = time.monotonic()
    batches, loader = LOADERS[spec["consumer"], spec["loader"]](spec)
    for epoch in range(spec["epochs"]):
        begin = time.monotonic() if epoch else began  # the first epoch includes the start
        busy = stall = 0.0
        iterator = iter(batches(epoch))
        asked = time.monotonic()  # stall is what next() blocks, as in HDMLP's report
        for images, labels in iterator:
            step = time.monotonic()
            stall += step - asked
            trainer.step(images, labels)
            duration = spec["step"] * len(labels) / spec["batch_size"]
            time.sleep(max(0.0, step + duration - time.monotonic()))
            # A step that waited for the other rank's gradients was not busy for longer.
            busy += duration
            if spec["rank"] == 0:
                done.value += 1
            asked = time.monotonic()
        end = time.monotonic()
        stall += end - asked
        # All ranks look at the held-out images, so that none waits for another in the next step.
        say.put(
            (
                spec["rank"],
                epoch,
                {
                    "time": end - begin,
                    "stall": stall,
                    "busy": busy,
                    "accuracy": trainer.accuracy(spec["held_out"]),
                },
            )
        )
    sentence = ""
    if spec["loader"] == "hdmlp":
        sentence = str(loader.report())
    say.put((spec["rank"], None, {"report": sentence}))
    with contextlib.suppress(Exception):  # what was measured is said; the other rank may have gone
        trainer.close()
