"""The loader's arguments which torch's loader does not have, checked and settled."""

from __future__ import annotations

import dataclasses
import inspect
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Callable

import torch
from torch.utils.data import DistributedSampler, IterableDataset, Sampler

from ..._lib.arguments import (
    KEYS,
    check_functions,
    check_path,
    check_text,
    check_timeout,
    seed_of,
    switch,
    whole_number,
)
from ..._loading.options import order_of, scheme_of
from ...errors import ConfigError
from .._data.mixing import is_collate
from .._data.threads import makes_batches
from .._order.drawn import parts

log = logging.getLogger("hdmlp")

#: Attributes which cannot be changed once a loader is made.
_SETTLED = (
    "shard",
    "epochs",
    "offload",
    "labels",
    "raw",
    "name",
    "verify",
    "config_file",
    "files",
    "check",
    "reseed",
    "batch_transform",
    "scheme",
    "worker_threads",
)

#: Those which have no meaning for a dataset whose samples the daemon does not read: defaults.
_FOR_FOLDERS: dict[str, object] = {
    "verify": False,
    "raw": None,
    "offload": True,
    "labels": "index",
    "config_file": None,
    "scheme": "strided",
}


@dataclass(frozen=True)
class Arguments:
    """HDMLP's own arguments of a :class:`~hdmlp.torch.DataLoader`.

    Attributes:
        shard: The ranks share each epoch because of the loader's own arguments.
        epochs: Epochs of the run; None: no end.
        offload: The daemon carries out the transforms which it has.
        labels: ``"index"`` or ``"name"``.
        name: The loader's name; None: its number.
        verify: Check each epoch's samples.
        raw: Deliver bytes (True) or decoded samples (False); None: the dataset decides.
        config_file: A TOML file of configuration keys.
        keys: Configuration keys, checked.
        order: ``"torch"``, ``"feistel"`` or ``"none"``: the order that ``shuffle`` asks for.
        reseed: ``"used"`` or ``"all"``.
        seed: The order's seed; None: there is none, or it is drawn.
        given_seed: The ``seed`` argument, which a sampler may override.
        files: Which files each item reads: a function, or a sequence; None: it is not said.
        check: ``"open"``: a file is looked at each time that it is opened; None: now and then.
        batch_transform: Applied to each batch; None: nothing is.
        scheme: How the ranks share a global batch.
        worker_threads: How many threads of each worker make items.
    """

    shard: bool
    epochs: int | None
    offload: bool
    labels: str
    name: str | None
    verify: bool
    raw: bool | None
    config_file: str | None
    keys: Mapping[str, object]
    order: str
    reseed: str
    seed: int | None
    given_seed: int | None
    files: object = None
    check: str | None = None
    batch_transform: Callable[..., object] | None = None
    scheme: str = "strided"
    worker_threads: int = 1

    def attributes(self) -> dict[str, object]:
        """Returns the loader's attributes of the same names as the arguments, without the keys.

        Frameworks read them from ``vars(loader)`` when they make the loader anew.
        """
        return {name: getattr(self, name) for name in _SETTLED}

    def with_seed(self, seed: int) -> Arguments:
        """Returns the arguments with the seed of a saved state."""
        return dataclasses.replace(self, seed=seed)

    def for_frameworks(self) -> dict[str, object]:
        """Returns the arguments which a framework's loader loses: see :func:`use_in`."""
        defaults = {**_FOR_FOLDERS, "shard": False, "epochs": None, "files": None, "check": None}
        defaults.update(reseed="used", batch_transform=None, worker_threads=1)
        own = {
            name: getattr(self, name)
            for name, default in defaults.items()
            if getattr(self, name) is not default
        }
        if self.given_seed is not None:
            own["seed"] = self.given_seed
        return {**own, **self.keys}

    def leave_with(self, sampler: object) -> None:
        """Leaves the arguments with the sampler, which is all that frameworks keep of a loader."""
        if isinstance(sampler, Sampler):  # a list of batches takes no attributes
            sampler.hdmlp_arguments = self.for_frameworks()  # type: ignore[attr-defined]

    def check_for_own_items(self, dataset: object) -> None:
        """Checks the arguments for a dataset that makes items itself, of files that are served.

        Raises:
            ConfigError: An argument has no meaning for such a dataset.
        """
        given = [
            f"{name}={getattr(self, name)!r}"
            for name in ("raw", "offload", "labels")
            if getattr(self, name) != _FOR_FOLDERS[name]
        ]
        if self.files is not None and "on_error" in self.keys:
            given.append(f"on_error={self.keys['on_error']!r}")
        if given:
            raise ConfigError(
                f"{', '.join(given)}: no meaning for the {type(dataset).__name__}, which makes its "
                "items itself; leave it out"
            )

    def check_for_other_datasets(self, dataset: object, why: str) -> None:
        """Checks the arguments for a dataset which the daemon does not serve.

        Args:
            dataset: The dataset.
            why: Why the daemon does not serve it; may be empty.

        Raises:
            ConfigError: An argument has no meaning for such a dataset.
        """
        given = dict(self.keys)
        for name, default in _FOR_FOLDERS.items():
            if getattr(self, name) != default:
                given[name] = getattr(self, name)
        if self.order == "feistel":
            given["shuffle"] = "feistel"
        if given:
            listed = ", ".join(f"{name}={value!r}" for name, value in given.items())
            raise ConfigError(
                f"{listed}: no meaning for a dataset of the class {type(dataset).__name__}, whose "
                "samples HDMLP does not read itself; leave it out, or use hdmlp.torch.ImageFolder"
                f"{f' ({why})' if why else ''}"
            )


