"""What programs replace in torch, torchvision and PIL: the matrix of ``test_originals.py``.

Each patch is a function which applies it, and the name of the loaders in :data:`LOADERS` whose
batches it changes. Nothing here imports HDMLP.
"""

import functools
import io
import sys
import types

import torch
import torchvision.transforms as V
from PIL import Image, ImageFile
from torch.utils.data import (
    BatchSampler,
    ConcatDataset,
    DataLoader,
    DistributedSampler,
    RandomSampler,
    SequentialSampler,
    Subset,
)
from torch.utils.data._utils import collate, fetch
from torch.utils.data.dataloader import (
    _BaseDataLoaderIter,
    _DatasetKind,
    _SingleProcessDataLoaderIter,
)
from torchvision import datasets

try:
    from torchvision.transforms import v2
except ImportError:
    v2 = None

F = V.functional
FOLDER = datasets.folder
PIL = V.functional.F_pil
HOOKS = torch.nn.modules.module

SMALL = [V.Resize((8, 8)), V.CenterCrop(6), V.ToTensor(), V.Normalize(0.5, 0.5)]
RANDOM = [V.RandomCrop(4), V.ToTensor()]
FLIPS = [V.CenterCrop(6), V.RandomHorizontalFlip(), V.ToTensor()]


def folder(root, transform=None, **arguments):
    return datasets.ImageFolder(root, V.Compose(transform or SMALL), **arguments)


def sampled(loader, data, **arguments):
    return loader(data, 4, sampler=DistributedSampler(data, 2, 1, seed=3, **arguments))


def sharded(loader, data):
    """The order of ``shard=True``, which torch has by a sampler."""
    if loader is DataLoader:
        return loader(data, 4, sampler=DistributedSampler(data, 1, 0, seed=3))
    return loader(data, 4, shard=True, rank=0, world_size=1, seed=3, shuffle=True)


def own_iterator(loader, data):
    class Own(loader):
        def _get_iterator(self):
            return ([-x, y] for x, y in super()._get_iterator())

    return Own(data, 4)


#: From a class of loaders and the root of a folder to a loader.
LOADERS = {
    "folder": lambda L, root: L(folder(root), 4),
    "default_loader": lambda L, root: L(folder(root, loader=FOLDER.default_loader), 4),
    "pil_loader": lambda L, root: L(folder(root, loader=FOLDER.pil_loader), 4),
    "random": lambda L, root: L(folder(root, RANDOM), 4),
    "flips": lambda L, root: L(folder(root, FLIPS), 4),
    "sequential": lambda L, root: L(
        datasets.ImageFolder(root, torch.nn.Sequential(*SMALL[:2])), 4, collate_fn=stacked
    ),
    "v2": lambda L, root: L(datasets.ImageFolder(root, v2.Compose(SECOND)), 4),
    "subset": lambda L, root: L(Subset(folder(root), [5, 1, 2, 3]), 2),
    "both": lambda L, root: L(ConcatDataset([folder(root), folder(root)]), 4),
    "DistributedSampler": lambda L, root: sampled(L, folder(root)),
    "shard": lambda L, root: sharded(L, folder(root)),
    "shuffle": lambda L, root: L(folder(root), 4, shuffle=True),
    "own iterator": lambda L, root: own_iterator(L, folder(root)),
}

SECOND = v2 and [
    v2.Resize((8, 8)),
    v2.CenterCrop(6),
    v2.ToImage(),
    v2.ToDtype(torch.float32, scale=True),
]


def stacked(pairs):
    """A batch of PIL images, as a list of their bytes."""
    return [image.tobytes() for image, _ in pairs], [label for _, label in pairs]


def turned(function):
    """Has a function return its first argument, an image, turned."""

    def turn(image, *arguments, **more):
        return function(image, *arguments, **more).transpose(Image.ROTATE_180)

    return turn


def wrapped(function):
    return functools.wraps(function)(turned(function))


def method(function):
    """Has a method return an image turned."""

    def turn(self, *arguments, **more):
        return function(self, *arguments, **more).transpose(Image.ROTATE_180)

    return turn


