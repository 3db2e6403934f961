"""The thesis's dataset and loader (listing 4.6), on top of :class:`hdmlp.Job`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Callable

import torch.utils.data

from .._batches.output import Handed
from .._batches.source import Taken, column
from .._lib.arguments import check_functions, check_path
from .._transforms.entries import Entries
from .._transforms.generators import generators_kept
from .._transforms.in_python import in_python
from .._transforms.recipe import Batch, Recipe
from .._transforms.split import entries_of
from ..data import Folder
from ..errors import ConfigError
from ..job import Job, JobLoader
from ._data.collation import default_stacks, labels_of, torchs_default
from ._data.folder import as_transform, offload, pil_loader


class HDMLPImageFolder(torch.utils.data.Dataset[Any]):
    """The thesis's dataset (listing 4.6): what a :class:`hdmlp.Job` delivers, transformed.

    ``dataset[i]`` is the job's next sample for any ``i``, as in the original.

    Args:
        data_dir: The directory for which the job was made.
        job: The job.
        data_transforms: What is made of samples: a callable or a list, as for
            :class:`ImageFolder`. Default: None; if the job has no transforms either, samples are
            decoded images, RGB ``PIL.Image``.
        target_transform: Applied to the class number. Default: None.

    Raises:
        ConfigError: ``job`` is not a job, or was made for another directory.
    """

    def __init__(
        self,
        data_dir: str,
        job: Job,
        data_transforms: Any = None,
        target_transform: Callable[[Any], Any] | None = None,
    ):
        if not isinstance(job, Job):
            raise ConfigError(f"job={job!r}: must be an hdmlp.Job")
        check_path("data_dir", data_dir)
        check_functions(target_transform=target_transform)
        self.root = data_dir
        self.job = job
        self.transform = as_transform(data_transforms, None)
        self.target_transform = target_transform
        self._handed: Handed | None = None
        offloaded = offload(pil_loader, self.transform)
        self._rest: Entries | None = None  # of what the daemon does not do; None: of all
        if offloaded.described:
            instead = in_python(offloaded.entries_done)
            self._handed = Handed(offloaded.hands, instead)
            images = offloaded.for_images(instead is not None)
            job._use_transforms(images if offloaded.rest else offloaded.described)
            self._rest = offloaded.entries if offloaded.rest else Entries([])
        elif job.get_transforms():
            self._handed = Handed("tensor")
        self._folder = Folder(data_dir)
        if self._folder._describe()["path"] != job.dataset._describe()["path"]:
            raise ConfigError(f"data_dir={data_dir!r}: the job was made for {job.dataset.root!r}")

    @property
    def classes(self) -> list[str]:
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

    def _recipe_for(self, collate: Callable[[Any], Any]) -> Recipe:
        """Returns how Python makes samples."""
        load = self._handed or pil_loader
        return Recipe(load, self._entries, self.target_transform, collate, decodes=True)

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
        """Returns (object, class number) of the job's next sample."""
        label, data = self.job.get()
        number = self.class_to_idx[label]
        self._told()
        value = pil_loader(data) if self._handed is None else self._handed(data, None)
        value = self._entries(value, None)
        return value, number if self.target_transform is None else self.target_transform(number)


class HDMLPDataLoader:
    """The thesis's loader (listing 4.6): batches of an :class:`HDMLPImageFolder`.

    Each ``iter()`` delivers the job's next epoch.

    Args:
        dataset: An :class:`HDMLPImageFolder`.
        collate_fn: From a list of (object, class number) to the batch. Default: torch's.

    Yields:
        ``[images, labels]``: a tensor of shape (n, ...) per batch of this rank, and an int64 tensor
        of class numbers of shape (n,). If the daemon carries out all transforms, ``images`` is in
        shared memory, where the daemon wrote it.

    Raises:
        ConfigError: ``dataset`` is not an :class:`HDMLPImageFolder`.
    """

    def __init__(self, dataset: HDMLPImageFolder, collate_fn: Callable[[Any], Any] | None = None):
        if not isinstance(dataset, HDMLPImageFolder):
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
