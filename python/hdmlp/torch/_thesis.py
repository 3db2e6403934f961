"""The thesis's datasets and loader (4.2.2, listing 4.6), on top of :class:`hdmlp.Job`."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Sequence
from typing import Any, Callable

import torch.utils.data

from .._batches.output import Handed
from .._batches.source import Taken, column
from .._lib.arguments import check_functions, check_path
from .._transforms.entries import Entries
from .._transforms.generators import generators_kept
from .._transforms.in_python import in_python
from .._transforms.policies import is_v2
from .._transforms.recipe import Batch, Recipe
from .._transforms.recognition import name_of
from .._transforms.split import entries_of, flat
from ..data import Folder
from ..errors import ConfigError
from ..job import Job, JobLoader
from ._data.collation import default_stacks, labels_of, torchs_default
from ._data.folder import as_transform, offload, pil_loader, short

log = logging.getLogger("hdmlp")


class HDMLPDatasetFolder(torch.utils.data.Dataset[Any]):
    """The thesis's ``DatasetFolder`` (4.2.2): what a :class:`hdmlp.Job` delivers, transformed.

    ``dataset[i]`` is the job's next sample for any ``i``, as in the original. So it is of the
    process that has the job: torch's loader works with ``num_workers=0`` only.

    Args:
        data_dir: The directory for which the job was made.
        job: The job; with ``extensions=`` if the files are no images.
        loader: Makes an object of a sample's bytes.
        data_transforms: What is made of samples: a callable or a list, as for
            :class:`ImageFolder`. Default: None.
        target_transform: Applied to the class number. Default: None.

    Raises:
        ConfigError: ``job`` is not a job, or was made for another directory.
    """

    def __init__(
        self,
        data_dir: str,
        job: Job,
        loader: Callable[[memoryview], object],
        data_transforms: object = None,
        target_transform: Callable[[int], object] | None = None,
    ):
        if not isinstance(job, Job):
            raise ConfigError(f"job={job!r}: must be an hdmlp.Job")
        check_path("data_dir", data_dir)
        check_functions(loader=loader, target_transform=target_transform)
        self.root = data_dir
        self.job = job
        self.loader = loader
        self.transform = as_transform(data_transforms, None)
        self.target_transform = target_transform
        self._handed: Handed | None = None
        offloaded = offload(loader, self.transform, say=not job.get_transforms())
        self._rest: Entries | None = None  # of what the daemon does not do; None: of all
        if offloaded.described:
            instead = in_python(offloaded.entries_done)
            self._handed = Handed(offloaded.hands, instead)
            images = offloaded.for_images(instead is not None)
            job._use_transforms(images if offloaded.rest else offloaded.described)
            self._rest = offloaded.entries if offloaded.rest else Entries([])
        elif job.get_transforms():
            if loader is not pil_loader:
                raise ConfigError(
                    "loader: the job has transforms, which the daemon carries out on images that "
                    "it decodes; use HDMLPImageFolder, or a job without transforms"
                )
            _check_after(list(flat(getattr(self.transform, "steps", self.transform))))
            self._handed = Handed("tensor")
        self._folder = Folder(data_dir, job.dataset.extensions)
        if self._folder._describe()["path"] != job.dataset._describe()["path"]:
            raise ConfigError(f"data_dir={data_dir!r}: the job was made for {job.dataset.root!r}")

    @property
    def classes(self) -> Sequence[object]:
        """The classes' names, sorted."""
        return self.job.dataset.classes

    @property
    def class_to_idx(self) -> dict[str, int]:
        """The classes' numbers by name."""
        return self.job.dataset.class_to_idx

    def __len__(self) -> int:
        """Returns the number of samples."""
        return self.job.length()

    @property
    def _offloaded(self) -> bool:
        """Whether the daemon carries out all transforms."""
        return self._handed is not None and not self._entries

    def _recipe_for(self, collate: Callable[[list[object]], object]) -> Recipe:
        """Returns how Python makes samples."""
        load = self._handed or self.loader
        return Recipe(
            load, self._entries, self.target_transform, collate, decodes=self.loader is pil_loader
        )

    @property
    def _entries(self) -> Entries:
        """The transforms that run in Python, as they are now."""
        if self._rest is not None:
            return self._rest
        return entries_of(getattr(self.transform, "steps", self.transform))

    def _told(self) -> None:
        """Takes what the job delivers, once it is open."""
        if self._handed is not None:
            self._handed.output = self.job.output

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        """Returns (object, class number) of the job's next sample.

        Raises:
            ConfigError: This is a worker process, each of which would get all of the job's samples.
        """
        worker: Callable[[], object] = torch.utils.data.get_worker_info  # without types in some
        if worker() is not None:
            raise ConfigError(_in_process(self))
        label, data = self.job._next_sample()
        number = self.job.dataset.class_to_idx[label]
        self._told()
        value = self.loader(data) if self._handed is None else self._handed(data, None)
        value = self._entries(value, None)
        return value, number if self.target_transform is None else self.target_transform(number)


