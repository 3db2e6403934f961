"""transformers' Trainer, over the dataset: one line has it use our loader."""

import logging
import warnings

import torch
from common import OURS, folder, plain, served, write
from transformers import Trainer, TrainingArguments

if OURS:
    import hdmlp.torch as ht
    import transformers

    ht.use_in(transformers)

warnings.simplefilter("ignore")
logging.disable(logging.INFO)
DATA = folder()


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.line = torch.nn.Linear(1, 1)
        self.seen = {True: [], False: []}

    def forward(self, x, labels):
        self.seen[self.training].append(plain([x, labels]))
        return {"loss": self.line(x / 1000).mean(), "logits": x}


def collate(items):
    return {"x": torch.stack([x for x, _ in items]), "labels": torch.tensor([y for _, y in items])}


def trained(**more):
    """The model that a Trainer made of a new one, and the Trainer."""
    model = Model()
    arguments = TrainingArguments(
        "kept",
        per_device_train_batch_size=4,
        per_device_eval_batch_size=5,
        num_train_epochs=2,
        use_cpu=True,
        report_to=[],
        save_strategy="steps",
        save_steps=SAVE,
        eval_strategy="epoch",
        disable_tqdm=True,
        logging_steps=1000,
    )
    trainer = Trainer(
        model, arguments, train_dataset=DATA, eval_dataset=DATA, data_collator=collate
    )
    trainer.train(**more)
    return model, trainer


SAVE = 5
model, trainer = trained()
rank = trainer.args.process_index
write(rank, trained=model.seen[True], validated=model.seen[False], steps=SAVE)
if OURS:
    loader = trainer.callback_handler.train_dataloader
    write(
        rank,
        _module=type(loader.base_dataloader).__module__,
        _served=[served(loader), sum(len(x) for x, _ in model.seen[True])],
    )
model, _ = trained(resume_from_checkpoint=f"kept/checkpoint-{SAVE}")
write(rank, resumed=model.seen[True])
