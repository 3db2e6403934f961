"""What Ray Train's prepare_data_loader makes of a loader (ray 2.60, train/v2/torch/train_loop_utils.py), without Ray, which `make frameworks` does not install."""

import os
import pickle

import torch
from common import LOADER, OURS, RANKS, folder, plain, served, write
from torch.utils.data import DataLoader, DistributedSampler, IterableDataset, SequentialSampler

RANK = int(os.environ.get("RANK", 0))
DATA = folder()


class Wrapped(DataLoader):
    """Ray's wrapper, which moves batches to the device."""

    def __init__(self, base):
        self.__dict__.update(base.__dict__)
        self._dataloader = base

    def __len__(self):
        return len(self._dataloader)

    def __iter__(self):
        for batch in iter(self._dataloader):
            yield [part.to("cpu") for part in batch]


def prepare_data_loader(loader):
    """A loader whose sampler is a DistributedSampler stays; another one is made anew with one, as torch's."""
    if RANKS != "1" and not isinstance(loader.sampler, DistributedSampler) and not isinstance(loader.dataset, IterableDataset):
        shuffle = not isinstance(loader.sampler, SequentialSampler)
        loader = DataLoader(dataset=loader.dataset, batch_size=loader.batch_size, shuffle=False, num_workers=loader.num_workers, collate_fn=loader.collate_fn,
                            pin_memory=loader.pin_memory, drop_last=loader.drop_last, timeout=loader.timeout, worker_init_fn=loader.worker_init_fn,
                            generator=loader.generator, sampler=DistributedSampler(loader.dataset, shuffle=shuffle))
    return Wrapped(loader)


if RANKS != "1":
    torch.distributed.init_process_group("gloo")
shared = {"seed": 0, "shard": True, "epochs": 3} if OURS and RANKS != "1" else {}
torch.manual_seed(3)
train = prepare_data_loader(LOADER(DATA, 4, shuffle=True, **shared))
trained = []
for epoch in range(3):
    if RANKS != "1":
        train.sampler.set_epoch(epoch)
    trained.append([])
    for batch in train:
        trained[-1].append(plain(batch))
        if OURS and epoch == 1 and len(trained[-1]) == 2:
            state = pickle.dumps(train._dataloader.state_dict())
write(RANK, trained=trained, length=len(train))
if OURS:
    write(RANK, _served=[served(train._dataloader), sum(len(x) for batches in trained for x, _ in batches)])
    again = prepare_data_loader(LOADER(DATA, 4, shuffle=True, **shared))
    again._dataloader.load_state_dict(pickle.loads(state))
    write(RANK, _resumed=[plain(batch) for batch in again])
    if RANKS != "1":  # without shard= it is torch's that reads, which is said: see test_loops.py
        write(RANK, _rebuilt=[plain(batch) for batch in prepare_data_loader(LOADER(DATA, 4, shuffle=True))])
