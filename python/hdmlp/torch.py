"""Datasets and loaders for torch.

    import hdmlp.torch as ht
    dataset = ht.ImageFolder("/data/imagenet/train", transform=transform)
    loader = ht.DataLoader(dataset, batch_size=256, epochs=90, seed=42)
    for epoch in range(90):
        for images, labels in loader:
            ...

Rank and world size come from the launcher. Without a transform a batch is a list of the
samples' bytes, read-only and where they lie in shared memory, and a tensor of labels:
``PIL.Image.open(io.BytesIO(x))`` decodes one, ``bytes(x)`` copies one.
"""

from __future__ import annotations

import io
import logging
import multiprocessing
import sys
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple, Union

import torch
import torch.utils.data
from torch.utils.data import DistributedSampler, SequentialSampler

from . import _daemon
from ._ahead import Ahead
from ._arguments import whole_number
from ._loader import Loader
from ._output import Handed, Output, arrays_for
from ._progress import Progress
from ._recipe import Composed, Recipe, generators_kept
from ._results import Arena
from ._segments import Block
from ._stream import Stream, Taken, column
from ._torchvision import Split, in_python, split
from ._workers import Failed, Pool, RemoteTraceback
from .data import Folder, described
from .errors import ConfigError
from .job import Job

try:
    from torch.utils.data import default_collate
except ImportError:
    from torch.utils.data._utils.collate import default_collate

log = logging.getLogger("hdmlp")
_arrays = arrays_for(torch)

__all__ = ["DataLoader", "HDMLPDataLoader", "HDMLPImageFolder", "ImageFolder", "pil_loader"]


def pil_loader(data: Union[bytes, memoryview]) -> Any:
    """Decodes an image's bytes to an RGB ``PIL.Image``, as torchvision's loader does for its file."""
    from PIL import Image
    return Image.open(io.BytesIO(data)).convert("RGB")


def _torchvision_loads(loader: Callable) -> bool:
    """True of the loaders that torchvision's ImageFolder has."""
    folder = sys.modules.get("torchvision.datasets.folder")
    return folder is not None and loader in (folder.default_loader, folder.pil_loader)


def _transform(transform: Any, transforms: Any) -> Optional[Callable]:
    """One callable of the two spellings; a list is applied one after the other."""
    if transform is not None and transforms is not None:
        raise ConfigError("transform and transforms are the same: give one of them")
    given = transform if transform is not None else transforms
    if isinstance(given, (list, tuple)):
        for i, t in enumerate(given):
            if not callable(t) and not isinstance(t, (list, tuple)):
                raise ConfigError(f"transform[{i}]={t!r}: must be callable")
        given = Composed(given) if given else None
    if given is not None and not callable(given):
        raise ConfigError(f"transform={given!r}: must be callable")
    return given


def _offload(loader: Any, transform: Any, wanted: bool = True) -> Split:
    """What of a transform the daemon carries out, and what is left; what is left is said once.

    Raises:
        ConfigError: what is left has transforms of ours, which only the daemon can carry out.
    """
    given = getattr(transform, "steps", transform)
    try:
        if not wanted:
            return in_python(given, "as offload=False wants it")
        if loader is not pil_loader:
            return in_python(given, "behind a loader of yours")
        found = split(given)
    except TypeError as error:
        raise ConfigError(f"transform: {error}") from None
    if found.described and found.rest:
        log.warning("%s: in Python, after what HDMLP does: %s", ", ".join(map(_short, found.rest)), found.why)
    elif found.rest and found.why:
        log.warning("the transforms run in Python: %s: %s", _short(found.rest[0]), found.why)
    return found


def _short(value: Any) -> str:
    text = getattr(value, "__name__", None) or repr(value)
    return type(value).__name__ if len(text) > 60 or " object at 0x" in text else text


