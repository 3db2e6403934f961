"""What a loader delivers: its dataset's samples, and what is made of them."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Callable

from torch.utils.data import ConcatDataset, Dataset, IterableDataset, Subset

from ..._launch.processors import not_started, unasked
from ..._lib.arguments import check_functions, whole_number
from ..._lib.typing import Context
from ..._records.copies import Copying
from ..._records.declared import Checked, Declared
from ..._records.item_files import asked
from ..._transforms.generators import generators_kept
from ...errors import ConfigError
from .._data.batch_transform import BatchTransform, say_mixes
from .._data.collation import default_stacks, is_default, torchs_default
from .._data.datasets import Datasets
from .._data.items import length_of
from .._data.making import Making, making, making_of_items
from .._data.mirror import Samples
from .._data.own_items import OpenedItems
from .loader_arguments import Arguments

log = logging.getLogger("hdmlp")

Collate = Callable[..., object]


def users_collate(collate_fn: Collate | None, batched: bool) -> Collate | None:
    """Returns the user's collate function; None: it is torch's default.

    Frameworks which make a loader anew from its attributes pass the default explicitly. It counts
    as the user's where it is not as torch has it.

    Raises:
        ConfigError: It is not callable.
    """
    check_functions(collate_fn=collate_fn)
    if not is_default(collate_fn, batched):
        return collate_fn
    return None if not batched or default_stacks() else torchs_default()


#: Libraries whose datasets are not the program's own.
_LIBRARIES = ("torch", "torchvision", "builtins", "numpy", "hdmlp")

#: The dataset of which :func:`_say_what_is_missing` has said something in this process.
_SAID: list[str] = []


def _say_what_is_missing(dataset: object) -> None:
    """Says once what HDMLP does not do for a dataset that is not its own."""
    if any(of.__module__.partition(".")[0] == "webdataset" for of in type(dataset).__mro__):
        _say_webdataset(type(dataset).__name__)
        return
    if _is_hugging_faces(dataset):
        _say_hf()
        return
    name = next(_own_datasets(dataset), None)
    if name is None or _SAID:
        return
    _SAID.append(name)
    log.warning(
        "%s: the files that a dataset of your own reads are neither cached nor read ahead, because "
        "only calling it reveals them; its items are made in Python, as by torch's loader; say "
        "which file each item reads (files=lambda i: path, which `hdmlp learn -- python SCRIPT` "
        "proposes), or use hdmlp.torch.ImageFolder or hdmlp.torch.Files",
        name,
    )


def _say_webdataset(name: str) -> None:
    if name not in _SAID:
        _SAID.append(name)
        log.warning(
            "%s: webdataset reads its shards itself, with torch's own loader, and nothing is "
            "cached; hdmlp.torch.WebDataset reads the same shards in any order, caches them, and "
            "has webdataset's decode, to_tuple, rename, map_tuple and map",
            name,
        )


def _is_hugging_faces(dataset: object) -> bool:
    """Reports whether a dataset, or that of a Subset, is a ``datasets.Dataset``."""
    while type(dataset) is Subset:
        dataset = dataset.dataset
    of: Any = getattr(sys.modules.get("datasets"), "Dataset", ())
    return isinstance(dataset, of)


def _say_hf() -> None:
    if "datasets" not in _SAID:
        _SAID.append("datasets")
        log.warning(
            "a datasets.Dataset is read and decoded in Python, as by torch's loader, and nothing "
            "of it is cached: hdmlp.torch.HFDataset(dataset, transform={column: ...}) has its "
            "images read, decoded and transformed by the daemon, in any order"
        )


def _own_datasets(dataset: object) -> Iterator[str]:
    """Yields the names of the classes of the program's own within a map-style dataset."""
    if type(dataset) is Subset:
        yield from _own_datasets(dataset.dataset)
    elif type(dataset) is ConcatDataset:
        for part in dataset.datasets:
            yield from _own_datasets(part)
    else:
        library = type(dataset).__module__.partition(".")[0] in _LIBRARIES
        if not library and not isinstance(dataset, IterableDataset):
            yield type(dataset).__name__


