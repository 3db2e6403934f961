"""Contenders of bench/records.py: datasets of records through HDMLP, and the same data through
torch's loader, webdataset and mosaicml-streaming. They have the methods of those of loaders.py.

Samples stay encoded bytes, except for pairs and volumes, which are decoded.
"""

import io
import os
import shutil
import tempfile
from collections.abc import Iterator
from typing import Any, Callable, Optional

import record_data
from loaders import HDMLP, Batch


def loaded(spec: dict[str, Any], dataset: Any, **options: Any) -> Any:
    """torch's loader of a dataset; its workers stay from epoch to epoch."""
    import torch.utils.data

    workers = spec["workers"]
    return torch.utils.data.DataLoader(
        dataset,
        batch_size=spec["batch_size"],
        num_workers=workers,
        persistent_workers=workers > 0,
        **options,
    )


def samples_and_labels(batch: Any) -> Batch:
    """A batch as rank.py takes it: default_collate makes tuples of what it does not stack."""
    samples = batch[0]
    return list(samples) if isinstance(samples, tuple) else samples, batch[-1]


class WebDataset:
    """webdataset's pipeline: shards shuffled, and samples in a buffer of 1,000."""

    def __init__(self, spec: dict[str, Any]) -> None:
        import webdataset

        self._wds, self._spec = webdataset, spec
        self._loader: Any = None
        self._copies = ""

    def start(self) -> None:
        spec = self._spec
        options = {}
        if "plain" in spec:
            names = [f"{spec['plain']}/{name}" for name in spec["names"]]
        else:
            names = numbered(spec, ".tar")
        if spec.get("copies"):
            self._copies = tempfile.mkdtemp(prefix="hdmlp-bench-")
            options["cache_dir"] = self._copies
        # A file's path is never copied to cache_dir, unlike what a command prints.
        form = "pipe:cat {}" if spec.get("copies") else "{}"
        dataset = self._wds.WebDataset(
            [form.format(name) for name in names],
            shardshuffle=len(names),
            seed=spec["seed"],
            **options,
        )
        self._loader = loaded(spec, dataset.shuffle(1000).to_tuple("jpg", "cls"))

    def epoch(self, epoch: int) -> Iterator[Batch]:
        return map(samples_and_labels, self._loader)

    def finish(self) -> None:
        self._loader = None
        if self._copies:
            shutil.rmtree(self._copies, ignore_errors=True)


class Streaming:
    """mosaicml-streaming: shards are copied to a local directory when they are first needed."""

    def __init__(self, spec: dict[str, Any]) -> None:
        import streaming

        self._streaming, self._spec = streaming, spec
        self._loader: Any = None
        self._copies = ""

    def start(self) -> None:
        spec = self._spec
        self._copies = tempfile.mkdtemp(prefix="hdmlp-bench-")
        dataset = self._streaming.StreamingDataset(
            remote=spec["path"],
            local=os.path.join(self._copies, "shards"),
            shuffle=True,
            shuffle_seed=spec["seed"],
            batch_size=spec["batch_size"],
        )
        self._loader = loaded(spec, dataset)

    def epoch(self, epoch: int) -> Iterator[Batch]:
        return (samples_and_labels((batch["jpg"], batch["cls"])) for batch in self._loader)

    def finish(self) -> None:
        self._loader = None
        shutil.rmtree(self._copies, ignore_errors=True)


class Boto3:
    """The obvious dataset over a bucket: a request for each item, by Amazon's package."""

    def __init__(self, spec: dict[str, Any]) -> None:
        import boto3

        self._boto3, self._spec = boto3, spec
        self._loader: Any = None

    def start(self) -> None:
        bucket = self._spec["path"].removeprefix("s3://")
        pages = self._boto3.client("s3").get_paginator("list_objects_v2").paginate(Bucket=bucket)
        keys = [found["Key"] for page in pages for found in page["Contents"]]
        keys = [key for key in keys if key.endswith(".jpg")]
        classes = {name: i for i, name in enumerate(sorted({key.split("/")[0] for key in keys}))}
        clients: dict[int, Any] = {}

        def get(key: str) -> bytes:
            if os.getpid() not in clients:
                clients[os.getpid()] = self._boto3.session.Session().client("s3")
            content: bytes = clients[os.getpid()].get_object(Bucket=bucket, Key=key)["Body"].read()
            return content

        dataset = own(keys, lambda i: (get(keys[i]), classes[keys[i].split("/")[0]]))
        self._loader = loaded(self._spec, dataset, shuffle=True)

    def epoch(self, epoch: int) -> Iterator[Batch]:
        return map(samples_and_labels, self._loader)

    def finish(self) -> None:
        self._loader = None