class ImageFolder(Folder, torch.utils.data.Dataset):
    """torchvision's ``ImageFolder``: a directory with one sub-directory per class.

    Args:
        root: the directory.
        transform: from what ``loader`` made to what the model gets: a list (or Compose) of :mod:`hdmlp.transforms`, of
            torchvision's, or of any callables. The daemon carries out those that it knows, from the first on; the rest runs in Python.
        target_transform: applied to the class number.
        loader: from a sample's bytes, a read-only memoryview, to an object; None: :func:`pil_loader`.
            (torchvision's takes a path; its own ``default_loader`` and ``pil_loader`` are :func:`pil_loader` here.)
        extensions: suffixes of the files that are samples; None: torchvision's image suffixes.
        transforms: another name of ``transform``.
        is_valid_file: not supported; the daemon lists the files.

    Attributes:
        classes: the classes' names, sorted.
        class_to_idx: from a class's name to its number.
        targets: the class number of every sample, by ID.
        samples, imgs: (path, class number) of every sample, by ID.

    ``dataset[i]`` reads the file itself: for a look at a sample, not for training.

    Raises:
        DatasetNotFoundError: ``root`` is not a directory.
        ConfigError: a wrong argument.
    """

    def __init__(self, root: str, transform: Any = None, target_transform: Optional[Callable] = None,
                 loader: Optional[Callable[[memoryview], Any]] = None,
                 is_valid_file: Optional[Callable[[str], bool]] = None,
                 extensions: Optional[Sequence[str]] = None, transforms: Any = None):
        if is_valid_file is not None:
            raise ConfigError("is_valid_file is not supported: use extensions=, the daemon lists the files")
        super().__init__(root, extensions)
        self.transform = _transform(transform, transforms)
        self.target_transform = target_transform
        self.loader = pil_loader if loader is None or _torchvision_loads(loader) else loader
        self._custom = loader is not None

    @property
    def raw(self) -> bool:
        """True if there is nothing to make of the bytes: no transform, no loader of the user's."""
        return self.transform is None and self.target_transform is None and not self._custom

    def __getitem__(self, index: int) -> Tuple[Any, Any]:
        """(object, label) of one sample, decoded and transformed."""
        data, label = super().__getitem__(index)
        value = self.loader(data)
        if self.transform is not None:
            value = self.transform(value)
        if self.target_transform is not None:
            label = self.target_transform(label)
        return value, label


def stack_into(batch: List[Tuple[Any, Any]], place: Any) -> Any:
    """torch's default collate function, but images of one shape are stacked straight into memory that is used again.

    Args:
        batch: (object, label) pairs.
        place: where the batch goes, with ``reserve(nbytes)``.

    A batch of which nothing is left, because its samples can not be read, has no shape to tell.
    """
    if not batch:
        return [torch.empty(0), torch.empty(0, dtype=torch.int64)]
    first = batch[0][0]
    if (not isinstance(first, torch.Tensor) or first.device.type != "cpu" or not first.numel()
            or not all(isinstance(x, torch.Tensor) and x.shape == first.shape and x.dtype == first.dtype
                       and type(x) is torch.Tensor and not x.requires_grad for x, _ in batch)):
        return default_collate(batch)
    labels = default_collate([label for _, label in batch])
    count = len(batch) * first.numel()
    nbytes = count * first.element_size()
    memory, offset = place.reserve(nbytes)
    images = torch.frombuffer(memory, dtype=first.dtype, count=count, offset=offset)
    images = images.view(len(batch), *first.shape)
    torch.stack([x for x, _ in batch], out=images)
    return [images, labels]


def labels_of(taken: Taken, target_transform: Optional[Callable] = None) -> Any:
    """The batch's labels: int64, shape (n,), writable; or as the default collate function makes them of what
    ``target_transform`` returns."""
    if not taken.n:
        return torch.empty(0, dtype=torch.int64)
    if target_transform is not None:
        return default_collate(tuple(target_transform(label) for label in column(taken.payload, taken.n, "labels")))
    if _arrays is None or not isinstance(taken.content, Block):  # else the samples are a numpy array, and its code is at hand
        return torch.frombuffer(taken.payload, dtype=torch.int64, count=taken.n, offset=32)
    return torch.from_numpy(_arrays.labels(taken.payload, taken.n))


def _pinned(value: Any) -> Any:
    """``value`` with its tensors in pinned memory."""
    if isinstance(value, torch.Tensor):
        return value.pin_memory()
    if isinstance(value, dict):
        return {key: _pinned(v) for key, v in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*map(_pinned, value))
    if isinstance(value, (list, tuple)):
        return type(value)(map(_pinned, value))
    return value.pin_memory() if hasattr(value, "pin_memory") else value


