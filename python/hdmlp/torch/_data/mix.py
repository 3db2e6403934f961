"""Several datasets that are mixed by weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from ..._records.joined import Piece
from ..._records.mixture import Mixture, checked_weights, epoch_of
from ..._records.records import Listed
from ...data import Folder
from ...errors import ConfigError
from .datasets import Datasets
from .joined import Joined, piece_of, shown
from .reasons import is_torchvision

_BATCHES = ("mixed", "one dataset each")


class Mix(Joined):
    """Several datasets, of which epochs take samples by weights.

    Each dataset is gone through in passes: each of its samples comes once before any comes again,
    also over the ends of epochs. Of each dataset an epoch has its share by the weights, rounded up
    or down to a sample. Which sample comes when follows from weights, seed and epoch alone, so the
    daemon plans, caches and resumes a mix as any dataset. The loader's ``shuffle=True`` draws both
    the order of each pass and which dataset comes when; with ``shuffle=False`` datasets are gone
    through in order, and their samples are spread evenly over the epoch.

    ``mix[i]`` counts through the datasets, one after another, and ``len(mix)`` is the number of all
    their samples. ``len(loader)`` follows from the length of an epoch.

    Args:
        datasets: A list of datasets of HDMLP's, or a dict of them by name. Also torch's ``Subset``
            of such. Their fields, types and shapes must be the same. Where images have other
            transforms than those of the first dataset, all of them run in Python, on images that
            the daemon decodes.
        weights: A number for each dataset, in any proportion; a dict by name; or a list of such
            lists, one per epoch, of which the last holds for all later epochs. Numbers of 0 leave
            datasets out. Default: None, their lengths: each sample comes equally often.
        epoch_size: Samples of an epoch. Default: None, as ``stopping_strategy`` defines.
        stopping_strategy: Without ``epoch_size``, an epoch is as long as it takes, by the shares,
            to go through one of the datasets (``"first_exhausted"``, rounded down), or through all,
            of which shorter ones begin again (``"all_exhausted"``, rounded up). Datasets whose
            weight is 0 do not count. Default: ``"first_exhausted"``.
        batches: ``"mixed"``, or ``"one dataset each"``: the batches of a step, on all ranks, have
            samples of one dataset, and weights are shares of the steps. An epoch then has only
            whole batches: ``epoch_size`` must be a multiple of ``batch_size`` times the number of
            ranks, and lengths by ``stopping_strategy`` are rounded to one, up for
            ``"all_exhausted"``. Default: ``"mixed"``.

    Labels that are numbers stay as they are. Labels that are texts become numbers of the classes of
    all datasets, sorted, or of the ``classes`` that a dataset was given.

    Raises:
        ConfigError: An argument is wrong, or the datasets do not fit together.
    """

    def __init__(
        self,
        datasets: Sequence[object] | Mapping[str, object],
        weights: object = None,
        epoch_size: int | None = None,
        stopping_strategy: str = "first_exhausted",
        batches: str = "mixed",
    ):
        if batches not in _BATCHES:
            raise ConfigError(f"batches={batches!r}: allowed: {', '.join(map(repr, _BATCHES))}")
        names, listed = _named(datasets)
        pieces = [_piece(name, dataset) for name, dataset in zip(_called(names, listed), listed)]
        _check_objects(pieces, listed)
        sizes = [piece.count for piece in pieces]
        self._weights = checked_weights(weights, names, sizes)
        self._entries = epoch_of(sizes, self._weights, epoch_size, stopping_strategy)
        self._given_size, self._strategy = epoch_size, stopping_strategy
        self._single = batches == "one dataset each"
        super().__init__(pieces, shown(listed), renumber=True)

    _own_transforms = True

    # The order.

    def mixture(self, global_batch: int) -> Mixture:
        """Returns what the order of epochs follows from.

        Args:
            global_batch: Samples of a step, on all ranks.

        Raises:
            ConfigError: Batches are of one dataset each, and ``epoch_size`` is no multiple of it.
        """
        sizes, rows = self._places.sizes, self._weights.rows
        if not self._single:
            return Mixture(sizes, rows, self._entries)
        least = self._entries // global_batch * global_batch
        if self._given_size is not None and least != self._entries:
            raise ConfigError(
                f"epoch_size={self._entries}: with batches='one dataset each' it must be a "
                f"multiple of batch_size times the number of ranks, {global_batch}: give "
                f"{f'{least} or ' if least else ''}{least + global_batch}"
            )
        if least < self._entries and (self._strategy == "all_exhausted" or not least):
            least += global_batch
        return Mixture(sizes, rows, least, True, global_batch)

    @property
    def epoch_size(self) -> int:
        """Samples of an epoch, as far as it does not follow from the loader's batches."""
        return self._entries

    def source_of(self, index: Any) -> Any:
        """Returns which dataset a sample is of, and its index in it.

        Args:
            index: A sample's index in the mix; or several, as a tensor, an array or a sequence.

        Returns:
            (number of the dataset, index), of several two tensors, arrays or lists.

        Raises:
            IndexError: There is no such sample.
        """
        if isinstance(index, (list, tuple, range)):
            found = self._sources(torch.tensor(list(index), dtype=torch.int64))
            return tuple(part.tolist() for part in found)
        if isinstance(index, torch.Tensor) and index.ndim:
            return self._sources(index)
        if getattr(index, "ndim", 0):
            found = self._sources(torch.as_tensor(index))
            return tuple(part.numpy() for part in found)
        sample = self._index(index)
        number, _ = self._places.of(sample)
        return number, sample - self._places.starts[number]

    def _sources(self, index: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        if index.is_floating_point() or index.is_complex() or index.dtype == torch.bool:
            raise TypeError(f"indices must be whole numbers, not {index.dtype}")
        count, samples = len(self), index.to(torch.int64)
        wrong = samples[samples.lt(-count) | samples.ge(count)]
        if len(wrong):
            self._index(int(wrong[0]))  # which raises
        samples, starts = samples.remainder(count), torch.tensor(self._places.starts)
        numbers = torch.bucketize(samples, starts, right=True).sub(1)
        return numbers, samples.sub(starts[numbers])


def _named(datasets: object) -> tuple[list[str] | None, list[object]]:
    """Returns the datasets' names, None if they have none, and the datasets."""
    if isinstance(datasets, Mapping):
        for name in datasets:
            if not isinstance(name, str):
                raise ConfigError(f"datasets has the key {name!r}: names of datasets are texts")
        names, listed = list(datasets), list(datasets.values())
    elif isinstance(datasets, (Listed, Folder)) or not isinstance(datasets, Sequence):
        raise ConfigError(
            f"datasets={datasets!r:.200}: must be a list of datasets, or a dict of them by name"
        )
    else:
        names, listed = None, list(datasets)
    if not listed:
        raise ConfigError("datasets: the list is empty; give at least one")
    return names, listed


def _called(names: list[str] | None, listed: Sequence[object]) -> list[str]:
    """Returns what messages call the datasets."""
    if names is None:
        return [f"datasets[{d}]" for d in range(len(listed))]
    return [f"datasets[{name!r}]" for name in names]


def _check_objects(pieces: Sequence[Piece], given: Sequence[object]) -> None:
    """Checks that no dataset is there twice, or has no samples."""
    for d, piece in enumerate(pieces):
        first = next(i for i, other in enumerate(given) if other is given[d])
        if first != d:
            raise ConfigError(
                f"{piece.name} is the same dataset as {pieces[first].name}, and would be read and "
                "cached twice: give it once, with the sum of both weights"
            )
        if not piece.count:
            raise ConfigError(f"{piece.name} is empty: leave it out")


def _piece(name: str, dataset: object) -> Piece:
    """Returns one of the datasets as records.

    Raises:
        ConfigError: HDMLP does not read its samples.
    """
    part: Any = dataset
    while type(part) is torch.utils.data.Subset:
        part = part.dataset
    if isinstance(part, Mix):
        raise ConfigError(
            f"{name} is a Mix: give one Mix all of its datasets, with the products of the weights"
        )
    known = isinstance(part, (Listed, Folder)) or is_torchvision(part)
    samples = Datasets().samples(dataset) if known else None
    if samples is not None and samples.folder is None and samples.why:
        raise ConfigError(f"{name}: {samples.why}")
    if samples is None:
        return piece_of(name, dataset, None, None)
    return piece_of(name, dataset, samples.folder, samples.ids)
