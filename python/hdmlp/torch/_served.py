"""A folder's batches, served by the daemon: as they are in the files, or decoded and transformed there; what is left runs here."""

from __future__ import annotations

import multiprocessing
import pickle
from dataclasses import replace
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

import torch

from .. import _daemon
from .._ahead import Ahead
from .._feed import Feed
from .._loader import Loader
from .._options import Options
from .._output import Handed, Output
from .._progress import Progress
from .._recipe import Composed, Recipe, generators_kept
from .._results import Arena
from .._source import BatchSource, Taken, column
from .._stream import Stream
from .._worker_failures import Failed, RemoteTraceback
from .._workers import Pool
from ..data import Folder, described
from ._batch import default_collate, labels_of, pinned, stack_into
from ._datasets import Mirror, Relabelled
from ._folder import offload, pil_loader
from ._init import WorkerInit
from ._repeats import Repeating


class Making(NamedTuple):
    """What is made of a dataset's samples.

    Attributes:
        transforms: what the daemon does.
        recipe: what Python does after it; None: nothing but handing it over.
        collate: the user's own, from (samples, labels) to a batch, where there is no recipe; None: there is none.
        target_transform: applied to labels where there is no recipe.
        raw: samples stay as they are.
    """

    transforms: List[Any]
    recipe: Optional[Recipe]
    collate: Optional[Callable]
    target_transform: Optional[Callable]
    raw: bool

    @property
    def draws(self) -> bool:
        """True if random numbers may be drawn for it: by a transform of the daemon's that is random, or by whatever Python does."""
        return self.recipe is not None or any(
            str(t["name"]).startswith(("Random", "ColorJitter"))
            for t in described(self.transforms) or ()
        )

    def says(self, copied: bool) -> Any:
        """What it does, for comparing: of the daemon's transforms, their parameters; of the user's objects, which they are.

        Args:
            copied: workers have copies of the user's objects, so that what they are made of counts as well, if it can be told.
        """
        own = [self.target_transform]
        if self.recipe is not None:
            own += [
                self.recipe.target_transform,
                None if isinstance(self.recipe.loader, Handed) else self.recipe.loader,
                *getattr(self.recipe.transform, "steps", [self.recipe.transform]),
            ]
        return described(self.transforms), [_identity(value, copied) for value in own]


def _identity(value: Any, copied: bool) -> Any:
    """What tells an object from others, as long as it lives."""
    if copied:
        try:
            return pickle.dumps(value)
        except Exception:  # a closure, for instance: the same object is taken for the same
            pass
    if isinstance(value, Relabelled):  # which is made anew each time
        return value.labels, _identity(value.then, copied)
    return id(value)


def making(
    dataset: Folder,
    raw: Optional[bool],
    labels: str,
    collate: Optional[Callable],
    wanted: bool,
    say: bool,
) -> Making:
    """What is made of the samples of a dataset, by its transforms, and by the loader's arguments.

    Args:
        raw: bytes (True), decoded (False), or as the dataset says (None).
        labels: ``"index"`` or ``"name"``.
        collate: the user's; None: the default.
        wanted: let the daemon do what it can.
        say: log what it cannot do.
    """
    raw = getattr(dataset, "raw", True) if raw is None else raw
    target_transform = getattr(dataset, "target_transform", None)
    if labels == "name":
        target_transform = (
            Relabelled(*dataset.named())
            if isinstance(dataset, Mirror)
            else Relabelled(dataset.classes, target_transform)
        )
    if raw:
        return Making([], None, collate, target_transform, True)
    load, transform = getattr(dataset, "loader", pil_loader), getattr(dataset, "transform", None)
    found = offload(load, transform, wanted, say, ragged=True)
    if found.described:
        load, transform = (
            Handed(found.hands, Composed([pil_loader, *found.done])),
            Composed(found.rest) if found.rest else None,
        )
        if transform is None and collate is None and found.hands != "ragged":
            return Making(found.described, None, None, target_transform, False)
    recipe = Recipe(
        load,
        transform,
        target_transform,
        collate or default_collate,
        stack_into if collate is None else None,
        load is pil_loader,
    )
    return Making(found.described, recipe, collate, target_transform, False)