class HDMLPImageFolder(HDMLPDatasetFolder):
    """The thesis's ``ImageFolder`` (listing 4.6): samples are images, RGB ``PIL.Image``.

    Args:
        data_dir: See :class:`HDMLPDatasetFolder`.
        job: See :class:`HDMLPDatasetFolder`.
        data_transforms: See :class:`HDMLPDatasetFolder`.
        target_transform: See :class:`HDMLPDatasetFolder`.

    Raises:
        ConfigError: See :class:`HDMLPDatasetFolder`.
    """

    def __init__(
        self,
        data_dir: str,
        job: Job,
        data_transforms: object = None,
        target_transform: Callable[[int], object] | None = None,
    ):
        super().__init__(data_dir, job, pil_loader, data_transforms, target_transform)


class HDMLPImageNet(HDMLPImageFolder):
    """The thesis's ``ImageNet`` (4.3.4): the folders are WordNet IDs, which the devkit translates.

    As torchvision's ``ImageNet`` has it: ``data_dir`` has a folder of class folders for each split,
    and ``meta.bin``, which torchvision makes of the devkit.

    Args:
        data_dir: The directory with the splits.
        job: A job of ``data_dir/split``.
        split: ``"train"`` or ``"val"``. Default: ``"train"``.
        data_transforms: See :class:`HDMLPDatasetFolder`.
        target_transform: See :class:`HDMLPDatasetFolder`.

    Attributes:
        wnids: The classes' WordNet IDs, by number.
        wnid_to_idx: The classes' numbers by WordNet ID.

    Raises:
        ConfigError: See :class:`HDMLPDatasetFolder`; or ``split`` is neither, ``meta.bin`` is
            missing or damaged, or lacks a folder's ID.
    """

    def __init__(
        self,
        data_dir: str,
        job: Job,
        split: str = "train",
        data_transforms: object = None,
        target_transform: Callable[[int], object] | None = None,
    ):
        if split not in ("train", "val"):
            raise ConfigError(f"split={split!r}: must be 'train' or 'val'")
        check_path("data_dir", data_dir)
        folder = os.path.join(data_dir, split)
        super().__init__(folder, job, data_transforms, target_transform)
        self.root, self.split = data_dir, split
        self.wnids = list(job.dataset.classes)
        self.wnid_to_idx = job.dataset.class_to_idx
        names = _names_by_id(os.path.join(data_dir, "meta.bin"))
        for wnid in self.wnids:
            if wnid not in names:
                raise ConfigError(
                    f"{folder}/{wnid}: meta.bin in {data_dir} has no class of this ID; give the "
                    "directory that torchvision's ImageNet made, or use HDMLPImageFolder"
                )
        self._names = [names[wnid] for wnid in self.wnids]

    @property
    def classes(self) -> Sequence[object]:
        """The names of each class, a tuple, by number."""
        return list(self._names)

    @property
    def class_to_idx(self) -> dict[str, int]:
        """The classes' numbers by each of their names."""
        return {name: number for number, names in enumerate(self._names) for name in names}


def _in_process(dataset: HDMLPDatasetFolder) -> str:
    """Returns why a dataset has no workers, and what to do."""
    return (
        f"{type(dataset).__name__} in a worker process: dataset[i] is its job's next sample, and "
        "each worker would deliver all of them; give num_workers=0, or use HDMLPDataLoader(dataset)"
    )


