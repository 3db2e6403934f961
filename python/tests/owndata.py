"""Datasets of a program's own, as people write them, over a few small files."""

import csv
import io
import json

import hdmlp.torch as ht
import numpy
import torch
from PIL import Image
from torch.utils.data import Dataset

COUNT = 23


def write(directory):
    """Writes images, masks, annotations, arrays, tensors and a table; returns the directory."""
    directory.mkdir()
    rng = numpy.random.default_rng(0)
    rows = []
    for i in range(COUNT):
        shape = (20 + i % 5, 24, 3)
        Image.fromarray(rng.integers(0, 255, shape, numpy.uint8)).save(directory / f"{i:02d}.png")
        Image.fromarray(rng.integers(0, 3, shape[:2], numpy.uint8)).save(directory / f"{i:02d}.bmp")
        (directory / f"{i:02d}.json").write_text(json.dumps({"boxes": [[i, 0, 1, 2]], "é": i}))
        (directory / f"{i:02d}.txt").write_bytes(f"line {i}\r\nünd\r\n".encode())
        numpy.save(directory / f"{i:02d}.npy", rng.integers(0, 9, (4, 4)))
        torch.save({"x": torch.full((3,), i)}, directory / f"{i:02d}.pt")
        rows.append([f"{i:02d}.png", i % 3])
    with open(directory / "labels.csv", "w", newline="") as file:
        csv.writer(file).writerows(rows)
    return directory


class Own(Dataset):
    """Base of the datasets: item i reads the files of one number, with these suffixes."""

    suffixes = ()

    def __init__(self, directory, count=COUNT):
        self.directory, self.count = directory, count

    def __len__(self):
        return self.count

    def path(self, i, suffix):
        return self.directory / f"{i:02d}.{suffix}"

    def files(self, i):
        return [self.path(i, suffix) for suffix in self.suffixes]


class Table(Own):
    """A table of labels, and images."""

    suffixes = ("png",)

    def __init__(self, directory):
        super().__init__(directory)
        with open(directory / "labels.csv", newline="") as file:
            self.rows = list(csv.reader(file))

    def __getitem__(self, i):
        name, label = self.rows[i]
        image = Image.open(self.directory / name).convert("RGB").resize((16, 16))
        return torch.from_numpy(numpy.array(image)), int(label)


class Masks(Own):
    """Pairs of an image and a mask, opened by their names as texts and as bytes."""

    suffixes = ("png", "bmp")

    def __getitem__(self, i):
        image = Image.open(str(self.path(i, "png"))).resize((16, 16))
        with open(bytes(self.path(i, "bmp")), mode="rb") as file:
            mask = numpy.array(Image.open(file).resize((16, 16)))
        return torch.from_numpy(numpy.array(image)), torch.from_numpy(mask)


class Annotated(Own):
    """Annotations of each image; read in every way in which Python reads."""

    suffixes = ("json", "npy", "pt", "txt")

    def __getitem__(self, i):
        with open(self.path(i, "json"), encoding="utf-8") as file:
            boxes = json.load(file)
        found = {
            "box": torch.tensor(boxes["boxes"]),
            "id": boxes["é"],
            "array": numpy.load(self.path(i, "npy")),
            "mapped": numpy.array(numpy.load(self.path(i, "npy"), mmap_mode="r")),
            "tensor": torch.load(self.path(i, "pt"))["x"],
            "text": self.path(i, "txt").read_text("utf-8"),
            "bytes": self.path(i, "txt").read_bytes(),
        }
        with open(self.path(i, "txt"), encoding="utf-8", newline="") as file:
            found["lines"] = "|".join(file)
        with open(self.path(i, "txt"), "rb", 0) as file:
            file.seek(3)
            found["raw"] = file.read(4)
        return found


class Drawing(Own):
    """Draws random numbers."""

    suffixes = ("npy",)

    def __getitem__(self, i):
        return torch.from_numpy(numpy.load(self.path(i, "npy"))) + torch.rand(()), i


class Bytes(Own):
    """A file's bytes, as numbers."""

    suffixes = ("txt",)

    def __getitem__(self, i):
        with open(self.path(i, "txt"), "rb") as file:
            return torch.tensor(list(file.read()[:6]))


class Batched(Bytes):
    """Makes whole batches."""

    def __getitems__(self, indices):
        return [self[i] for i in indices]


class Made(ht.FileDataset):
    """The images and annotations of :class:`Own`, made of bytes; odd items have no annotation."""

    def __init__(self, directory, count=COUNT):
        self.directory, self.count = directory, count
        self.targets, self.classes = [i % 3 for i in range(count)], ["a", "b", "c"]

    def __len__(self):
        return self.count

    def files_of(self, i):
        image = str(self.directory / f"{i:02d}.png")
        return image if i % 2 else (image, self.directory / f"{i:02d}.json")

    def make(self, i, image, *annotation):
        assert image.readonly
        pixels = numpy.array(Image.open(io.BytesIO(image)).resize((16, 16)))
        number = json.loads(bytes(annotation[0]))["é"] if annotation else -1
        return torch.from_numpy(pixels), number


class Contents(ht.FileDataset):
    """The bytes of one file, as they are."""

    def __init__(self, directory, suffix="txt", count=COUNT):
        self.directory, self.suffix, self.count = directory, suffix, count

    def __len__(self):
        return self.count

    def files_of(self, i):
        return self.directory / f"{i:02d}.{self.suffix}"

    def make(self, i, data):
        return data, i


class Ragged(Contents):
    """Tensors of different shapes."""

    def make(self, i, data):
        return {"id": i, "data": torch.frombuffer(bytearray(data), dtype=torch.uint8)[: 3 + i % 4]}