def declared(dataset: object, datasets: Datasets, arguments: Arguments) -> Copying | None:
    """Returns the files that a dataset's items are said to read; None: there are none.

    Raises:
        ConfigError: HDMLP serves the dataset itself, or it has no items by index.
    """
    name = type(dataset).__name__
    if isinstance(dataset, IterableDataset):
        raise ConfigError(
            f"files: the {name} is iterable, so it has no items by index; make it a map-style "
            "dataset (with __getitem__ and __len__), or use hdmlp.torch.Files"
        )
    if datasets.samples(dataset).folder is not None:
        raise ConfigError(f"files: the files of the {name} are served already; leave it out")
    count, given = length_of(dataset), arguments.files
    if count is None:
        raise ConfigError(f"files: the {name} has no __len__, which says how many items there are")
    if callable(given):
        ask: Callable[[int], object] = given
    else:
        listed = given.tolist() if hasattr(given, "tolist") else given
        if isinstance(listed, (str, bytes)) or not isinstance(listed, (Sequence, Mapping)):
            raise ConfigError(
                f"files={given!r:.200}: must be a function from an index to a path or a list of "
                "paths, or a sequence of these"
            )
        if len(listed) != count:
            raise ConfigError(
                f"files: there are {len(listed)} entries, and the {name} has {count} items"
            )
        ask = listed.__getitem__
    with generators_kept():
        found = asked(ask, count, "files", 0)
    files = Checked(dataset, found)
    if files.serves:
        return Copying(files, arguments.check == "open")
    if count:
        log.warning("files: %s: the %s reads its files itself", files.why_none(), name)
    return None