def check_in_process(dataset: object, workers: int) -> None:
    """Checks that a loader with workers is not of a dataset of a job, also within torch's own.

    Raises:
        ConfigError: It is.
    """
    if isinstance(dataset, HDMLPDatasetFolder) and workers:
        raise ConfigError(f"num_workers={workers}: {_in_process(dataset)}")
    if isinstance(dataset, torch.utils.data.Subset):
        check_in_process(dataset.dataset, workers)
    if isinstance(dataset, torch.utils.data.ConcatDataset):
        for part in dataset.datasets:
            check_in_process(part, workers)


def _check_after(steps: Sequence[object]) -> None:
    """Checks transforms that follow those of the job, in Python, and reports where they run.

    Raises:
        ConfigError: The first one takes an image, and the job makes tensors.
    """
    if steps and name_of(steps[0]) in ("ToTensor", "PILToTensor") and not is_v2(steps[0]):
        raise ConfigError(
            f"data_transforms: {steps[0]!r} takes an image, and the job's transforms make tensors: "
            "leave it out, or give all transforms in Job(transforms=...) or in data_transforms"
        )
    if steps:
        log.warning(
            "data_transforms run in Python, on the tensors that the job's transforms make: %s",
            ", ".join(map(short, steps)),
        )


def _names_by_id(path: str) -> dict[str, tuple[str, ...]]:
    """Returns the names of each class of torchvision's ``meta.bin``, by its WordNet ID."""
    try:
        names, _ = torch.load(path, weights_only=True)
        return {str(wnid): tuple(map(str, own)) for wnid, own in names.items()}
    except FileNotFoundError:
        raise ConfigError(
            f"{path}: there is no such file, which torchvision's ImageNet makes of "
            "ILSVRC2012_devkit_t12.tar.gz: make it once with torchvision.datasets.ImageNet, or use "
            "HDMLPImageFolder, whose classes are the folders"
        ) from None
    except Exception as error:
        raise ConfigError(
            f"{path}: not the metadata that torchvision's ImageNet makes ({error})"
        ) from error


class HDMLPDataLoader:
    """The thesis's loader (listing 4.6): batches of an :class:`HDMLPDatasetFolder`.

    Each ``iter()`` delivers the job's next epoch.

    Args:
        dataset: An :class:`HDMLPImageFolder`, or another :class:`HDMLPDatasetFolder`.
        collate_fn: From a list of (object, class number) to the batch. Default: torch's.

    Yields:
        ``[images, labels]``: a tensor of shape (n, ...) per batch of this rank, and an int64 tensor
        of class numbers of shape (n,). If the daemon carries out all transforms, ``images`` is in
        shared memory, where the daemon wrote it.

    Raises:
        ConfigError: ``dataset`` is not an :class:`HDMLPDatasetFolder`.
    """

    def __init__(
        self,
        dataset: HDMLPDatasetFolder,
        collate_fn: Callable[[list[object]], object] | None = None,
    ):
        if not isinstance(dataset, HDMLPDatasetFolder):
            raise ConfigError(f"dataset={dataset!r}: must be an HDMLPImageFolder")
        check_functions(collate_fn=collate_fn)
        self.dataset = dataset
        whole = dataset._offloaded and collate_fn is None and default_stacks()
        self._recipe = None if whole else dataset._recipe_for(collate_fn or torchs_default())

    def __len__(self) -> int:
        """Returns the number of batches per epoch."""
        return self.dataset.job.steps

    def __iter__(self) -> Iterator[Any]:
        return self.dataset.job._epoch(
            self._make, self._recipe is not None or self.dataset.target_transform is not None
        )

    def _make(self, loader: JobLoader, taken: Taken) -> Any:
        if self._recipe is None:
            output = loader.output
            assert output is not None
            labels = labels_of(taken, self.dataset.target_transform)
            return [output.tensor(taken.content, taken.n), labels]
        self.dataset._told()
        recipe, batch = self._recipe, Batch(loader.seed, taken.epoch, taken.step)
        ids, keys = recipe.keys(taken.payload, batch, taken.outputs)
        labels = column(taken.payload, taken.n, "labels")
        with generators_kept():
            return recipe.batch(loader.views(taken), labels, ids, keys, batch, None)