class _Working(Loader):
    """A loader that decodes and transforms, in this process or in workers; see :class:`DataLoader`."""

    def _configure(self, recipe: Optional[Recipe], num_workers: int = 0, prefetch_factor: Optional[int] = None,
                   pin_memory: bool = False, multiprocessing_context: Any = None,
                   worker_init_fn: Optional[Callable[[int], None]] = None) -> None:
        self.num_workers = whole_number("num_workers", num_workers, 0)
        self.prefetch_factor = 2 if prefetch_factor is None else whole_number("prefetch_factor", prefetch_factor, 1)
        self.pin_memory = bool(pin_memory)
        self._recipe = recipe
        self._arena = Arena()
        self._worker_init_fn = worker_init_fn
        if isinstance(multiprocessing_context, str) or multiprocessing_context is None:
            try:
                multiprocessing.get_context(multiprocessing_context)
            except ValueError as error:
                raise ConfigError(f"multiprocessing_context={multiprocessing_context!r}: {error}") from None
        self._context = multiprocessing_context

    def __getstate__(self) -> Dict[str, Any]:
        return {**super().__getstate__(), "_arena": Arena()}

    def _open_stream(self, client: _daemon.Client, request: Dict[str, Any]) -> Stream:
        if self._recipe is None or not self.num_workers:
            stream = self._tell_output(super()._open_stream(client, request))
            make = self._maker(stream.output)
            if make is not None:
                self._source = Ahead(stream, make)
            return stream
        context = self._context
        if context is None or isinstance(context, str):
            context = multiprocessing.get_context(context)
        pool = Pool(self._recipe, self.num_workers, self.prefetch_factor, context, self._worker_init_fn)
        try:
            stream = Stream(client, request, Progress(), pool.on_segment, pool.on_drop)
        except BaseException:
            pool.close()
            raise
        pool.attach(stream)
        self._source = pool
        return self._tell_output(stream)

    def _maker(self, output: Optional[Output]) -> Optional[Callable[[Taken], Any]]:
        """What makes a batch of what was taken, if nothing of the user's runs then; else None. It must not hold the loader."""
        return None

    def _tell_output(self, stream: Stream) -> Stream:
        if self._recipe is not None and isinstance(self._recipe.loader, Handed):
            self._recipe.loader.output = stream.output
        return stream

    def _cooked(self, taken: Taken) -> Any:
        """The batch that the recipe makes, here or in a worker; its exceptions name the sample."""
        if isinstance(self._source, Pool):
            value = self._source.value(taken.content)
            if isinstance(value, Failed):
                self._name_sample(value.error, value.sample, taken)
                where = self._where(value.sample, value.error, taken)
                raise value.error from RemoteTraceback(f"in worker {value.worker}, {where}:\n{value.text}")
            return value
        try:
            with generators_kept():
                batch = self._recipe.samples(
                    self.views(taken), column(taken.payload, taken.n, "labels"),
                    column(taken.payload, taken.n, "ids"), self._spec["seed"], taken.epoch)
                if self._recipe.stack is not None:
                    return self._recipe.stack(batch, self._arena)
                return self._recipe.collate(batch)
        except Exception as error:
            self._name_sample(error, getattr(error, "sample", None), taken)
            raise

    def _name_sample(self, error: BaseException, sample: Any, taken: Taken) -> None:
        """Puts the sample's ID and path on an exception of the user's code."""
        path = None
        if isinstance(sample, int):
            try:
                path = self.dataset.sample(sample)[0]
            except Exception:
                pass  # the exception at hand matters more
        try:
            error.sample, error.path = sample, path
        except AttributeError:
            pass
        if hasattr(error, "add_note"):
            error.add_note(self._where(sample, error, taken))

    @staticmethod
    def _where(sample: Any, error: BaseException, taken: Taken) -> str:
        batch = f"batch {taken.step} of epoch {taken.epoch}"
        if not isinstance(sample, int):
            return batch
        return f"sample {sample} ({getattr(error, 'path', None) or 'path unknown'}), {batch}"


