"""torchdata's stateful protocol, in place of StatefulDataLoader: a state kept amid an epoch and at
its end, with several samplers.

With torch, the state is StatefulDataLoader's; "whole" is what torch's plain loader gives.
"""

import os
import pickle

import torch
from common import OURS, RANKS, folder, plain, served, write
from torch.utils.data import DataLoader, DistributedSampler, WeightedRandomSampler
from torchdata.stateful_dataloader import StatefulDataLoader
from torchdata.stateful_dataloader.sampler import StatefulDistributedSampler

RANK = int(os.environ.get("RANK", 0))
DATA = folder()
if OURS:
    from common import LOADER
else:
    LOADER = StatefulDataLoader


def generator():
    return torch.Generator().manual_seed(3)


LOADERS = {
    "in order": lambda kind: kind(DATA, 4),
    "random": lambda kind: kind(DATA, 4, shuffle=True, generator=generator()),
    "weighted": lambda kind: kind(
        DATA,
        4,
        sampler=WeightedRandomSampler(torch.arange(1, 27).float(), 30, generator=generator()),
    ),
    "distributed": lambda kind: kind(DATA, 4, sampler=DistributedSampler(DATA, 2, RANK, seed=4)),
    "stateful distributed": lambda kind: kind(
        DATA, 4, sampler=StatefulDistributedSampler(DATA, 2, RANK, seed=4)
    ),
}


def made(kind):
    """A loader, as a script makes it anew after a restart."""
    return LOADERS[KIND](kind)


def epoch_of(loader, number):
    if hasattr(loader.sampler, "set_epoch"):
        loader.sampler.set_epoch(number)
    return iter(loader)


def whole(loader):
    """Three epochs."""
    return [[plain(batch) for batch in epoch_of(loader, number)] for number in range(3)]


def kept(loader, number, step):
    """The state in an epoch after so many steps; None: after its end."""
    for passed in range(number):
        list(epoch_of(loader, passed))
    batches = epoch_of(loader, number)
    for _ in batches:
        step = None if step is None else step - 1
        if step == 0:
            break
    return pickle.dumps(loader.state_dict())


def resumed(state, number):
    """What a script gets that goes on in an epoch, to the last."""
    torch.manual_seed(100)
    loader = made(LOADER)
    loader.load_state_dict(pickle.loads(state))
    return [[plain(batch) for batch in epoch_of(loader, passed)] for passed in range(number, 3)]


if RANKS != "1":
    torch.distributed.init_process_group("gloo")
for KIND in LOADERS if RANKS == "1" else ("distributed", "stateful distributed"):
    torch.manual_seed(7)
    loader = made(LOADER)
    found = {"whole": whole(loader), "_served": served(loader)}
    if not OURS:
        found["plain"] = whole(made(DataLoader))
    for number, step in ((0, 2), (1, 3)):
        found[f"resumed {number} {step}"] = resumed(kept(made(LOADER), number, step), number)
    found["resumed after 0"] = resumed(kept(made(LOADER), 0, None), 1)
    write(RANK, **{KIND: found})
