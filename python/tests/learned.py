"""Iterates datasets as training scripts do, for the tests of `hdmlp learn`.

The arguments say which dataset (a function of this module), where its files are, and how many
workers make its items.
"""

import csv
import ctypes
import json
import os
import pathlib
import random
import sys

import numpy
import torch
from owndata import COUNT, Annotated, Batched, Bytes, Masks, Table
from PIL import Image
from torch.utils.data import ConcatDataset, DataLoader, Dataset, Subset, TensorDataset


class Rows(Dataset):
    """The files of a table of a column of stems and one of kinds."""

    def __init__(self, directory):
        self.root = str(directory)
        with open(os.path.join(directory, "labels.csv"), newline="") as file:
            self.rows = [{"name": name[:-4], "label": label} for name, label in csv.reader(file)]

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        row = self.rows[i]
        image = Image.open(os.path.join(self.root, row["name"] + ".png")).resize((8, 8))
        mask = Image.open(f"{self.root}/{row['name']}.bmp").resize((8, 8))
        return numpy.array(image), numpy.array(mask), int(row["label"])

    def files(self, i):
        return [f"{self.root}/{self.rows[i]['name']}{suffix}" for suffix in (".png", ".bmp")]


class Coco(Dataset):
    """Annotations of images by their numbers, in one file, as in COCO."""

    def __init__(self, directory):
        self.root = pathlib.Path(directory)
        names = sorted(path.name for path in self.root.glob("*.png"))
        images = [{"id": 7 * i + 100, "file_name": name} for i, name in enumerate(names)]
        text = json.dumps({"images": images})
        self.images = {image["id"]: image for image in json.loads(text)["images"]}
        self.ids = sorted(self.images, reverse=True)

    def __len__(self):
        return len(self.ids)

    def name(self, i):
        return self.images[self.ids[i]]["file_name"]

    def __getitem__(self, i):
        return numpy.array(Image.open(self.root / self.name(i)).resize((8, 8)))

    def files(self, i):
        return [self.root / self.name(i)]


class Listed(Coco):
    """Files by a list of paths."""

    def __init__(self, directory):
        self.paths = sorted(pathlib.Path(directory).glob("*.png"))

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, i):
        return numpy.array(Image.open(self.paths[i]).resize((8, 8)))

    def files(self, i):
        return [self.paths[i]]


class Frame(Listed):
    """Files by a column of a table of pandas."""

    def __init__(self, directory):
        import pandas

        super().__init__(directory)
        self.frame = pandas.DataFrame({"path": [str(path) for path in self.paths]})
        del self.paths

    def __len__(self):
        return len(self.frame)

    def __getitem__(self, i):
        return numpy.array(Image.open(self.frame.iloc[i]["path"]).resize((8, 8)))

    def files(self, i):
        return [self.frame.iloc[i]["path"]]


class Views(Listed):
    """One of three files, drawn at random."""

    def __init__(self, directory):
        super().__init__(directory)
        self.views = [[str(p) for p in self.paths[i : i + 3]] for i in range(COUNT - 2)]
        del self.paths

    def __len__(self):
        return len(self.views)

    def __getitem__(self, i):
        return numpy.array(Image.open(random.choice(self.views[i])).resize((8, 8)))

    def files(self, i):
        return self.views[i]


class Partly(Listed):
    """An image, and for some items a file under a name that follows from nothing else."""

    def __init__(self, directory):
        super().__init__(directory)
        others = sorted(directory.glob("*.txt"), reverse=True)
        self.others = {i: str(others[i]) for i in range(0, COUNT - 1, 2)}

    def __getitem__(self, i):
        if i in self.others:
            open(self.others[i]).close()
        return super().__getitem__(i)


class Reread(Listed):
    """Reads the table for each item."""

    def __getitem__(self, i):
        with open(self.paths[i].with_name("labels.csv")) as file:
            file.read()
        return super().__getitem__(i)


class ByNumber(Listed):
    """Opens the file with os.open."""

    def __getitem__(self, i):
        fd = os.open(self.paths[i], os.O_RDONLY)
        os.close(fd)
        return i


class BelowPython(Listed):
    """Opens the file in C."""

    def __getitem__(self, i):
        libc = ctypes.CDLL(None)
        fd = libc.open(os.fsencode(self.paths[i]), os.O_RDONLY)
        assert fd >= 0
        libc.close(fd)
        return i


class Held(Dataset):
    """Reads a part of one file, which it has opened before."""

    def __init__(self, directory):
        path = directory / "held.bin"
        path.write_bytes(bytes(8192 * COUNT))
        self.file = path.open("rb", buffering=0)

    def __len__(self):
        return COUNT

    def __getitem__(self, i):
        self.file.seek(8192 * i)
        return len(self.file.read(8192))


class Pictures(Listed):
    """Images by cv2."""

    def __getitem__(self, i):
        import cv2

        return cv2.imread(str(self.paths[i]))[:8, :8]


class Failing(Listed):
    """One item raises an exception."""

    def __getitem__(self, i):
        if i == 5:
            raise ValueError("item 5 is bad")
        return super().__getitem__(i)


def part(directory):
    return Subset(Coco(directory), [5, 3, 11, 2])


def parts(directory):
    return ConcatDataset([Listed(directory), Subset(Coco(directory), range(9)), Listed(directory)])


def nothing(_directory):
    return TensorDataset(torch.zeros(20, 3))


DATASETS = {
    each.__name__: each
    for each in (
        *(Annotated, Batched, BelowPython, ByNumber, Bytes, Coco, Failing, Frame, Held, Listed),
        *(Masks, Partly, Pictures, Reread, Rows, Table, Views, part, parts, nothing),
    )
}


def main():
    name, directory, workers, kind = sys.argv[1:5]
    dataset = DATASETS[name](pathlib.Path(directory))
    if kind == "hdmlp":
        import hdmlp.torch as ht

        with ht.DataLoader(
            dataset, 4, shuffle=True, seed=3, epochs=2, num_workers=int(workers)
        ) as loader:
            for _ in range(2):
                for _ in loader:
                    pass
        return
    loader = DataLoader(
        dataset,
        4,
        shuffle=True,
        num_workers=int(workers),
        collate_fn=list,
        multiprocessing_context=kind if kind != "torch" else None,
    )
    for _ in range(2):
        for _ in loader:
            pass
    print("trained")


if __name__ == "__main__":
    main()