class DataLoader(_Working):
    """Feeds one rank, in the place of ``torch.utils.data.DataLoader``.

    Each ``iter()`` starts the next epoch; ``set_epoch`` may be called and need not.

    Args:
        dataset: an :class:`ImageFolder`.
        batch_size: samples per batch of this rank.
        shuffle: True or ``"torch"``: exactly the order of torch's ``DistributedSampler`` with the same
            seed; ``"feistel"``: another random order, for very large datasets; False or
            ``"none"``: by ID. Torch's default is False.
        epochs: epochs of the run; None: no end. The more is known of the future, the better the caches.
        seed: of the order, in [0, 2^64); None: ``generator``'s, else drawn by the daemon, the
            same on all ranks.
        rank, world_size: both or neither; by default those of torch.distributed or the launcher.
        sampler: a ``DistributedSampler``: its ranks, shuffle, seed and drop_last are taken over;
            a ``SequentialSampler``: no shuffling. Others are not supported.
        drop_last: leave out the samples that do not make a whole batch on every rank.
            Otherwise ranks are padded to equal length, as torch does, and the last batch may be short.
            With a ``DistributedSampler`` it means the last batch alone, as in torch.
        num_workers: processes for what runs in Python; 0: this process does it. The result does not
            depend on it: random numbers of transforms come from seed, epoch and sample ID. What the daemon does it does
            in threads of its own (``transform_threads``).
        collate_fn: from a list of (object, label) to the batch; None: torch's default, or for raw
            batches (list of memoryviews, labels).
        pin_memory: copy tensors to pinned memory, where CUDA is available.
        prefetch_factor: batches under way per worker; None: 2.
        persistent_workers: accepted; workers always persist.
        labels: ``"index"``: class numbers, an int64 tensor; ``"name"``: the classes' names, a tuple of texts. What
            ``target_transform`` is given.
        offload: False: PIL decodes and all transforms run in Python, in this process or in workers, though the daemon knows
            them; for files that it can not decode (BMP, TIFF, PPM, GIF).
        timeout: seconds to wait for a batch before :class:`~hdmlp.errors.StallTimeout`; 0: for ever.
        worker_init_fn: called in each worker with its number.
        multiprocessing_context: ``"fork"``, ``"spawn"``, ``"forkserver"`` or a context; None: the default.
        generator: its ``initial_seed()`` is the seed, if ``seed`` is None.
        name: the loader's name, the same on all ranks; by default its number in the process.
        verify: check at the end of each epoch that all ranks together got every sample.
        raw: True: bytes, even if the dataset has a transform; False: decoded, even if it has none;
            None: bytes if there is nothing to make of them.
        config_file: a TOML file of configuration keys.
        **keys: configuration keys, such as ``memory="10GB"``; ``hdmlp config`` lists them.

    Yields:
        what ``collate_fn`` makes; by default ``[images, labels]``, or ``(samples, labels)`` raw, where
        samples is a list of n read-only memoryviews and labels an int64 tensor of shape (n,). Where the daemon carries out
        all transforms, images is a tensor that lies in shared memory, where the daemon wrote it, and labels an int64
        tensor, or what ``target_transform`` makes of them, collated.

    Raises:
        HDMLPError: see :mod:`hdmlp.errors`.
    """

    def __init__(self, dataset: ImageFolder, batch_size: int = 1, shuffle: Union[bool, str] = True, *,
                 epochs: Optional[int] = None, seed: Optional[int] = None, rank: Optional[int] = None,
                 world_size: Optional[int] = None, sampler: Any = None, drop_last: bool = False,
                 num_workers: int = 0, collate_fn: Optional[Callable] = None, pin_memory: bool = False,
                 prefetch_factor: Optional[int] = None, persistent_workers: bool = False,
                 offload: bool = True, labels: str = "index", timeout: float = 0, worker_init_fn: Optional[Callable[[int], None]] = None,
                 multiprocessing_context: Any = None, generator: Optional[torch.Generator] = None,
                 name: Optional[str] = None, verify: bool = False, raw: Optional[bool] = None,
                 config_file: Optional[str] = None, **keys: Any):
        if not isinstance(dataset, Folder):
            what = "; a part of one needs a directory of its own" if isinstance(dataset, torch.utils.data.Subset) else ""
            raise ConfigError(f"dataset={dataset!r}: must be an hdmlp.torch.ImageFolder{what}")
        self.batch_size = whole_number("batch_size", batch_size, 1)
        tail = "drop" if drop_last else "pad"
        self.sampler = sampler
        self._sampler_epoch = 0
        if isinstance(sampler, DistributedSampler):
            if rank is not None or world_size is not None or seed is not None or isinstance(shuffle, str):
                raise ConfigError("sampler says rank, world_size, seed and shuffle: do not give them again")
            rank, world_size, seed = sampler.rank, sampler.num_replicas, sampler.seed
            shuffle, tail = bool(sampler.shuffle), "drop" if sampler.drop_last else "pad"
            self._sampler_epoch = sampler.epoch
        elif isinstance(sampler, SequentialSampler):
            shuffle = False
        elif sampler is not None:
            raise ConfigError(f"sampler={type(sampler).__name__}: only DistributedSampler and SequentialSampler "
                              "have an order that is known in advance; use shuffle=")
        if seed is None and generator is not None:
            seed = generator.initial_seed()
        raw = getattr(dataset, "raw", True) if raw is None else bool(raw)
        self.collate_fn = collate_fn
        self.persistent_workers = True
        self.generator = generator
        recipe, transforms = None, []
        if labels not in ("index", "name"):
            raise ConfigError(f"labels={labels!r}: must be 'index' or 'name'")
        self._target_transform = None if raw else getattr(dataset, "target_transform", None)
        if labels == "name":
            self._target_transform = _Named(dataset.classes, self._target_transform)
        if not raw:
            load, transform = getattr(dataset, "loader", pil_loader), getattr(dataset, "transform", None)
            offloaded = _offload(load, transform, offload)
            transforms = offloaded.described
            if transforms:
                load, transform = Handed(offloaded.hands), Composed(offloaded.rest) if offloaded.rest else None
            if not transforms or transform is not None or collate_fn is not None:
                recipe = Recipe(load, transform, self._target_transform, collate_fn or default_collate,
                                stack_into if collate_fn is None else None)
        self._configure(recipe, num_workers, prefetch_factor, pin_memory, multiprocessing_context, worker_init_fn)
        super().__init__(dataset, local_batch=self.batch_size, shuffle=shuffle, epochs=epochs, seed=seed,
                         rank=rank, world_size=world_size, tail=tail, drop_last=drop_last, timeout=timeout,
                         name=name, verify=verify, config_file=config_file, keys=keys,
                         transforms=described(transforms))
        if self._sampler_epoch:
            self.set_epoch(self._sampler_epoch)

    def __iter__(self):
        """Starts the next epoch, the one that ``set_epoch`` of the loader or its sampler named, or the
        rest of one after :meth:`load_state_dict`."""
        epoch = getattr(self.sampler, "epoch", 0)
        if epoch != self._sampler_epoch:
            self._sampler_epoch = epoch
            self.set_epoch(epoch)
        return super().__iter__()

    def _maker(self, output: Optional[Output]) -> Optional[Callable[[Taken], Any]]:
        if self._recipe is not None or self._target_transform is not None or self.pin_memory:
            return None
        if self._transforms:
            return lambda taken: [output.tensor(taken.content, taken.n), labels_of(taken)]
        return (lambda taken: (taken.content, labels_of(taken))) if self.collate_fn is None else None

    def _make(self, taken: Taken) -> Any:
        if isinstance(self._source, Ahead):
            return taken.content
        if self._recipe is not None:
            batch = self._cooked(taken)
        elif self._transforms:
            batch = [self._stream.output.tensor(taken.content, taken.n), labels_of(taken, self._target_transform)]
        elif self.collate_fn is None:
            batch = taken.content, labels_of(taken, self._target_transform)
        else:
            labels = column(taken.payload, taken.n, "labels")
            if self._target_transform is not None:
                labels = map(self._target_transform, labels)
            batch = self.collate_fn(list(zip(taken.content, labels)))
        if self.pin_memory and torch.cuda.is_available():
            batch = _pinned(batch)
        return batch


