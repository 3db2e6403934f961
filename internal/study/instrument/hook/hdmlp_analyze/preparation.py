"""How fast a loader prepares samples that are in memory, while nothing trains.

torch's loader is measured here, with several numbers of workers, over some batches of the sampler's
own whose files have been read just before; where that does not bring them into memory, what reading
them takes is subtracted. What hdmlp does is measured by ``hdmlp analyze`` itself:
this process only describes what the daemon would do.
"""

from __future__ import annotations

import itertools
import operator
import os
import sys
import time
from collections.abc import Iterator
from typing import Any, Callable

from . import description, rereading, sample_files
from .channel import SETTINGS, Channel
from .queued import Delivered, in_turn, parts

#: How many batches of the sampler are used at most.
MOST_BATCHES = 256
#: Samples of a batch at the first pass, whose speed is not known.
FIRST = 8
#: From how many files per sample on one of each, as attributes say it, is not all that is read.
SEVERAL = 1.5
#: Seconds that one worker takes for a batch, at most, and how many batches it prepares in the time
#: of its measurement, at least: batches that take longer are divided.
LONGEST, LEAST = 0.5, 8


def measure(
    loader: Any, original: Callable[[Any], Any], kind: str, ranks: int, channel: Channel
) -> None:
    """Measures, and sends what was measured, and which files the samples are in.

    Args:
        loader: The loader.
        original: The ``__iter__`` of its class.
        kind: Whose it is.
        ranks: How many ranks share the node's processors.
        channel: Where to.
    """
    if description.is_iterable(loader):
        text = "the dataset is iterable: only reading all of it says which files its samples are in"
        channel.note("source", text)
        channel.note("preparation", text)
        return
    channel.send("phase", name="preparation")
    dataset = description.dataset_of(loader)
    opened: list[str] = []
    looked = 0
    if kind == "torch":
        opened, looked = _measure_torchs(loader, original, ranks, channel)
    # Of a dataset of the program's own, hdmlp's loader has the files that are declared.
    content = getattr(loader, "_content", None)
    records = None if content is None else content.folder
    _say_files(dataset, records, opened, looked, channel)
    _say_transforms(loader, channel)


def _whole(given: list[Any], samples: int) -> list[Any]:
    """Returns those of the first batches that have so many samples together, at most."""
    found = []
    for batch in given:
        samples -= len(batch)
        if samples < 0:
            break
        found.append(batch)
    return found


def _different(indices: list[Any]) -> int:
    """Returns how many different indices there are: samplers may give one several times."""
    try:
        return len({operator.index(index) for index in indices})
    except TypeError:  # they are no numbers
        return len(indices)


class _Again:
    """A sampler that gives the same batches again and again."""

    def __init__(self, given: list[Any]):
        self._given = given

    def __iter__(self) -> Iterator[Any]:
        return itertools.cycle(self._given)


