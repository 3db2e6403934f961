"""The loader: ``torch.utils.data.DataLoader``, with the batches of HDMLP's datasets served by the daemon."""

from __future__ import annotations

import functools
import inspect
import logging
import secrets
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple, Union

import torch
import torch.utils.data
from torch.utils.data import BatchSampler, DistributedSampler, RandomSampler, Sampler

from .. import _daemon, _launcher
from .._arguments import KEYS, configuration, settings, whole_number
from .._options import Options, StreamOptions
from .._output import Output
from .._processors import not_started, unasked
from .._reports import Explanation, Report, Stats
from ..data import described
from ..errors import BusyError, ClosedError, ConfigError
from ._batch import default_collate, default_convert
from ._checks import seed_of, shared_by, what_orders
from ._datasets import Datasets
from ._disjoint import Drawings, share_of
from ._given import Given
from ._iterable import Iterables
from ._items import Encoded, Labelled, encoded_batch, length_of
from ._local import Local
from ._order import Known, Seeded, Shared, known
from ._parts import Parts, PartsOf
from ._ranks import ALONE, Ranks
from ._served import Making, Served, making

log = logging.getLogger("hdmlp")

_Torch = torch.utils.data.DataLoader
_PREFETCH_FACTOR = inspect.signature(_Torch.__init__).parameters["prefetch_factor"].default
_SHUFFLES = {
    None: "none",
    False: "none",
    True: "torch",
    "none": "none",
    "torch": "torch",
    "feistel": "feistel",
}


#: What cannot be changed once a loader is made, beside what torch's class forbids.
_SETTLED = ("shard", "epochs", "offload", "labels", "raw", "name", "verify", "config_file")


