"""A job for conclusions.py: images by torch's loader, and steps that take no processor, which ranks
take together.

Arguments: a directory of images by class, the seconds of a step, the number of workers, and the
seconds that Python code takes to prepare a sample; 0: torchvision's transforms do.
"""

import os
import sys
import time

import torch
import torch.distributed as dist
from torchvision import datasets, transforms

BATCH = 16


class Slow:
    """A transform of the script's own, which takes no processor either."""

    def __init__(self, seconds: float):
        self._seconds = seconds

    def __call__(self, image: object) -> torch.Tensor:
        time.sleep(self._seconds)
        return torch.zeros(3)


def main() -> None:
    root, step, workers = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
    slow = float(sys.argv[4])
    ranks = int(os.environ.get("WORLD_SIZE", "1"))
    if ranks > 1:
        dist.init_process_group("gloo")
    made = [transforms.RandomResizedCrop(32), transforms.RandomHorizontalFlip()]
    transform = Slow(slow) if slow else transforms.Compose([*made, transforms.ToTensor()])
    dataset = datasets.ImageFolder(root, transform)
    sampler = torch.utils.data.DistributedSampler(dataset) if ranks > 1 else None
    loader = torch.utils.data.DataLoader(
        dataset, BATCH, shuffle=sampler is None, sampler=sampler, num_workers=workers
    )
    for _ in range(10_000):
        for _images, _labels in loader:
            if ranks > 1:
                dist.all_reduce(torch.ones(1))
            time.sleep(step)


if __name__ == "__main__":
    main()