def negative(function):
    """Has a function return a tensor negated."""

    def negate(*arguments, **more):
        return -function(*arguments, **more)

    return negate


def backwards(function):
    """Has a method yield the other way round."""

    def turn(self):
        return iter(list(function(self))[::-1])

    return turn


def red(path):
    return Image.new("RGB", (10, 9), (255, 0, len(path) % 255))


def red_file(path, *_):
    data = io.BytesIO()
    red(path).save(data, "PNG")
    data.seek(0)
    return data


def replace(owner, name, function):
    """A patch which puts what a function makes of an attribute in its place."""

    def apply():
        setattr(owner, name, function(getattr(owner, name)))

    return apply


def put(owner, name, value):
    return replace(owner, name, lambda _: value)


def put_item(table, key, value):
    def apply():
        table[key] = value

    return apply


def opened(open_):
    def open_red(file, *arguments, **more):
        image = open_(file, *arguments, **more).convert("RGB")
        return Image.merge("RGB", image.split()[::-1])

    return open_red


def loaded(load):
    def load_and_invert(self):
        first = self.tile
        pixel = load(self)
        if first:
            self.im = self.im.point([255 - i for i in range(256)] * len(self.getbands()), None)
        return pixel

    return load_and_invert


def of_png(*_):
    return Image.new("RGB", (12, 12), (9, 8, 7))


def other_code():
    F.resize.__code__ = (lambda img, *_, **__: img.crop((0, 0, 8, 8))).__code__


def changed_items(get):
    def items(self, index):
        value = get(self, index)
        return (-value[0], *value[1:])

    return items


def changed_batch(items):
    def get(self, indices):
        return [(-x, y) for x, y in (self[i] for i in indices)]

    return get


def namespace(module):
    return types.SimpleNamespace(**{**vars(module), "resize": turned(module.resize)})


def hooked(register, hook):
    return lambda: register(hook)


def negated_batch(function):
    def fetch_(self, *arguments):
        x, y = function(self, *arguments)
        return [-x, y]

    return fetch_


def negated_fetcher(function):
    def create(*arguments):
        fetcher = function(*arguments)
        fetcher.fetch = functools.partial(negated_batch(type(fetcher).fetch), fetcher)
        return fetcher

    return create


def tens(batch, *, collate_fn_map=None):
    return torch.tensor(batch) * 10


def halves(batch, *, collate_fn_map=None):
    return torch.stack(list(batch)) / 2


def pairs_swapped(batch, *, collate_fn_map=None):
    return [torch.tensor([y for _, y in batch]), torch.stack([x for x, _ in batch])]


def numbers(n, *_, **__):
    return torch.arange(n).flip(0)


def own_default(batch):
    return [torch.stack([x for x, _ in batch]) * 3, [y for _, y in batch]]