class Content:
    """What a loader delivers.

    Args:
        dataset: The loader's dataset.
        arguments: The loader's own arguments.
        why: Why the daemon does not serve the dataset, whatever it is; empty: it may.

    Attributes:
        samples: Which samples of which folder the dataset's items are.
        making: What is made of them; None: the daemon does not serve the dataset.
        workers_left_out: The user did not say how many workers to start.

    Raises:
        ConfigError: An argument has no meaning for the dataset.
    """

    def __init__(self, dataset: Dataset[object], arguments: Arguments, why: str = ""):
        self._arguments = arguments
        self._warned_of_state = self.workers_left_out = False
        self._datasets = Datasets()
        self._copying: Copying | None = None
        if not why and arguments.files is not None:
            self._copying = declared(dataset, self._datasets, arguments)
        if self._copying is not None:
            self.samples = Samples(self._copying.files)
        else:
            self.samples = Samples(None, why=why) if why else self._datasets.samples(dataset)
        self.making: Making | None = None
        if isinstance(self.folder, Declared):
            arguments.check_for_own_items(dataset)
        elif self.folder is None:
            arguments.check_for_other_datasets(dataset, self.samples.why)
            if self.samples.why:
                log.warning(
                    "%s: its items are made in Python, as by torch's loader, and nothing of it is "
                    "cached: %s",
                    type(dataset).__name__,
                    self.samples.why,
                )
            else:
                _say_what_is_missing(dataset)
            if os.environ.get("HDMLP_SHARE"):
                log.warning(
                    "HDMLP_SHARE has no effect on a loader of a %s: jobs share what the daemon "
                    "prepares, and its items are made in Python",
                    type(dataset).__name__,
                )

    @property
    def folder(self) -> Any:
        """The folder that the daemon serves; None: it does not serve the dataset."""
        return self.samples.folder

    @property
    def made_elsewhere(self) -> str:
        """Why ``dataset[i]`` does not make several items of a batch at a time; empty: it may."""
        if self.folder is None:
            if self._arguments.files is None:
                return ""
            return (
                "with files= items are made one after the other, also if it names no file that "
                "the daemon can read ahead (threads need a loader without files=)"
            )
        if isinstance(self.folder, Declared):
            return "items are made of files that the daemon reads ahead, one item after the other"
        return (
            "the daemon reads and prepares the samples, with threads of its own "
            "(transform_threads), and num_workers is for what is left to Python"
        )

    @property
    def draws(self) -> bool:
        """Reports whether making the samples may draw random numbers."""
        return self.making is not None and self.making.draws

    @property
    def transforms_draw(self) -> bool:
        """Reports whether the transforms of the samples draw random numbers, as far as is known."""
        return self.making is not None and self.making.transforms_draw

    def make(self, collate: Collate | None, say: bool = True) -> Making | None:
        """Returns what is made of the samples, as the dataset is now.

        Args:
            collate: The user's collate function; None: torch's.
            say: Log what the daemon cannot do.
        """
        if say and collate is not None:
            say_mixes(collate)
        if self.folder is None:
            return None
        own = self._arguments
        if self._copying is not None:
            made = making_of_items(OpenedItems(self._copying, collate))
        else:
            made = making(self.folder, own.raw, own.labels, collate, own.offload, say)
        return made._replace(batch_transform=self.batch_transform(collate))

    def batch_transform(self, collate: Collate | None) -> BatchTransform | None:
        """Returns what becomes of batches at last; None: nothing.

        Args:
            collate: The user's collate function, which may keep what it returns; None: torch's.
        """
        transform = self._arguments.batch_transform
        return None if transform is None else BatchTransform(transform, collate is None)

    def workers(self, wanted: int | None, context: Context | str | None) -> tuple[int, str]:
        """Returns how many workers to start, and what to log about them.

        Args:
            wanted: What the user said; None: nothing.
            context: The multiprocessing context.
        """
        self.workers_left_out = wanted is None
        if wanted is not None:
            return whole_number("num_workers", wanted, 0), ""
        if self.making is None or self.making.recipe is None:
            return 0, ""
        if isinstance(self.folder, Declared):
            return 0, ""  # as in torch
        if getattr(self.making.recipe, "instant", False):
            return 0, ""  # batches would be copied once more
        count, said = unasked(context)
        why = self.making.own_state() if count else ""
        return (0, not_started(why)) if why else (count, said)

    def check_unchanged(self, dataset: Dataset[object], epoch: int) -> None:
        """Checks that the dataset's items are still the same samples.

        Raises:
            ConfigError: They are not.
        """
        if self._copying is not None and length_of(dataset) == len(self._copying.files):
            return
        now = self._datasets.samples(dataset)
        if now == self.samples:
            return
        counts = [
            len(part.folder) if part.ids is None else len(part.ids)
            for part in (self.samples, now)
            if part.folder is not None
        ]
        how = now.why or "they are other samples"
        if self._copying is not None:
            how = f"it had {len(self._copying.files)}, and has {length_of(dataset)}"
        if len(set(counts)) == 2:
            how = f"it had {counts[0]}, and has {counts[1]}"
        raise ConfigError(
            f"epoch {epoch}: the items of the {type(dataset).__name__} changed after the loader "
            f"was made ({how}): make a new loader"
        )

    def close(self) -> None:
        """Ends what the items need while a loader is open. Idempotent."""
        if self._copying is not None:
            self._copying.remove()

    def warn_of_state(self, dataset: object) -> None:
        """Warns once that a loader's state does not contain the dataset's own."""
        if self._warned_of_state or not all(
            callable(getattr(dataset, name, None)) for name in ("state_dict", "load_state_dict")
        ):
            return
        self._warned_of_state = True
        log.warning(
            "the %s has a state_dict, which, unlike torchdata's StatefulDataLoader, the loader "
            "does not save: items are made in several processes; save and load it yourself",
            type(dataset).__name__,
        )