class Served(Loader):
    """The job of one loader, opened as one rank.

    Args:
        dataset: the folder.
        made: what is made of its samples.
        workers, prefetch_factor, context, worker_init_fn: the worker processes for what runs in Python, as torch has them.
        persistent: workers stay over epochs; else each epoch has new ones, which see the user's objects as they are then.
        pin_memory: copy tensors to pinned memory, where CUDA is available.
        options, opens: what :class:`Loader` takes; the transforms are those of ``made``.
    """

    def __init__(
        self,
        dataset: Folder,
        made: Making,
        options: Options,
        *,
        workers: int,
        prefetch_factor: Optional[int],
        context: Any,
        worker_init_fn: Optional[Callable[[int], None]],
        persistent: bool,
        pin_memory: bool,
        opens: bool = True,
    ):
        subset, place = options.stream.subset, options.place
        if made.recipe is not None and (
            options.stream.shuffle == "given"
            or subset is not None
            and len(set(subset)) < len(subset)
        ):
            made = made._replace(recipe=Repeating(made.recipe, place.rank, place.world_size))
        self._made = made
        self._workers = workers
        self._prefetch_factor = 2 if prefetch_factor is None else prefetch_factor
        self._context = context
        self._worker_init_fn = worker_init_fn
        self._persistent = persistent
        self._pin_memory = pin_memory
        self._arena = Arena()
        self._works = (
            made.recipe is not None
            or made.collate is not None
            or made.target_transform is not None
            or bool(pin_memory)
        )
        super().__init__(
            dataset, replace(options, transforms=described(made.transforms)), opens=opens
        )

    def __getstate__(self) -> Dict[str, Any]:
        return {**super().__getstate__(), "_arena": Arena()}

    def _open_stream(
        self, client: _daemon.Client, request: Dict[str, Any], fds: Sequence[int] = ()
    ) -> Tuple[Stream, BatchSource]:
        if self._made.recipe is None or not self._workers:
            stream, source = super()._open_stream(client, request, fds)
            self._tell_output(stream)
            make = self._maker(stream.output)
            return stream, source if make is None else Ahead(stream, make)
        context = self._context
        if context is None or isinstance(context, str):
            context = multiprocessing.get_context(context)
        pool = Pool(
            self._made.recipe,
            self._workers,
            self._prefetch_factor,
            context,
            WorkerInit(
                self._worker_init_fn,
                getattr(self.dataset, "of", self.dataset),
                self._workers,
                False,
            ),
        )
        try:
            stream = Stream(client, request, Progress(), pool.on_segment, pool.on_drop, fds)
        except BaseException:
            pool.close()
            raise
        pool.attach(stream)
        self._tell_output(stream)
        return stream, pool

    def _begin(self, iteration: Any) -> None:
        super()._begin(iteration)
        self._renew(iteration.feed, iteration.end)

    def _renew(self, feed: Feed, end: Optional[int]) -> None:
        """Has an epoch that ends at this position made by new workers, unless they are to stay."""
        if feed.is_open and isinstance(feed.source, Pool) and not self._persistent:
            feed.source.renew(end)

    def _tell_output(self, stream: Stream) -> None:
        recipe = self._made.recipe
        if recipe is not None and isinstance(recipe.loader, Handed):
            recipe.loader.output = stream.output

    def _maker(self, output: Optional[Output]) -> Optional[Callable[[Taken], Any]]:
        """What makes a batch of what was taken, if nothing of the user's runs then; else None. It must not hold the loader."""
        if self._works:
            return None
        if self._made.transforms:
            return lambda taken: [output.tensor(taken.content, taken.n), labels_of(taken)]
        return lambda taken: (taken.content, labels_of(taken))

    def _make(self, feed: Feed, taken: Taken) -> Any:
        made = self._made
        if isinstance(feed.source, Ahead):
            return taken.content
        if made.recipe is not None:
            batch = self._cooked(feed, taken)
        elif made.transforms:
            batch = [
                feed.stream.output.tensor(taken.content, taken.n),
                labels_of(taken, made.target_transform),
            ]
        elif made.collate is None:
            batch = taken.content, labels_of(taken, made.target_transform)
        else:
            labels = column(taken.payload, taken.n, "labels")
            if made.target_transform is not None:
                labels = map(made.target_transform, labels)
            batch = made.collate(list(zip(taken.content, labels)))
        if self._pin_memory and torch.cuda.is_available():
            batch = pinned(batch)
        return batch

    def _cooked(self, feed: Feed, taken: Taken) -> Any:
        """The batch that the recipe makes, here or in a worker; its exceptions name the sample."""
        recipe = self._made.recipe
        if isinstance(feed.source, Pool):
            value = feed.source.value(taken.content)
            if isinstance(value, Failed):
                self._name_sample(value.error, value.sample, taken)
                where = self._where(value.sample, value.error, taken)
                raise value.error from RemoteTraceback(
                    f"in worker {value.worker}, {where}:\n{value.text}"
                )
            return value
        try:
            with generators_kept():
                output = feed.stream.output
                views = taken.content if output is None else output.split(taken.content, taken.n)
                seed = self._spec["seed"]
                if isinstance(recipe, Repeating):
                    seed = recipe.seed_of(seed, taken.step)
                batch = recipe.samples(
                    views,
                    column(taken.payload, taken.n, "labels"),
                    column(taken.payload, taken.n, "ids"),
                    seed,
                    taken.epoch,
                )
                if recipe.stack is not None:
                    return recipe.stack(batch, self._arena)
                return recipe.collate(batch)
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
