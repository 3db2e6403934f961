"""A loader's saved state, and where a loader is."""

from __future__ import annotations

import array
import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from .._lib.arguments import whole_number
from .._lib.typing import Opened
from .._transforms.keys import SCHEME
from ..errors import ConfigError, MismatchError
from .delivered import Part

#: What the order of a loader depends on besides its subset, in the order of comparison.
_SPEC = ("shuffle", "scheme", "tail", "drop_last")
_COMPARED = ("global_batch", "fingerprint", "samples", "seed", *_SPEC, "subset", "mix", "order")


class Cursor:
    """Where a loader is, in positions: batches from the start of the run.

    Attributes:
        start: Where the next iteration begins.
        position: The next batch: of the last iteration, or ``start`` if the user has set that since
            the iteration's last batch.
        end: The position after the last iteration's epoch.
        jumped: ``start`` was set by the user, not reached by iterating.
        iteration: The number of the last iteration, which alone moves ``position``.
        delivered: What the last iteration and those before it yielded without a gap.
        earlier: The parts before it, as states have them.
    """

    __slots__ = ("delivered", "earlier", "end", "iteration", "jumped", "position", "start")

    def __init__(self) -> None:
        self.start = self.position = self.end = self.iteration = 0
        self.jumped = False
        self.delivered = Part(0, 0, 0, 0)
        self.earlier: tuple[dict[str, Any], ...] = ()

    @property
    def next(self) -> int:
        """The position of the batch that the user gets next."""
        return self.start if self.position == self.end else self.position

    def give_back(self, number: int) -> None:
        """Has the next iteration begin where the last one did, of this number, which has no batch.

        If that one goes on after all, it takes its epoch again with its next batch.
        """
        if self.iteration == number and not self.jumped:
            self.start = self.position

    def settle(self, position: int) -> None:
        """Has the first iteration begin at ``position``, unless the user has said where."""
        if not (self.jumped or self.iteration):
            self.start = self.position = position

    def jump(self, position: int) -> None:
        """Has the next iteration begin at ``position``."""
        self.start = self.position = position
        self.jumped = True

    def follow(self, other: Cursor) -> None:
        """Goes to where another loader of the same steps is."""
        self.start, self.position, self.jumped = other.start, other.position, other.jumped
        self.end, self.delivered, self.earlier = other.end, other.delivered, other.earlier


def identity(
    spec: Mapping[str, object], opened: Opened, subset: array.array[int] | None
) -> dict[str, Any]:
    """Returns what the order of a loader's batches depends on.

    Args:
        spec: OPEN's ``stream`` object.
        opened: The OPENED object.
        subset: IDs of the samples that the stream is over; None means all samples.
    """
    digest = None
    if subset is not None:
        digest = hashlib.blake2b(subset.tobytes(), digest_size=8).hexdigest()
    mixed = {} if spec.get("mix") is None else {"mix": spec["mix"]}
    return {
        **mixed,
        "fingerprint": opened["fingerprint"],
        "samples": opened["samples"],
        "seed": int(opened["seed"]),
        "subset": digest,
        "order": opened.get("order"),
        **{key: spec[key] for key in (*_SPEC, "global_batch")},
    }


def save(
    mine: Mapping[str, object], steps: int, position: int, delivered: Sequence[dict[str, Any]]
) -> dict[str, Any]:
    """Returns a loader's state.

    Args:
        mine: Its :func:`identity`.
        steps: Batches per epoch.
        position: Where it is.
        delivered: What its rank was given so far (:func:`hdmlp._loading.delivered.parts`).
    """
    epoch, step = divmod(position, steps) if steps else (0, 0)
    return {
        "version": 1,
        "random": SCHEME,
        "epoch": epoch,
        "step": step,
        "steps": steps,
        **mine,
        "delivered": list(delivered),
    }


def check_scheme(state: Mapping[str, object]) -> None:
    """Checks that a state is of a loader that drew random numbers as this release does.

    Raises:
        ConfigError: It is not.
    """
    scheme = state.get("random")
    if scheme == SCHEME:
        return
    if isinstance(scheme, int) and scheme > SCHEME:
        raise ConfigError(
            f"state['random']={scheme}: a later release of HDMLP saved the state, and its "
            "transforms draw other random numbers than this one's: resume with that release"
        )
    raise ConfigError(
        "HDMLP 0.2 saved the state, and its transforms drew other random numbers than this "
        "release's: resume with it (pip install 'hdmlp==0.2.*'), or set "
        f"state['random'] = {SCHEME} to go on in the same order with other random numbers"
    )


