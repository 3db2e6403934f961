"""Threads of a worker process that make the items of a batch."""

from __future__ import annotations

import contextlib
import contextvars
import functools
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any, Callable, TypeVar

import torch
from torch.utils.data import Subset

from ..._transforms.recipe import name_sample
from ..._transforms.touching import Touching
from .interfaces import Indexed

_Made = TypeVar("_Made")

#: Types of devices of which torch may have autocast.
_DEVICES = ("cpu", "cuda", "xpu", "mps", "hpu", "mtia", "maia", "ipu", "xla")
#: What reports and sets autocast before torch 2.4.
_FORMER = (
    ("is_autocast_cpu_enabled", "set_autocast_cpu_enabled"),
    ("get_autocast_cpu_dtype", "set_autocast_cpu_dtype"),
    ("is_autocast_enabled", "set_autocast_enabled"),
    ("get_autocast_gpu_dtype", "set_autocast_gpu_dtype"),
)


class Settings:
    """What the thread that makes this has set for itself, for functions in other threads.

    It has the context variables (of which are :mod:`decimal`'s context, and numpy's handling of
    errors and buffers since numpy 2), and torch's grad mode, inference mode, autocast and default
    device. What ``threading.local`` holds cannot be read from outside of its thread's code.
    """

    def __init__(self) -> None:
        self._context = contextvars.copy_context()
        self._inference = torch.is_inference_mode_enabled()
        grad = functools.partial(torch.set_grad_enabled, torch.is_grad_enabled())
        self._puts: list[Callable[[], object]] = [grad, *_autocast(), *_numpys()]
        self._device = _device()

    def run(self, function: Callable[[], _Made]) -> _Made:
        """Returns what a function returns in this thread with these settings.

        What it changes of them ends with it.
        """
        return self._context.copy().run(self._run, function)

    def _run(self, function: Callable[[], _Made]) -> _Made:
        decimal = sys.modules.get("decimal")
        if decimal is not None:  # the variable's object can be changed, so each has its own
            decimal.setcontext(decimal.getcontext().copy())
        inference: Any = torch.inference_mode
        with inference(self._inference):  # restores the grad mode as well
            for put in self._puts:
                put()
            with self._device:
                return function()


def _autocast() -> Iterator[Callable[[], object]]:
    """Returns functions that set autocast as it is in this thread."""
    of: Any = torch
    if not hasattr(of, "get_autocast_dtype"):
        for get, put in _FORMER:
            yield functools.partial(getattr(of, put), getattr(of, get)())
    else:
        for device in filter(of.amp.is_autocast_available, _DEVICES):
            yield functools.partial(of.set_autocast_enabled, device, of.is_autocast_enabled(device))
            yield functools.partial(of.set_autocast_dtype, device, of.get_autocast_dtype(device))
    yield functools.partial(of.set_autocast_cache_enabled, of.is_autocast_cache_enabled())


def _numpys() -> Iterator[Callable[[], object]]:
    """Returns functions that set numpy as it is in this thread; since numpy 2 its context is."""
    numpy: Any = sys.modules.get("numpy")
    if numpy is None or int(numpy.__version__.partition(".")[0]) >= 2:
        return
    yield functools.partial(numpy.seterr, **numpy.geterr())
    yield functools.partial(numpy.seterrcall, numpy.geterrcall())
    yield functools.partial(numpy.setbufsize, numpy.getbufsize())


def _device() -> contextlib.AbstractContextManager[object]:
    """Returns what sets the default device of this thread in another for a ``with`` block."""
    device: Any = torch.empty(0).device if hasattr(torch, "set_default_device") else None
    return contextlib.nullcontext() if device is None or device.type == "cpu" else device


def makes_batches(dataset: object) -> bool:
    """Reports whether a dataset makes whole batches itself, and not only item by item.

    torch's ``Subset`` has ``__getitems__`` for the dataset that it is of.
    """
    while type(dataset) is Subset:
        dataset = dataset.dataset
    return hasattr(dataset, "__getitems__")


class Threads:
    """Threads that make items at the same time; goes to worker processes by fork or by pickle.

    They start with the first batch. Python runs one of them at a time, so they help where items
    wait for a disk or a network, or are made by libraries that release its lock, as decoders do.

    Args:
        count: How many there are.
    """

    def __init__(self, count: int):
        self._count = count
        self._pool: ThreadPoolExecutor | None = None

    def __getstate__(self) -> dict[str, object]:
        return {"_count": self._count, "_pool": None}

    def items(self, dataset: Indexed, indices: Sequence[object], touching: Touching) -> list[Any]:
        """Returns the items of these indices, in their order, after all have been made.

        They are made with the settings that this thread has.
        An exception of the first item that failed has its index as ``sample``.

        Args:
            dataset: Makes them.
            indices: Which.
            touching: Notes the generators that they call.
        """
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self._count, "hdmlp-items")
        settings = Settings()
        with touching.noting():
            made: list[Future[Any]] = [
                self._pool.submit(_item, dataset, index, touching, settings) for index in indices
            ]
            wait(made)  # none may draw, or write, once the batch counts as made
        return [item.result() for item in made]


def _item(dataset: Indexed, index: object, touching: Touching, settings: Settings) -> Any:
    def make() -> Any:
        with touching.profiled():
            return dataset[index]

    try:
        return settings.run(make)
    except Exception as error:
        name_sample(error, index)
        raise