class S3Connector:
    """Amazon's s3torchconnector in torch's loader: a request for each item, by a native client."""

    def __init__(self, spec: dict[str, Any]) -> None:
        import s3torchconnector

        self._connector, self._spec = s3torchconnector, spec
        self._loader: Any = None

    def start(self) -> None:
        dataset = self._connector.S3MapDataset.from_prefix(
            f"{self._spec['path']}/",
            region=os.environ["AWS_REGION"],
            endpoint=os.environ["AWS_ENDPOINT_URL"],
            transform=content_and_class,
            s3client_config=self._connector.S3ClientConfig(force_path_style=True),
        )
        self._loader = loaded(self._spec, dataset, shuffle=True)

    def epoch(self, epoch: int) -> Iterator[Batch]:
        return map(samples_and_labels, self._loader)

    def finish(self) -> None:
        self._loader = None


def content_and_class(reader: Any) -> tuple[bytes, int]:
    """An object of s3torchconnector, and the number of its class folder, classN."""
    return reader.read(), int(reader.key.split("/")[0].removeprefix("class"))


class LitData:
    """litdata: chunks are copied to a local directory when they are first needed."""

    def __init__(self, spec: dict[str, Any]) -> None:
        import litdata
        from litdata.streaming import downloader

        # Its client of S3 refuses endpoints without TLS, and no option of litdata's allows them.
        downloader._OBSTORE_CLIENT_OPTIONS["allow_http"] = True
        self._litdata, self._spec = litdata, spec
        self._loader: Any = None
        self._copies = ""

    def start(self) -> None:
        spec = self._spec
        self._copies = tempfile.mkdtemp(prefix="hdmlp-bench-")
        dataset = self._litdata.StreamingDataset(
            spec["path"],
            cache_dir=self._copies,
            shuffle=True,
            seed=spec["seed"],
            storage_options={"endpoint_url": os.environ["AWS_ENDPOINT_URL"]},
        )
        self._loader = self._litdata.StreamingDataLoader(
            dataset,
            batch_size=spec["batch_size"],
            num_workers=spec["workers"],
            persistent_workers=True,
        )

    def epoch(self, epoch: int) -> Iterator[Batch]:
        return (samples_and_labels((batch["jpg"], batch["cls"])) for batch in self._loader)

    def finish(self) -> None:
        self._loader = None
        shutil.rmtree(self._copies, ignore_errors=True)


class PyLMDB:
    """py-lmdb in torch's loader: values are copied from the map, each rank's by the sampler."""

    def __init__(self, spec: dict[str, Any]) -> None:
        import lmdb
        import torch.utils.data

        self._lmdb, self._torch, self._spec = lmdb, torch, spec
        self._loader: Any = None

    def start(self) -> None:
        spec = self._spec
        environment = self._lmdb.open(spec["path"], readonly=True, lock=False, readahead=False)
        transaction = environment.begin(buffers=False)
        dataset = own(range(spec["count"]), lambda i: (transaction.get(b"%08d" % i), i))
        self._sampler = self._torch.utils.data.distributed.DistributedSampler(
            dataset, spec["world_size"], spec["rank"], seed=spec["seed"]
        )
        self._loader = loaded(spec, dataset, sampler=self._sampler)

    def epoch(self, epoch: int) -> Iterator[Batch]:
        self._sampler.set_epoch(epoch)
        return map(samples_and_labels, self._loader)

    def finish(self) -> None:
        self._loader = None


class Own:
    """The obvious dataset of one's own in torch's loader: files by a list, pairs, volumes."""

    def __init__(self, spec: dict[str, Any]) -> None:
        import torchvision  # noqa: F401  # imported before anything is timed

        self._spec = spec
        self._loader: Any = None

    def start(self) -> None:
        self._loader = loaded(self._spec, OWN[self._spec["source"]](self._spec), shuffle=True)

    def epoch(self, epoch: int) -> Iterator[Batch]:
        return map(samples_and_labels, self._loader)

    def finish(self) -> None:
        self._loader = None