def _measure_torchs(
    loader: Any, original: Callable[[Any], Any], ranks: int, channel: Channel
) -> tuple[list[str], int]:
    """Measures torch's loader by the number of workers.

    Returns:
        The files that the samples were read from, and how many different samples these are.
    """
    torch: Any = sys.modules["torch"]
    batched = loader.batch_sampler is not None

    def made(given: list[Any], workers: int) -> Any:
        """Returns an iterator of a loader like the script's, over these batches."""
        more: dict[str, Any] = {}
        if workers:
            more["multiprocessing_context"] = loader.multiprocessing_context
            more["worker_init_fn"] = loader.worker_init_fn
            more["prefetch_factor"] = loader.prefetch_factor or 2
        which = {"batch_sampler": _Again(given)} if batched else {"sampler": _Again(given)}
        if not batched:
            more["batch_size"] = None
        return original(
            torch.utils.data.DataLoader(
                loader.dataset,
                num_workers=workers,
                collate_fn=loader.collate_fn,
                pin_memory=loader.pin_memory,
                **which,
                **more,
            )
        )

    drawn = list(
        itertools.islice(loader.batch_sampler if batched else loader.sampler, MOST_BATCHES)
    )
    if not drawn:
        channel.note("preparation", "the sampler gives nothing")
        return [], 0
    end = time.perf_counter() + SETTINGS["preparation"]
    opened = sample_files.Opened()
    seen: list[Any] = []  # indices of samples
    given = parts(drawn, FIRST) if batched else drawn
    first = made(given, 0)
    number = 0
    began = time.perf_counter()
    with opened:  # this brings the files into memory
        until = began + SETTINGS["preparation"] / 4
        while number < len(given) and (not number or time.perf_counter() < until):
            next(first)
            seen.extend(given[number] if batched else [given[number]])
            number += 1
    looked = len(seen)
    alone = (time.perf_counter() - began) / looked  # seconds of a sample
    counts = _worker_counts(loader.num_workers, ranks)
    longest = min(LONGEST, max(end - time.perf_counter(), 0.0) / len(counts) / LEAST)
    size = max(int(longest / alone), 1)
    given = parts(_whole(drawn, looked) or given[:number], size) if batched else given[:number]
    reading = rereading.Reading(opened.data(), _different(seen))
    if reading.uncached:
        channel.send("uncached")
        channel.note(
            "preparation",
            "the file system keeps no file in memory that is opened again, so the page cache is no "
            f"cache for this job; what reading them takes, {reading.seconds(1) * 1e3:.2g} ms for a "
            "sample, was subtracted",
        )
    queued = loader.prefetch_factor or 2
    for at, workers in enumerate(counts):
        seconds = max(end - time.perf_counter(), 0.0) / (len(counts) - at)
        channel.send("phase", name="preparation", workers=workers)
        turns = in_turn(given, workers)
        samples = [len(batch) for batch in turns] if batched else [1]
        delivered = Delivered(made(turns, workers), samples, workers)
        delivered.drain(queued, alone)
        found = delivered.within(seconds)
        each = max(workers, 1)
        found = rereading.without(found, reading.seconds(each) / each)
        channel.send("preparation", workers=workers, deliveries=found)
    return opened.data(), _different(seen)


def _worker_counts(used: int, ranks: int) -> list[int]:
    """Returns the numbers of workers to measure; 0 stands for the process itself."""
    cores = max(len(os.sched_getaffinity(0)) // ranks, 1)
    counts = {used}
    n = 1
    while n < cores:
        counts.add(n)
        n *= 2
    counts.add(cores)
    return sorted(counts - ({1} if used == 0 else set()))


def _say_files(
    dataset: Any, records: Any, opened: list[str], looked: int, channel: Channel
) -> None:
    """Sends where samples are, or why that is not known."""
    found = sample_files.ranges(dataset) or (records is not None and sample_files.ranges(records))
    if found:
        channel.send(
            "files",
            paths=found.paths,
            offsets=found.offsets,
            sizes=found.sizes,
            count=found.of,
            samples=len(dataset),
        )
        return
    paths, count = sample_files.drawn(dataset), 0
    if paths and (not looked or len(opened) < SEVERAL * looked):
        count = len(paths)
    elif looked and len(opened) >= 0.9 * looked:
        paths = opened[: sample_files.MOST]
        # A sample may have several files, such as an image and a mask.
        count = max(min(len(paths), looked * len(paths) // len(opened)), 1)
        channel.note(
            "source",
            f"the files were found by watching which ones {looked} samples were read from",
        )
    elif looked:
        channel.note(
            "source",
            f"{looked} samples were read from {len(opened)} files: which part of a file a sample "
            "is in is not known, so reads of the source cannot be repeated without the script",
        )
    else:
        channel.note("source", "the dataset does not say which files its samples are in")
    channel.send(
        "files", paths=paths, sizes=sample_files.sizes(paths), count=count, samples=len(dataset)
    )


def _say_transforms(loader: Any, channel: Channel) -> None:
    """Sends what hdmlp's daemon would do with the samples."""
    session = getattr(loader, "_session", None)
    if session is not None:  # hdmlp's loader without torch
        channel.send("transforms", transforms=session.transforms, left="")
        return
    if SETTINGS["package"] and SETTINGS["package"] not in sys.path:
        sys.path.append(SETTINGS["package"])
    try:
        from hdmlp.torch._analyzed import transforms_of
    except Exception as error:
        channel.note("preparation_by_hdmlp", f"the package hdmlp cannot be imported: {error}")
        return
    transforms, left = transforms_of(loader)
    if left:
        channel.note("preparation_by_hdmlp", left)
    channel.send("transforms", transforms=transforms, left=left)
