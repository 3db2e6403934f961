"""The structure of transformers' examples/pytorch/image-classification/run_image_classification.py:
an imagefolder, transforms by set_transform, a collate function, a model, the Trainer.

Ours differs by two lines: the datasets are wrapped, and the Trainer uses our loader.
"""

import logging
import warnings

import datasets
import torch
from common import OURS, ROOT, WHICH, served, write
from torchvision.transforms import (
    CenterCrop,
    Compose,
    Normalize,
    RandomHorizontalFlip,
    RandomResizedCrop,
    Resize,
    ToTensor,
)
from transformers import Trainer, TrainingArguments, ViTConfig, ViTForImageClassification, set_seed

if OURS:
    import hdmlp.torch as ht
    import transformers

    ht.use_in(transformers)

warnings.simplefilter("ignore")
logging.disable(logging.INFO)
datasets.disable_progress_bars()


def collate_fn(examples):
    pixel_values = torch.stack([example["pixel_values"] for example in examples])
    labels = torch.tensor([example["label"] for example in examples])
    return {"pixel_values": pixel_values, "labels": labels}


def main():
    set_seed(7)
    dataset = datasets.load_dataset("imagefolder", data_dir=ROOT, cache_dir=f"{WHICH}-cache")
    dataset = dataset["train"].train_test_split(0.3, seed=7)
    labels = dataset["train"].features["label"].names
    size = (16, 16)
    normalize = Normalize(mean=[0.5, 0.5, 0.5], std=[0.5, 0.5, 0.5])
    _train_transforms = Compose(
        [
            RandomResizedCrop(size, scale=(1, 1), ratio=(1, 1)),
            RandomHorizontalFlip(0.0),
            ToTensor(),
            normalize,
        ]
    )
    _val_transforms = Compose([Resize(size), CenterCrop(size), ToTensor(), normalize])

    def train_transforms(example_batch):
        """Apply _train_transforms across a batch."""
        example_batch["pixel_values"] = [
            _train_transforms(pil_img.convert("RGB")) for pil_img in example_batch["image"]
        ]
        return example_batch

    def val_transforms(example_batch):
        """Apply _val_transforms across a batch."""
        example_batch["pixel_values"] = [
            _val_transforms(pil_img.convert("RGB")) for pil_img in example_batch["image"]
        ]
        return example_batch

    dataset["train"].set_transform(train_transforms)
    dataset["test"].set_transform(val_transforms)
    train, test = dataset["train"], dataset["test"]
    if OURS:
        train, test = ht.HFDataset(train), ht.HFDataset(test)

    class NotesForImageClassification(ViTForImageClassification):
        """Notes what it is given."""

        def __init__(self, config):
            super().__init__(config)
            self.seen = {True: [], False: []}

        def forward(self, pixel_values=None, labels=None, **others):
            sums = [round(float(x), 4) for x in pixel_values.double().abs().sum((1, 2, 3))]
            self.seen[self.training].append([sums, labels.tolist()])
            return super().forward(pixel_values, labels=labels, **others)

    config = ViTConfig(
        image_size=16,
        patch_size=8,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        num_labels=len(labels),
        label2id={label: i for i, label in enumerate(labels)},
        id2label=dict(enumerate(labels)),
    )
    model = NotesForImageClassification(config)
    arguments = TrainingArguments(
        "kept",
        remove_unused_columns=False,
        per_device_train_batch_size=4,
        per_device_eval_batch_size=5,
        num_train_epochs=2,
        use_cpu=True,
        report_to=[],
        save_strategy="no",
        eval_strategy="epoch",
        disable_tqdm=True,
        dataloader_num_workers=2,
        logging_steps=1000,
        seed=7,
    )
    trainer = Trainer(
        model=model,
        args=arguments,
        data_collator=collate_fn,
        train_dataset=train,
        eval_dataset=test,
    )
    trainer.train()
    rank = arguments.process_index
    write(rank, trained=model.seen[True], validated=model.seen[False])
    if OURS:
        loader = trainer.callback_handler.train_dataloader
        write(
            rank,
            _module=type(loader.base_dataloader).__module__,
            _served=[served(loader), sum(len(labels) for _, labels in model.seen[True])],
        )


main()
