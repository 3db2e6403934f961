"""The interface of the HDMLP thesis (section 4.2, listing 4.6).

    job = Job(data_dir, batch_size, num_epochs, 'uniform', drop_last_batch)
    dataset = HDMLPImageFolder(data_dir, job, data_transforms)
    dataloader = HDMLPDataLoader(dataset)

New code does better with :mod:`hdmlp.torch` or :mod:`hdmlp.data`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, Callable

from . import _launcher
from ._arguments import whole_number
from ._feed import Feed
from ._loader import Loader
from ._options import Options, StreamOptions
from ._output import Output
from ._source import Taken, column
from .data import Folder, described
from .errors import ClosedError, ConfigError, EndError

__all__ = ["Job"]


class _JobLoader(Loader):
    """Yields what ``make`` makes of what the stream gave; None: just that."""

    make: Callable[[Loader, Taken], Any] | None = None

    def _make(self, feed: Feed, taken: Taken) -> Any:
        return taken if self.make is None or not taken.n else self.make(self, taken)


class Job:
    """One machine-learning job on one dataset.

    Args:
        dataset_path: a directory with one sub-directory per class.
        batch_size: samples per batch over all ranks.
        epochs: epochs of the run.
        distr_scheme: how a batch is distributed over ranks; ``"uniform"``: contiguous slices, the
            last one shorter.
        drop_last_batch: leave out a last batch that is short.
        transforms: HDMLP's integrated transformations: a list of :mod:`hdmlp.transforms`, which the daemon carries out; None:
            those of :class:`hdmlp.torch.HDMLPImageFolder`, or none.
        seed: of the order; None: drawn, the same on all ranks.
        config_path: a TOML file of configuration keys.
        lib_path: accepted for compatibility; there is no library to find.

    Raises:
        ConfigError: a wrong argument.
        DatasetNotFoundError: ``dataset_path`` is not a directory.
    """

    def __init__(
        self,
        dataset_path: str,
        batch_size: int,
        epochs: int,
        distr_scheme: str = "uniform",
        drop_last_batch: bool = False,
        transforms: list[Any] | None = None,
        seed: int | None = None,
        config_path: str | None = None,
        lib_path: str | None = None,
    ):
        if distr_scheme != "uniform":
            raise ConfigError(f"distr_scheme={distr_scheme!r}: must be 'uniform'")
        self._transforms = list(transforms or ())
        described(self._transforms)  # says what is wrong with them
        self.dataset = Folder(dataset_path)
        self.batch_size = whole_number("batch_size", batch_size, 1)
        self.epochs = whole_number("epochs", epochs, 1)
        self.drop_last_batch = bool(drop_last_batch)
        self.seed = seed
        self._config_path = config_path
        self._loader: _JobLoader | None = None
        self._destroyed = False
        self._batches: Iterator[Taken] | None = None
        self._left: Iterator[tuple[str, memoryview]] = iter(())
        self._augmentation = 0.0

    def setup(self) -> None:
        """Starts the prefetching. Called by the first use, if it is not called before."""
        self._ready()

    def _ready(self) -> _JobLoader:
        if self._destroyed:
            raise ClosedError("the job was destroyed")
        if self._loader is None:
            self._loader = _JobLoader(
                self.dataset,
                Options(
                    StreamOptions(
                        self.batch_size,
                        shuffle="feistel",
                        epochs=self.epochs,
                        seed=self.seed,
                        scheme="uniform",
                        tail="keep",
                        drop_last=self.drop_last_batch,
                    ),
                    _launcher.find(),
                    transforms=described(self._transforms),
                    config_file=self._config_path,
                ),
            )
        return self._loader

    def use_transforms(self, transforms: list[Any]) -> None:
        """Lets the daemon carry out these :mod:`hdmlp.transforms`.

        Raises:
            ConfigError: the job is set up already, or has others.
        """
        if self._transforms and transforms != self._transforms:
            raise ConfigError("transforms: the job was made with others")
        if self._loader is not None and transforms != self._transforms:
            raise ConfigError(
                "transforms: the job is set up already: make HDMLPImageFolder before anything else is asked of it"
            )
        self._transforms = list(transforms)

    @property
    def output(self) -> Output | None:
        """What the transforms make of every sample; None: it stays as it is."""
        return self._ready().output

    def destroy(self) -> None:
        """Ends the job. Samples that the program keeps stay valid. Idempotent."""
        self._destroyed = True
        self._batches, self._left = None, iter(())
        if self._loader is not None:
            self._loader.close()

    def __enter__(self) -> Job:
        self.setup()
        return self

    def __exit__(self, *_: Any) -> None:
        self.destroy()

    def get(self) -> tuple[str, memoryview]:
        """The next sample of this rank, through all epochs.

        Returns:
            (class name, the sample's bytes, or with transforms those of what they made: where they lie, valid while kept).

        Raises:
            EndError: the last epoch's last sample was delivered.
        """
        loader = self._ready()
        while True:
            for sample in self._left:
                return sample
            if self._batches is None:
                self._batches = iter(loader)
            taken = next(self._batches, None)
            if taken is None:
                self._batches = None
                if not loader.steps:
                    raise EndError("the job has no batches: batch_size is larger than the dataset")
                continue
            classes = loader.classes
            labels = column(taken.payload, taken.n, "labels")
            self._left = iter(
                [(classes[label], view) for label, view in zip(labels, loader.views(taken))]
            )

    def epoch(self, make: Callable[[Loader, Taken], Any], works: bool = True) -> Iterator[Any]:
        """The next epoch's batches of this rank, as ``make`` makes them; a batch without samples is left out.

        Args:
            works: ``make`` does more than to hand over what lies there.
        """

        def timed(loader: Loader, taken: Taken) -> list[Any]:
            begin = time.perf_counter()
            made = make(loader, taken)
            self._augmentation += time.perf_counter() - begin
            return [made]

        loader = self._ready()
        batches = iter(loader)
        while True:
            loader.make, loader._works = timed, works
            try:
                made = next(batches, None)
            finally:
                loader.make, loader._works = None, False
            if made is None:
                return
            if type(made) is list:
                yield made.pop()  # nothing here keeps the batch's room

    @property
    def steps(self) -> int:
        """Batches per epoch."""
        return len(self._ready())

    def length(self) -> int:
        """The number of samples in the dataset."""
        return self._ready().samples

    def get_node_id(self) -> int:
        """This process's rank."""
        return self._ready().rank

    def get_no_nodes(self) -> int:
        """The number of ranks."""
        return self._ready().world_size

    def get_batch_size(self) -> int:
        """Samples per batch over all ranks."""
        return self.batch_size

    def get_num_epochs(self) -> int:
        """Epochs of the run."""
        return self.epochs

    def get_drop_last_batch(self) -> bool:
        """Whether a last batch that is short is left out."""
        return self.drop_last_batch

    def get_transforms(self) -> list[Any]:
        """The integrated transformations."""
        return list(self._transforms)

    def get_metrics(self) -> dict[str, Any]:
        """What the job cost so far.

        Returns:
            ``stall_time``: seconds blocked waiting for samples, which has no time of transforms; ``augmentation_time``: seconds in
            transforms; ``read_times``: the node's seconds of reading, by place (``"source"``,
            ``"memory"`` and so on); ``read_locations``: this rank's samples, by place they came from.
        """
        loader = self._ready()
        report = loader.report()
        locations: dict[str, int] = {}
        for rank in report.get("ranks") or ():
            if rank["rank"] == loader.rank:
                for epoch in rank["epochs"] or ():
                    for place, amount in (epoch["reads"] or {}).items():
                        locations[place] = locations.get(place, 0) + amount["samples"]
        times = {place["place"]: place["seconds"] for place in report.get("places") or ()}
        return {
            "stall_time": loader.stats.stall - loader.stats.python,
            "augmentation_time": self._augmentation,
            "read_times": times,
            "read_locations": locations,
        }
