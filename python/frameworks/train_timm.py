"""timm's train.py: its samplers, its collate function, its PrefetchLoader, set_epoch before each epoch. argv adds the number of repeats."""

import os
import pickle
from functools import partial

import numpy
import torch
from common import LOADER, OURS, RANKS, REST, folder, plain, served, write
from timm.data.distributed_sampler import OrderedDistributedSampler, RepeatAugSampler
from timm.data.loader import PrefetchLoader, _worker_init, fast_collate
from torch.utils.data import DistributedSampler

REPEATS, WORKERS = map(int, REST)
RANK = int(os.environ.get("RANK", 0))


def picture(data):
    """A tiny image that says the file's length."""
    size = os.path.getsize(data) if isinstance(data, str) else len(data)
    return numpy.full((3, 2, 2), size // 200 * 100 + size % 100, numpy.uint8)


DATA = folder(picture)


def create_loader(is_training, batch_size):
    """What timm.data.create_loader makes of a dataset with its transform."""
    sampler = None
    if RANKS != "1":
        if is_training:
            sampler = RepeatAugSampler(DATA, num_repeats=REPEATS, selected_round=0) if REPEATS else DistributedSampler(DATA)
        else:
            sampler = OrderedDistributedSampler(DATA)
    loader = LOADER(DATA, batch_size=batch_size, shuffle=sampler is None and is_training, sampler=sampler, drop_last=is_training, num_workers=WORKERS,
                    collate_fn=fast_collate, pin_memory=False, worker_init_fn=partial(_worker_init, worker_seeding="all"), persistent_workers=WORKERS > 0)
    return PrefetchLoader(loader, mean=(0, 0, 0), std=(1 / 255,) * 3, device=torch.device("cpu"))


def numbers(batches):
    return [plain([x[:, 0, 0, 0], y]) for x, y in batches]


if __name__ == "__main__":
    if RANKS != "1":
        torch.distributed.init_process_group("gloo")
    torch.manual_seed(42 + RANK)
    train, validate = create_loader(True, 4), create_loader(False, 5)
    trained, validated = [], []
    for epoch in range(3):
        if hasattr(train.sampler, "set_epoch"):
            train.sampler.set_epoch(epoch)
        trained.append(numbers(train))
        validated.append(numbers(validate))
    write(RANK, trained=trained, validated=validated, lengths=[len(train), len(validate)])
    if OURS and RANKS != "1":  # by a state of the loader within, amid the second epoch
        again = create_loader(True, 4)
        again.sampler.set_epoch(1)
        batches = iter(again.loader)
        next(batches), next(batches)
        state = pickle.dumps(again.loader.state_dict())
        again = create_loader(True, 4)
        again.loader.load_state_dict(pickle.loads(state))
        write(RANK, _resumed=numbers(again), _served=[served(train.loader), sum(len(x) for batches in trained for x, _ in batches)])
