"""Members of a group as the test sees them: processes that run ``sharing.member``."""

import multiprocessing
import os

import hdmlp.torch as ht
import pytest
import sharing
import torch
import torchvision
from hdmlp._daemon import connecting
from reference import jpegs
from sharing import digest

V = torchvision.transforms


COUNTS = {"ant": 14, "bee": 13, "cat": 10}  # 37: no multiple of the batch
EPOCHS, BATCH = 3, 8
FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["torchvision.transforms", "hdmlp.torch"])
STEPS = 5
TRANSFORMS = [V.Resize(40), V.CenterCrop(32), V.ToTensor()]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return jpegs(tmp_path_factory.mktemp("jpegs") / "data", COUNTS)


class Member:
    """A process that runs ``sharing.member``."""

    def __init__(self, folder, share="s", epochs=EPOCHS, batch=BATCH, loader=(), **options):
        self.pipe, theirs = FORKS.Pipe()
        options["loader"] = {**({"share": share} if share else {}), **dict(loader)}
        self.process = FORKS.Process(
            target=sharing.member,
            args=(theirs, dict(os.environ), folder),
            kwargs={"epochs": epochs, "batch": batch, **options},
        )
        self.process.start()
        theirs.close()
        assert self.pipe.recv() is None
        self.batches = []

    def until(self, batches):
        """Waits until it has got so many batches."""
        while len(self.batches) < batches:
            self.batches.append(self.pipe.recv())

    def go_on(self):
        """Ends its pause."""
        self.pipe.send(None)

    def all(self):
        """Waits until it has got all its batches; returns them. The loader stays open."""
        while not self.batches or self.batches[-1] != "end":
            self.batches.append(self.pipe.recv())
        return self.batches[:-1]

    def end(self):
        """Waits for its end; returns its batches."""
        batches = self.all()
        self.pipe.close()
        self.process.join()
        assert self.process.exitcode == 0
        return batches

    def send(self, number):
        """Sends it a signal."""
        os.kill(self.process.pid, number)


@pytest.fixture
def member(folder):
    """Starts members, and kills those that are left at the end."""
    members = []

    def start(**options):
        members.append(Member(folder, **options))
        return members[-1]

    yield start
    for m in members:
        m.process.kill()
        m.process.join()


def transformed():
    """Returns how many samples were transformed, by job: the group's, and the others together.

    Those of a member are left out that the others had to wait for, for a second: it is detached.
    """
    client = connecting.connect()
    frame = connecting.protocol.encode_json(
        connecting.protocol.CALL, {"id": 1, "method": "stats", "params": {}}
    )
    answer = connecting.request(client, frame, (connecting.protocol.REPLY,))
    client.close()
    group = rest = 0
    for job in answer["result"]["jobs"]:
        n = (job.get("preprocessing") or {}).get("samples", 0)
        if job["job"].startswith("share "):
            group += n
        elif not any(rank.get("group", {}).get("detached") for rank in job["ranks"]):
            rest += n
    return group, rest


def torchs(folder):
    """Returns the batches of torch's loader and torchvision, as members print them."""
    dataset = torchvision.datasets.ImageFolder(folder, V.Compose(TRANSFORMS))
    out = []
    for epoch in range(EPOCHS):
        sampler = torch.utils.data.DistributedSampler(dataset, 1, 0, seed=3)
        sampler.set_epoch(epoch)
        loader = torch.utils.data.DataLoader(dataset, BATCH, sampler=sampler)
        out += [[epoch, step, *digest(*batch)] for step, batch in enumerate(loader)]
    return out


def options(**changes):
    """Returns the arguments of a loader in the group of the members."""
    return {"shuffle": True, "seed": 3, "epochs": 2, "share": "s", **changes}


def joined(folder, epochs=9, **loader):
    """Returns a loader of this process that joins the members' group."""
    dataset = ht.ImageFolder(folder, V.Compose(TRANSFORMS))
    return ht.DataLoader(dataset, BATCH, **{**options(epochs=epochs, share_join=True), **loader})
