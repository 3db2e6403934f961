"""A member of a group, as a process of its own: iterates a folder, and prints what it got."""

import contextlib
import hashlib
import os
import time
from collections import deque

import hdmlp.torch as ht
import torch
import torchvision.transforms as V
from hdmlp import transforms as T


def digest(images, labels):
    """Returns what identifies a batch, or one of several views."""
    views = images if isinstance(images, list) else [images]
    made = hashlib.sha256(b"".join(view.numpy().tobytes() for view in views))
    return made.hexdigest()[:16], labels.tolist()


def noisy(image):
    """A transform in Python, which writes to its input."""
    return image.add_(torch.rand(1))


def spotted(image):
    """A transform of Python's, of images of any size."""
    image.putpixel((0, 0), tuple(torch.randint(256, (3,)).tolist()))
    return image


def transforms(random, python=False):
    """Returns the transforms of all members."""
    crop = V.RandomResizedCrop(32) if random else V.CenterCrop(32)
    if random == "views":
        return V.Compose([V.Resize(40), T.Views(V.Compose([crop, V.ToTensor()]), n=3)])
    if python == "images":
        return V.Compose([V.Resize(40), spotted, crop, V.ToTensor()])
    return V.Compose([V.Resize(40), crop, V.ToTensor(), *([noisy] if python else [])])


def member(
    pipe,
    environment,
    folder,
    *,
    epochs,
    batch,
    random=False,
    python=False,
    write=False,
    keep=0,
    seconds=0.0,
    pause=None,
    loader,
):
    """Runs a member, and sends (epoch, step, digest, labels) of each batch; None when it is open.

    Args:
        pipe: Where it sends, and waits for a message after pausing.
        environment: Its environment.
        folder: The dataset.
        epochs: How many it takes.
        batch: Its batch size.
        random: Transforms are random; if "views", three views of each image.
        python: The last one runs in Python, or, if "images", all but the first.
        write: It writes to each batch.
        keep: How many batches it keeps; it must find them unchanged at the end.
        seconds: For how long it works on a batch.
        pause: Epoch and step after which it waits.
        loader: More arguments of the loader.
    """
    os.environ.clear()
    os.environ.update(environment)
    options = {"shuffle": True, "seed": 3, "epochs": epochs, **loader}
    batches = ht.DataLoader(ht.ImageFolder(folder, transforms(random, python)), batch, **options)
    pipe.send(None)
    kept = deque(maxlen=keep)
    for _ in range(epochs):
        epoch = batches.state_dict()["epoch"]
        for step, (images, labels) in enumerate(batches):
            pipe.send([epoch, step, *digest(images, labels)])
            if write:
                images.fill_(epoch + step)
            kept.append((images, digest(images, labels)))
            if seconds:
                time.sleep(seconds)
            if pause == [epoch, step]:
                pipe.recv()
            if write:
                assert images.min() == images.max() == epoch + step, "another's write"
            del images
        for images, before in () if write else kept:
            assert digest(images, torch.tensor(before[1])) == before, "a kept batch changed"
    with contextlib.suppress(EOFError):
        pipe.send("end")
        pipe.recv()
    batches.close()