def check_for_iterables(
    dataset: object, shard: bool | None, epochs: int | None, seed: int | None, reseed: str
) -> None:
    """Checks the arguments about order, epochs and seeds, which iterable datasets have themselves.

    Raises:
        ConfigError: The dataset is iterable, and one of them is given.
    """
    every = None if reseed == "used" else reseed
    own = {"shard": shard or None, "epochs": epochs, "seed": seed, "reseed": every}
    given = ", ".join(f"{name}={value!r}" for name, value in own.items() if value is not None)
    if given and isinstance(dataset, IterableDataset):
        raise ConfigError(
            f"{given}: no meaning for the iterable dataset {type(dataset).__name__}, which itself "
            "determines what an epoch is, in which order its items come and what they draw; leave "
            "it out"
        )


def check_batch_transform(given: object, dataset: object, batched: bool, why: str) -> None:
    """Checks that HDMLP makes the batches of a loader with a ``batch_transform``.

    Args:
        given: The argument.
        dataset: The loader's dataset.
        batched: There are batches, and not single items.
        why: Why torch's own loader makes them, if the dataset is not iterable; empty: it does not.

    Raises:
        ConfigError: It does not.
    """
    if given is None:
        return
    check_functions(batch_transform=given)
    if not batched:
        raise ConfigError(
            "batch_transform with batch_size=None: there are no batches; give a batch_size, or "
            "leave it out"
        )
    if isinstance(dataset, IterableDataset):
        why = f"the {type(dataset).__name__} is an iterable dataset"
    if why:
        raise ConfigError(
            f"batch_transform: torch's own loader makes the batches, because {why}; call it in "
            "the loop, or in collate_fn"
        )
    if is_collate(given):
        raise ConfigError(
            f"batch_transform: {type(given).__name__} makes a batch of items; give it as collate_fn"
        )