def position_in(state: Mapping[str, object], steps: int) -> int:
    """Returns the position that a state has.

    Raises:
        ConfigError: There is no such position.
    """
    epoch = whole_number("state['epoch']", state.get("epoch"), 0)
    step = whole_number("state['step']", state.get("step"), 0)
    if step >= max(steps, 1) or epoch >> 32:
        raise ConfigError(
            f"state['epoch']={epoch}, state['step']={step}: out of range, an epoch of this loader "
            f"has {steps} steps, 0 to {steps - 1}: make the loader with the dataset and batch size "
            "of the loader that saved the state"
        )
    return epoch * steps + step


def check(state: object) -> dict[str, Any]:
    """Returns ``state`` if it is one of a loader whose order follows from its arguments.

    Raises:
        ConfigError: It is not.
    """
    if not isinstance(state, dict) or state.get("version") != 1:
        raise ConfigError(f"not a state of an HDMLP loader: {state!r:.200}")
    if state.get("kind") == "sampler":
        raise ConfigError(
            "the state is of a loader whose order a sampler drew, and this one's follows from a "
            "seed or is by ID: make the loader as that one was made, with its sampler, or with "
            "shuffle=True and without seed"
        )
    check_scheme(state)
    return state


def compare(
    state: Mapping[str, object], mine: Mapping[str, object], dataset: str, world_size: int
) -> None:
    """Compares a state with a loader's :func:`identity`.

    Args:
        state: The state.
        mine: The identity.
        dataset: What messages call the dataset.
        world_size: The number of ranks.

    Raises:
        MismatchError: They differ, and so would the batches.
    """
    for key in _COMPARED:
        theirs = state.get(key)
        if key == "order" and not state.get("step"):
            continue  # each epoch has an order of its own
        if theirs != mine.get(key):
            raise differs(key, mine.get(key), theirs, dataset, world_size)


def named(dataset: object) -> str:
    """Returns what messages call a dataset."""
    while not hasattr(dataset, "root") and hasattr(dataset, "dataset"):  # torch's Subset
        dataset = dataset.dataset
    root = getattr(dataset, "root", None)
    return f"the dataset {root}" if isinstance(root, str) else "the dataset"


def differs(
    key: str, mine: object, theirs: object, dataset: str, world_size: int = 1, where: str = ""
) -> MismatchError:
    """Returns the error for a state that differs from a loader in a key.

    Args:
        key: The key.
        mine: The loader's value.
        theirs: The state's value.
        dataset: What messages call the dataset.
        world_size: The number of ranks.
        where: What else to say of the saved state.
    """
    if key == "fingerprint":
        advice = (
            f"{dataset} was changed after the state was saved, or it is another one; resume with "
            "the same files, modification times included, or begin anew without the state"
        )
    elif key == "samples":
        advice = (
            f"{dataset} has another number of samples than then; resume with the same one, or "
            "begin anew without the state"
        )
    elif key == "global_batch":
        advice = "batch_size times the number of ranks must be the same"
        if isinstance(theirs, int) and theirs > 0 and theirs % world_size == 0:
            ranks = "1 rank" if world_size == 1 else f"{world_size} ranks"
            advice += f": with {ranks}, make the loader with batch_size={theirs // world_size}"
    elif key in ("scheme", "tail"):
        advice = "make a loader of the same class, and with the same drop_last, as the state's"
    elif key == "subset":
        advice = (
            f"these are hashes of the indices into {dataset}, None if all samples are read; make "
            "the loader with the same indices in the same order"
        )
    elif key == "mix":
        advice = (
            "None is that of a single dataset: make the hdmlp.torch.Mix with the same datasets in "
            "the same order, weights, epoch_size, stopping_strategy and batches"
        )
    elif key == "order":
        theirs = theirs or "the order that was asked for"
        mine = mine or "the order that was asked for"
        advice = (
            "in the middle of an epoch it must be the same, and it depends on the policy, its "
            "options, the ranks, the nodes and the configured sizes of their caches: make the "
            "loader as then, or begin at the start of an epoch"
        )
    else:
        advice = f"make the loader with {key}={theirs!r}"
    return MismatchError(
        f"{key} is {mine!r} here, but {theirs!r} in the saved state{where}: {advice}",
        {"key": key, "mine": mine, "theirs": theirs},
    )
