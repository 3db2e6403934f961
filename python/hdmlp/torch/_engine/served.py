"""A folder's batches, served by the daemon; what it cannot do runs here or in workers."""

from __future__ import annotations

import contextlib
import functools
import logging
import multiprocessing
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Callable

from torch.utils.data import DataLoader

from ..._batches.source import BatchSource, Taken, column
from ..._batches.stream import Stream
from ..._daemon import connecting
from ..._lib.progress import Progress
from ..._lib.typing import Context
from ..._loading.ahead import Ahead, NotMade
from ..._loading.base_loader import Loader
from ..._loading.feed import Feed
from ..._loading.iteration import Iteration
from ..._loading.options import Options
from ..._transforms.generators import generators_kept
from ..._transforms.recipe import Batch, Unchanged
from ..._workers.failures import Failed, RemoteTraceback
from ..._workers.pool import Pool
from ..._workers.results import Arena
from ..._workers.seeds import base_seed
from ..._workers.staying import Staying
from ...data import Folder, described
from .._data.assembled import Assembled
from .._data.collation import for_training, labels_of
from .._data.making import Making
from .._data.own_items import OpenedItems, OwnItems
from .._data.tensors import Tensors
from .pinning import Device, Pinning
from .worker_init import WorkerInit

log = logging.getLogger("hdmlp")


@dataclass(frozen=True)
class Processes:
    """Where Python's part of batches runs, as torch's arguments of the same names say.

    Attributes:
        workers: The number of worker processes; 0: this process does it.
        prefetch_factor: Batches under way per worker.
        context: A multiprocessing context or its start method; None: the default.
        init: Called in each worker with its number; None: nothing is.
        persistent: Workers stay over epochs. Otherwise each epoch has new ones, which see the
            user's objects as they are then.
        pinned: For which device tensors are copied to pinned memory; None: they are not.
        dataset: The loader's, of which workers have copies.
    """

    workers: int
    prefetch_factor: int
    context: Context | str | None
    init: Callable[[int], None] | None
    persistent: bool
    pinned: Device | None
    dataset: object

    @classmethod
    def of(cls, loader: DataLoader[object], device: Device) -> Processes:
        """Returns what a loader's attributes say now.

        Args:
            loader: The loader.
            device: For which its tensors are pinned, if the attributes say that they are.
        """
        factor = loader.prefetch_factor
        return cls(
            workers=loader.num_workers,
            prefetch_factor=2 if factor is None else factor,
            context=loader.multiprocessing_context,
            init=loader.worker_init_fn,
            persistent=loader.persistent_workers,
            pinned=device if loader.pin_memory else None,
            dataset=loader.dataset,
        )


