"""What the scripts have in common: ``python script folder which out ranks ...``, where which is
torch or ours.

A sample is its file's length, by which it is told. Each script writes what every rank was given,
under names, and with ours how many samples of it the daemon served.
"""

import atexit
import json
import os
import sys


@atexit.register  # before all imports that register functions too, so that it is called after them
def _leave():
    """Ends a rank of several without tearing the interpreter down.

    A thread of gloo may hold the tensors of the last collective a little longer than this thread
    waits for it, and also after ``destroy_process_group``, as long as a model uses the group. If it
    drops them while the interpreter is torn down, torch aborts the process (pytorch#190489).
    """
    if int(RANKS) == 1:
        return
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(int(hasattr(sys, "last_value")))


import torch

ROOT, WHICH, OUT, RANKS, *REST = sys.argv[1:]
OURS = WHICH == "ours"

if OURS:
    import hdmlp.torch as ht

    LOADER = ht.DataLoader
else:
    from torch.utils.data import DataLoader as LOADER  # noqa: F401


def length(data):
    """A sample of its file's bytes, or of its path."""
    return torch.tensor([float(os.path.getsize(data) if isinstance(data, str) else len(data))])


def folder(loader=length, **more):
    """The folder's dataset, which knows nothing of HDMLP for torch's loader."""
    if OURS:
        return ht.ImageFolder(ROOT, loader=loader, **more)
    from torchvision.datasets import ImageFolder

    return ImageFolder(ROOT, loader=loader, **more)


def plain(batch):
    """A batch as lists."""
    if isinstance(batch, torch.Tensor):
        return batch.flatten().tolist()
    if isinstance(batch, dict):
        return {key: plain(value) for key, value in batch.items()}
    return [plain(part) for part in batch] if isinstance(batch, (list, tuple)) else batch


def served(loader):
    """How many samples the daemon delivered to a loader of ours; 0 for torch's."""
    if not OURS:
        return 0
    ranks = loader.report()[
        "ranks"
    ]  # of this node that share the loader's job, which may be this one alone
    return sum(
        epoch["samples"]
        for rank in ranks
        if rank["rank"] == loader.rank or len(ranks) == 1
        for epoch in rank["epochs"]
    )


def write(rank, **found):
    """Says what this rank was given."""
    with open(os.path.join(OUT, str(rank)), "a") as file:
        for name, value in found.items():
            print(json.dumps([name, value]), file=file)
