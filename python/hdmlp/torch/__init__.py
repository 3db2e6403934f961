"""Datasets and loaders for torch.

Example::

    import hdmlp.torch as ht

    dataset = ht.ImageFolder("/data/imagenet/train", transform=transform)
    loader = ht.DataLoader(dataset, batch_size=256, shuffle=True, epochs=90, seed=42)
    for epoch in range(90):
        for images, labels in loader:
            ...

With ``shard=True``, or torch's ``DistributedSampler``, several ranks share each epoch; rank and
world size come from the launcher. Without a transform a batch is a list of the samples' bytes,
read-only and in shared memory, and a tensor of labels: ``PIL.Image.open(io.BytesIO(x))`` decodes a
sample, ``bytes(x)`` copies it.
"""

try:
    import torch as _torch  # noqa: F401
except ModuleNotFoundError as error:
    if error.name != "torch":
        raise
    raise ModuleNotFoundError(
        "hdmlp.torch needs torch, which is not installed: install it (pip install torch), or use "
        "hdmlp.data, whose DataLoader gives NumPy arrays and needs no torch",
        name="torch",
    ) from None

from .._transforms.by_hand import batch_seed, item_seed, seeded, seeded_batch
from ._data.arrays import Arrays
from ._data.collation import stack_into
from ._data.folder import ImageFolder, pil_loader
from ._data.hdf5 import HDF5
from ._data.hf import HFDataset
from ._data.known_images import CIFAR10, CIFAR100, EMNIST, KMNIST, MNIST, FashionMNIST
from ._data.lmdb import LMDB
from ._data.mds import MDS
from ._data.mix import Mix
from ._data.own_items import FileDataset
from ._data.parquet import Parquet
from ._data.records import Files, Records
from ._data.tfrecord import TFRecord
from ._data.webdataset import WebDataset
from ._data.zips import Zip
from ._hooks import use_in
from ._loader import DataLoader
from ._thesis import HDMLPDataLoader, HDMLPDatasetFolder, HDMLPImageFolder, HDMLPImageNet

__all__ = [
    "CIFAR10",
    "CIFAR100",
    "EMNIST",
    "HDF5",
    "KMNIST",
    "LMDB",
    "MDS",
    "MNIST",
    "Arrays",
    "DataLoader",
    "FashionMNIST",
    "FileDataset",
    "Files",
    "HDMLPDataLoader",
    "HDMLPDatasetFolder",
    "HDMLPImageFolder",
    "HDMLPImageNet",
    "HFDataset",
    "ImageFolder",
    "Mix",
    "Parquet",
    "Records",
    "TFRecord",
    "WebDataset",
    "Zip",
    "batch_seed",
    "item_seed",
    "pil_loader",
    "seeded",
    "seeded_batch",
    "stack_into",
    "use_in",
]
