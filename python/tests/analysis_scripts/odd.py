"""What scripts do besides training. The argument is which of it.

With two more, it waits first for another process: one opens this FIFO with mode r, one with w.
"""

import os
import sys
import time
from collections import UserDict
from types import SimpleNamespace

import torch
from durations import Timed
from torch.utils.data import DataLoader, Dataset, IterableDataset


class Numbers(Dataset):
    def __init__(self, count=64):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return torch.full((3,), float(index))


class Endless(IterableDataset):
    def __iter__(self):
        while True:
            yield torch.zeros(3)


class Counted(IterableDataset):
    """Items of which the last batch is short."""

    def __len__(self):
        return 60

    def __iter__(self):
        return iter(torch.zeros(60, 3))


class Unsized(Endless):
    def __len__(self):
        raise NotImplementedError("nobody knows")


def step(batch):
    with Timed("step"):
        time.sleep(0.005)


def train(loader, epochs=1000, seen=step):
    for _ in range(epochs):
        for batch in loader:
            seen(batch)


def loader(dataset=None, **more):
    return DataLoader(dataset or Numbers(), batch_size=8, **more)


def catching():
    """Catches whatever ends it."""
    while True:
        try:
            train(loader())
        except BaseException as error:
            print("caught", type(error).__name__, flush=True)


def forking():
    """Trains in a forked process, and leaves another one behind."""
    if os.fork() == 0:
        os.setsid()
        time.sleep(1000)
    child = os.fork()
    if child == 0:
        train(loader())
    os.waitpid(child, 0)


def resampling():
    """Makes a new dataset for each epoch, which is shorter than the patience for one."""
    for _ in range(1000):
        train(loader(Numbers()), epochs=1)


def inferring():
    """Computes no gradients."""
    with torch.no_grad():
        train(loader(Numbers(1000)))


def reading():
    """Reads its input, and trains with it."""
    print("read", sys.stdin.read())
    train(loader())


def two():
    """Looks at a validation set first, as frameworks do; trains with another set."""
    validation, training = loader(Numbers(32)), loader()
    for _ in range(1000):
        with torch.no_grad():
            train(validation, 1)
        train(training, 1)


def together():
    """Trains from two loaders of one dataset, in turn."""
    dataset = Numbers()
    first, second = loader(dataset), DataLoader(dataset, batch_size=4)
    for _ in range(1000):
        for batch, _ in zip(first, second):
            step(batch)


def twice():
    """Trains from a loader twice in turn."""
    both = loader()
    for _ in range(1000):
        for batch, _ in zip(both, both):
            step(batch)


def peeking():
    """Looks at a batch of the test set first, as the tutorials do; trains with another set."""
    testing, training = loader(Numbers(32)), loader()
    for batch in testing:
        print(batch.shape)
        break
    for _ in range(1000):
        train(training, 1)
        with torch.no_grad():
            train(testing, 1)


def evaluating():
    """Trains with steps of 20 ms, and evaluates with the same loader, mostly, which is faster."""
    training = loader()
    for _ in range(1000):
        train(training, 1, lambda _: time.sleep(0.02))
        with torch.no_grad():
            train(training, 20, lambda _: None)


def failing():
    raise ValueError("a mistake of the script's")


def failing_late():
    for number, _ in enumerate(loader(Numbers(1000))):
        if number == 20:
            raise ValueError("a mistake of the script's")


def strict(batch):
    """Fails if something else has changed the batch, or has not kept its kind."""
    assert isinstance(batch, torch.Tensor)
    assert batch.shape == (8, 3)
    assert batch.min() >= 0
    batch.fill_(-1)
    step(batch)


KINDS = {
    "none": lambda: print("no loader"),
    "failing": failing,
    "failing_late": failing_late,
    "short": lambda: train(loader(), 3),
    "few": lambda: train(loader(Numbers(24)), 1),
    "iterable": lambda: train(DataLoader(Endless(), batch_size=8)),
    "counted": lambda: train(DataLoader(Counted(), batch_size=8)),
    "unsized": lambda: train(DataLoader(Unsized(), batch_size=8)),
    "catching": catching,
    "forking": forking,
    "resampling": resampling,
    "inferring": inferring,
    "reading": reading,
    "two": two,
    "together": together,
    "twice": twice,
    "peeking": peeking,
    "evaluating": evaluating,
    "changing": lambda: train(loader(), seen=strict),
    "unbatched": lambda: train(DataLoader(Numbers(), batch_size=None)),
    "mapping": lambda: train(loader(collate_fn=lambda items: UserDict(x=torch.stack(items)))),
    "object": lambda: train(loader(collate_fn=lambda items: SimpleNamespace(x=torch.stack(items)))),
    "persistent": lambda: train(loader(num_workers=1, persistent_workers=True)),
}

if __name__ == "__main__":
    if len(sys.argv) > 2:
        with open(sys.argv[2], sys.argv[3]):
            pass
    KINDS[sys.argv[1]]()
