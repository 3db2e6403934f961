"""``torch.utils.data.DataLoader``, with the batches of HDMLP's datasets served by the daemon."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Callable

import torch
import torch.utils.data
from torch.utils.data import IterableDataset

from .._batches.output import Output
from .._lib.arguments import KEYS, configuration, parameters, switch, whole_number
from .._loading.reports import Explanation, Report, Stats
from ._engine.choice import Engine, Engines
from ._engine.content import Content, users_collate
from ._engine.iterable import Iterables, check_iterator, own_iterator
from ._engine.loader_arguments import (
    check_batch_transform,
    check_for_iterables,
    check_settable,
    check_torchs,
    check_waiting,
    check_worker_threads,
    process_arguments,
    settle,
    spell_out_keys,
)
from ._engine.loader_order import Ordering, sampler_for
from ._engine.local import Local
from ._engine.served import Served
from ._order.disjoint import share_of
from ._order.known import Known, asked_epoch
from ._order.ranks import JobName, Ranks
from ._thesis import check_in_process


class DataLoader(torch.utils.data.DataLoader[object]):
    """``torch.utils.data.DataLoader`` for one rank, with batches served by the daemon.

    Takes torch's arguments in torch's order, and yields the same batches in the same order.

    Args:
        dataset: An :class:`ImageFolder`, one of torchvision's folders, or ``Subset`` and
            ``ConcatDataset`` of parts of one: served by the daemon. Items of any other dataset
            that torch's loader takes are made in this process or in workers.
        batch_size: Samples per batch of this rank; None: single items. Default: 1.
        shuffle: False or ``"none"``: by ID. True or ``"torch"``: at random; with a seed, in the
            order of torch's ``DistributedSampler``. ``"feistel"``: in another random order, for
            very large datasets. Default: False.
        sampler: Any sampler. The rank, shuffle, seed, epoch and drop_last of a
            ``DistributedSampler`` apply; as in torch, each iteration delivers the epoch that its
            ``set_epoch`` set last. All epochs of it, and of a ``SequentialSampler``, are known
            ahead; other samplers are iterated when torch's loader would do so. On several nodes,
            if such a sampler has ``num_replicas`` and ``rank``, all ranks wait for each other at
            the first batch of an epoch: the nodes exchange what they drew, and read it from the
            source once.
        batch_sampler: Any batch sampler; it is iterated likewise.
        num_workers: Worker processes for what runs in Python; 0: this process does it. None: tuned
            automatically if transforms or a ``collate_fn`` of yours run in Python and can have no
            state of their own (known classes, plain functions), samples are not bytes, and the
            order is known ahead, otherwise 0; a warning gives the number, or the reason. Batches do
            not depend on it: random numbers of transforms follow from seed, epoch and sample ID.
            The daemon has threads of its own (``transform_threads``). Default: None.
        collate_fn: From a list of (object, label) to the batch. Default: torch's, or for raw
            batches (list of memoryviews, labels).
        pin_memory: Copy tensors to pinned memory if CUDA is available. Default: False.
        drop_last: Leave out a last batch that is short. With ``shard=True``, samples that do not
            fill a batch on every rank are left out; otherwise ranks are padded to equal length, as
            by a ``DistributedSampler``. Default: False.
        timeout: Seconds to wait for a batch before
            :class:`~hdmlp.errors.StallTimeoutError` is raised; 0: no limit. Default: 0.
        worker_init_fn: Called in each worker with its number. Default: None.
        multiprocessing_context: ``"fork"``, ``"spawn"``, ``"forkserver"`` or a context.
            Default: Python's.
        generator: As in torch; cannot be combined with ``seed`` or ``shard`` if ``shuffle`` is
            given.
        prefetch_factor: Batches under way per worker. Default: 2.
        persistent_workers: Workers stay over epochs. Otherwise each epoch has new ones, which see
            your objects as they are then. Default: False.
        pin_memory_device: Only torch's default is supported.
        in_order: Only torch's default is supported.
        shard: If True, the ranks share each epoch, as with a ``DistributedSampler``; every rank
            passes the same ``seed``, or none. Otherwise every rank that iterates gets all samples,
            as in torch. The ranks are those of torch.distributed or the launcher when the loader's
            length or its first batch is asked for; a later difference is an error.
        epochs: Epochs of the run, for which caches are planned. More can be delivered afterwards,
            with a warning. Default: None, not known.
        seed: The seed of the order, in [0, 2^64). Default: None; with ``shard``, the daemon draws
            one for all ranks, or it is 0 for datasets that the daemon does not serve.
        rank: With ``shard``, this process's rank, instead of the launcher's. Requires
            ``world_size``.
        world_size: With ``shard``, the number of ranks. Requires ``rank``.
        offload: If False, PIL decodes and all transforms run in Python, even those that the daemon
            knows. For files that it cannot decode (BMP, TIFF, PPM, GIF). Default: True.
        labels: ``"index"``: class numbers, as an int64 tensor. ``"name"``: class names, as a tuple
            of strings. ``target_transform`` is given either. Default: ``"index"``.
        name: The loader's name, the same on all ranks. Default: its number among the process's
            loaders.
        verify: At the end of each epoch, check that all ranks together got every sample, and that
            each sample's bytes are those of its file. Each node then reads each sample that it
            delivers from the source once. A difference raises
            :class:`~hdmlp.errors.AuditError`. Default: False.
        raw: True: deliver bytes, even if the dataset has a transform. False: decode, even if it
            has none. Default: None, bytes if the dataset makes nothing of them.
        config_file: Path of a TOML file of configuration keys. Default: None.
        files: Of a map-style dataset of your own, which files its items read: a function from an
            item's index to a path or a list of paths, or a sequence of these. The daemon reads
            ahead and caches them. While ``dataset[i]`` runs, ``open`` for reading gives, in its
            thread, copies of the item's files. Default: None.
        check: With ``files``: ``"open"`` looks at a file each time that it is opened. Default:
            None, at most every 2 s; a file that was written since is read anew.
        reseed: For datasets that HDMLP does not read itself. ``"used"``: those of the generators
            of Python, torch and numpy are seeded for each item that the items use, which is found
            from the first 32 of an epoch in each process. If others are used later, that batch is
            made again. ``"all"``: all are seeded for each item, and no item is made twice; it
            takes longer. Results are the same. Default: ``"used"``.
        batch_transform: Applied to each batch that ``collate_fn`` made, in this process; what it
            returns is yielded. ``v2.MixUp``, ``v2.CutMix``, ``v2.RandomChoice`` of these, and
            timm's ``Mixup``, which is called with images and labels, make the same bits as
            theirs in fewer passes over memory. Random numbers follow from seed, epoch, step and
            rank (:func:`seeded_batch`). Default: None.
        scheme: How the ranks share a global batch (thesis 4.1.3); needs ``shard``, and a dataset
            that the daemon reads. ``"strided"``: as torch's ``DistributedSampler``. ``"uniform"``:
            contiguous slices. ``"whole"``: each rank gets all of its ``batch_size`` samples, as for
            model parallelism. ``"imbalanced"``: a rank of the first half gets four times as many
            samples as one of the second, ``batch_size`` on average. With all but the first, each
            sample comes once per epoch. Default: ``"strided"``.
        worker_threads: For datasets that HDMLP does not read itself: so many threads of each
            worker call ``dataset[i]`` at the same time, for the items of a batch. The order, and
            results, stay the same. The dataset must allow it. It has no effect, and a warning says
            so, if items draw from the generators of Python, torch or numpy, of which a process has
            one for all threads. Default: 1.
        **keys: Configuration keys of ``hdmlp config``, as ``memory="10GB"``; paths may be relative.

    Yields:
        What ``collate_fn`` returns. By default ``[images, labels]``, or raw ``(samples, labels)``,
        where ``samples`` is a list of n read-only memoryviews, and ``labels`` an int64 tensor of
        shape (n,). If the daemon carries out all transforms, ``images`` is a tensor in shared
        memory, of shape (n, ...) and the type that the transforms give; ``labels`` is an int64
        tensor of shape (n,), or what ``target_transform`` returns, collated.

    Raises:
        HDMLPError: See :mod:`hdmlp.errors`.
        ValueError: torch refuses the arguments; or TypeError.
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int | None = 1,
        shuffle: bool | str | None = None,
        sampler: Any = None,
        batch_sampler: Any = None,
        num_workers: int | None = None,
        collate_fn: Callable[[object], object] | None = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Callable[[int], None] | None = None,
        multiprocessing_context: Any = None,
        generator: torch.Generator | None = None,
        *,
        prefetch_factor: int | None = None,
        persistent_workers: bool = False,
        pin_memory_device: str = "",
        in_order: bool = True,
        shard: bool | None = None,
        epochs: int | None = None,
        seed: int | None = None,
        rank: int | None = None,
        world_size: int | None = None,
        offload: bool = True,
        labels: str = "index",
        name: str | None = None,
        verify: bool = False,
        raw: bool | None = None,
        config_file: str | None = None,
        files: Callable[[int], object] | Sequence[object] | None = None,
        check: str | None = None,
        reseed: str = "used",
        batch_transform: Callable[..., object] | None = None,
        scheme: str = "strided",
        worker_threads: int = 1,
        **keys: object,
    ):
        # The arguments; the rank, the dataset's items, and what is made of them; torch's own
        # __init__; the order as the daemon computes it; the job, opened if it can be already.
        self._complete = False
        batch_size = check_torchs(
            batch_size, timeout, prefetch_factor, pin_memory_device, in_order, worker_init_fn
        )
        pin_memory, drop_last = switch("pin_memory", pin_memory), switch("drop_last", drop_last)
        named = [p for p in parameters(DataLoader) if p not in KEYS]
        order = (shuffle, sampler, batch_sampler, generator, shard, epochs, seed, rank, world_size)
        content = (offload, labels, name, verify, raw, config_file, configuration(keys, named))
        check_for_iterables(dataset, shard, epochs, seed, reseed)
        more_own = (files, check, reseed, batch_transform, scheme, worker_threads)
        own = self._arguments = settle(*order, *content, *more_own)
        self.__dict__.update({**keys, **own.attributes()})
        self._ranks = Ranks(own.shard, rank, world_size)
        ordered = sampler if batch_sampler is None else batch_sampler
        job = JobName(name, own.shard or share_of(ordered) is not None)
        batched = batch_size is not None or batch_sampler is not None
        iterator = own_iterator(self, dataset)
        check_batch_transform(batch_transform, dataset, batched, iterator)
        self._content = Content(dataset, own, iterator)
        self._content.making = self._content.make(users_collate(collate_fn, batched))
        workers, said = self._content.workers(num_workers, multiprocessing_context)
        check_in_process(dataset, workers)
        why = iterator or self._content.made_elsewhere
        check_worker_threads(own.worker_threads, workers, reseed, dataset, batched, why)
        persistent = switch("persistent_workers", persistent_workers)
        more = (prefetch_factor, persistent, multiprocessing_context, worker_init_fn)
        taken = workers or num_workers is not None  # otherwise torch refuses them
        processes = process_arguments(*more, taken=bool(taken))
        batches = (batch_sampler, batch_size)
        sampler, shuffled = sampler_for(own, self._ranks, dataset, sampler, batches, drop_last)
        super().__init__(
            dataset,
            batch_size,
            shuffled,
            sampler,
            batch_sampler,
            workers,
            collate_fn,
            pin_memory,
            drop_last,
            timeout,
            worker_init_fn,
            generator=generator,
            **processes,
        )
        if self._folder is None:
            check_waiting(timeout, self.num_workers, dataset)
        self._iterables = None
        if iterator or isinstance(dataset, IterableDataset):
            self._iterables = Iterables(dataset, iterator)
        own.leave_with(self.sampler if self.batch_sampler is None else self.batch_sampler)
        self._ordering = Ordering(own, self._content, self._ranks, sampler)
        self._ordering.begin(self, tuned=num_workers is None, said=said)
        self._engines = Engines(own, self._content, self._ordering, self._ranks, job, ordered)
        self._engines.prepare(self, early=rank is not None)
        self._complete = True

    def __setattr__(self, name: str, value: object) -> None:
        if getattr(self, "_complete", False):
            check_settable(self, name)
        torchs: object = super()  # whose method has no types in some releases
        torchs.__setattr__(name, value)

    def close(self) -> None:
        """Leaves the job. Batches that the program keeps stay valid. Idempotent."""
        self._engines.close()

    def __enter__(self) -> DataLoader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def _engine(self) -> Engine | None:
        """What delivers batches; None: it is not open."""
        return self._engines.current

    @property
    def _folder(self) -> object:
        """The folder that the daemon serves; None: it serves nothing."""
        return self._content.folder

    @property
    def _order(self) -> Known | None:
        """The order that the daemon computes; None: only iterating the sampler reveals it."""
        return self._ordering.known

    def _opened(self) -> Engine | Iterables:
        """Returns the engine of the last iteration, opened if there is none."""
        return self._engines.opened(self) if self._iterables is None else self._iterables

    def __len__(self) -> int:
        """Batches per epoch of this rank."""
        if not self._arguments.shard or self._order is None:
            return super().__len__()
        if self._ordering.is_empty(self):
            return 0
        engine = self._opened()
        assert isinstance(engine, Served)
        return engine.steps

    @property
    def steps(self) -> int:
        """Batches per epoch, the same on all ranks that share it."""
        return len(self)

    @property
    def samples(self) -> int:
        """The number of samples in the dataset."""
        return len(self.dataset)  # type: ignore[arg-type]

    @property
    def classes(self) -> list[str]:
        """The classes' names, sorted."""
        dataset: Any = self.dataset if self._folder is None else self._folder
        return dataset.classes  # type: ignore[no-any-return]

    @property
    def seed(self) -> int:
        """The seed of the order, drawn by the daemon if none was given.

        Raises:
            ConfigError: The order is a sampler's, and no seed was given.
        """
        return self._opened().seed

    @property
    def rank(self) -> int:
        """This process's rank among those that share the epochs."""
        return self._engines.share(self)[0]

    @property
    def world_size(self) -> int:
        """The number of ranks that share the epochs."""
        return self._engines.share(self)[1]

    @property
    def global_batch_size(self) -> int:
        """Samples per step over all ranks that share the epochs."""
        ranks = 1 if self._arguments.scheme == "whole" else self.world_size
        return self.batch_size * ranks  # type: ignore[operator]

    @property
    def output(self) -> Output | None:
        """What the daemon makes of every sample; None: it stays as it is."""
        return self._opened().output

    @property
    def epoch(self) -> int:
        """The epoch of the next batch, from 0.

        A new loader is in epoch 0, in that of its sampler, or with ``share_join=True`` in that of
        its group.
        """
        return int(self.state_dict()["epoch"])

    # Iteration.

    def __iter__(self) -> Iterator[object]:  # type: ignore[override]
        """Begins the next epoch.

        It is the one that ``set_epoch`` of the loader or its sampler set, or the rest of one after
        :meth:`load_state_dict`. The epoch is taken with the first batch. Several iterators may live
        at the same time.

        Raises:
            ClosedError: The loader is closed.
            ConfigError: The dataset or the sampler changed in a way that needs a new loader.
        """
        if self._iterables is not None:
            return self._iterables.iterate(self, super().__iter__())
        check_iterator(self)
        self._ordering.say_empty(self)
        engine = self._engines.open(self)
        if self.pin_memory:
            self._engines.device.note()
        self._ordering.check_length(self, engine.next_epoch)
        if not self._arguments.shard and self._arguments.order != "none":
            # Not earlier: a framework may still make another loader of this one.
            self._ranks.warn_unshared()
        if isinstance(engine, Local):
            return iter(engine)
        return self._ordering.iterate(self, engine)

    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch that the next iteration delivers.

        Without it, and without a sampler that sets it, epochs count from 0. It may be called again.

        Args:
            epoch: The epoch, from 0.

        Raises:
            ConfigError: ``epoch`` is no whole number, negative, or above 2^32 - 2 where the daemon
                knows the order of all epochs.
        """
        epoch = whole_number("epoch", epoch, 0)
        self._ordering.set_epoch(self, epoch)
        self._opened().set_epoch(epoch)

    def state_dict(self) -> dict[str, Any]:
        """Returns the loader's position, by batches yielded.

        Returns:
            ``epoch`` and ``step`` of the next batch, and what the order depends on: small,
            JSON-compatible, and the same on all ranks.
        """
        self._content.warn_of_state(self.dataset)
        return self._opened().state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resumes from a state; the next iteration yields the rest of its epoch.

        No sample is read again. The world size may differ, the global batch size may not. A loader
        without a seed takes the state's.

        Args:
            state: What :meth:`state_dict` returned, on any rank.

        Raises:
            MismatchError: The state belongs to another dataset, seed, order or global batch size.
            ConfigError: It is not a state of such a loader.
        """
        self._ordering.check_state(self, state)
        seed = self._ordering.seed_of_state(self, state)
        if seed is not None:
            self._arguments = self._ordering.adopt_seed(self, seed)
            self._engines.adopt(self._arguments)
        engine = self._opened()
        engine.load_state_dict(state)
        asked_epoch(self.sampler)  # what was set before no longer applies
        if isinstance(engine, Served):
            self._ordering.note_seed(engine)
            self._ordering.resume(state["epoch"])

    # What it reports.

    @property
    def stats(self) -> Stats:
        """What this process counted so far."""
        return self._opened().stats

    def report(self, cluster: bool = False) -> Report:
        """Returns the job's ledger: where samples were read from, and what stalls were due to.

        Args:
            cluster: If True, over all of the job's nodes, which are asked, with the epochs added
                up, and each node's part; else over this node's ranks, by epoch. Default: False.

        Raises:
            DaemonDiedError: The daemon has ended, and the ledger with it.
        """
        return self._opened().report(cluster)

    def explain(self, epoch: int, step: int, rank: int | None = None) -> Explanation:
        """Returns which samples a batch consists of, without reading them.

        Args:
            epoch: The batch's epoch, from 0.
            step: Its number in the epoch, from 0.
            rank: The rank which gets it. Default: this one.

        Raises:
            ConfigError: The order is a sampler's, which only iterating it reveals.
        """
        return self._opened().explain(epoch, step, rank)

    def __repr__(self) -> str:
        root = getattr(self.dataset, "root", None)
        dataset = type(self.dataset).__name__ + (f"({root!r})" if isinstance(root, str) else "")
        return f"{type(self).__name__}({dataset}, batch_size={self.batch_size}{self._ranks})"


spell_out_keys(DataLoader)
