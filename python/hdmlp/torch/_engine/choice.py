"""Which engine delivers a loader's batches: the daemon by itself, or this process by its sampler.

An engine is opened when it is needed, and replaced by another one when the dataset's transforms or
the loader's attributes changed in the meantime.
"""

from __future__ import annotations

import functools
import logging
from typing import Any, Callable, Union

import torch.utils.data
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler
from torch.utils.data.sampler import BatchSampler

from ..._daemon import connecting
from ..._launch import membership
from ..._launch.place import Place
from ..._lib.arguments import settings
from ..._loading.options import Options, StreamOptions, check_shares, dealt
from ..._records.declared import Checked, Declared
from ..._records.mixture import Mixture
from ..._records.records import Listed
from ...data import Folder, described
from ...errors import BusyError, ClosedError, ConfigError
from .._data.collated import collate_records
from .._data.hf import HFDataset
from .._data.interfaces import Indexed
from .._data.items import Encoded, Labelled, encoded_batch
from .._data.making import Making
from .._data.mix import Mix
from .._data.own_items import collate_made
from .._data.vision import collation_of
from .._order.disjoint import Drawings, shard_of, share_of
from .._order.known import Known, Shared, is_torchs, ordered_by
from .._order.ranks import ALONE, JobName, Ranks
from .content import Content, users_collate
from .given import Given
from .loader_arguments import Arguments
from .loader_order import Ordering
from .local import Local
from .parts import Parts, PartsOf
from .pinning import Device
from .served import Processes, Served

log = logging.getLogger("hdmlp")

Engine = Union[Served, Local]


