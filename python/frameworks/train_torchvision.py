"""torchvision's references/classification: repeated augmentation or DistributedSampler, set_epoch,
a collate function that mixes the batch. argv adds which."""

import os
import pickle

import torch
from common import LOADER, OURS, RANKS, REST, folder, plain, served, write
from timm.data.distributed_sampler import (
    RepeatAugSampler,
)  # torchvision's RASampler, from the same source
from torch.utils.data import DistributedSampler, RandomSampler, SequentialSampler, default_collate

RANK = int(os.environ.get("RANK", 0))
DATA = folder()


def collate(batch):
    """default_collate, then what mixes the batch with itself; torchvision's draws how much."""
    images, labels = default_collate(batch)
    return images, images.roll(1, 0) * 0.3 + images * 0.7, labels


def loaders(kind):
    """As train.py's load_data and main make them."""
    if RANKS != "1":
        train = (
            RepeatAugSampler(DATA, shuffle=True, num_repeats=4)
            if kind == "repeated"
            else DistributedSampler(DATA)
        )
        test = DistributedSampler(DATA, shuffle=False)
    else:
        train, test = RandomSampler(DATA), SequentialSampler(DATA)
    return (
        LOADER(
            DATA, batch_size=4, sampler=train, num_workers=0, pin_memory=False, collate_fn=collate
        ),
        LOADER(DATA, batch_size=5, sampler=test, num_workers=0, pin_memory=False),
    )


def train(kind):
    """The loop of train.py's main, and with ours the rest of the second epoch, from a state."""
    torch.manual_seed(3)
    train, test = loaders(kind)
    trained, tested = [], []
    for epoch in range(3):
        if RANKS != "1":
            train.sampler.set_epoch(epoch)
        trained.append([])
        for batch in train:
            trained[-1].append(plain(batch))
            if OURS and epoch == 1 and len(trained[-1]) == 2:
                state = pickle.dumps(train.state_dict())
        tested.append([plain(batch) for batch in test])
    found = {"trained": trained, "tested": tested, "lengths": [len(train), len(test)]}
    if OURS:
        again, _ = loaders(kind)
        again.load_state_dict(pickle.loads(state))
        found["resumed"] = [plain(batch) for batch in again]
        found["served"] = [served(train), sum(len(x) for batches in trained for x, _, _ in batches)]
    return found


if __name__ == "__main__":
    if RANKS != "1":
        torch.distributed.init_process_group("gloo")
    for kind in REST:
        write(RANK, **{kind: train(kind)})