class DataLoader(_Torch):
    """``torch.utils.data.DataLoader`` for one rank: its arguments, its batches, its order; served by the daemon.

    Args:
        dataset: an :class:`ImageFolder`, one of torchvision's folders, ``Subset`` and ``ConcatDataset`` over parts of one: served by the daemon. Any other
            that torch's loader takes: its items are made in this process or in workers.
        batch_size: samples per batch of this rank.
        shuffle: False, the default, or ``"none"``: by ID; True or ``"torch"``: with a seed the order of torch's
            ``DistributedSampler``; ``"feistel"``: another random order, for very large datasets.
        sampler: any. A ``DistributedSampler``: its ranks, shuffle, seed, epoch and drop_last count; as in torch, each iteration
            delivers the epoch that its ``set_epoch`` named last. Of it, and of a ``SequentialSampler``, all epochs are known ahead; others are drawn
            when torch's loader would draw them. On several nodes such a one with ``num_replicas`` and ``rank`` has all ranks wait for each other at the
            first batch of an epoch: the nodes exchange what they drew, and read it from the source once.
        batch_sampler: any; it is drawn likewise.
        num_workers: processes for what runs in Python; 0: this process does it. None: as many as pay off where transforms or a
            ``collate_fn`` of yours run in Python and the order is known ahead, else 0; a warning says which. The result does not
            depend on it: random numbers of transforms come from seed, epoch and sample ID. What the daemon does it does in threads of its own (``transform_threads``).
        collate_fn: from a list of (object, label) to the batch; None: torch's default, or for raw
            batches (list of memoryviews, labels).
        pin_memory: copy tensors to pinned memory, where CUDA is available.
        drop_last: leave out a last batch that is short. With ``shard=True`` the samples that do not make a whole batch on
            every rank are left out; otherwise ranks are padded to equal length, as by a ``DistributedSampler``.
        timeout: seconds to wait for a batch before :class:`~hdmlp.errors.StallTimeout`; 0: for ever.
        worker_init_fn: called in each worker with its number.
        multiprocessing_context: ``"fork"``, ``"spawn"``, ``"forkserver"`` or a context; None: the default.
        generator: not supported with ``shuffle``; give ``seed``.
        prefetch_factor: batches under way per worker; None: 2.
        persistent_workers: workers stay over epochs; else each epoch has new ones, which see your objects as they are then.
        pin_memory_device, in_order: torch's defaults only.
        shard: True: the ranks share each epoch, as with a ``DistributedSampler``; every rank passes the same ``seed``, or none.
            Otherwise every rank that iterates gets all samples, as in torch. Ranks are those of torch.distributed or of the
            launcher when the loader's length or its first batch is asked for; a later difference raises.
        epochs: epochs of the run, for which caches are planned; None: no end. The more is known of the future, the better. Going on
            after them is possible, and said once.
        seed: of the order, in [0, 2^64); None with ``shard``: drawn by the daemon, the same on all ranks.
        rank, world_size: both or neither; which rank this is, with ``shard``, in place of what the launcher says.
        offload: False: PIL decodes and all transforms run in Python, in this process or in workers, though the daemon knows
            them; for files that it cannot decode (BMP, TIFF, PPM, GIF).
        labels: ``"index"``: class numbers, an int64 tensor; ``"name"``: the classes' names, a tuple of texts. What
            ``target_transform`` is given.
        name: the loader's name, the same on all ranks; by default its number among the process's loaders.
        verify: check at the end of each epoch that all ranks together got every sample, and of every sample that its bytes are those of
            its file: each node reads each sample that it delivers from the source once (:class:`~hdmlp.errors.AuditError`).
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
        ValueError, TypeError: what torch raises for arguments that exclude each other.
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: Optional[int] = 1,
        shuffle: Union[bool, str, None] = None,
        sampler: Any = None,
        batch_sampler: Any = None,
        num_workers: Optional[int] = None,
        collate_fn: Optional[Callable] = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Optional[Callable[[int], None]] = None,
        multiprocessing_context: Any = None,
        generator: Optional[torch.Generator] = None,
        *,
        prefetch_factor: Optional[int] = None,
        persistent_workers: bool = False,
        pin_memory_device: str = "",
        in_order: bool = True,
        shard: Optional[bool] = None,
        epochs: Optional[int] = None,
        seed: Optional[int] = None,
        rank: Optional[int] = None,
        world_size: Optional[int] = None,
        offload: bool = True,
        labels: str = "index",
        name: Optional[str] = None,
        verify: bool = False,
        raw: Optional[bool] = None,
        config_file: Optional[str] = None,
        **keys: Any,
    ):
        self._engine: Optional[Served] = None
        self._on_error = "raise"  # what holds where a sampler says the order
        self._closed = self._iterated = self._said_again = False
        named = [
            p
            for p in inspect.signature(DataLoader.__init__).parameters
            if p != "self" and p not in KEYS
        ]
        self._keys = configuration(keys, named)
        if batch_size is not None:
            batch_size = whole_number("batch_size", batch_size, 1)
        if shuffle not in _SHUFFLES:
            raise ConfigError(
                f"shuffle={shuffle!r}: must be True, False, 'torch', 'feistel' or 'none'"
            )
        if labels not in ("index", "name"):
            raise ConfigError(f"labels={labels!r}: must be 'index' or 'name'")
        if not isinstance(timeout, (int, float)) or not timeout >= 0:
            raise ConfigError(f"timeout={timeout!r}: must be 0 or more seconds")
        if pin_memory_device:
            raise ConfigError(
                f"pin_memory_device={pin_memory_device!r}: not supported; leave it out: tensors are pinned for the current device"
            )
        if not in_order:
            raise ConfigError("in_order=False: HDMLP delivers batches in order; leave it out")
        if seed is not None and whole_number("seed", seed, 0) >> 64:
            raise ConfigError(f"seed={seed}: must be below 2^64")
        self.epochs = None if epochs is None else whole_number("epochs", epochs, 1)
        self.shard = shared_by(shard, rank, world_size, sampler, batch_sampler)
        self.offload, self.labels, self.raw = (
            bool(offload),
            labels,
            None if raw is None else bool(raw),
        )
        self.name, self.verify, self.config_file = name, bool(verify), config_file
        for key, value in keys.items():
            setattr(self, key, value)
        self._seed = seed_of(
            seed, shuffle, sampler, batch_sampler, generator, self.epochs, self.shard
        )
        self._shuffle = _SHUFFLES[shuffle]
        self._ranks = Ranks(self.shard, rank, world_size)
        # All ranks count the loaders that they share alike, whatever others some of them have.
        self._part = share_of(sampler if batch_sampler is None else batch_sampler)
        shared = self.shard or self._part is not None
        self._number = _launcher.next_ordinal() if shared and name is None else None
        self.collate_fn, self.batch_size, self.batch_sampler = collate_fn, batch_size, batch_sampler
        self._datasets = Datasets()
        self._samples = self._datasets.samples(dataset)
        self._folder = self._samples.folder  # which the daemon serves; None: it serves nothing
        if self._folder is None:
            self._check_other(dataset)
            if self._samples.why:
                log.warning(
                    "%s: its items are made in Python, as by torch's loader, and nothing of it is cached: %s",
                    type(dataset).__name__,
                    self._samples.why,
                )
        self._making = None if self._folder is None else self._made_of()
        workers, said = self._processes(num_workers, multiprocessing_context)
        more: Dict[str, Any] = {}
        if (
            workers or num_workers is not None
        ):  # else torch refuses what says something of processes
            more = {
                "prefetch_factor": prefetch_factor,
                "persistent_workers": bool(persistent_workers),
                "multiprocessing_context": multiprocessing_context,
            }
        shuffled = self._shuffle != "none"
        if isinstance(dataset, torch.utils.data.IterableDataset):
            pass
        elif self.shard:
            sampler, shuffled = (
                Shared(dataset, self._ranks, shuffled, self._seed or 0, bool(drop_last)),
                False,
            )
        elif self._shuffle == "torch" and self._seed is not None and sampler is None:
            sampler, shuffled = Seeded(dataset, self._seed), False
        self._sampler_epoch = getattr(sampler, "epoch", 0)
        super().__init__(
            dataset,
            batch_size,
            shuffled,
            sampler,
            batch_sampler,
            workers,
            collate_fn,
            bool(pin_memory),
            bool(drop_last),
            timeout,
            worker_init_fn,
            generator=generator,
            **{key: value for key, value in more.items() if value is not None},
        )
        self._iterables = (
            Iterables(self) if isinstance(dataset, torch.utils.data.IterableDataset) else None
        )
        self._length = (
            length_of(dataset)
            if isinstance(self.sampler, DistributedSampler) and not self.shard
            else None
        )
        self._leave(seed)
        self._drawn_seed: Optional[int] = (
            None  # what random numbers follow from where no seed was given
        )
        self._order = self._known()
        if self._order is None and num_workers is None:
            # Torch's default: how far ahead a sampler is asked depends on it, and so what it draws.
            self.num_workers, self.prefetch_factor = 0, _PREFETCH_FACTOR
            said = said and not_started("the sampler's order depends on their number, as in torch")
        if said:
            log.warning("%s", said)
        if self._order is None and self._folder is not None:
            if self._ranks.groups:
                log.info(
                    "num_replicas=%d of the sampler is not the number of ranks: several read the same, and caches are planned for one epoch at a time",
                    self.sampler.num_replicas,
                )
            else:
                log.info(
                    "%s: only iterating it tells its order, so that caches are planned for one epoch at a time: give seed= with shuffle=True, or "
                    "torch's DistributedSampler",
                    what_orders(self.sampler, self.batch_sampler),
                )
        if (
            self._order is not None
            and (not self.shard or rank is not None)
            and not (self.drop_last and not super().__len__())
            and not self._draws
        ):
            self._open()  # else who this is, or where torch's generators are when it is iterated, may not be known yet
        elif self._folder is not None:
            self._on_error = _daemon.check(
                {
                    **settings(self._keys, config_file),
                    "transforms": described(self._making.transforms),
                }
            ).get("on_error", "raise")
            if self.batch_sampler is None and self._on_error != "raise":
                raise ConfigError(
                    f"on_error={self._on_error!r}, and batch_size=None: such items are read without the daemon, which alone leaves samples out; "
                    "give a batch_size (1 for single samples), or on_error='raise'"
                )
        self._complete = True

    def __setattr__(self, name: str, value: Any) -> None:
        if (name in _SETTLED or name in KEYS) and getattr(self, "_complete", False):
            raise ValueError(
                f"{name} attribute should not be set after {type(self).__name__} is initialized: make a new loader"
            )
        super().__setattr__(name, value)

    # What it is made of.

    @property
    def _collate(self) -> Optional[Callable]:
        """The user's collate function; None: torch's default, which frameworks give back that make a loader anew from its attributes."""
        default = (
            default_convert
            if self.batch_size is None and self.batch_sampler is None
            else default_collate
        )
        return None if self.collate_fn in (None, default) else self.collate_fn

    @property
    def _draws(self) -> bool:
        """True if random numbers of transforms follow from what torch draws when the loader is iterated."""
        return (
            self._order is not None
            and self._order.seed is None
            and not self.shard
            and self._making.draws
        )

    def _leave(self, seed: Optional[int]) -> None:
        """Leaves those arguments that torch's loader does not have with the sampler, which is all that frameworks keep: see :func:`use_in`."""
        defaults = {
            "shard": False,
            "epochs": None,
            "offload": True,
            "labels": "index",
            "verify": False,
            "raw": None,
            "config_file": None,
        }
        own = {
            name: getattr(self, name)
            for name, default in defaults.items()
            if getattr(self, name) != default
        }
        sampler = self.sampler if self.batch_sampler is None else self.batch_sampler
        if isinstance(sampler, Sampler):  # a list of batches takes no attributes
            sampler.hdmlp_arguments = {
                **own,
                **({} if seed is None else {"seed": seed}),
                **self._keys,
            }

    def _made_of(self, say: bool = True) -> Making:
        """What is made of the samples, as the dataset is now."""
        return making(self._folder, self.raw, self.labels, self._collate, self.offload, say)

    def _check_other(self, dataset: Any) -> None:
        """Raises ConfigError for what the loader can do with HDMLP's datasets alone."""
        given = [f"{key}={value!r}" for key, value in self._keys.items()]
        for name, default in (
            ("verify", False),
            ("raw", None),
            ("offload", True),
            ("labels", "index"),
            ("config_file", None),
        ):
            if getattr(self, name) != default:
                given.append(f"{name}={getattr(self, name)!r}")
        if isinstance(dataset, torch.utils.data.IterableDataset):
            given += [
                f"{name}={value!r}"
                for name, value in (
                    ("shard", self.shard or None),
                    ("seed", self._seed),
                    ("epochs", self.epochs),
                )
                if value is not None
            ]
        if self._shuffle == "feistel":
            given.append("shuffle='feistel'")
        if given:
            raise ConfigError(
                f"{', '.join(given)}: no meaning for a {type(dataset).__name__}, whose samples HDMLP does not read itself; leave it out, or use "
                f"hdmlp.torch.ImageFolder{f' ({self._samples.why})' if self._samples.why else ''}"
            )

    def _processes(self, num_workers: Optional[int], context: Any) -> Tuple[int, str]:
        """How many workers to start, and what to say of them."""
        if num_workers is not None:
            return whole_number("num_workers", num_workers, 0), ""
        if self._making is None or self._making.recipe is None:
            return 0, ""
        return unasked(context)

    def _known(self) -> Optional[Known]:
        """The order that the daemon knows; None: it does not serve this loader."""
        if self._folder is None or self.batch_size is None:
            return None
        if self.shard:
            return Known(self._shuffle, self._seed, None, None, not self.drop_last, None)
        if self._shuffle == "feistel":
            return Known(self._shuffle, self._seed, 1, 0, True, None)
        order = known(self.dataset, self.sampler, self.batch_sampler)
        if (
            order is not None
            and order.follows is not None
            and self._ranks.in_groups(order.replicas)
        ):
            return None  # a job has each rank once
        if order is not None and order.follows is None and order.shuffle == "none":
            return order._replace(seed=self._seed)
        return order

    # The engine.

    def _open(self) -> Union[Served, Local]:
        """Where batches come from, opened if it is not."""
        if self._closed:
            raise ClosedError("the loader is closed")
        was = self._engine
        if was is not None and self._folder is not None:
            self._look(was.next_epoch)
        if self._order is None:
            return self._open_local(was)
        place = self._settle()
        order = self._order
        if was is not None:
            order, now = self._known(), self._made_of(say=False)
            if (order, now.says(self.num_workers > 0), self._settings) == self._said:
                return was
            if order is None or order[2:4] != self._order[2:4]:
                raise ConfigError(
                    "the sampler's rank, number of replicas or dataset changed after the loader was made: make a new loader"
                )
            self._order, self._making = order, now
            was.close()
        self._said = order, self._making.says(self.num_workers > 0), self._settings
        try:
            engine = self._served(order, place, self._seed_for(was))
        except BusyError:
            if was is not None or order.follows is None or not self._ranks.alone:
                raise
            # Nothing says how many ranks there are, and another one has this sampler's rank: they read the same.
            self._ranks.groups, self._order = True, None
            return self._open_local(None)
        if was is not None:
            engine.follow(was)
        elif self._sampler_epoch:
            engine.set_epoch(self._sampler_epoch)
        self._engine = engine
        return engine

    def _seed_for(self, was: Optional[Served]) -> Optional[int]:
        """The seed of the job; None: the daemon draws it."""
        if self._order.seed is not None:
            return self._order.seed
        if self.shard:
            return None if was is None else was.seed
        if self._drawn_seed is None and self._draws:
            self._drawn_seed = self._next_draw()
        return self._drawn_seed or 0

    def _next_draw(self) -> int:
        """What torch's loader draws for its workers when it is iterated next; the generator stays where it is."""
        generator = torch.default_generator if self.generator is None else self.generator
        now = generator.get_state()
        try:
            return int(torch.empty((), dtype=torch.int64).random_(generator=generator).item())
        finally:
            generator.set_state(now)

    @property
    def _settings(self) -> Any:
        """What else of torch's arguments an engine is made with."""
        return (
            self.num_workers,
            self.prefetch_factor,
            self.pin_memory,
            self.timeout,
            self.worker_init_fn,
            self.multiprocessing_context,
            self.generator,
            self.collate_fn,
            self.persistent_workers,
        )

    def _served(self, order: Known, place: _launcher.Place, seed: Optional[int]) -> Served:
        """What brings the batches of an order that the daemon knows; seed: None where it is to draw it."""
        stream = StreamOptions(
            self.batch_size * place.world_size,
            shuffle=order.shuffle,
            epochs=self.epochs,
            limited=False,
            seed=seed,
            seed_drawn=order.seed is None,
            tail="pad" if order.pad else "drop",
            drop_last=self.drop_last,
            subset=self._samples.ids,
        )
        return Served(
            self._folder,
            self._making,
            self._options(stream, place),
            workers=self.num_workers,
            prefetch_factor=self.prefetch_factor,
            context=self.multiprocessing_context,
            worker_init_fn=self.worker_init_fn,
            persistent=self.persistent_workers,
            pin_memory=self.pin_memory,
        )

    def _options(self, stream: StreamOptions, place: _launcher.Place) -> Options:
        """What a job of this loader is opened with."""
        return Options(
            stream,
            place,
            name=self._job_name(),
            timeout=self.timeout,
            verify=self.verify,
            config=self._keys,
            config_file=self.config_file,
        )

    def _opened(self) -> Union[Served, Local]:
        """The same, as the last iteration had it: for what scripts ask at each step."""
        return self._open() if self._engine is None else self._engine

    def _open_local(self, was: Optional[Local]) -> Local:
        """What makes batches in the order that a sampler draws."""
        folder = self._folder
        if folder is None:
            if was is not None and self._settings == self._said:
                return was
            self._said = self._settings
            return self._follow(
                Local(self, self.dataset, self.collate_fn, self._seed, drawings=self._drawings()),
                was,
            )
        now = self._made_of(say=False)
        said = now.says(self.num_workers > 0), self._settings
        if was is not None and said == self._said:
            return was
        self._making, self._said = now, said
        dataset, collate = self.dataset, self.collate_fn
        if now.raw:
            dataset = Encoded(folder, now.target_transform)
            if self._collate is None:
                collate = encoded_batch if self.batch_sampler is not None else _as_it_is
        elif self.labels == "name":
            dataset = Labelled(
                folder, now.recipe.target_transform if now.recipe else now.target_transform
            )
        if dataset is not self.dataset and self._samples.ids is not None:
            dataset = torch.utils.data.Subset(dataset, self._samples.ids.tolist())
        served = None
        if self.batch_sampler is not None:
            served = functools.partial(
                Given,
                folder,
                now,
                self._options(StreamOptions(1), ALONE),
                workers=self.num_workers,
                prefetch_factor=self.prefetch_factor,
                context=self.multiprocessing_context,
                worker_init_fn=self.worker_init_fn,
                persistent=self.persistent_workers,
                pin_memory=self.pin_memory,
            )
        parts = None if served is None else self._parts_of(served)
        return self._follow(
            Local(
                self,
                dataset,
                collate,
                self._seed,
                served,
                self._samples.ids,
                self._on_error,
                self._drawings(),
                parts,
            ),
            was,
        )

    def _parts_of(self, served: Any) -> Optional[PartsOf]:
        """How the ranks of several nodes give the epochs' parts that their samplers draw; None: they do not. All ranks say the same, by what is
        known before any sampler was iterated."""
        part, batches = self._part, self.batch_sampler
        if (
            part is None
            or type(batches) is not BatchSampler
            or batches.sampler is not self.sampler
            or self.batch_size is None
        ):
            return None
        try:
            place = _launcher.find(None, None)
            if place.nodes < 2 or part.replicas != place.world_size:
                return None
            _launcher.cluster(place, self._job_name())
        except ConfigError as error:
            log.warning(
                "%s: the nodes do not exchange what it yields, and each reads what its ranks need: %s",
                part.sampler,
                error,
            )
            return None
        options = self._options(StreamOptions(self.batch_size * place.world_size), place)
        make = functools.partial(
            Parts, *served.args[:2], options, **served.keywords, batch=self.batch_size
        )
        return PartsOf(
            make, "" if part.rank == place.rank else f"its sampler's rank is {part.rank}"
        )

    def _follow(self, engine: Local, was: Optional[Local]) -> Local:
        """Has an engine go on where another one was."""
        if was is not None:
            engine.follow(was)
            was.close()
        self._engine = engine
        return engine

    def _drawings(self) -> Optional[Drawings]:
        """Where ranks whose samplers share epochs compare what they draw; None: they share none."""
        return None if self._part is None else Drawings(self._job_name(), self._part)

    def _look(self, epoch: int) -> None:
        """Raises ConfigError if the dataset's items are other samples than they were."""
        now = self._datasets.samples(self.dataset)
        if now == self._samples:
            return
        parts = [
            len(part.folder) if part.ids is None else len(part.ids)
            for part in (self._samples, now)
            if part.folder is not None
        ]
        how = (
            f"it had {parts[0]}, and has {parts[1]}"
            if len(set(parts)) == 2
            else now.why or "they are other samples"
        )
        raise ConfigError(
            f"epoch {epoch}: the items of the {type(self.dataset).__name__} changed after the loader was made ({how}): make a new loader"
        )

    def _settle(self) -> _launcher.Place:
        """Which rank this is."""
        order = self._order
        if order is not None and order.follows is not None:
            return self._ranks.settle(order.rank, order.replicas)
        return self._ranks.settle()

    def _share(self) -> Tuple[int, int]:
        """Which of how many ranks that share the epochs this is."""
        if self._order is None and isinstance(self.sampler, DistributedSampler) and not self.shard:
            return self.sampler.rank, self.sampler.num_replicas
        place = self._ranks.place or self._settle()
        return place.rank, place.world_size

    def _job_name(self) -> str:
        """The job's name in this launch: the user's, or a number; a random one where no other rank is to find it."""
        if self.name is not None:
            return self.name
        return secrets.token_hex(4) if self._number is None else str(self._number)

    def __setstate__(self, state: Dict[str, Any]) -> None:
        self.__dict__.update(state)
        if self._number is not None:
            _launcher.reserve_ordinal(self._number)

    def close(self) -> None:
        """Leaves the job. Batches that the program keeps stay valid. Idempotent."""
        self._closed = True
        if self._engine is not None:
            self._engine.close()

    def __enter__(self) -> "DataLoader":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    # What it is.

    def __len__(self) -> int:
        """Batches per epoch of this rank."""
        if self.shard and self._order is not None and (not self.drop_last or super().__len__()):
            return self._opened().steps
        return super().__len__()

    @property
    def steps(self) -> int:
        """Batches per epoch, the same on all ranks that share it."""
        return len(self)

    @property
    def samples(self) -> int:
        """The number of samples in the dataset, F."""
        return len(self.dataset)

    @property
    def classes(self) -> List[str]:
        """The classes' names, sorted."""
        return (self.dataset if self._folder is None else self._folder).classes

    @property
    def seed(self) -> int:
        """The seed of the order, drawn by the daemon if none was given."""
        return self._opened().seed

    @property
    def rank(self) -> int:
        """This process's rank among those that share the epochs."""
        return self._share()[0]

    @property
    def world_size(self) -> int:
        """The number of ranks that share the epochs."""
        return self._share()[1]

    @property
    def global_batch_size(self) -> int:
        """Samples per step over all ranks that share the epochs."""
        return self.batch_size * self.world_size

    @property
    def output(self) -> Optional[Output]:
        """What the daemon makes of every sample; None: it stays as it is."""
        return self._opened().output

    # Iteration.

    def __iter__(self) -> Iterator[Any]:
        """The next epoch: the one that ``set_epoch`` of the loader or its sampler named, or the rest of one after
        :meth:`load_state_dict`. The epoch is taken with the first batch; several iterators may live at the same time."""
        if self._iterables is not None:
            return iter(self._iterables)
        if self._order is not None and not len(self):  # as in torch: drop_last leaves nothing
            self._draw_as_torch()
            return iter(())
        engine = self._open()
        if self._length is not None and length_of(self.dataset) != self._length:
            raise ConfigError(
                f"epoch {engine.next_epoch}: the {type(self.dataset).__name__} has {length_of(self.dataset)} items, and had {self._length} when the "
                "loader was made, which its DistributedSampler shares out: make both anew"
            )
        if (
            not self.shard and self._shuffle != "none"
        ):  # not before: a framework may yet make another loader of this one
            self._ranks.warn()
        if self._order is None:
            return iter(engine)
        self._draw_as_torch()
        follow = (
            None if self._order.follows is None else functools.partial(self._follow_sampler, engine)
        )
        if follow is not None and self.num_workers:
            follow()
            follow = None
        iteration = iter(engine)
        iteration.before = follow  # as torch's loader asks its sampler: with workers at once, else for the first batch
        return iteration

    def _follow_sampler(self, engine: Served) -> None:
        """Has the engine go on with the epoch that the sampler names."""
        epoch = self.sampler.epoch
        if (
            epoch == self._sampler_epoch
            and engine.next_epoch == epoch + 1
            and (self.sampler.shuffle or self._making.draws)
        ):
            self._say_again(epoch)
        if epoch != self._sampler_epoch or not engine.fresh:
            self._sampler_epoch = epoch
            engine.set_epoch(epoch)

    def _say_again(self, epoch: int) -> None:
        """Says once that an epoch comes again unasked."""
        if not self._said_again:
            self._said_again = True
            log.warning(
                "epoch %d of the DistributedSampler comes again: its order is the same, as in torch, and so are the random numbers of transforms; "
                "call sampler.set_epoch(epoch) before each epoch",
                epoch,
            )

    def _draw_as_torch(self) -> None:
        """Draws what torch's loader draws for its workers when it is iterated."""
        if not (self._iterated and self.persistent_workers):
            torch.empty((), dtype=torch.int64).random_(generator=self.generator)
        self._iterated = True

    def set_epoch(self, epoch: int) -> None:
        """The next iteration delivers this epoch, from 0; without it, and without a sampler that says so, it is the one after the last.

        May be called as often as one likes, as scripts for ``DistributedSampler`` do.
        """
        epoch = whole_number("epoch", epoch, 0)
        if hasattr(self.sampler, "set_epoch"):
            self.sampler.set_epoch(epoch)
            self._sampler_epoch = epoch
        self._opened().set_epoch(epoch)

    def state_dict(self) -> Dict[str, Any]:
        """Where the loader is, by batches yielded: small, JSON-compatible, the same on all ranks.

        Returns:
            ``epoch`` and ``step`` of the next batch, and what the order depends on.
        """
        return (
            self._opened().state_dict() if self._iterables is None else self._iterables.state_dict()
        )

    def load_state_dict(self, state: Dict[str, Any]) -> None:
        """Goes on where :meth:`state_dict` was called; the next iteration yields the rest of that epoch.

        Nothing is read again. The world size may differ, the global batch size may not. A loader without a seed takes the state's.

        Args:
            state: what :meth:`state_dict` returned, on any rank.

        Raises:
            MismatchError: the state belongs to another dataset, seed, order or global batch size.
            ConfigError: it is no such state.
        """
        if self._iterables is not None:
            self._iterables.load_state_dict(state)
            return
        seed = self._seed_of(state)
        if seed is not None:
            self._adopt(seed)
        engine = self._opened()
        engine.load_state_dict(state)
        if self._order is not None and self._order.seed is None:
            self._drawn_seed = engine.seed
        if self._order is not None and self._order.follows is not None:
            self._sampler_epoch = state["epoch"]
            self.sampler.set_epoch(state["epoch"])

    def _seed_of(self, state: Any) -> Optional[int]:
        """The seed that a state has for a loader that is shuffled and has none; None: there is none."""
        if (
            self._seed is not None
            or self.shard
            or self._shuffle != "torch"
            or type(self.sampler) is not RandomSampler
            or not isinstance(state, dict)
        ):
            return None
        seed = state.get("seed")
        if seed is not None and self.generator is not None:
            raise ConfigError(
                f"the state is of a loader with seed={seed}, and this one draws from its generator: leave generator out, and give "
                f"seed={seed}"
            )
        return None if seed is None else whole_number("seed of the state", seed, 0)

    def _adopt(self, seed: int) -> None:
        """Makes of a loader that is shuffled without a seed one with a seed."""
        self._seed, sampler = seed, Seeded(self.dataset, seed)
        object.__setattr__(
            self, "sampler", sampler
        )  # torch's class refuses, for loaders that are under way
        if self.batch_size is not None:
            object.__setattr__(
                self, "batch_sampler", BatchSampler(sampler, self.batch_size, self.drop_last)
            )
        self._order = self._known()
        if self._engine is not None:
            self._engine.close()
            self._engine = None

    # What it tells.

    @property
    def stats(self) -> Stats:
        """What this process counted so far."""
        return self._opened().stats

    def report(self, cluster: bool = False) -> Report:
        """The job's ledger: what was read from where, and what the stalls were for.

        Args:
            cluster: over all of the job's nodes, with the epochs added up, and each node's part; the others are asked
                for it. False: of all ranks on this node, epoch by epoch.
        """
        return self._opened().report(cluster)

    def explain(self, epoch: int, step: int, rank: Optional[int] = None) -> Explanation:
        """Which samples a batch consists of, without reading them.

        Args:
            epoch, step: which batch.
            rank: whose; None: this rank's.
        """
        return self._opened().explain(epoch, step, rank)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.dataset!r}, batch_size={self.batch_size}{self._ranks})"


def _as_it_is(value: Any) -> Any:
    return value


# Frameworks that make a loader anew read the names of its arguments from the signature, and their values from its attributes.
_signature_of = inspect.signature(DataLoader.__init__)
DataLoader.__init__.__signature__ = _signature_of.replace(
    parameters=[
        *(p for p in _signature_of.parameters.values() if p.kind is not p.VAR_KEYWORD),
        *(inspect.Parameter(key, inspect.Parameter.KEYWORD_ONLY, default=None) for key in KEYS),
    ]
)