class Engines:
    """Opens what delivers a loader's batches.

    The loader is passed to each method and not kept, so that there is no reference cycle.

    Args:
        arguments: The loader's own arguments.
        content: What it delivers.
        ordering: Its order.
        ranks: Which rank it is.
        name: What its job is called.
        sampler: Its batch sampler, or its sampler if there is none.

    Attributes:
        current: The engine; None: none is open.
        on_error: The job's policy for samples which cannot be used, where a sampler draws.
        device: For which tensors are pinned, if the loader has ``pin_memory``.
    """

    def __init__(
        self,
        arguments: Arguments,
        content: Content,
        ordering: Ordering,
        ranks: Ranks,
        name: JobName,
        sampler: object,
    ):
        self.arguments = arguments
        self._content = content
        self._ordering = ordering
        self._ranks = ranks
        self._name = name
        self._share, self._shard = share_of(sampler), shard_of(sampler)
        self._opened_with: object = None  # what the current engine was made of, for comparing
        self._closed = False
        self.current: Engine | None = None
        self.on_error = "raise"
        self.device = Device()

    def open(self, loader: DataLoader[object]) -> Engine:
        """Returns the engine for the next epoch, opened anew if what it is made of changed."""
        if self._closed:
            raise ClosedError("the loader is closed")
        self._look_at_batches(loader)
        if self.current is not None and self._content.folder is not None:
            self._content.check_unchanged(loader.dataset, self.current.next_epoch)
        if self._ordering.known is None:
            return self._open_local(loader)
        if self._ordering.is_empty(loader):  # there is no job of no batches
            if isinstance(loader.sampler, Shared):
                loader.sampler.empty = True
            return self._open_local(loader)
        return self._open_served(loader)

    def opened(self, loader: DataLoader[object]) -> Engine:
        """Returns the engine of the last iteration, for what scripts ask at each step."""
        self._look_at_batches(loader)
        return self.open(loader) if self.current is None else self.current

    def _look_at_batches(self, loader: DataLoader[object]) -> None:
        """Closes an engine whose order no longer counts, as the batch sampler was replaced."""
        if self._ordering.replaced(loader):
            self.adopt(self.arguments)
            self._share = share_of(loader.batch_sampler)
            self._shard = shard_of(loader.batch_sampler)

    def close(self) -> None:
        """Closes the engine. Idempotent."""
        self._closed = True
        self._content.close()
        if self.current is not None:
            self.current.close()

    def adopt(self, arguments: Arguments) -> None:
        """Closes the engine, and opens the next one with other arguments."""
        self.arguments = arguments
        if self.current is not None:
            self.current.close()
            self.current = None

    def settle(self) -> Place:
        """Returns which rank this is, and settles it."""
        order = self._ordering.known
        if order is not None and order.follows is not None:
            return self._ranks.settle(order.rank, order.replicas)
        return self._ranks.settle()

    def share(self, loader: DataLoader[object]) -> tuple[int, int]:
        """Returns the rank among those which share the epochs, and their number."""
        sampler = loader.sampler
        if (
            self._ordering.known is None
            and isinstance(sampler, DistributedSampler)
            and not self.arguments.shard
        ):
            return sampler.rank, sampler.num_replicas
        place = self._ranks.place or self.settle()
        return place.rank, place.world_size

    def prepare(self, loader: DataLoader[object], early: bool) -> None:
        """Opens a new loader's job, or has the daemon check the arguments if it is too early.

        It is too early as long as the rank, or the seed which torch's generators give when the
        loader is iterated, may not be known.

        Args:
            loader: The loader.
            early: The rank of a loader whose epochs the ranks share is known.
        """
        own, making = self.arguments, self._content.making
        if making is None:
            return
        if self._ordering.known is None:
            self._log_unknown_order(loader)
        elif (
            (not own.shard or early)
            and not self._ordering.is_empty(loader)
            and not self._ordering.draws
        ):
            self.open(loader)
            return
        checked = connecting.check(
            {
                **settings(dict(own.keys), own.config_file),
                "transforms": described(making.transforms),
            }
        )
        self.on_error = checked.get("on_error", "raise")
        if loader.batch_sampler is None and self.on_error != "raise":
            raise ConfigError(
                f"on_error={self.on_error!r} with batch_size=None: such items are read without the "
                "daemon, which alone can skip samples; give a batch_size (1 for single samples), "
                "or on_error='raise'"
            )

    def _log_unknown_order(self, loader: DataLoader[object]) -> None:
        if self._ranks.groups:
            log.info(
                "num_replicas=%d of the sampler is not the number of ranks: several ranks read the "
                "same samples, and caches are planned for one epoch at a time",
                loader.sampler.num_replicas,  # type: ignore[attr-defined]
            )
        else:
            log.info(
                "%s: only iterating it reveals its order, so caches are planned for one epoch at a "
                "time: give seed= with shuffle=True, or torch's DistributedSampler",
                ordered_by(loader.sampler, loader.batch_sampler),
            )

    # The daemon, by an order that it computes.

    def _open_served(self, loader: DataLoader[object]) -> Engine:
        """Returns an engine for the known order.

        The order and what is made of samples are looked at again for every epoch; the engine
        stays if they are the same.
        """
        place = self.settle()
        ordering, content = self._ordering, self._content
        ordering.check_batches(loader)
        was = self.current
        assert was is None or isinstance(was, Served)
        if was is not None:
            order = ordering.find(loader)
            made = content.make(_collate(loader), say=False)
            if _identity(loader, order, made) == self._opened_with:
                return was
            assert ordering.known is not None
            if order is None or order[2:4] != ordering.known[2:4]:
                raise ConfigError(
                    "the sampler's rank, number of replicas or dataset changed after the loader "
                    "was made: make a new loader"
                )
            ordering.known, content.making = order, made
            was.close()
        assert ordering.known is not None
        self._opened_with = _identity(loader, ordering.known, content.making)
        try:
            seed = ordering.seed_for(loader, was)
            engine = self._served(loader, ordering.known, place, seed)
        except BusyError:
            if was is not None or ordering.known.follows is None or not self._ranks.alone:
                raise
            # Nothing reveals how many ranks there are, and another one has this sampler's rank:
            # they are a group that reads the same samples.
            self._ranks.groups, ordering.known = True, None
            return self._open_local(loader)
        if was is not None:
            engine.follow(was)
        else:
            ordering.set_first(engine)
        self.current = engine
        return engine

    def _served(
        self, loader: DataLoader[object], order: Known, place: Place, seed: int | None
    ) -> Served:
        """Opens a job with an order that the daemon computes; it draws the seed if that is None."""
        content = self._content
        assert content.folder is not None
        assert content.making is not None
        assert loader.batch_size is not None
        deal = dealt(order.scheme, loader.batch_size, place.world_size, loader.drop_last)
        if order.scheme == "strided":
            deal["tail"] = "pad" if order.pad else "drop"
        stream = StreamOptions(
            **deal,
            shuffle=order.shuffle,
            epochs=self.arguments.epochs,
            limited=False,
            seed=seed,
            seed_drawn=order.seed is None,
            subset=content.samples.ids,
            mixture=_mixture_of(content.folder, loader.batch_size * place.world_size),
        )
        part = None
        if order.scheme != "strided":
            check_shares(len(loader.dataset), stream, place.world_size)  # type: ignore[arg-type]
        if order.scheme == "whole":
            part = 0, 1  # random numbers are the same on all ranks
        options = self._options(loader, stream, place)
        processes = Processes.of(loader, self.device)
        return Served(content.folder, content.making, options, processes, part=part)

    def _options(self, loader: DataLoader[object], stream: StreamOptions, place: Place) -> Options:
        """Returns what a job of the loader is opened with."""
        return Options(
            stream,
            place,
            name=self._name(),
            loader=self._name.loader,
            timeout=loader.timeout,
            verify=self.arguments.verify,
            config=self.arguments.keys,
            config_file=self.arguments.config_file,
        )

    # This process, by the loader's sampler.

    def _open_local(self, loader: DataLoader[object]) -> Local:
        """Returns an engine for the order that the loader's sampler draws."""
        was = self.current
        assert was is None or isinstance(was, Local)
        folder, samples = self._content.folder, self._content.samples
        made = self._content.make(_collate(loader), say=False)
        identity = _identity(loader, None, made)
        if was is not None and identity == self._opened_with:
            return was
        self._opened_with = identity
        seed, drawings, part = self.arguments.seed, self._drawings(), self._part()
        if folder is None:
            plainly = _collate(loader) is None and loader.batch_sampler is not None
            whole = _whole(loader.dataset)
            records = plainly and isinstance(whole, HFDataset)
            own = collate_records if records else plainly and collation_of(whole)
            local = Local(
                loader,
                loader.dataset,
                own or loader.collate_fn,
                seed,
                drawings=drawings,
                part=part,
                device=self.device,
                every=self.arguments.reseed == "all",
                advises=self._content.workers_left_out,
                last=self._content.batch_transform(_collate(loader)),
                served=False,
                threads=self.arguments.worker_threads,
            )
            return self._follow(local, was)
        assert made is not None
        self._content.making = made
        dataset, collate = self._items(loader, folder, made)
        serve: Callable[..., Given] | None = None
        parts = None
        if loader.batch_sampler is not None:
            serve, parts = self._serve(loader, folder, made), self._parts(loader, folder, made)
        local = Local(
            loader,
            dataset,
            collate,
            seed,
            serve,
            samples.ids,
            self.on_error,
            drawings,
            parts,
            part,
            self.device,
            self.arguments.reseed == "all",
            last=made.batch_transform,
        )
        return self._follow(local, was)

    def _part(self) -> tuple[int, int]:
        """Returns the rank among those which share what a sampler draws, and their number."""
        if self.arguments.shard:
            place = self.settle()
            return place.rank, place.world_size
        return self._shard if self._share is None else (self._share.rank, self._share.replicas)

    def _items(
        self, loader: DataLoader[object], folder: Folder, made: Making
    ) -> tuple[Indexed, Callable[..., object]]:
        """Returns the dataset and the collate function for items that this process makes."""
        ids = self._content.samples.ids
        dataset: Any = loader.dataset
        collate = loader.collate_fn
        if isinstance(folder, Declared):
            # batch_size=None, or an order without an end: items open their files themselves.
            made_here = _collate(loader) is None and not isinstance(folder, Checked)
            batched = loader.batch_sampler is not None
            return dataset, collate_made if made_here and batched else collate
        if isinstance(folder, Listed):
            if _collate(loader) is None and loader.batch_sampler is not None:
                return dataset, folder._collation()
            return dataset, collate
        if made.raw:
            dataset = Encoded(folder, made.target_transform)
            if _collate(loader) is None:
                collate = encoded_batch if loader.batch_sampler is not None else _as_it_is
        elif self.arguments.labels == "name":
            recipe = made.recipe
            dataset = Labelled(folder, recipe.target_transform if recipe else made.target_transform)
        if dataset is not loader.dataset and ids is not None:
            dataset = torch.utils.data.Subset(dataset, ids.tolist())
        return dataset, collate

    def _serve(
        self, loader: DataLoader[object], folder: Folder, made: Making
    ) -> Callable[..., Given]:
        """Returns what opens jobs with the orders that this rank's sampler draws."""
        options = self._options(loader, StreamOptions(1), ALONE)
        return functools.partial(
            Given,
            folder,
            made,
            options,
            Processes.of(loader, self.device),
            part=self._part(),
            shares_order=self._share is None and not self.arguments.shard,
        )

    def _parts(self, loader: DataLoader[object], folder: Folder, made: Making) -> PartsOf | None:
        """Returns how ranks on several nodes give the parts of epochs that their samplers draw.

        None: they do not. All ranks come to the same result, from what is known before any
        sampler was iterated.
        """
        share, batches = self._share, loader.batch_sampler
        if (
            share is None
            or not isinstance(batches, BatchSampler)
            or not is_torchs(batches, BatchSampler)
            or batches.sampler is not loader.sampler
            or loader.batch_size is None
        ):
            return None
        try:
            place = membership.find(None, None)
            if place.nodes < 2 or share.replicas != place.world_size:
                return None
            membership.cluster(place, self._name())
        except ConfigError as error:
            log.warning(
                "%s: the nodes do not exchange what it yields, and each reads what its ranks "
                "need: %s",
                share.sampler,
                error,
            )
            return None
        options = self._options(loader, StreamOptions(loader.batch_size * place.world_size), place)
        make = functools.partial(
            Parts,
            folder,
            made,
            options,
            Processes.of(loader, self.device),
            batch=loader.batch_size,
        )
        why = "" if share.rank == place.rank else f"its sampler's rank is {share.rank}"
        return PartsOf(make, why)

    def _follow(self, engine: Local, was: Local | None) -> Local:
        """Has the engine resume where the former one was."""
        if was is not None:
            engine.follow(was)
            was.close()
        self.current = engine
        return engine

    def _drawings(self) -> Drawings | None:
        """Returns where ranks compare what their samplers drew; None: they share no epochs."""
        return None if self._share is None else Drawings(self._name(), self._share)


def _collate(loader: DataLoader[object]) -> Callable[..., object] | None:
    batched = loader.batch_size is not None or loader.batch_sampler is not None
    return users_collate(loader.collate_fn, batched)


def _identity(loader: DataLoader[object], order: Known | None, made: Making | None) -> object:
    """Returns a value which is equal as long as an engine need not be made anew."""
    copied = loader.num_workers > 0
    return (
        order,
        None if made is None else made.identity(copied),
        loader.num_workers,
        loader.prefetch_factor,
        loader.pin_memory,
        loader.timeout,
        loader.worker_init_fn,
        loader.multiprocessing_context,
        loader.generator,
        loader.collate_fn,
        loader.persistent_workers,
    )


def _mixture_of(folder: object, global_batch: int) -> Mixture | None:
    """Returns how epochs take samples of several datasets; None: there is one."""
    return folder.mixture(global_batch) if isinstance(folder, Mix) else None


def _whole(dataset: object) -> object:
    """Returns the dataset of torch's subsets."""
    while type(dataset) is torch.utils.data.Subset:
        dataset = dataset.dataset
    return dataset


def _as_it_is(value: object) -> object:
    return value
