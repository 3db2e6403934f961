"""timm's train.py: its samplers, its collate function, its PrefetchLoader, set_epoch before each
epoch. argv adds numbers of repeats and workers."""

import os
import pickle
from functools import partial

import numpy
import torch
from common import LOADER, OURS, RANKS, REST, folder, plain, served, write
from timm.data.distributed_sampler import OrderedDistributedSampler, RepeatAugSampler
from timm.data.loader import PrefetchLoader, _worker_init, fast_collate
from torch.utils.data import DistributedSampler

RANK = int(os.environ.get("RANK", 0))


def picture(data):
    """A tiny image that says the file's length."""
    size = os.path.getsize(data) if isinstance(data, str) else len(data)
    return numpy.full((3, 2, 2), size // 200 * 100 + size % 100, numpy.uint8)


DATA = folder(picture)


def create_loader(is_training, batch_size, repeats, workers):
    """What timm.data.create_loader makes of a dataset with its transform."""
    sampler = None
    if RANKS != "1":
        if is_training:
            sampler = (
                RepeatAugSampler(DATA, num_repeats=repeats, selected_round=0)
                if repeats
                else DistributedSampler(DATA)
            )
        else:
            sampler = OrderedDistributedSampler(DATA)
    loader = LOADER(
        DATA,
        batch_size=batch_size,
        shuffle=sampler is None and is_training,
        sampler=sampler,
        drop_last=is_training,
        num_workers=workers,
        collate_fn=fast_collate,
        pin_memory=False,
        worker_init_fn=partial(_worker_init, worker_seeding="all"),
        persistent_workers=workers > 0,
    )
    return PrefetchLoader(loader, mean=(0, 0, 0), std=(1 / 255,) * 3, device=torch.device("cpu"))


def train(*case):
    """train.py's loop, and with ours the rest of the second epoch, from a state of the loader
    within."""
    torch.manual_seed(42 + RANK)
    train, validate = create_loader(True, 4, *case), create_loader(False, 5, *case)
    trained, validated = [], []
    for epoch in range(3):
        if hasattr(train.sampler, "set_epoch"):
            train.sampler.set_epoch(epoch)
        trained.append([])
        for x, y in train:
            trained[-1].append(plain([x[:, 0, 0, 0], y]))
            if OURS and epoch == 1 and len(trained[-1]) == 1:  # PrefetchLoader has taken two
                state = pickle.dumps(train.loader.state_dict())
        validated.append([plain([x[:, 0, 0, 0], y]) for x, y in validate])
    found = {"trained": trained, "validated": validated, "lengths": [len(train), len(validate)]}
    if OURS:
        again = create_loader(True, 4, *case)
        again.loader.load_state_dict(pickle.loads(state))
        found["resumed"] = [plain([x[:, 0, 0, 0], y]) for x, y in again]
        found["served"] = [
            served(train.loader),
            sum(len(x) for batches in trained for x, _ in batches),
        ]
    return found


if __name__ == "__main__":
    if RANKS != "1":
        torch.distributed.init_process_group("gloo")
    for case in REST:
        write(RANK, **{case: train(*map(int, case.split(",")))})
