"""Images by hdmlp's loader or torch's, and steps of 20 ms.

Arguments: a directory of images by class, and "hdmlp", "plain" (hdmlp's without torch) or "torch".
"""

import sys
import time

import torch
from torchvision import datasets, transforms


def main():
    root, kind = sys.argv[1:]
    transform = transforms.Compose(
        [transforms.RandomResizedCrop(64), transforms.RandomHorizontalFlip(), transforms.ToTensor()]
    )
    dataset = datasets.ImageFolder(root, transform)
    if kind == "hdmlp":
        import hdmlp.torch as ht

        loader = ht.DataLoader(dataset, batch_size=8, shuffle=True, memory="1GB")
    elif kind == "plain":
        from hdmlp.data import DataLoader
        from hdmlp.transforms import RandomResizedCrop, ToTensor

        made = [RandomResizedCrop(64), ToTensor()]
        loader = DataLoader(root, 8, transforms=made, memory="1GB")
    else:
        loader = torch.utils.data.DataLoader(dataset, batch_size=8, shuffle=True, num_workers=1)
    for _ in range(1000):
        for images, labels in loader:
            assert len(images) == len(labels)
            time.sleep(0.02)


if __name__ == "__main__":
    main()