class Decoding:
    """What the items take at least: they are made one after another, in this process."""

    def __init__(self, spec: dict[str, Any]) -> None:
        import torchvision  # noqa: F401

        self._spec = spec
        self._dataset: Any = None

    def start(self) -> None:
        self._dataset = OWN[self._spec["source"]](self._spec)

    def epoch(self, epoch: int) -> Iterator[Batch]:
        size, count = self._spec["batch_size"], len(self._dataset)
        for begin in range(0, count, size):
            items = [self._dataset[i] for i in range(begin, min(begin + size, count))]
            yield [item[0] for item in items], [item[-1] for item in items]

    def finish(self) -> None:
        pass


class Copy:
    """One copy in memory: batches are stacked of volumes that lie there."""

    def __init__(self, spec: dict[str, Any]) -> None:
        import torch

        self._torch, self._spec = torch, spec
        self._volumes: list[Any] = []

    def start(self) -> None:
        dataset = OWN["volumes"](self._spec)
        self._volumes = [self._torch.from_numpy(dataset[i][0]) for i in range(len(dataset))]

    def epoch(self, epoch: int) -> Iterator[Batch]:
        size = self._spec["batch_size"]
        for begin in range(0, len(self._volumes), size):
            some = self._volumes[begin : begin + size]
            yield self._torch.stack(some), list(range(len(some)))

    def finish(self) -> None:
        self._volumes = []


class Records(HDMLP):
    """Datasets of records through HDMLP."""

    def __init__(self, spec: dict[str, Any]) -> None:
        import torchvision  # noqa: F401

        super().__init__(spec)

    def start(self) -> None:
        spec = self._spec
        dataset, options = OURS[spec["source"]](spec)
        options.update({key: spec[key] for key in ("memory", "num_workers") if spec.get(key)})
        self._loader = self._ht.DataLoader(
            dataset,
            batch_size=spec["batch_size"],
            shuffle=True,
            epochs=spec["epochs"],
            seed=spec["seed"],
            **options,
        )

    def epoch(self, epoch: int) -> Iterator[Batch]:
        if self._spec["source"] == "lmdb":  # whose items are values alone
            return ((list(batch), range(len(batch))) for batch in self._loader)
        return map(samples_and_labels, self._loader)


Made = tuple[Any, dict[str, Any]]


def numbered(spec: dict[str, Any], suffix: str) -> list[str]:
    """The files of a directory whose names end so, sorted."""
    names = sorted(name for name in os.listdir(spec["path"]) if name.endswith(suffix))
    return [os.path.join(spec["path"], name) for name in names]


def shards(spec: dict[str, Any]) -> Made:
    import hdmlp.torch as ht

    return ht.WebDataset(f"{spec['path']}/*.tar", fields=["jpg", "cls"]), {}


def lmdb_values(spec: dict[str, Any]) -> Made:
    import hdmlp.torch as ht

    return ht.LMDB(spec["path"]), {"shard": True}


def stored(spec: dict[str, Any]) -> Made:
    import hdmlp.torch as ht

    return ht.ImageFolder(spec["path"]), {}


def files(spec: dict[str, Any]) -> Made:
    import hdmlp.torch as ht

    paths, labels = zip(*record_data.photos(spec["path"]))
    return ht.Files(paths, labels), {}


def file_dataset(spec: dict[str, Any]) -> Made:
    import hdmlp.torch as ht

    class Photos(ht.FileDataset):
        photos = record_data.photos(spec["path"])

        def __len__(self) -> int:
            return len(self.photos)

        def files_of(self, i: int) -> str:
            return self.photos[i][0]

        def make(self, i: int, *contents: Any) -> Any:
            return bytes(contents[0]), self.photos[i][1]

    return Photos(), {}


def declared(spec: dict[str, Any]) -> Made:
    dataset = own_photos(spec)
    return dataset, {"files": lambda i: dataset.photos[i][0]}


def pairs(spec: dict[str, Any]) -> Made:
    """Image and mask: the daemon decodes the image, Python the mask, whose levels are classes."""
    import hdmlp.torch as ht

    photos = record_data.photos(spec["path"])
    paths = [(name, record_data.mask_of(spec["masks"], name)) for name, _ in photos]
    return ht.Files(
        paths, list(range(len(paths))), loader={"1": mask}, transform={"0": image_steps()}
    ), {}


def two_images(spec: dict[str, Any]) -> Made:
    """Two photos per record, both of which the daemon decodes."""
    import hdmlp.torch as ht

    names = [name for name, _ in record_data.photos(spec["path"])]
    steps = image_steps()
    paths = list(zip(names, names[1:] + names[:1]))
    return ht.Files(paths, list(range(len(paths))), transform={"0": steps, "1": steps}), {}


