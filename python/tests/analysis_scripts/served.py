"""Images by hdmlp's loader or torch's, and steps of 20 ms, which ranks take together.

Arguments: a directory of images by class, and "hdmlp", "cached" (hdmlp's with a cache on the disk
only), "plain" (hdmlp's without torch), "torch", or torch's in other ways: "items" (no batches),
"some" (24 images an epoch) or "breaking" (epochs are not iterated to their end).
"""

import os
import pathlib
import sys
import time

import torch
import torch.distributed as dist
from torchvision import datasets, transforms


def main():
    root, kind = sys.argv[1:]
    ranks = int(os.environ.get("WORLD_SIZE", "1"))
    if ranks > 1:
        dist.init_process_group("gloo")
    transform = transforms.Compose(
        [transforms.RandomResizedCrop(64), transforms.RandomHorizontalFlip(), transforms.ToTensor()]
    )
    dataset = datasets.ImageFolder(root, transform)
    if kind == "hdmlp":
        import hdmlp.torch as ht

        loader = ht.DataLoader(dataset, 8, shuffle=True, shard=ranks > 1, memory="1GB")
    elif kind == "cached":
        import hdmlp.torch as ht

        own = {"cache_dir": pathlib.Path(os.path.relpath(f"{root}-cache"))}
        own["config_file"] = pathlib.Path(os.path.relpath(f"{root}.toml"))
        own["config_file"].write_text("memory = 0\n", encoding="utf-8")
        loader = ht.DataLoader(dataset, 8, shuffle=True, **own)
    elif kind == "plain":
        from hdmlp.data import DataLoader
        from hdmlp.transforms import RandomResizedCrop, ToTensor

        made = [RandomResizedCrop(64), ToTensor()]
        loader = DataLoader(root, 8, transforms=made, memory="1GB")
    elif kind == "items":
        loader = torch.utils.data.DataLoader(dataset, batch_size=None, shuffle=True)
    elif kind == "some":
        sampler = torch.utils.data.RandomSampler(dataset, num_samples=24)
        loader = torch.utils.data.DataLoader(dataset, batch_size=8, sampler=sampler)
    else:
        sampler = torch.utils.data.DistributedSampler(dataset) if ranks > 1 else None
        loader = torch.utils.data.DataLoader(
            dataset, batch_size=8, shuffle=sampler is None, sampler=sampler, num_workers=1
        )
    for _ in range(1000):
        batches = iter(loader)
        assert kind != "some" or len(batches) == 3
        for number, (images, labels) in enumerate(batches):
            if kind == "breaking" and number == 4:
                break
            if kind == "items":
                assert images.shape == (3, 64, 64)
            else:
                assert len(images) == len(labels)
            if ranks > 1:
                dist.all_reduce(torch.ones(1))
            time.sleep(0.02)


if __name__ == "__main__":
    main()