class _Named:
    """From a class number to what ``target_transform``, or nothing, makes of the class's name."""

    def __init__(self, classes: List[str], then: Optional[Callable]):
        self.classes, self.then = classes, then

    def __call__(self, number: int) -> Any:
        name = self.classes[number]
        return name if self.then is None else self.then(name)


class HDMLPImageFolder(torch.utils.data.Dataset):
    """The thesis's dataset (listing 4.6): what a :class:`hdmlp.Job` delivers, transformed.

    Args:
        data_dir: the directory that the job was made with.
        job: the job.
        data_transforms: what is made of samples: a callable or a list, as :class:`ImageFolder` takes it. Without any, and
            none given to the job, the decoded image, an RGB ``PIL.Image``.
        target_transform: applied to the class number.

    ``dataset[i]`` is the job's next sample, whatever ``i`` is, as in the original.
    """

    def __init__(self, data_dir: str, job: Job, data_transforms: Any = None,
                 target_transform: Optional[Callable] = None):
        if not isinstance(job, Job):
            raise ConfigError(f"job={job!r}: must be an hdmlp.Job")
        self.root = data_dir
        self.job = job
        self.transform = _transform(data_transforms, None)
        self.target_transform = target_transform
        self._handed: Optional[Handed] = None
        self._rest: Optional[Callable] = None
        offloaded = _offload(pil_loader, self.transform)
        if offloaded.described:
            job.use_transforms(offloaded.described)
            self._handed = Handed(offloaded.hands)
            self._rest = Composed(offloaded.rest) if offloaded.rest else None
        elif job.get_transforms():
            self._handed, self._rest = Handed("tensor"), self.transform
        self._folder = Folder(data_dir)
        if self._folder.describe()["path"] != job.dataset.describe()["path"]:
            raise ConfigError(f"data_dir={data_dir!r}: the job was made for {job.dataset.root!r}")

    @property
    def classes(self) -> List[str]:
        """The classes' names, sorted."""
        return self.job.dataset.classes

    @property
    def class_to_idx(self) -> Dict[str, int]:
        """From a class's name to its number."""
        return self.job.dataset.class_to_idx

    def __len__(self) -> int:
        """The number of samples."""
        return self.job.length()

    @property
    def offloaded(self) -> bool:
        """True if the daemon carries out all transforms."""
        return self._handed is not None and self._rest is None

    def recipe(self, collate: Callable) -> Recipe:
        """How samples are made."""
        return Recipe(self._made, None, self.target_transform, collate, None)

    def _made(self, data: memoryview) -> Any:
        """The object, transformed."""
        if self._handed is None:
            value, transform = pil_loader(data), self.transform
        else:
            self._handed.output = self.job.output
            value, transform = self._handed(data), self._rest
        return value if transform is None else transform(value)

    def __getitem__(self, index: int) -> Tuple[Any, Any]:
        """(object, class number) of the job's next sample."""
        label, data = self.job.get()
        number = self.class_to_idx[label]
        value = self._made(data)
        return value, number if self.target_transform is None else self.target_transform(number)