#: By name: the patch, and the loaders which it changes.
PATCHES = {
    # Decoding.
    "folder.open": (lambda: setattr(FOLDER, "open", red_file), "folder"),
    "folder.pil_loader": (put(FOLDER, "pil_loader", red), "folder"),
    "folder.default_loader, given": (put(FOLDER, "default_loader", red), "default_loader"),
    "folder.pil_loader, given": (put(FOLDER, "pil_loader", red), "pil_loader"),
    "folder.Image": (
        replace(FOLDER, "Image", lambda _: types.SimpleNamespace(open=opened(Image.open))),
        "folder",
    ),
    "Image.open": (replace(Image, "open", opened), "folder"),
    "Image.convert": (replace(Image.Image, "convert", method), "folder"),
    "ImageFile.load": (replace(ImageFile.ImageFile, "load", loaded), "folder"),
    "Image.register_open": (
        lambda: (Image.init(), Image.register_open("PNG", of_png, lambda _: True)),
        "folder",
    ),
    # torchvision's transforms.
    "Image.resize": (replace(Image.Image, "resize", method), "folder"),
    "Image.crop": (replace(Image.Image, "crop", method), "folder"),
    "Resize.forward": (replace(V.Resize, "forward", method), "folder"),
    "Resize.forward, wrapped": (replace(V.Resize, "forward", wrapped), "folder"),
    "Resize.forward, of CenterCrop": (put(V.Resize, "forward", V.CenterCrop.forward), "folder"),
    "Normalize.forward": (replace(V.Normalize, "forward", negative), "folder"),
    "ToTensor.__call__": (replace(V.ToTensor, "__call__", negative), "folder"),
    "Compose.__call__": (replace(V.Compose, "__call__", negative), "folder"),
    "RandomCrop.get_params": (
        put(V.RandomCrop, "get_params", staticmethod(lambda *_: (1, 2, 4, 4))),
        "random",
    ),
    "RandomHorizontalFlip.forward": (
        put(V.RandomHorizontalFlip, "forward", lambda self, img: img.rotate(90)),
        "flips",
    ),
    "torch.rand": (put(torch, "rand", lambda *_, **__: torch.zeros(1)), "flips"),
    "functional.resize": (replace(F, "resize", turned), "folder"),
    "functional.resize, wrapped": (replace(F, "resize", wrapped), "folder"),
    "functional.resize, partial": (
        replace(F, "resize", lambda f: functools.partial(turned(f))),
        "folder",
    ),
    "functional.resize.__code__": (other_code, "folder"),
    "functional.crop": (replace(F, "crop", turned), "folder"),
    "functional.to_tensor": (replace(F, "to_tensor", negative), "folder"),
    "functional_pil.resize": (replace(PIL, "resize", turned), "folder"),
    "transforms.F": (replace(V.transforms, "F", namespace), "folder"),
    "functional.F_pil": (replace(F, "F_pil", namespace), "folder"),
    # torch's modules.
    "Module.__call__": (
        replace(torch.nn.Module, "__call__", lambda f: lambda self, x: _turn_images(f(self, x))),
        "folder",
    ),
    "register_module_forward_hook": (
        hooked(HOOKS.register_module_forward_hook, lambda module, args, out: _turn_images(out)),
        "folder",
    ),
    "register_module_forward_pre_hook": (
        hooked(
            HOOKS.register_module_forward_pre_hook,
            lambda module, args: tuple(map(_turn_images, args)),
        ),
        "folder",
    ),
    "Sequential.forward": (
        replace(torch.nn.Sequential, "forward", method),
        "sequential",
    ),
    # Datasets.
    "DatasetFolder.__getitem__": (
        replace(datasets.DatasetFolder, "__getitem__", changed_items),
        "folder",
    ),
    "DatasetFolder.__len__": (put(datasets.DatasetFolder, "__len__", lambda self: 5), "folder"),
    "ConcatDataset.__getitem__": (
        replace(ConcatDataset, "__getitem__", changed_items),
        "both",
    ),
    # Orders.
    "DistributedSampler.__iter__": (
        replace(DistributedSampler, "__iter__", backwards),
        "DistributedSampler",
    ),
    "DistributedSampler.__iter__, shard": (
        replace(DistributedSampler, "__iter__", backwards),
        "shard",
    ),
    "BatchSampler.__iter__": (replace(BatchSampler, "__iter__", backwards), "folder"),
    "BatchSampler.__iter__, DistributedSampler": (
        replace(BatchSampler, "__iter__", backwards),
        "DistributedSampler",
    ),
    "BatchSampler.__iter__, shard": (replace(BatchSampler, "__iter__", backwards), "shard"),
    "SequentialSampler.__iter__": (replace(SequentialSampler, "__iter__", backwards), "folder"),
    "RandomSampler.__iter__": (replace(RandomSampler, "__iter__", backwards), "shuffle"),
    "torch.randperm": (put(torch, "randperm", numbers), "DistributedSampler"),
    "torch.randperm, shuffle": (put(torch, "randperm", numbers), "shuffle"),
    "torch.randperm, shard": (put(torch, "randperm", numbers), "shard"),
    # The loader.
    "a subclass's _get_iterator": (lambda: None, "own iterator"),
    "DataLoader._get_iterator": (
        replace(
            DataLoader,
            "_get_iterator",
            lambda f: lambda self: ([-x, y] for x, y in f(self)),
        ),
        "folder",
    ),
    "_MapDatasetFetcher.fetch": (
        replace(fetch._MapDatasetFetcher, "fetch", negated_batch),
        "folder",
    ),
    "_SingleProcessDataLoaderIter._next_data": (
        replace(_SingleProcessDataLoaderIter, "_next_data", negated_batch),
        "shuffle",
    ),
    "_BaseDataLoaderIter._next_index": (
        replace(_BaseDataLoaderIter, "_next_index", lambda f: lambda self: f(self)[::-1]),
        "folder",
    ),
    "_DatasetKind.create_fetcher": (
        replace(_DatasetKind, "create_fetcher", negated_fetcher),
        "folder",
    ),
    # Collation.
    "default_collate": (put(collate, "default_collate", own_default), "folder"),
    "default_collate, shuffle": (put(collate, "default_collate", own_default), "shuffle"),
    "default_collate_fn_map[Tensor]": (
        put_item(collate.default_collate_fn_map, torch.Tensor, halves),
        "folder",
    ),
    "default_collate_fn_map[int]": (
        put_item(collate.default_collate_fn_map, int, tens),
        "folder",
    ),
    "default_collate_fn_map[tuple]": (
        put_item(collate.default_collate_fn_map, tuple, pairs_swapped),
        "folder",
    ),
    "default_collate_fn_map[object]": (
        put_item(collate.default_collate_fn_map, object, pairs_swapped),
        "folder",
    ),
    "default_collate_fn_map[int], shuffle": (
        put_item(collate.default_collate_fn_map, int, tens),
        "shuffle",
    ),
    "default_collate_fn_map": (
        put(
            collate,
            "default_collate_fn_map",
            {**collate.default_collate_fn_map, torch.Tensor: halves},
        ),
        "folder",
    ),
}


