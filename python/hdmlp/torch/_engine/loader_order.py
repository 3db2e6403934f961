"""The order of a loader, as far as the daemon computes it, and the epoch that comes next."""

from __future__ import annotations

import functools
import inspect
import logging
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils.data import DataLoader, IterableDataset
from torch.utils.data.distributed import DistributedSampler
from torch.utils.data.sampler import BatchSampler, RandomSampler

from ..._launch.processors import not_started
from ..._lib.arguments import whole_number
from ...errors import ConfigError, MismatchError
from .._data.items import length_of
from .._data.mix import Mix
from .._order.drawn import parts
from .._order.known import OURS, Known, Seeded, Shared, asked_epoch, is_shared_as_torch, known
from .._order.mixed import Mixed
from .._order.ranks import Ranks
from .content import Content
from .loader_arguments import Arguments
from .served import Served

log = logging.getLogger("hdmlp")

_PREFETCH_FACTOR = inspect.signature(DataLoader.__init__).parameters["prefetch_factor"].default


class Ordering:
    """The order of a loader which the daemon serves, and where it comes from.

    The loader is passed to each method and not kept, so that there is no reference cycle.

    Args:
        arguments: The loader's own arguments.
        content: What it delivers.
        ranks: Which rank it is.
        sampler: Its sampler.

    Attributes:
        known: The order; None: only iterating the sampler reveals it.
    """

    def __init__(self, arguments: Arguments, content: Content, ranks: Ranks, sampler: object):
        self._arguments = arguments
        self._content = content
        self._ranks = ranks
        # The sampler's epoch when it was last seen; a different one was set by the user.
        self._sampler_epoch: int = getattr(sampler, "epoch", 0)
        # What random numbers of transforms follow from if no seed was given.
        self._drawn_seed: int | None = None
        # The dataset's length, by which a DistributedSampler has divided it.
        self._length: int | None = None
        self._iterated = False
        # The batch sampler that the loader was made with; the program may put another in its place.
        self._batches: object = None
        self._positioned = False  # by set_epoch() or load_state_dict() of the loader
        self._tuned = self._draws_mix = False
        self._warned = False
        self._warned_of_nothing = False
        self.known: Known | None = None

    def begin(self, loader: DataLoader[object], tuned: bool, said: str) -> None:
        """Finds the order of a new loader.

        Args:
            loader: The loader.
            tuned: The number of its workers was tuned automatically.
            said: What to log about that.

        Raises:
            ConfigError: There is no such order of single items.
        """
        if self._arguments.order == "feistel" and loader.batch_size is None:
            raise ConfigError(
                "shuffle='feistel' with batch_size=None: single items come in torch's orders "
                "only; give a batch_size (1 for single samples), or shuffle=True"
            )
        if self._arguments.scheme != "strided" and loader.batch_size is None:
            raise ConfigError(
                f"scheme={self._arguments.scheme!r} with batch_size=None: it says how ranks share "
                "batches; give a batch_size, or leave it out"
            )
        if "policy" in self._arguments.keys and loader.batch_sampler is None:
            raise ConfigError(
                f"policy={self._arguments.keys['policy']!r} with batch_size=None: single items are "
                "read as they are asked for, and under no policy; give a batch_size (1 for single "
                "samples), or leave policy out"
            )
        if isinstance(loader.sampler, DistributedSampler) and not self._arguments.shard:
            self._length = length_of(loader.dataset)
        self._batches, self._tuned = loader.batch_sampler, tuned
        self._draws_mix = isinstance(loader.sampler, Mixed) and loader.sampler.shuffle
        self.known = self.find(loader)
        if self.known is None and tuned:
            _untune(loader)
            said = said and not_started("the sampler's order depends on their number, as in torch")
        if said:
            log.warning("%s", said)

    def find(self, loader: DataLoader[object]) -> Known | None:
        """Returns the order that the daemon computes, as the loader's sampler is now."""
        arguments = self._arguments
        if self._content.folder is None or loader.batch_size is None:
            return None
        if isinstance(loader.sampler, Mixed):
            drawn = "feistel" if loader.sampler.shuffle else "none"
            if arguments.scheme != "strided":
                raise ConfigError(
                    f"scheme={arguments.scheme!r}: the batches of a Mix are shared as torch's "
                    "DistributedSampler shares them; leave scheme out"
                )
            if arguments.shard:
                return Known(drawn, arguments.seed, None, None, not loader.drop_last, None)
            return Known(drawn, loader.sampler.seed, 1, 0, True, None)
        if arguments.shard and not is_shared_as_torch() and arguments.order != "feistel":
            if arguments.scheme != "strided":
                raise ConfigError(
                    f"scheme={arguments.scheme!r}: torch's DistributedSampler or BatchSampler was "
                    "replaced by the program, and decides how ranks share batches: leave scheme out"
                )
            return None
        if arguments.shard:
            pad, scheme = not loader.drop_last, arguments.scheme
            return Known(arguments.order, arguments.seed, None, None, pad, None, scheme)
        if arguments.order == "feistel":
            return Known(arguments.order, arguments.seed, 1, 0, True, None)
        order = known(loader.dataset, loader.sampler, loader.batch_sampler)
        if order is None:
            return None
        if order.follows is not None:
            assert order.replicas is not None
            # A job has each rank once, so it cannot serve several ranks with the same place.
            return None if self._ranks.in_groups(order.replicas) else order
        return order._replace(seed=arguments.seed) if order.shuffle == "none" else order

    @property
    def draws(self) -> bool:
        """Reports whether transforms use what torch draws when the loader is iterated."""
        return (
            self.known is not None
            and self.known.seed is None
            and not self._arguments.shard
            and (self._content.draws or self._draws_mix)
        )

    # The seed.

    def seed_for(self, loader: DataLoader[object], was: Served | None) -> int | None:
        """Returns the seed of the job; None: the daemon draws it.

        Args:
            loader: The loader.
            was: What served it before.
        """
        if self.known is not None and self.known.seed is not None:
            return self.known.seed
        if self._arguments.shard:
            return None if was is None else was.seed
        if self._drawn_seed is None and self.draws:
            self._drawn_seed = _next_draw(loader.generator)
        return self._drawn_seed or 0

    def note_seed(self, engine: Served) -> None:
        """Notes the seed after a state was loaded."""
        self._positioned = True
        if self.known is not None and self.known.seed is None:
            self._drawn_seed = engine.seed

    def seed_of_state(self, loader: DataLoader[object], state: object) -> int | None:
        """Returns the seed of a state for a loader which is shuffled without one; else None.

        Raises:
            ConfigError: The loader has a generator, or the seed is not a number.
        """
        if (
            self._arguments.seed is not None
            or self._arguments.shard
            or self._arguments.order != "torch"
            or type(loader.sampler) is not RandomSampler
            or not isinstance(state, dict)
        ):
            return None
        seed = state.get("seed")
        if seed is None:
            return None
        if loader.generator is not None:
            raise ConfigError(
                f"the state is of a loader with seed={seed}, and this one draws from its "
                f"generator: leave generator out, and give seed={seed}"
            )
        return whole_number("state['seed']", seed, 0)

    def check_state(self, loader: DataLoader[object], state: object) -> None:
        """Checks that a state can be one of a ``DistributedSampler``'s order, if this loader's is.

        A framework puts such a sampler in, which the program does not see.

        Args:
            loader: The loader.
            state: The state.

        Raises:
            ConfigError: Another sampler drew the order.
            MismatchError: The order has another seed.
        """
        if self.known is None or self.known.follows is None or not isinstance(state, dict):
            return
        if self.is_empty(loader):
            return
        if state.get("kind") == "sampler":
            raise ConfigError(
                "the state is of a loader whose order another sampler drew (for shuffle=True on 1 "
                "rank, torch's RandomSampler), and this loader has a DistributedSampler, given by "
                "the program or, on several ranks, by a framework such as Lightning; the two "
                "orders differ: resume with the sampler, or under a framework with the number of "
                "ranks, with which the state was saved; or begin anew with shard=True and no "
                "sampler, whose order is the same with any number of ranks"
            )
        mine, theirs = self.known.follows.seed, state.get("seed")
        if isinstance(theirs, int) and theirs != mine:
            raise MismatchError(
                f"seed is {mine} here, from the DistributedSampler, but {theirs} in the saved "
                f"state: make the DistributedSampler with seed={theirs}; if Lightning makes it, "
                f"call seed_everything({theirs}), or give the loader shard=True from the start, "
                "which keeps its own seed",
                {"key": "seed", "mine": mine, "theirs": theirs},
            )

    def adopt_seed(self, loader: DataLoader[object], seed: int) -> Arguments:
        """Replaces the sampler of a loader which is shuffled without a seed by one with a seed."""
        self._arguments = self._arguments.with_seed(seed)
        sampler = Seeded(loader.dataset, seed)
        # torch's own __setattr__ refuses changes after __init__.
        object.__setattr__(loader, "sampler", sampler)
        if loader.batch_size is not None:
            batches = BatchSampler(sampler, loader.batch_size, loader.drop_last)
            object.__setattr__(loader, "batch_sampler", batches)
            self._batches = batches
        self.known = self.find(loader)
        return self._arguments

    def replaced(self, loader: DataLoader[object]) -> bool:
        """Reports whether the batch sampler was replaced, and with it the order that was known.

        Ultralytics' and timm's loaders do this when they are made: theirs never ends, so that
        workers stay. What it yields counts from then on, as with ``batch_sampler=``.

        Raises:
            ConfigError: The order is that of arguments, or batches were delivered in another one.
        """
        if self.known is None or loader.batch_sampler is self._batches:
            return False
        own = self._arguments
        name, now = type(loader).__name__, type(loader.batch_sampler).__name__
        if own.shard or own.order == "feistel" or own.epochs is not None:
            raise ConfigError(
                f"batch_sampler of the {name} was replaced by {now} after it was made, and its "
                "order follows from shard=, shuffle='feistel' or epochs=: make the loader without "
                "these, and with a sampler, or do not replace batch_sampler"
            )
        if self._iterated or self._positioned:
            raise ConfigError(
                f"batch_sampler of the {name} was replaced by {now} after it was iterated, or "
                "after its position was set: make a new loader with batch_sampler="
            )
        self.known = None
        if self._tuned:
            _untune(loader)
        return True

    # The epoch.

    def check_length(self, loader: DataLoader[object], epoch: int) -> None:
        """Checks that the dataset has the length by which a DistributedSampler divided it.

        Raises:
            ConfigError: It has another one.
        """
        if self._length is None:
            return
        length = length_of(loader.dataset)
        if length != self._length:
            raise ConfigError(
                f"epoch {epoch}: the {type(loader.dataset).__name__} has {length} items, and had "
                f"{self._length} when the loader was made, which its DistributedSampler divides: "
                "make both anew"
            )

    @staticmethod
    def check_batches(loader: DataLoader[object]) -> None:
        """Checks that the batch sampler still makes the batches that the daemon was sent.

        Raises:
            ConfigError: Its attributes were changed.
        """
        for name in ("batch_size", "drop_last"):
            mine, now = getattr(loader, name), getattr(loader.batch_sampler, name, None)
            if now != mine:
                raise ConfigError(
                    f"batch_sampler.{name} is {now!r} now, and the loader was made with "
                    f"{name}={mine!r}: make a new loader with {name}={now!r}"
                )

    def draw_as_torch(self, loader: DataLoader[object]) -> None:
        """Draws what torch's loader draws for its workers when it is iterated."""
        if not (self._iterated and loader.persistent_workers):
            torch.empty((), dtype=torch.int64).random_(generator=loader.generator)
        self._iterated = True

    def drops(self, loader: DataLoader[object]) -> bool:
        """Reports whether samples are left out at an epoch's end, by the loader or its sampler."""
        return loader.drop_last or (self.known is not None and not self.known.pad)

    def leaves_none(self, loader: DataLoader[object]) -> bool:
        """Reports whether there are no batches, if samples are left out at an epoch's end."""
        if self.known is None or self.known.scheme == "strided":
            return not DataLoader.__len__(loader)
        ranks = 1 if self.known.scheme == "whole" else self._ranks()[1]
        return len(loader.dataset) < (loader.batch_size or 1) * ranks  # type: ignore[arg-type]

    def is_empty(self, loader: DataLoader[object]) -> bool:
        """Reports whether drop_last, or the sampler's, leaves no batch."""
        try:
            return self.drops(loader) and self.leaves_none(loader)
        except (TypeError, NotImplementedError):  # the sampler has no length
            return False

    def say_empty(self, loader: DataLoader[object]) -> None:
        """Logs once that no batch is delivered because drop_last leaves none.

        torch warns of nothing, and a training loop then does nothing.
        """
        if not self.is_empty(loader):
            return
        samples = length_of(loader.dataset)
        if samples and not self._warned_of_nothing:
            self._warned_of_nothing = True
            log.warning(
                "the loader delivers no batches: drop_last leaves nothing, because batch_size=%d "
                "is more than this process gets of the dataset's %d samples; give a smaller "
                "batch_size, or drop_last=False",
                loader.batch_size,
                samples,
            )

    def iterate(self, loader: DataLoader[object], engine: Served) -> Iterator[object]:
        """Begins the next epoch, or the one that the sampler's ``epoch`` is.

        torch's loader asks its sampler at once if there are workers, else for the first batch.
        """
        self.draw_as_torch(loader)
        iteration: Any = iter(engine)
        if self.known is not None and self.known.follows is not None:
            # Others may begin before this one's first batch.
            epoch = self.known.follows.epoch if loader.num_workers else None
            iteration.before = functools.partial(self.follow_sampler, engine, epoch)
        elif isinstance(loader.sampler, OURS):
            follow = functools.partial(_go_to_asked, engine, loader.sampler)
            if loader.num_workers:
                follow()
            else:
                iteration.before = follow
        return iteration  # type: ignore[no-any-return]

    def set_first(self, engine: Served) -> None:
        """Sets the first epoch of the first engine to the sampler's.

        A sampler that is in epoch 0 goes to the engine's, which may have joined a group.
        """
        if self._sampler_epoch:
            engine.set_epoch(self._sampler_epoch)
        elif engine.next_epoch:
            self.resume(engine.next_epoch)

    def set_epoch(self, loader: DataLoader[object], epoch: int) -> None:
        """Sets the epoch of the sampler, or of the batch sampler and the one within it."""
        self._positioned = True
        batches = loader.batch_sampler
        for _, sampler in parts(loader.sampler if batches is None else batches):
            if hasattr(sampler, "set_epoch"):
                sampler.set_epoch(epoch)
                self._sampler_epoch = epoch
                asked_epoch(sampler)  # the loader itself is given it

    def resume(self, epoch: int) -> None:
        """Sets the epoch of the sampler that the order follows, if it follows one."""
        if self.known is not None and self.known.follows is not None:
            self._sampler_epoch = epoch
            self.known.follows.set_epoch(epoch)

    def follow_sampler(self, engine: Served, epoch: int | None = None) -> None:
        """Moves the engine to the epoch of the sampler that the order follows.

        Args:
            engine: The engine.
            epoch: The sampler's epoch when it was asked; None: it is asked now.
        """
        assert self.known is not None
        sampler = self.known.follows
        assert sampler is not None
        if epoch is None:
            epoch = sampler.epoch
        unchanged = epoch == self._sampler_epoch
        repeats = unchanged and engine.next_epoch == epoch + 1
        if repeats and not self._warned and (sampler.shuffle or self._content.transforms_draw):
            self._warned = True
            log.warning(
                "epoch %d of the DistributedSampler comes again: its order is the same, as in "
                "torch, and so are the random numbers of transforms; call "
                "sampler.set_epoch(epoch) before each epoch",
                epoch,
            )
        if not unchanged or not engine.fresh:
            self._sampler_epoch = epoch
            engine.set_epoch(epoch)