def one_image(spec: dict[str, Any]) -> Made:
    import hdmlp.torch as ht

    names = [name for name, _ in record_data.photos(spec["path"])]
    return ht.Files(names, list(range(len(names))), transform=image_steps()), {}


def volumes(spec: dict[str, Any]) -> Made:
    import hdmlp.torch as ht

    paths = numbered(spec, ".npy")
    return ht.Files(paths, list(range(len(paths))), decode=True), {}


def joint_steps() -> Any:
    """What segmentation trains with, of image and mask together."""
    import torch
    from torchvision import tv_tensors
    from torchvision.transforms import v2

    types = {tv_tensors.Image: torch.float32, tv_tensors.Mask: torch.int64, "others": None}
    return v2.Compose(
        [
            v2.RandomResizedCrop(224, antialias=True),
            v2.RandomHorizontalFlip(),
            v2.ToImage(),
            v2.ToDtype(types, scale=True),
            v2.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]),
        ]
    )


def segmentation(spec: dict[str, Any]) -> Made:
    """Image and mask with one list of transforms."""
    import hdmlp.torch as ht

    photos = record_data.photos(spec["path"])
    paths = [(name, record_data.mask_of(spec["masks"], name)) for name, _ in photos]
    kinds = {"0": "image", "1": "mask"}
    return ht.Files(paths, list(range(len(paths))), kinds=kinds, transform=joint_steps()), {}


def own_segmentation(spec: dict[str, Any]) -> Any:
    from PIL import Image
    from torchvision import tv_tensors

    photos, steps = record_data.photos(spec["path"]), joint_steps()

    def make(i: int) -> Any:
        image = Image.open(photos[i][0]).convert("RGB")
        of = Image.open(record_data.mask_of(spec["masks"], photos[i][0]))
        return *steps(image, tv_tensors.Mask(of)), i

    return own(photos, make)


def image_steps() -> Any:
    from torchvision import transforms as t

    return t.Compose([t.Resize(256), t.CenterCrop(224), t.ToTensor()])


def mask(data: Any) -> Any:
    """A mask of one channel as a tensor."""
    import numpy
    import torch
    from PIL import Image

    return torch.from_numpy(numpy.array(Image.open(io.BytesIO(data))))


def own(files: list[Any], make: Callable[[int], Any]) -> Any:
    """A dataset of one's own."""
    from torch.utils.data import Dataset

    class Mine(Dataset):
        photos = files

        def __len__(self) -> int:
            return len(files)

        def __getitem__(self, i: int) -> Any:
            return make(i)

    return Mine()


def read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def own_photos(spec: dict[str, Any]) -> Any:
    photos = record_data.photos(spec["path"])
    return own(photos, lambda i: (read(photos[i][0]), photos[i][1]))


def own_pairs(spec: dict[str, Any]) -> Any:
    from PIL import Image

    photos, steps = record_data.photos(spec["path"]), image_steps()

    def make(i: int) -> Any:
        image = steps(Image.open(photos[i][0]).convert("RGB"))
        return image, mask(read(record_data.mask_of(spec["masks"], photos[i][0]))), i

    return own(photos, make)


def own_masks(spec: dict[str, Any]) -> Any:
    photos = record_data.photos(spec["path"])
    return own(photos, lambda i: (mask(read(record_data.mask_of(spec["masks"], photos[i][0]))), i))


def own_volumes(spec: dict[str, Any]) -> Any:
    import numpy

    paths = numbered(spec, ".npy")
    return own(paths, lambda i: (numpy.load(paths[i]), i))


OURS: dict[str, Callable[[dict[str, Any]], Made]] = {
    "shards": shards,
    "stored": stored,
    "lmdb": lmdb_values,
    "files": files,
    "FileDataset": file_dataset,
    "declared": declared,
    "pairs": pairs,
    "segmentation": segmentation,
    "two images": two_images,
    "one image": one_image,
    "volumes": volumes,
}

OWN: dict[str, Callable[[dict[str, Any]], Any]] = {
    "files": own_photos,
    "pairs": own_pairs,
    "masks": own_masks,
    "segmentation": own_segmentation,
    "volumes": own_volumes,
}

CONTENDERS: dict[str, Optional[Any]] = {
    "webdataset": WebDataset,
    "streaming": Streaming,
    "boto3": Boto3,
    "s3torchconnector": S3Connector,
    "litdata": LitData,
    "py-lmdb": PyLMDB,
    "own": Own,
    "decoding": Decoding,
    "copy": Copy,
    "records": Records,
}
