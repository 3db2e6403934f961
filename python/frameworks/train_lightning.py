"""Lightning: argv adds strategy, whether loaders are made in a DataModule's hooks, and what else is asked of the Trainer."""

import json
import logging
import os
import warnings

import lightning
import torch
from common import DATA, LOADER, RANKS, REST, write

STRATEGY, WHERE, EXTRA = REST
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
warnings.simplefilter("ignore")


class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.line = torch.nn.Linear(1, 1)
        self.trained, self.validated = [], []

    def training_step(self, batch, _):
        self.trained.append((self.current_epoch, batch[0].flatten().tolist(), batch[1].tolist()))
        return self.line(batch[0] / 1000).mean()

    def validation_step(self, batch, _):
        self.validated.append((self.current_epoch, batch[0].flatten().tolist()))

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 1e-3)

    def on_train_end(self):
        write(os.environ.get("LOCAL_RANK", 0), [self.trained, self.validated])


def train():
    return LOADER(DATA, 4, shuffle=True)


def validate():
    return LOADER(DATA, 5)


class Module(lightning.LightningDataModule):
    def train_dataloader(self):
        return train()

    def val_dataloader(self):
        return validate()


if __name__ == "__main__":
    lightning.seed_everything(5)
    trainer = lightning.Trainer(
        max_epochs=3, accelerator="cpu", devices=int(RANKS), strategy=STRATEGY, logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False, **json.loads(EXTRA))
    if WHERE == "hooks":
        trainer.fit(Model(), datamodule=Module())
    else:
        trainer.fit(Model(), train(), validate())