def settle(
    shuffle: bool | str | None,
    sampler: object,
    batch_sampler: object,
    generator: torch.Generator | None,
    shard: bool | None,
    epochs: int | None,
    seed: int | None,
    rank: int | None,
    world_size: int | None,
    offload: bool,
    labels: str,
    name: str | None,
    verify: bool,
    raw: bool | None,
    config_file: str | None,
    keys: Mapping[str, object],
    files: object,
    check: str | None,
    reseed: str,
    batch_transform: Callable[..., object] | None,
    scheme: str,
    worker_threads: int,
) -> Arguments:
    """Checks the arguments, alone and together.

    Raises:
        ConfigError: An argument is wrong, or two contradict each other.
    """
    order = order_of(False if shuffle is None else shuffle)
    if labels not in ("index", "name"):
        raise ConfigError(f"labels={labels!r}: must be 'index' or 'name'")
    if reseed not in ("used", "all"):
        raise ConfigError(f"reseed={reseed!r}: must be 'used' or 'all'")
    seed = seed_of(seed)
    check_text("name", name)
    if config_file is not None:
        check_path("config_file", config_file)
    settled_epochs = None if epochs is None else whole_number("epochs", epochs, 1)
    if check not in (None, "open"):
        raise ConfigError(f"check={check!r}: must be 'open', or be left out")
    if check is not None and files is None:
        raise ConfigError("check without files: it is about these; give files=, or leave it out")
    if shard is not None:
        shard = switch("shard", shard)
    shares = _is_shared(shard, rank, world_size, sampler, batch_sampler)
    if scheme_of("scheme", scheme) != "strided" and not shares:
        raise ConfigError(
            f"scheme={scheme!r} without shard=True: it says how ranks share batches, which "
            "this loader's do not; give shard=True and no sampler"
        )
    return Arguments(
        shard=shares,
        epochs=settled_epochs,
        offload=switch("offload", offload),
        labels=labels,
        name=name,
        verify=switch("verify", verify),
        raw=None if raw is None else switch("raw", raw),
        config_file=config_file,
        keys=keys,
        order=order,
        reseed=reseed,
        seed=_settled_seed(
            seed, shuffle, sampler, batch_sampler, generator, settled_epochs, shares
        ),
        given_seed=seed,
        files=files,
        check=check,
        batch_transform=batch_transform,
        scheme=scheme,
        worker_threads=whole_number("worker_threads", worker_threads, 1, 1024),
    )


def check_worker_threads(
    threads: int, workers: int, reseed: str, dataset: object, batched: bool, why: str
) -> None:
    """Checks that a loader with ``worker_threads`` has workers that make items one by one.

    Args:
        threads: The argument.
        workers: The number of worker processes.
        reseed: The argument.
        dataset: The loader's dataset.
        batched: There are batches, and not single items.
        why: Why ``dataset[i]`` in HDMLP's workers cannot make several at a time; empty: it may.

    Raises:
        ConfigError: It has none.
    """
    if threads == 1:
        return
    if isinstance(dataset, IterableDataset):
        why = "an iterable dataset makes its items itself, one after the other"
    elif not why and makes_batches(dataset):
        why = f"the {type(dataset).__name__} has __getitems__, which makes whole batches"
    elif not why and not batched:
        why = "with batch_size=None a worker makes one item at a time"
    elif not why and reseed == "all":
        why = "reseed='all' seeds the generators of the process for one item after the other"
    if why:
        raise ConfigError(f"worker_threads={threads}: {why}; leave it out")
    if not workers:
        raise ConfigError(
            f"worker_threads={threads} without worker processes: they are threads of these; give "
            "num_workers=1 or more"
        )


def check_torchs(
    batch_size: int | None,
    timeout: float,
    prefetch_factor: int | None,
    pin_memory_device: str,
    in_order: bool,
    worker_init_fn: object,
) -> int | None:
    """Checks arguments of torch's loader of which HDMLP takes fewer values.

    Returns:
        The batch size.

    Raises:
        ConfigError: A value is not supported.
    """
    if batch_size is not None:
        batch_size = whole_number("batch_size", batch_size, 1)
    check_timeout(timeout)
    if prefetch_factor is not None:
        whole_number("prefetch_factor", prefetch_factor, 1)
    check_functions(worker_init_fn=worker_init_fn)
    if pin_memory_device:
        raise ConfigError(
            f"pin_memory_device={pin_memory_device!r}: not supported; leave it out: tensors are "
            "pinned for the current device"
        )
    if not switch("in_order", in_order):
        raise ConfigError("in_order=False: HDMLP delivers batches in order; leave it out")
    return batch_size


def process_arguments(
    prefetch_factor: int | None,
    persistent_workers: bool,
    multiprocessing_context: object,
    worker_init_fn: object,
    taken: bool,
) -> dict[str, Any]:
    """Returns those of torch's arguments for worker processes which were given.

    That is without ``worker_init_fn``, which torch takes in any case.

    Args:
        prefetch_factor: The argument.
        persistent_workers: The argument.
        multiprocessing_context: The argument.
        worker_init_fn: The argument.
        taken: torch takes them. Otherwise there are no workers, though the user did not say so; a
            warning says which arguments have no effect.
    """
    given = {
        "prefetch_factor": prefetch_factor,
        "persistent_workers": persistent_workers,
        "multiprocessing_context": multiprocessing_context,
    }
    if taken:
        return {name: value for name, value in given.items() if value is not None}
    if worker_init_fn is not None:
        given["worker_init_fn"] = worker_init_fn
    idle = ", ".join(f"{name}={value!r}" for name, value in given.items() if value)
    if idle:
        log.warning(
            "%s: no effect, because num_workers is not given and this loader starts no workers; "
            "give num_workers=, or leave it out",
            idle,
        )
    return {}


