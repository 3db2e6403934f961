"""Batches mixed by ``batch_transform=``: in a loop of several ranks (gloo), in Lightning's Trainer
and with accelerate after ``use_in``. argv adds which. With ours alone.

Each rank writes whether its batches are what the mixers' own code makes of the same samples under
the documented seeds, and the shares of labels in each batch, which tell the parameters.
"""

import os
import sys

import hdmlp.torch as ht
import torch
from common import RANKS, REST, folder, write
from timm.data.mixup import Mixup
from torchvision.transforms import v2

SEED, EPOCHS = 11, 2


def image(data):
    """An image, which tells its sample."""
    return torch.arange(3 * 8 * 8).view(3, 8, 8) * 0.01 + len(data)


DATA = folder(image)


def mixer(name):
    both = [v2.MixUp(num_classes=2, alpha=0.6), v2.CutMix(num_classes=2)]
    return {
        "MixUp": lambda: both[0],
        "CutMix": lambda: both[1],
        "RandomChoice": lambda: v2.RandomChoice(both),
        "timm": lambda: Mixup(cutmix_alpha=1.0, num_classes=2),
    }[name]()


def loader(mix, **options):
    return ht.DataLoader(
        DATA, 4, shuffle=True, seed=SEED, drop_last=True, batch_transform=mix, **options
    )


def found(batch):
    """What is compared of a batch: its bits, as text."""
    images, labels = batch
    return [images.numpy().tobytes().hex(), labels.tolist()]


def wanted(mix, batch, epoch, step, rank):
    with ht.seeded_batch(SEED, epoch, step, rank):
        images, labels = mix(*batch) if type(mix) is Mixup else mix(batch)
    return found([images, labels])


def both_ways(name, make, rank):
    """Epochs of a loader that mixes, and of one whose batches are mixed here."""
    got = [[found(batch) for batch in epoch] for epoch in make(mixer(name))]
    want = [
        [wanted(mixer(name), batch, epoch, step, rank) for step, batch in enumerate(batches)]
        for epoch, batches in enumerate(make(None))
    ]
    return {"equal": got == want, "shares": [[shares(one) for _, one in epoch] for epoch in got]}


def shares(labels):
    """The shares of two labels in a batch: they tell how it was mixed."""
    return sorted({share for row in labels for share in row if 0 < share < 1})


def in_a_loop(name, rank):
    def epochs(mix):
        made = loader(mix, shard=RANKS != "1")
        for epoch in range(EPOCHS):
            made.set_epoch(epoch)
            yield made

    return both_ways(name, epochs, rank)


def in_lightning(name):
    import lightning

    class Model(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.line = torch.nn.Linear(1, 1)
            self.given = [[] for _ in range(EPOCHS)]

        def training_step(self, batch, _):
            self.given[self.current_epoch].append([part.clone() for part in batch])
            return self.line(batch[0].mean().view(1, 1)).mean()

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), 1e-3)

    ranks = []

    def epochs(mix):
        lightning.seed_everything(SEED)  # of several ranks, whose sampler Lightning makes
        trainer = lightning.Trainer(
            max_epochs=EPOCHS,
            accelerator="cpu",
            devices=int(RANKS),
            strategy="auto" if RANKS == "1" else "ddp",
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
        )
        model = Model()
        trainer.fit(model, loader(mix))
        ranks.append(trainer.global_rank)
        return model.given

    made = both_ways(name, epochs, int(os.environ.get("LOCAL_RANK", 0)))
    return ranks[0], made


def in_accelerate(name):
    import accelerate

    ht.use_in(accelerate)
    accelerator = accelerate.Accelerator(cpu=True)

    def epochs(mix):
        prepared = accelerator.prepare(loader(mix))
        assert type(prepared.base_dataloader) is ht.DataLoader
        for epoch in range(EPOCHS):
            prepared.set_epoch(epoch)
            yield prepared

    return accelerator.process_index, both_ways(name, epochs, accelerator.process_index)


if __name__ == "__main__":
    sys.executable = os.environ["PYTHON_EXEC"]  # of the ranks that Lightning starts: preloaded
    where, *names = REST
    rank = int(os.environ.get("RANK", 0))
    if where == "loop" and RANKS != "1":
        torch.distributed.init_process_group("gloo")
    for name in names:
        if where == "loop":
            made = in_a_loop(name, rank)
        else:
            rank, made = (in_lightning if where == "lightning" else in_accelerate)(name)
        write(rank, **{name: made})