class HDMLPDataLoader:
    """The thesis's loader (listing 4.6): batches of an :class:`HDMLPImageFolder`.

    Each ``iter()`` delivers the job's next epoch.

    Args:
        dataset: an :class:`HDMLPImageFolder`.
        collate_fn: from a list of (object, class number) to the batch; None: torch's default.

    Yields:
        ``[images, labels]``: a tensor per batch of this rank, and int64 class numbers. Where the daemon carries out all
        transforms the tensor lies in shared memory, where the daemon wrote it.
    """

    def __init__(self, dataset: HDMLPImageFolder, collate_fn: Optional[Callable] = None):
        if not isinstance(dataset, HDMLPImageFolder):
            raise ConfigError(f"dataset={dataset!r}: must be an HDMLPImageFolder")
        self.dataset = dataset
        whole = dataset.offloaded and collate_fn is None
        self._recipe = None if whole else dataset.recipe(collate_fn or default_collate)

    def __len__(self) -> int:
        """Batches per epoch."""
        return self.dataset.job.steps

    def __iter__(self):
        return self.dataset.job.epoch(self._make)

    def _make(self, loader: Loader, taken: Taken) -> Any:
        if self._recipe is None:
            return [loader.output.tensor(taken.content, taken.n), labels_of(taken, self.dataset.target_transform)]
        with generators_kept():
            return self._recipe.collate(self._recipe.samples(
                loader.views(taken), column(taken.payload, taken.n, "labels"),
                column(taken.payload, taken.n, "ids"), loader.seed, taken.epoch))