def _turn_images(value):
    return value.transpose(Image.ROTATE_90) if isinstance(value, Image.Image) else value


if hasattr(Subset, "__getitems__"):
    PATCHES["Subset.__getitems__"] = (replace(Subset, "__getitems__", changed_batch), "subset")
    PATCHES["DatasetFolder.__getitems__"] = (
        lambda: setattr(datasets.DatasetFolder, "__getitems__", changed_batch(None)),
        "folder",
    )
else:
    PATCHES["Subset.__getitem__"] = (replace(Subset, "__getitem__", changed_items), "subset")

if v2 is not None:
    _geometry = sys.modules["torchvision.transforms.v2._geometry"]
    _kernels = sys.modules["torchvision.transforms.v2.functional._utils"]._KERNEL_REGISTRY

    def kernel():
        own = _kernels[v2.functional.resize]
        own[Image.Image] = turned(own[Image.Image])

    def registered():
        resize = v2.functional.resize
        v2.functional.resize = turned(resize)
        _kernels[v2.functional.resize] = {Image.Image: turned(_kernels[resize][Image.Image])}

    def other_namespace():
        other = namespace(v2.functional)
        _kernels[other.resize] = {Image.Image: turned(_kernels[v2.functional.resize][Image.Image])}
        _geometry.F = other

    PATCHES.update(
        {
            "v2.Resize.transform": (
                replace(
                    v2.Resize,
                    "transform",
                    lambda f: lambda self, x, params: _turn_images(f(self, x, params)),
                ),
                "v2",
            ),
            "v2.Transform.forward": (
                replace(
                    v2.Transform, "forward", lambda f: lambda self, x: _turn_images(f(self, x))
                ),
                "v2",
            ),
            "v2.Compose.forward": (replace(v2.Compose, "forward", negative), "v2"),
            "v2.functional.resize": (registered, "v2"),
            "v2's kernels": (kernel, "v2"),
            "v2._geometry.F": (other_namespace, "v2"),
        }
    )


def of_each_loader():
    """The name of the first patch of each of the loaders."""
    first = {}
    for name, (_, loader) in PATCHES.items():
        first.setdefault(loader, name)
    return list(first.values())
