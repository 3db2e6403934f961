"""The items of a script's datasets: which are looked at, and what is sent of them."""

from __future__ import annotations

import contextlib
import copy
import functools
import operator
import os
import threading
import weakref
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Callable

from hdmlp_analyze.channel import SETTINGS, Channel, Gone

from .checking import Expressions
from .expressions import Found, Item, Paths, is_concatenation, item_of
from .looking import Look, size_of

#: Names the dataset of which a worker makes items, in the worker's environment.
_NUMBER = "HDMLP_LEARN_DATASET"
#: Fewer bytes that no open file explains are none; and so many of each file that is opened, of
#: which a library may read parts several times.
_LEAST, _AGAIN = 4096, 16384


class _Sender:
    """This process's connection to the command."""

    def __init__(self) -> None:
        self._turn = threading.Lock()
        self._channel: Channel | None = None
        self.over = False

    def send(self, event: str, **content: Any) -> None:
        """Sends an event; if the command has ended, nothing is looked at any more."""
        with self._turn:
            try:
                if self._channel is None:
                    self._channel = Channel()
                self._channel.send(event, **content)
            except Gone:
                self.over = True


def _reference(value: Any) -> Callable[[], Any]:
    """Returns what returns the value: it does not keep it, if it can be helped."""
    try:
        return weakref.ref(value)
    except TypeError:
        return lambda: value


class _Dataset:
    """What this process has looked at of a dataset.

    Args:
        dataset: The dataset.
        number: Its number in the program, counted from 1.
    """

    def __init__(self, dataset: Any, number: int):
        self.number = number
        self._reference = _reference(dataset)
        try:
            self.length: int | None = len(dataset)
        except Exception:
            self.length = None
        self._first: set[int] = set()
        self._expressions: dict[str, Expressions] = {}

    @property
    def of(self) -> Any:
        """The dataset; None: it is gone."""
        return self._reference()

    def includes(self, index: object) -> bool:
        """Reports whether an item is looked at.

        Half of the items are the first that the process makes; the others are the same in all
        epochs and workers, so that what varies between epochs is seen.
        """
        if _sender.over:
            return False
        try:
            number = operator.index(index)  # type: ignore[arg-type]
        except TypeError:
            return False
        most: int = SETTINGS["items"]
        if len(self._first) < (most + 1) // 2:
            self._first.add(number)
        if number in self._first or self.length is None:
            return number in self._first
        spread = (number * 0x9E3779B97F4A7C15 & 0xFFFFFFFFFFFFFFFF) / 2**64
        return self.length <= most or spread < most / 2 / self.length

    def sent(self, look: Look, indices: Sequence[int], failed: BaseException | None) -> None:
        """Sends what was seen.

        Of items that were made at once, a file is of that whose number an expression gives for
        most of them, or else of the last.
        """
        items = [self._paths(index) for index in indices]
        found = [{path: p.of(path) if p else [] for path in look.how} for p, _ in items]
        owners = _owners(found, list(look.how))
        for place, index in enumerate(indices):
            _, error = items[place]
            files = [_file(path, how) for path, how in look.how.items() if owners[path] == place]
            last = place == len(indices) - 1
            self._send(index, files, look if last else None, failed, error)
            if not error:
                opened = [file["path"] for file in files]
                expressions = [each for path in opened for each in found[place][path]]
                self._of(index).look(index, opened, expressions)

    def likely(self, indices: Iterable[int]) -> list[str]:
        """Returns files that items may read."""
        return [path for index in indices if (p := self._paths(index)[0]) for path in p.likely()]

    def _paths(self, index: int) -> tuple[Paths | None, str]:
        try:
            return Paths(self._item(index)), ""
        except Exception as error:  # of the dataset's own code, or of a kind that is not foreseen
            return None, repr(error)

    def _item(self, index: int) -> Item:
        return item_of(self.of, index)

    def _kind(self, index: int) -> str:
        """Returns the class of an item's part of a ``ConcatDataset``; empty: it is none."""
        if not is_concatenation(self.of):
            return ""
        try:
            return type(self._item(index).dataset).__name__
        except Exception:
            return ""

    def _of(self, index: int) -> Expressions:
        """Returns the expressions of an item's dataset, or of such parts."""
        kind = self._kind(index)
        if kind not in self._expressions:
            send = functools.partial(self._event, kind=kind)
            self._expressions[kind] = Expressions(f"{self.number}-{kind}", self._item, send)
        return self._expressions[kind]

    def _event(self, event: str, **content: Any) -> None:
        _sender.send(event, dataset=self._described(), **content)

    def _described(self) -> dict[str, Any]:
        cls = type(self.of)
        module = "" if cls.__module__ == "__main__" else cls.__module__ + "."
        return {
            "number": self.number,
            "class": module + cls.__qualname__,
            "length": -1 if self.length is None else self.length,
        }

    def _send(
        self,
        index: int,
        files: list[dict[str, Any]],
        look: Look | None,
        failed: BaseException | None,
        error: str,
    ) -> None:
        least = _LEAST + _AGAIN * len(files)
        unseen = 0 if look is None or look.unseen <= least else look.unseen
        self._event(
            "item",
            index=index,
            kind=self._kind(index),
            files=files,
            unseen=unseen,
            held=look.held if look is not None and unseen else [],
            mapped=look.mapped if look is not None else [],
            failed="" if failed is None else type(failed).__name__,
            problem=error,
        )


