"""The interface of the HDMLP thesis (section 4.2, listing 4.6).

    job = Job(data_dir, batch_size, num_epochs, 'uniform', drop_last_batch)
    dataset = HDMLPImageFolder(data_dir, job, data_transforms)
    dataloader = HDMLPDataLoader(dataset)

New code is better off with :mod:`hdmlp.torch` or :mod:`hdmlp.data`.
"""

from __future__ import annotations

import ctypes
import re
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Callable

from ._batches.output import Output
from ._batches.source import Taken, column
from ._launch import membership
from ._lib.arguments import check_path, seed_of, settings, switch, whole_number
from ._lib.mapping import address_of
from ._loading.base_loader import Loader
from ._loading.feed import Feed
from ._loading.options import Options, StreamOptions, scheme_of, share_of
from .data import Folder, described
from .errors import ClosedError, ConfigError, EndError

__all__ = ["Job"]


class JobLoader(Loader):
    """Yields what ``make`` makes of a batch; if it is None, the batch as it was taken."""

    make: Callable[[JobLoader, Taken], object] | None = None

    def _make(self, feed: Feed, taken: Taken) -> object:
        return taken if self.make is None or not taken.n else self.make(self, taken)

    def views(self, taken: Taken) -> Any:
        """Returns the batch's samples, one by one."""
        output = self.output
        return taken.content if output is None else output.split(taken.content, taken.n)


