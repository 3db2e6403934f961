"""How long a framework takes to train with torch's loader, and with ours: ``python time_epochs.py
folder both out ranks framework rounds``.

Real images with torchvision's standard training transform, two workers, a model that computes next
to nothing. Each round trains two epochs with either loader, from making it to the end, in turn;
before the first, both train once uncounted. Every rank writes the seconds of its rounds.
"""

import gc
import json
import logging
import os
import sys
import time
import warnings

import hdmlp.torch as ht
import torch
import torch.utils.data
import torchvision
from torch.utils.data import DistributedSampler, RandomSampler

EPOCHS, BATCH, WORKERS = 2, 32, 2


class Items(torch.utils.data.Dataset):
    """torchvision's folder, in a dataset of which HDMLP knows nothing."""

    def __init__(self, root, transform):
        self.data = torchvision.datasets.ImageFolder(root, transform)

    def __len__(self):
        return len(self.data)

    def __getitem__(self, i):
        return self.data[i]


class Kind:
    """One of the two: its dataset and its loader's class."""

    def __init__(self, root, ours):
        t = torchvision.transforms
        transform = t.Compose(
            [
                t.RandomResizedCrop(224),
                t.RandomHorizontalFlip(),
                t.ToTensor(),
                t.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
            ]
        )
        self.ours = ours
        self.data = ht.ImageFolder(root, transform) if ours else Items(root, transform)
        self.loader = ht.DataLoader if ours else torch.utils.data.DataLoader

    def __call__(self, **more):
        return self.loader(self.data, BATCH, num_workers=WORKERS, **more)


class Model(torch.nn.Module):
    """A line through the mean of each colour."""

    def __init__(self):
        super().__init__()
        self.line = torch.nn.Linear(3, 1)

    def forward(self, x, labels=None):
        return {"loss": self.line(x.mean((2, 3))).square().mean()}


def batches(loader):
    """Trains without a framework; ``set_epoch`` as scripts call it."""
    model = Model()
    for epoch in range(EPOCHS):
        if hasattr(loader.sampler, "set_epoch"):
            loader.sampler.set_epoch(epoch)
        for x, _ in loader:
            model(x)["loss"].backward()


def lightning_trainer(kind, ranks):
    import lightning

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.model = Model()

        def training_step(self, batch, _):
            return self.model(batch[0])["loss"]

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), 1e-3)

    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    lightning.Trainer(
        max_epochs=EPOCHS,
        accelerator="cpu",
        devices=ranks,
        strategy="ddp" if ranks > 1 else "auto",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    ).fit(Module(), kind(shuffle=True))


def lightning_fabric(kind, ranks):
    import lightning

    fabric = lightning.Fabric(
        accelerator="cpu", devices=ranks, strategy="ddp" if ranks > 1 else "auto"
    )
    fabric.launch()
    batches(fabric.setup_dataloaders(kind(shuffle=True)))


def accelerated(kind, _):
    import accelerate

    if kind.ours:
        ht.use_in(accelerate)
    accelerator = accelerate.Accelerator(cpu=True)
    batches(accelerator.prepare(kind(shuffle=True)))
    accelerator.free_memory()


def transformers_trainer(kind, _):
    import transformers

    if kind.ours:
        ht.use_in(transformers)
    logging.disable(logging.INFO)
    arguments = transformers.TrainingArguments(
        "out",
        per_device_train_batch_size=BATCH,
        num_train_epochs=EPOCHS,
        use_cpu=True,
        report_to=[],
        save_strategy="no",
        disable_tqdm=True,
        logging_strategy="no",
        dataloader_num_workers=WORKERS,
    )
    transformers.Trainer(Model(), arguments, train_dataset=kind.data, data_collator=pairs).train()


def pairs(items):
    """The batch as transformers' Trainer hands it on, by the names of a model's arguments."""
    return {"x": torch.stack([x for x, _ in items]), "labels": torch.tensor([y for _, y in items])}


def timm_train(kind, ranks):
    """train.py with ``--no-prefetcher``."""
    from functools import partial

    from timm.data.loader import _worker_init

    sampler = DistributedSampler(kind.data) if ranks > 1 else None
    batches(
        kind(
            shuffle=sampler is None,
            sampler=sampler,
            drop_last=True,
            worker_init_fn=partial(_worker_init, worker_seeding="all"),
            persistent_workers=True,
        )
    )


def torchvision_reference(kind, ranks):
    batches(kind(sampler=DistributedSampler(kind.data) if ranks > 1 else RandomSampler(kind.data)))


def torchdata_stateful(kind, ranks):
    """torchdata's loader against ours, both without a state asked for."""
    from torchdata.stateful_dataloader import StatefulDataLoader

    sampler = DistributedSampler(kind.data) if ranks > 1 else RandomSampler(kind.data)
    batches(
        kind(sampler=sampler)
        if kind.ours
        else StatefulDataLoader(kind.data, BATCH, num_workers=WORKERS, sampler=sampler)
    )


def ray_train(kind, ranks):
    """Loaders that Ray Train's prepare_data_loader leaves as they are: with more than one rank,
    those whose sampler is a DistributedSampler."""
    batches(
        kind(shuffle=True)
        if ranks == 1
        else kind(shuffle=True, shard=True, seed=0)
        if kind.ours
        else kind(sampler=DistributedSampler(kind.data))
    )


def measure(framework, root, ranks, rounds):
    """The seconds of every round, by loader."""
    kinds = {"torch": Kind(root, False), "ours": Kind(root, True)}
    seconds = {name: [] for name in kinds}
    for number in range(rounds + 1):
        for name in sorted(kinds, reverse=number % 2 == 0):
            if torch.distributed.is_initialized():
                torch.distributed.barrier()
            begin = time.perf_counter()
            framework(kinds[name], ranks)
            took = time.perf_counter() - begin
            gc.collect()  # loaders that frameworks kept
            if number:
                seconds[name].append(took)
    return seconds


if __name__ == "__main__":
    root, _, out, ranks, name, rounds = sys.argv[1:]
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    if int(ranks) > 1 and name not in (
        "lightning_trainer",
        "lightning_fabric",
        "accelerated",
        "transformers_trainer",
    ):  # these initialise it themselves
        torch.distributed.init_process_group("gloo")
    found = measure(globals()[name], root, int(ranks), int(rounds))
    with open(os.path.join(out, os.environ.get("RANK", "0")), "w") as file:
        json.dump(found, file)
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()  # else torch may abort the process as it exits