def check_waiting(timeout: float, workers: int, dataset: object) -> None:
    """Checks the timeout of a loader whose items Python makes.

    Raises:
        ConfigError: This process makes them itself, so it waits for nothing. torch's loader raises
            AssertionError in its first epoch.
    """
    if timeout and not workers and not isinstance(dataset, IterableDataset):
        raise ConfigError(
            f"timeout={timeout}: no meaning for a dataset of the class {type(dataset).__name__} "
            "without workers, as this process makes the items itself; give num_workers=1 or more, "
            "or leave it out"
        )


def check_settable(loader: object, name: str) -> None:
    """Checks that an attribute of a loader may be set after it was made.

    Raises:
        ValueError: It may not; torch's own class raises the same for others.
    """
    if name in _SETTLED or name in KEYS:
        raise ValueError(
            f"{name} attribute should not be set after {type(loader).__name__} is initialized: "
            "make a new loader"
        )


def spell_out_keys(loader: Any) -> None:
    """Gives a loader's signature one parameter for each configuration key.

    Frameworks which make a loader anew read the names of its arguments from the signature, and
    their values from its attributes.
    """
    signature = inspect.signature(loader.__init__)
    loader.__init__.__signature__ = signature.replace(
        parameters=[
            *(p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD),
            *(inspect.Parameter(key, inspect.Parameter.KEYWORD_ONLY, default=None) for key in KEYS),
        ]
    )


def _is_shared(
    shard: bool | None,
    rank: int | None,
    world_size: int | None,
    sampler: object,
    batch_sampler: object,
) -> bool:
    """Reports whether ranks share each epoch because of the loader's own arguments."""
    given = rank is not None or world_size is not None
    if given and shard is False:
        raise ConfigError(
            "shard=False contradicts rank and world_size, which say which part of each epoch this "
            "rank gets; leave one of them out"
        )
    if (given or shard) and isinstance(sampler, DistributedSampler):
        if given:
            raise ConfigError(
                "rank and world_size: the DistributedSampler has them already; leave them out"
            )
        return False  # the sampler does it
    if (given or shard) and (sampler is not None or batch_sampler is not None):
        raise ConfigError(
            f"shard=True contradicts {'sampler' if sampler is not None else 'batch_sampler'}, "
            "which decides itself which samples this rank gets; leave one of them out, or give a "
            "DistributedSampler"
        )
    return bool(given or shard)


def _settled_seed(
    seed: int | None,
    shuffle: bool | str | None,
    sampler: object,
    batch_sampler: object,
    generator: torch.Generator | None,
    epochs: int | None,
    shared: bool,
) -> int | None:
    """Returns the seed of the order; None: there is none, or it is drawn."""
    ordered = sampler is not None or batch_sampler is not None
    for name, value in (("seed", seed), ("epochs", epochs)):
        if value is not None and shuffle is None and not ordered:
            raise ConfigError(
                f"{name}={value}, but neither shuffle nor sampler is given: as in torch, the "
                "default is shuffle=False, which delivers every epoch by ID; give shuffle=True "
                "for a random order, or shuffle=False to keep this one"
            )
    if ordered and seed is not None:
        seeds = _seeds_of(sampler if batch_sampler is None else batch_sampler)
        if seed not in seeds:
            log.warning(
                "seed=%s is ignored: the sampler's own seed (%s) applies",
                seed,
                getattr(sampler, "seed", "none"),
            )
            return None
    if generator is not None and shuffle and (seed is not None or shared):
        raise ConfigError(
            f"generator contradicts {'seed' if seed is not None else 'shard'}: the order is that "
            "of DistributedSampler, which draws from no generator; leave generator out, and give "
            "seed"
        )
    return seed


def _seeds_of(sampler: object) -> Iterable[object]:
    return [getattr(part, "seed", None) for _, part in parts(sampler)]