class Served(Loader):
    """The job of one loader, opened as one rank.

    Args:
        dataset: The folder.
        made: What is made of its samples.
        options: As for :class:`~hdmlp._loading.base_loader.Loader`; the transforms are those of
            ``made``.
        processes: Where Python's part runs.
        opens: As for :class:`~hdmlp._loading.base_loader.Loader`.
        part: This rank, and the number of ranks that share the epochs, if the job is this rank's
            alone. None: those of the job.
    """

    def __init__(
        self,
        dataset: Folder,
        made: Making,
        options: Options,
        processes: Processes,
        *,
        opens: bool = True,
        part: tuple[int, int] | None = None,
    ):
        if made.recipe is None and made.collate is not None:
            made = made._replace(recipe=Unchanged(made.target_transform, made.collate))
        rank, world_size = part or options.place[:2]
        if made.recipe is not None:
            made = made._replace(recipe=made.recipe.placed(rank, world_size))
        self._made = made
        self._processes = processes
        self._rank = rank
        self._arena = Arena()
        self._finishes = made.batch_transform is not None
        self._works = made.runs_user_code or self._finishes
        self._said_left = False
        super().__init__(
            dataset, replace(options, transforms=described(made.transforms)), opens=opens
        )

    def __getstate__(self) -> dict[str, object]:
        return {**super().__getstate__(), "_arena": Arena()}

    # Where it is.

    @property
    def fresh(self) -> bool:
        """Whether the user set where the next iteration begins."""
        return self._cursor.jumped

    @property
    def next_epoch(self) -> int:
        """The epoch in which the next iteration begins."""
        return self._cursor.start // self.steps if self.steps else 0

    def follow(self, other: Served) -> None:
        """Goes to where another engine of the same steps is."""
        self._cursor.follow(other._cursor)
        self._seed_replaceable = other._seed_replaceable

    # Opening.

    def _open_stream(
        self, client: connecting.Client, request: dict[str, Any], fds: Sequence[int] = ()
    ) -> tuple[Stream, BatchSource]:
        if not self._has_workers:
            stream, source = super()._open_stream(client, request, fds)
            self._tell_output(stream)
            make = self._maker(stream)
            return stream, source if make is None else self._pinning(Ahead(stream, make))
        request["share"]["ahead"] = self._processes.workers * self._processes.prefetch_factor
        pool = self._new_pool()
        try:
            stream = Stream(client, request, Progress(), pool.on_segment, pool.on_drop, fds)
        except BaseException:
            pool.close()
            raise
        pool.attach(stream)
        self._tell_output(stream)
        return stream, self._pinning(pool)

    @property
    def _has_workers(self) -> bool:
        return self._made.recipe is not None and self._processes.workers > 0

    def _pinning(self, source: Ahead | Pool) -> Ahead | Pool | Pinning:
        """Returns what yields a source's batches in pinned memory, if they are to be there."""
        device = self._processes.pinned
        return source if device is None else Pinning(source, device)

    def _new_pool(self) -> Pool:
        processes = self._processes
        context: Any = processes.context
        if context is None or isinstance(context, str):
            context = multiprocessing.get_context(context)
        folder = getattr(self.dataset, "of", self.dataset)
        if isinstance(self._made.recipe, OwnItems):
            folder = None  # items are made by what workers have
        init = WorkerInit(processes.init, processes.dataset, processes.workers, folder)
        made = self._made
        assert made.recipe is not None
        return Pool(
            made.recipe,
            processes.workers,
            processes.prefetch_factor,
            context,
            init,
            self._base_seeds(),
            None
            if processes.init is not None
            else Staying(made.recipe, made.runs_code_of_the_program),
        )

    def _base_seeds(self) -> Callable[[int, int], int]:
        """Returns what returns the base seed of an epoch's workers, and does not refer to this."""
        return functools.partial(base_seed, rank=self._rank)

    def _begin(self, iteration: Iteration) -> Feed:
        feed = super()._begin(iteration)
        self._renew(feed, iteration.end)
        return feed

    def _take_again(self, iteration: Iteration, feed: Feed) -> Feed:
        feed = super()._take_again(iteration, feed)
        source = feed.source if feed.is_open else None
        if isinstance(source, (Pool, Pinning)) and source.end not in {None, iteration.end}:
            self._renew(feed, iteration.end)  # an exception kept _begin from it
        return feed

    def _renew(self, feed: Feed, end: int | None) -> None:
        """Has new workers make an epoch that ends at this position, unless they are to stay."""
        if feed.is_open and self._has_workers and not self._processes.persistent:
            assert isinstance(feed.source, (Pool, Pinning))
            feed.source.renew(end)

    def _rest(self, feed: Feed) -> None:
        if isinstance(self._made.recipe, OpenedItems):
            self._made.recipe.copying.say()
        if not feed.is_open or not self._has_workers or self._processes.persistent:
            return
        assert isinstance(feed.source, (Pool, Pinning))
        if self.epochs is not None and self.next_epoch >= self.epochs:
            feed.source.renew(None)  # as torch's loader, this one has no workers after epochs
        else:
            feed.source.rest()

    def _tell_output(self, stream: Stream) -> None:
        if self._made.recipe is not None:
            self._made.recipe.told(stream.outputs)

    def _maker(self, stream: Stream) -> Callable[[Taken], object] | None:
        """Returns what makes a batch of what was taken; None: the user's code runs for it.

        It must not refer to the loader, which could not be collected then.
        """
        if self._made.runs_user_code:
            return None
        if self._made.fields is not None:
            return for_training(Assembled(stream, self._made.fields).of)
        if self._made.transforms:
            tensors = Tensors(stream, self._made.left)
            return for_training(lambda taken: [tensors.of(taken), labels_of(taken)])
        return for_training(lambda taken: (taken.content, labels_of(taken)))

    # Making batches.

    def _make(self, feed: Feed, taken: Taken) -> object:
        batch, last = self._batch_of(feed, taken), self._made.batch_transform
        if last is None or not taken.n:
            return batch
        step = taken.step if feed.step is None else feed.step
        batch = last(batch, self.seed, taken.epoch, step, self._rank)
        device = self._processes.pinned
        return batch if device is None else device.pinned(batch)

    def _batch_of(self, feed: Feed, taken: Taken) -> object:
        """Returns the batch before the ``batch_transform``."""
        made, source = self._made, feed.source
        if taken.left:
            self._say_left(taken)
        if isinstance(source, (Ahead, Pool, Pinning)):
            return self._value(source, taken)
        if made.recipe is not None:
            batch = self._run_recipe(feed, taken)
        elif made.fields is not None:
            try:
                batch = Assembled(feed.stream, made.fields).of(taken)
            except Exception as error:  # of a record that is left to Python
                self._name_sample(error, getattr(error, "sample", None), taken)
                raise
        elif made.transforms:
            try:
                tensors = Tensors(feed.stream, made.left).of(taken)
            except Exception as error:  # of a sample that is left to Python
                self._name_sample(error, getattr(error, "sample", None), taken)
                raise
            batch = [tensors, labels_of(taken, made.target_transform)]
        else:
            batch = taken.content, labels_of(taken, made.target_transform)
        device = self._processes.pinned
        return batch if device is None else device.pinned(batch)

    def _value(self, source: Ahead | Pool | Pinning, taken: Taken) -> object:
        """Returns what was made before; exceptions name the sample."""
        value = taken.content if isinstance(source, Ahead) else source.value(taken.content)
        if isinstance(value, NotMade):
            error = value.error
            taken.content = value = None
            self._name_sample(error, getattr(error, "sample", None), taken)
            try:
                raise error
            finally:
                del error  # its traceback has this frame
        if isinstance(value, Failed):
            self._name_sample(value.error, value.sample, taken)
            where = self._where(value.sample, value.error, taken)
            raise value.error from RemoteTraceback(
                f"in worker {value.worker}, {where}:\n{value.text}"
            )
        return value

    def _run_recipe(self, feed: Feed, taken: Taken) -> object:
        """Makes the batch here; exceptions name the sample."""
        recipe = self._made.recipe
        assert recipe is not None
        try:
            with generators_kept():
                views = recipe.taken(taken, feed.stream.outputs)
                labels = column(taken.payload, taken.n, "labels")
                batch = Batch(self.seed, taken.epoch, taken.step)
                ids, keys = recipe.keys(taken.payload, batch, taken.outputs)
                return recipe.batch(views, labels, ids, keys, batch, self._arena)
        except Exception as error:
            self._name_sample(error, getattr(error, "sample", None), taken)
            raise

    def _name_sample(self, error: Any, sample: object, taken: Taken) -> None:
        """Adds the sample's ID and path to an exception of the user's code."""
        path = None
        if isinstance(sample, int):
            with contextlib.suppress(Exception):  # the exception at hand matters more
                path = self._path_of(sample)
        with contextlib.suppress(AttributeError):
            error.sample, error.path = sample, path
        if hasattr(error, "add_note"):
            error.add_note(self._where(sample, error, taken))

    def _say_left(self, taken: Taken) -> None:
        """Logs once that samples are left to Python, but for those that seldom are."""
        unusual = [place for place, data in taken.left.items() if not data.usual]
        if self._said_left or not unusual:
            return
        self._said_left = True
        sample = column(taken.payload, taken.n, "ids")[min(unusual) % taken.n]
        log.warning(
            "sample %d (%s), and others of its kind, are decoded by Pillow and transformed in this "
            "process, while the loop waits: it is no JPEG, PNG or still WebP, or one that only the "
            "installed Pillow decodes in the same way; convert such files if that takes too long",
            sample,
            self._path_of(sample),
        )

    def _path_of(self, sample: int) -> str:
        """Returns where a sample is: its file, or those of a record, for messages."""
        path = self.dataset.sample(sample)[0]
        if isinstance(path, dict):
            path = tuple(path.values())
        if isinstance(path, tuple):
            path = ", ".join(str(one) for one in path if one is not None)
        return str(path)

    @staticmethod
    def _where(sample: object, error: BaseException, taken: Taken) -> str:
        batch = f"batch {taken.step} of epoch {taken.epoch}"
        if not isinstance(sample, int):
            return batch
        return f"sample {sample} ({getattr(error, 'path', None) or 'path unknown'}), {batch}"
