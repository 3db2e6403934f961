"""Lightning's Trainer. argv adds the strategy, and which parts to run."""

import logging
import os
import sys
import warnings

import lightning
import torch
from common import LOADER, OURS, RANKS, REST, folder, plain, served, write
from lightning.pytorch.callbacks import ModelCheckpoint

STRATEGY, PARTS = REST[0], REST[1].split(",")
DATA = folder()
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
warnings.simplefilter("ignore")


class Model(lightning.LightningModule):
    def __init__(self, name):
        super().__init__()
        self.name = name
        self.line = torch.nn.Linear(1, 1)
        self.trained, self.validated = [], []

    def training_step(self, batch, _):
        self.trained.append((self.current_epoch, plain(batch)))
        return self.line(batch[0] / 1000).mean()

    def validation_step(self, batch, _):
        self.validated.append((self.current_epoch, plain(batch[0])))

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 1e-3)

    def on_train_end(self):
        counted = (
            [
                [served(loader), sum(len(x[0]) for _, x in self.trained)]
                for loader in [self.trainer.train_dataloader]
            ]
            if OURS
            else []
        )
        write(
            self.global_rank,
            **{self.name: [self.trained, self.validated], f"_{self.name}": counted},
        )


class Module(lightning.LightningDataModule):
    def train_dataloader(self):
        return LOADER(DATA, 4, shuffle=True)

    def val_dataloader(self):
        return LOADER(DATA, 5)


def fit(name, *loaders, ckpt_path=None, **more):
    """Trains a new model, of which a checkpoint is kept if ``more`` says where."""
    trainer = lightning.Trainer(
        **{
            "max_epochs": 3,
            "accelerator": "cpu",
            "devices": int(RANKS),
            "strategy": STRATEGY,
            "logger": False,
            "enable_checkpointing": "callbacks" in more,
            "enable_progress_bar": False,
            "enable_model_summary": False,
            **more,
        }
    )
    if loaders:
        trainer.fit(Model(name), *loaders, ckpt_path=ckpt_path)
    else:
        trainer.fit(Model(name), datamodule=Module(), ckpt_path=ckpt_path)


#: An epoch's last step.
LAST = 7 if RANKS == "1" else 4


def generator():
    return torch.Generator().manual_seed(11)


def resume(kept):
    """Trains with checkpoints at each step, and goes on from some of them in other Trainers, from
    which torch's loader cannot."""
    callbacks = [ModelCheckpoint("kept", "{step}", every_n_train_steps=1, save_top_k=-1)]
    fit(
        "whole",
        LOADER(DATA, 4, shuffle=True, generator=generator()),
        max_epochs=2,
        callbacks=callbacks,
        num_sanity_val_steps=0,
    )
    if OURS:
        for step in (kept, 2 * kept, LAST):
            fit(
                f"from step {step}",
                LOADER(DATA, 4, shuffle=True, generator=generator()),
                ckpt_path=f"kept/step={step}.ckpt",
                max_epochs=2,
            )


if __name__ == "__main__":
    sys.executable = os.environ["PYTHON_EXEC"]  # of the ranks that it starts: preloaded
    lightning.seed_everything(5)
    for part in PARTS:
        if part == "arguments":
            fit("arguments", LOADER(DATA, 4, shuffle=True), LOADER(DATA, 5))
        elif part == "hooks":
            fit("hooks")
        elif part == "options":
            fit("overfit", LOADER(DATA, 4, shuffle=True), LOADER(DATA, 5), overfit_batches=2)
            fit("limit", LOADER(DATA, 4, shuffle=True), LOADER(DATA, 5), limit_train_batches=3)
            fit(
                "some validation",
                LOADER(DATA, 4, shuffle=True),
                LOADER(DATA, 5),
                num_sanity_val_steps=0,
                check_val_every_n_epoch=2,
            )
        elif part == "resume":
            resume(2 if RANKS == "1" else 1)
