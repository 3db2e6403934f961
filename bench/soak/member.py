"""A training process that is a member of a group: it takes the batches of its passes, and says what
was in them."""

from __future__ import annotations

import contextlib
import hashlib
import random
import time
from collections import deque
from multiprocessing.connection import Connection
from typing import Any

import hdmlp.torch as ht
import torch
from hdmlp.errors import DaemonDiedError
from torchvision import transforms

from soak.group_rounds import EPOCHS, Member


def contents(batch: list[torch.Tensor]) -> list[str]:
    """A digest of each sample of a batch, with its label."""
    images, labels = batch
    return [
        f"{hashlib.sha256(image.numpy().tobytes()).hexdigest()[:16]} {label}"
        for image, label in zip(images, labels.tolist())
    ]


def loader(folder: str, batch: int, options: dict[str, Any]) -> ht.DataLoader:
    """A loader with random transforms; it is made again if a daemon dies meanwhile."""
    made = transforms.Compose([transforms.RandomResizedCrop(24), transforms.ToTensor()])
    while True:
        with contextlib.suppress(DaemonDiedError):
            return ht.DataLoader(
                ht.ImageFolder(folder, made), batch, shuffle=True, epochs=EPOCHS, **options
            )


def reference(pipe: Connection, folder: str, options: dict[str, Any]) -> None:
    """Sends the samples of each epoch, as a job that shares with no other gets them."""
    alone = loader(folder, 1, options)
    pipe.send([[one for batch in alone for one in contents(batch)] for _ in range(EPOCHS)])
    alone.close()


def run(pipe: Connection, folder: str, the: Member, options: dict[str, Any]) -> None:
    """Sends ("got", epoch, step, contents) of each batch, ("died",) if the daemon did, and at last
    ("end", the samples that were prepared for this job alone, since the daemon started)."""
    r = random.Random(repr(the))
    batches = loader(folder, the.batch, options)
    kept: deque[tuple[Any, list[str]]] = deque(maxlen=the.keep)
    for epoch, most in the.passes:
        batches.set_epoch(epoch)
        iteration, step = iter(batches), 0
        while not most or step < most:
            try:
                batch = next(iteration)
            except StopIteration:
                break
            except DaemonDiedError:
                pipe.send(["died"])
                continue
            found = contents(batch)
            pipe.send(["got", epoch, step, found])
            step += 1
            if the.write:
                batch[0].fill_(step)
                batch[1].fill_(-step)
            kept.append((batch, found))
            time.sleep(the.pause * r.random())
            if the.write and not (batch[0].eq(step).all() and batch[1].eq(-step).all()):
                pipe.send(["wrong", f"epoch {epoch}, step {step - 1}: what it wrote has changed"])
            del batch
        for batch, found in kept:
            if contents(batch) != found:
                pipe.send(["wrong", f"epoch {epoch}: a batch that it kept has changed"])
    kept.clear()
    alone = 0
    with contextlib.suppress(DaemonDiedError):
        alone = (batches.report().get("preprocessing") or {}).get("samples", 0)
    batches.close()
    pipe.send(["end", alone])