def sampler_for(
    arguments: Arguments,
    ranks: Ranks,
    dataset: Any,
    sampler: object,
    batches: tuple[object, int | None],
    drop_last: bool,
) -> tuple[object, bool]:
    """Returns the sampler with which torch's loader is made, and its ``shuffle``.

    Args:
        arguments: The loader's own arguments.
        ranks: Which rank it is.
        dataset: Its dataset.
        sampler: The user's sampler; None: there is none.
        batches: The user's batch sampler, or None, and ``batch_size``.
        drop_last: The argument.

    Raises:
        ConfigError: The dataset is a mix, whose order is its own.
    """
    shuffled = arguments.order != "none"
    seed = arguments.seed
    if isinstance(dataset, IterableDataset):
        return sampler, shuffled
    if isinstance(dataset, Mix):
        return _sampler_of(dataset, arguments, ranks, sampler, batches, drop_last), False
    if arguments.shard:
        return Shared(dataset, ranks, shuffled, seed or 0, drop_last, arguments.scheme), False
    if arguments.order == "torch" and seed is not None and sampler is None:
        return Seeded(dataset, seed), False
    return sampler, shuffled


def _sampler_of(
    mix: Mix,
    arguments: Arguments,
    ranks: Ranks,
    sampler: object,
    batches: tuple[object, int | None],
    drop_last: bool,
) -> Mixed:
    """Returns the sampler of a mix."""
    batch_sampler, batch_size = batches
    given = "sampler" if sampler is not None else "batch_sampler"
    if type(sampler) is Mixed and sampler.dataset is mix:
        return sampler  # a framework makes the loader anew
    if sampler is not None or batch_sampler is not None:
        raise ConfigError(
            f"{given}={type(sampler or batch_sampler).__name__} with a Mix, which itself says "
            "which sample comes when: leave it out, and give shuffle=True or False; on several "
            "ranks that share an epoch, shard=True instead of a DistributedSampler (Lightning's "
            "Trainer makes one unless use_distributed_sampler=False)"
        )
    if batch_size is None:
        raise ConfigError(
            "batch_size=None with a Mix: it has no single items; give a batch_size, 1 for single "
            "samples"
        )
    place = ranks if arguments.shard else None
    shuffled = arguments.order != "none"
    return Mixed(mix, place, batch_size, shuffled, arguments.seed, arguments.shard and drop_last)


def _go_to_asked(engine: Served, sampler: object) -> None:
    """Moves the engine to the epoch that the program set on the sampler, if it set one."""
    epoch = asked_epoch(sampler)
    if epoch is not None:
        engine.set_epoch(epoch)


def _next_draw(own: torch.Generator | None) -> int:
    """Returns what torch's loader draws when it is iterated next; the generator keeps its state."""
    generator = torch.default_generator if own is None else own
    now = generator.get_state()
    try:
        return int(torch.empty((), dtype=torch.int64).random_(generator=generator).item())
    finally:
        generator.set_state(now)


def _untune(loader: DataLoader[object]) -> None:
    """Has a loader no workers, torch's default: how far ahead it asks its sampler depends on it."""
    loader.num_workers, loader.prefetch_factor = 0, _PREFETCH_FACTOR