def _owners(found: Sequence[Mapping[str, Sequence[Found]]], paths: Sequence[str]) -> dict[str, int]:
    """Returns the place of the item that each file is of.

    Args:
        found: By item, the expressions for each file.
        paths: The files.
    """
    votes = Counter(
        text for item in found for text in {each.text for of in item.values() for each in of}
    )
    owners = {}
    for path in paths:
        most, owners[path] = 0, len(found) - 1
        for place, item in enumerate(found):
            best = max((votes[each.text] for each in item[path]), default=0)
            if best > most:
                most, owners[path] = best, place
    return owners


def _file(path: str, how: str) -> dict[str, Any]:
    return {"path": path, "size": size_of(path), "how": how}


#: By the address of a dataset, what this process has looked at.
_datasets: dict[int, _Dataset] = {}
#: How many datasets this process has had.
_count = 0
_turn = threading.Lock()
_sender = _Sender()


def _forget() -> None:
    """Has a forked process use a connection of its own, and count the items that it makes."""
    global _sender, _turn
    over = _sender.over
    _sender, _turn = _Sender(), threading.Lock()
    _sender.over = over
    for address, known in list(_datasets.items()):
        _datasets[address] = _Dataset(known.of, known.number)


os.register_at_fork(after_in_child=_forget)


def _known(dataset: Any) -> _Dataset:
    """Returns what this process has looked at of a dataset."""
    global _count
    with _turn:
        known = _datasets.get(id(dataset))
        if known is None or known.of is not dataset:
            _count += 1
            known = _Dataset(dataset, int(os.environ.get(_NUMBER, _count)))
            _datasets[id(dataset)] = known
        return known


class Watched:
    """A dataset whose items are looked at, in the place of that of a fetcher.

    Args:
        dataset: The dataset.
    """

    def __init__(self, dataset: Any):
        self._dataset, self._known = dataset, _known(dataset)
        if getattr(dataset, "__getitems__", None):
            self.__getitems__ = self._items

    def __getattr__(self, name: str) -> Any:
        if name == "_dataset":  # a copy of this object that is being made
            raise AttributeError(name)
        return getattr(self._dataset, name)

    def __getitem__(self, index: Any) -> Any:
        if not self._known.includes(index):
            return self._dataset[index]
        return self._looked([operator.index(index)], lambda: self._dataset[index])

    def _items(self, indices: Any) -> Any:
        if _is_one_by_one(self._dataset):
            return [self[index] for index in indices]
        wanted = [operator.index(i) for i in indices if self._known.includes(i)]
        if len(wanted) < len(indices):
            return self._dataset.__getitems__(indices)
        return self._looked(wanted, lambda: self._dataset.__getitems__(indices))

    def _looked(self, indices: Sequence[int], make: Callable[[], Any]) -> Any:
        look = self._begin(indices)
        if look is None:
            return make()
        failed: BaseException | None = None
        try:
            return make()
        except BaseException as error:
            failed = error
            raise
        finally:
            self._end(look, indices, failed)

    # The program must run as if nothing were looked at.

    def _begin(self, indices: Sequence[int]) -> Look | None:
        try:
            look = Look(self._known.likely(indices))
            look.begin()
            return look
        except Exception as error:
            _give_up(error)
            return None

    def _end(self, look: Look, indices: Sequence[int], failed: BaseException | None) -> None:
        try:
            look.end()
            self._known.sent(look, indices, failed)
        except Exception as error:
            _give_up(error)


def _give_up(error: Exception) -> None:
    """Looks at no more items in this process."""
    _sender.send("refused", text=f"an item could not be looked at: {error!r}")
    _sender.over = True


def _is_one_by_one(dataset: Any) -> bool:
    """Reports whether a dataset is a subset of torch's, which makes items one by one."""
    many = getattr(type(dataset), "__getitems__", None)
    return (
        getattr(many, "__module__", "") == "torch.utils.data.dataset"
        and getattr(many, "__qualname__", "") == "Subset.__getitems__"
        and not callable(getattr(dataset.dataset, "__getitems__", None))
    )


def change_fetcher(module: Any) -> None:
    """Has the fetchers of torch's loaders look at items."""
    fetcher = module._MapDatasetFetcher
    begin: Callable[..., None] = fetcher.__init__

    @functools.wraps(begin)
    def begun(self: Any, dataset: Any, *args: Any, **kwargs: Any) -> None:
        begin(self, dataset, *args, **kwargs)
        self.dataset = Watched(dataset)

    fetcher.__init__ = begun


def change_loader(module: Any) -> None:
    """Has the workers of torch's loaders find the number of their dataset."""
    loader = module.DataLoader
    iterate: Callable[[Any], Any] = loader.__iter__

    @functools.wraps(iterate)
    def iterated(self: Any) -> Any:
        if isinstance(self.dataset, module.IterableDataset):
            return iterate(self)
        with _numbered(self.dataset):
            return iterate(self)

    loader.__iter__ = iterated


@contextlib.contextmanager
def _numbered(dataset: Any) -> Iterator[None]:
    """Has processes that are started find the number of a dataset in their environment."""
    os.environ[_NUMBER] = str(_known(dataset).number)
    try:
        yield
    finally:
        os.environ.pop(_NUMBER, None)


def change_items(module: Any) -> None:
    """Has hdmlp's loaders look at items of datasets that they do not read themselves."""
    items = module.Items
    make: Callable[..., Any] = items._batch

    @functools.wraps(make)
    def made(self: Any, *args: Any, **kwargs: Any) -> Any:
        watched = copy.copy(self)
        watched.dataset = Watched(self.dataset)
        return make(watched, *args, **kwargs)

    items._batch = made