class Job:
    """One machine-learning job on one dataset.

    Args:
        dataset_path: A directory with one subdirectory per class.
        batch_size: Samples per batch over all ranks.
        epochs: Epochs of the run.
        distr_scheme: How a batch is distributed over ranks (thesis 4.1.3). ``"uniform"``:
            contiguous slices, the last one shorter. ``"whole"``: each rank gets all of it.
            ``"imbalanced"``: a rank of the first half gets four times as many samples as one of the
            second. ``"strided"``: as torch's ``DistributedSampler``.
        drop_last_batch: Leave out a last batch that is short.
        transforms: HDMLP's integrated transformations: a list of :mod:`hdmlp.transforms`, which the
            daemon carries out. None means those of :class:`hdmlp.torch.HDMLPImageFolder`, or none.
        seed: The seed of the order, in [0, 2^64); None means that it is drawn, the same on all
            ranks.
        config_path: A file of configuration keys: TOML, or, if its name ends in ``.cfg``, libconfig
            with the thesis's settings (listing 4.7).
        lib_path: Refused: the original took the path of its library, and there is none.
        extensions: As for :class:`hdmlp.data.Folder`. Default: None, torchvision's image suffixes.
        buffer_p: Work as printed: :attr:`buffer_p` is where samples are, and with transforms
            :meth:`get` returns batches. Default: False.

    Raises:
        ConfigError: An argument is wrong, or a rank would get no sample of a batch.
        DatasetNotFoundError: ``dataset_path`` is not a directory.
    """

    def __init__(
        self,
        dataset_path: str,
        batch_size: int,
        epochs: int,
        distr_scheme: str = "uniform",
        drop_last_batch: bool = False,
        transforms: Sequence[object] | None = None,
        seed: int | None = None,
        config_path: str | None = None,
        lib_path: str | None = None,
        buffer_p: bool = False,
        extensions: Sequence[str] | None = None,
    ):
        self._scheme = scheme_of("distr_scheme", distr_scheme)
        if lib_path is not None:
            raise ConfigError(
                f"lib_path={lib_path!r}: there is no library to load; leave it out (the daemon is "
                "the package's own, or the one that HDMLP_BINARY names)"
            )
        if transforms is not None and not isinstance(transforms, Iterable):
            raise ConfigError(
                f"transforms={transforms!r}: must be a list of hdmlp.transforms, such as "
                "[ToTensor()]"
            )
        self._transforms = list(transforms or ())
        described(self._transforms)  # says what is wrong with them
        check_path("dataset_path", dataset_path)
        self.dataset = Folder(dataset_path, extensions)
        self.batch_size = whole_number("batch_size", batch_size, 1)
        self._check_shares(self.batch_size, membership.find().world_size, "a batch")
        self.epochs = whole_number("epochs", epochs, 1)
        self.drop_last_batch = switch("drop_last_batch", drop_last_batch)
        self._printed = switch("buffer_p", buffer_p)
        self.seed = seed_of(seed)
        settings({}, config_path, "config_path")  # raises if the file does not exist
        self._config_path = config_path
        self._loader: JobLoader | None = None
        self._destroyed = False
        self._batches: Iterator[Taken] | None = None
        self._left: Iterator[tuple[str, memoryview]] = iter(())
        self._last: memoryview | None = None  # what buffer_p points to
        self._augmentation = 0.0

    def setup(self) -> None:
        """Starts the prefetching. The first use does so if it was not called before."""
        self._ready()

    def _ready(self) -> JobLoader:
        if self._destroyed:
            raise ClosedError("the job was destroyed: make a new one")
        if self._loader is None:
            self._loader = self._opened()
            samples, ranks = self._loader.samples, self._loader.world_size
            if samples < self.batch_size and not self.drop_last_batch:
                try:
                    what = f"an epoch, which is one batch of {samples} samples"
                    self._check_shares(samples, ranks, what)
                except ConfigError:
                    self.destroy()
                    raise
        return self._loader

    def _opened(self) -> JobLoader:
        """Opens the job, whose errors have the names of its own arguments.

        Raises:
            ConfigError: An argument is wrong.
        """
        try:
            return JobLoader(
                self.dataset,
                Options(
                    StreamOptions(
                        self.batch_size,
                        shuffle="feistel",
                        epochs=self.epochs,
                        seed=self.seed,
                        scheme=self._scheme,
                        tail="keep",
                        drop_last=self.drop_last_batch,
                    ),
                    membership.find(),
                    transforms=described(self._transforms),
                    config_file=self._config_path,
                ),
            )
        except ConfigError as error:
            text = re.sub(r"\bdrop_last\b", "drop_last_batch", str(error))
            if text == str(error):
                raise
            raise ConfigError(text, error.details) from None

    def _check_shares(self, batch: int, ranks: int, what: str) -> None:
        """Checks that each rank gets samples of a batch.

        Args:
            batch: Its samples.
            ranks: How many ranks share it.
            what: What messages call it.
        """
        for rank in range(ranks):
            if not share_of(self._scheme, batch, rank, ranks):
                raise ConfigError(
                    f"batch_size={self.batch_size}: rank {rank} of {ranks} would get no sample of "
                    f"{what}, with distr_scheme={self._scheme!r}: batch_size counts over all "
                    "ranks; give a larger one, or start fewer ranks"
                )

    def _use_transforms(self, transforms: Sequence[object]) -> None:
        """Has the daemon carry out these :mod:`hdmlp.transforms`.

        Args:
            transforms: A list of them.

        Raises:
            ConfigError: The job is set up already, or has other transforms.
        """
        if self._transforms and transforms != self._transforms:
            raise ConfigError(
                "data_transforms: the job has transforms of its own, Job(transforms=...), and the "
                "daemon carries out one list: give all of them in one of the two"
            )
        if self._loader is not None and transforms != self._transforms:
            raise ConfigError(
                "transforms: the job is set up already: make HDMLPImageFolder before any other "
                "use of the job"
            )
        self._transforms = list(transforms)

    @property
    def output(self) -> Output | None:
        """What the transforms make of a sample; None if there are none."""
        return self._ready().output

    def destroy(self) -> None:
        """Ends the job. Samples that the program keeps stay valid. Idempotent."""
        self._destroyed = True
        self._batches, self._left, self._last = None, iter(()), None
        if self._loader is not None:
            self._loader.close()

    def __enter__(self) -> Job:
        self.setup()
        return self

    def __exit__(self, *_: object) -> None:
        self.destroy()

    def get(self) -> tuple[str | list[str], Any]:
        """Returns the next sample of this rank, or the next batch, through all epochs.

        Returns:
            The name of its class, and a view of its bytes in shared memory, or of the bytes that
            the transforms made of it. With ``buffer_p`` and transforms, a list of the names of the
            batch's classes, and a writable numpy array of shape (n, ...) where the daemon wrote it.
            What is returned is valid for as long as it is kept.

        Raises:
            EndError: The last sample of the last epoch was returned.
        """
        if not (self._printed and self._transforms):
            label, view = self._next_sample()
            self._last = view
            return label, view
        taken = self._next_batch()
        loader = self._ready()
        output = loader.output
        assert output is not None
        batch: Any = output.array(taken.content, taken.n)
        self._last = memoryview(batch)
        return self._labels(taken), batch

    @property
    def buffer_p(self) -> object:
        """A ctypes pointer (``POINTER(c_char)``) to what :meth:`get` returned last.

        It lies in shared memory: in the staging buffer, or in the cache where the sample is used in
        place. The original's pointed to the beginning of the staging buffer. None before the first
        :meth:`get`, and without the argument ``buffer_p``. The bytes are valid for as long as what
        :meth:`get` returned is kept, and here until its next call.
        """
        if not self._printed or self._last is None:
            return None
        return ctypes.cast(address_of(self._last), ctypes.POINTER(ctypes.c_char))

    def _labels(self, taken: Taken) -> list[str]:
        """Returns the names of the classes of a batch's samples."""
        classes = self._ready().classes
        return [classes[label] for label in column(taken.payload, taken.n, "labels")]

    def _next_sample(self) -> tuple[str, memoryview]:
        """Returns the next sample of this rank, and the name of its class."""
        while True:
            for sample in self._left:
                return sample
            taken = self._next_batch()
            self._left = iter(list(zip(self._labels(taken), self._ready().views(taken))))

    def _next_batch(self) -> Taken:
        """Returns the next batch of this rank that has samples."""
        loader = self._ready()
        while True:
            if self._batches is None:
                self._batches = iter(loader)
            taken = next(self._batches, None)
            if taken is None:
                self._batches = None
                if not loader.steps:
                    raise EndError("the job has no batches: batch_size is larger than the dataset")
            elif taken.n:
                return taken

    def _epoch(
        self, make: Callable[[JobLoader, Taken], object], works: bool = True
    ) -> Iterator[Any]:
        """Returns this rank's batches of the next epoch, except those without samples.

        Args:
            make: Makes what is yielded of the loader and a batch.
            works: ``make`` does more than handing over what the daemon made.
        """

        def timed(loader: JobLoader, taken: Taken) -> list[object]:
            begin = time.perf_counter()
            made = make(loader, taken)
            self._augmentation += time.perf_counter() - begin
            return [made]

        return _Epoch(self._ready(), timed, works)

    @property
    def steps(self) -> int:
        """Batches per epoch of this rank, which may get no part of a short last one."""
        loader = self._ready()
        steps = len(loader)
        last = loader.samples - (steps - 1) * self.batch_size
        if 0 < last < self.batch_size:
            steps -= not share_of(self._scheme, last, loader.rank, loader.world_size)
        return steps

    def length(self) -> int:
        """Returns the number of samples in the dataset."""
        return self._ready().samples

    def get_node_id(self) -> int:
        """Returns this process's rank."""
        return self._ready().rank

    def get_no_nodes(self) -> int:
        """Returns the number of ranks."""
        return self._ready().world_size

    def get_batch_size(self) -> int:
        """Returns the number of samples per batch over all ranks."""
        return self.batch_size

    def get_num_epochs(self) -> int:
        """Returns the number of epochs of the run."""
        return self.epochs

    def get_drop_last_batch(self) -> bool:
        """Reports whether a last batch that is short is left out."""
        return self.drop_last_batch

    def get_transforms(self) -> list[Any]:
        """Returns the integrated transformations."""
        return list(self._transforms)

    def get_metrics(self) -> dict[str, object]:
        """Returns what the job cost so far.

        Returns:
            A dict: ``stall_time``, the seconds for which the process waited for samples, without
            transforms; ``augmentation_time``, the seconds in transforms; ``read_times``, the node's
            seconds of reading by tier (``"source"``, ``"memory"`` and so on); ``read_locations``,
            the number of this rank's samples by the tier that they came from.
        """
        loader = self._ready()
        report = loader.report()
        locations: dict[str, int] = {}
        for rank in report.get("ranks") or ():
            if rank["rank"] == loader.rank:
                for epoch in rank["epochs"] or ():
                    for tier, amount in (epoch["reads"] or {}).items():
                        locations[tier] = locations.get(tier, 0) + amount["samples"]
        times = {read["tier"]: read["seconds"] for read in report.get("tiers") or ()}
        return {
            "stall_time": loader.stats.stall - loader.stats.python,
            "augmentation_time": self._augmentation,
            "read_times": times,
            "read_locations": locations,
        }


class _Epoch:
    """The batches of a job's epoch. Not a generator, which an exception would end.

    Args:
        loader: The job's loader.
        make: Makes a list with what is yielded of the loader and a batch.
        works: ``make`` does more than handing over what the daemon made.
    """

    def __init__(
        self, loader: JobLoader, make: Callable[[JobLoader, Taken], list[object]], works: bool
    ):
        self._loader, self._make, self._works = loader, make, works
        self._batches = iter(loader)
        self._made: list[object] = []

    def __iter__(self) -> _Epoch:
        return self

    def __next__(self) -> object:
        while not self._made:
            loader = self._loader
            loader.make, loader._works = self._make, self._works
            try:
                made = next(self._batches)
            finally:
                loader.make, loader._works = None, False
            if type(made) is list:  # else it has no samples
                self._made = made
        [batch] = self._made
        self._made = []  # nothing here keeps the batch's memory
        return batch
