"""What all loaders have in common: a job opened as one rank, iterated epoch by epoch.

The loader counts the batches that it has yielded; the stream, or the workers in
front of it, run ahead. Whatever interrupts an iteration (``break``, Ctrl-C, an
exception in a transform), the next one says from which position on it wants batches,
and the stream goes there.
"""

from __future__ import annotations

import atexit
import inspect
import logging
import os
import secrets
import time
import weakref
from typing import Any, Dict, Iterator, List, Optional, Union

from . import _daemon, _launcher
from ._arguments import configuration, settings, whole_number
from ._output import Output
from ._progress import Progress
from ._protocol import audit_sum
from ._reports import Explanation, Report, Stats
from ._stream import Stream, Taken, column
from .errors import (AuditError, BusyError, ClosedError, ConfigError, DatasetError,
                     DatasetNotFoundError, EndError, MismatchError)

log = logging.getLogger("hdmlp")

_loaders: "weakref.WeakSet[Loader]" = weakref.WeakSet()

_SHUFFLES = {True: "torch", False: "none", "torch": "torch", "feistel": "feistel", "none": "none"}


@atexit.register
def _close_all() -> None:
    for loader in list(_loaders):
        loader.close()


class Loader:
    """The loaders' common part; see :class:`hdmlp.data.DataLoader` and :class:`hdmlp.torch.DataLoader`.

    A sub-class says in ``_make`` what becomes of a batch. A loader is for one thread at
    a time. In a process forked from its own it opens a connection of its own when it is used.
    """

    def __init__(self, dataset: Any, *, local_batch: Optional[int] = None,
                 global_batch: Optional[int] = None, shuffle: Union[bool, str] = True,
                 epochs: Optional[int] = None, seed: Optional[int] = None,
                 rank: Optional[int] = None, world_size: Optional[int] = None,
                 scheme: str = "strided", tail: str = "pad", drop_last: bool = False,
                 timeout: float = 0, name: Optional[str] = None, verify: bool = False,
                 config_file: Optional[str] = None, keys: Optional[Dict[str, Any]] = None,
                 transforms: Optional[List[Dict[str, Any]]] = None):
        self._transforms = transforms or None  # what the daemon does with samples
        self._stream: Optional[Stream] = None
        self._source: Any = None   # the stream, or the workers in front of it
        self._closed = False
        if shuffle not in _SHUFFLES:
            raise ConfigError(f"shuffle={shuffle!r}: must be True, False, 'torch', 'feistel' or 'none'")
        if seed is not None:
            seed = whole_number("seed", seed, 0)
            if seed >> 64:
                raise ConfigError(f"seed={seed}: must be below 2^64")
        if not isinstance(timeout, (int, float)) or not timeout >= 0:
            raise ConfigError(f"timeout={timeout!r}: must be 0 or more seconds")
        self.dataset = dataset
        self.epochs = None if epochs is None else whole_number("epochs", epochs, 1)
        self.drop_last = bool(drop_last)
        self.timeout = timeout
        self._place = _launcher.find(rank, world_size)
        if global_batch is None:
            global_batch = local_batch * self._place.world_size
        self._name = str(_launcher.next_ordinal() if name is None else name)
        self._verify = bool(verify)
        self._config_file = config_file
        named = [p for p in inspect.signature(type(self).__init__).parameters if p not in ("self", "keys")]
        self._arguments = configuration(keys or {}, named)
        self._spec = {"seed": seed, "epochs": self.epochs or 0, "global_batch": global_batch,
                      "drop_last": self.drop_last, "shuffle": _SHUFFLES[shuffle],
                      "scheme": scheme, "tail": tail}
        self._opened: Optional[Dict[str, Any]] = None
        self._position = 0         # of the next batch to yield
        self._start = 0            # where the next iteration begins
        self._jump = False         # set_epoch or load_state_dict said so, not the order of things
        self._iteration = 0        # the number of the last iteration
        self._audit = 0
        self._audit_whole = False  # the audit sum covers the epoch from its first batch on
        self._batches = self._samples = self._waits = self._stall = 0
        _loaders.add(self)
        self._ready()

    # The connection.

    def _ready(self) -> Stream:
        """The stream, opened (again) if there is none that works."""
        stream = self._stream
        if stream is not None and not self._source.broken:
            return stream
        if self._closed:
            raise ClosedError("the loader is closed")
        self._disconnect()
        deadline = time.monotonic() + 1.0
        while True:
            try:
                stream = self._connect()
                break
            except BusyError:
                # The daemon may not yet have seen that an earlier loader hung up.
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.02)
        opened = stream.opened
        if self._opened is not None and self._opened["fingerprint"] != opened["fingerprint"]:
            stream.close()
            raise MismatchError("the dataset changed while the loader was open", {
                "key": "fingerprint", "mine": self._opened["fingerprint"], "theirs": opened["fingerprint"]})
        for warning in opened.get("warnings") or ():
            if self._opened is None:
                log.warning("%s", warning)
        self._stream = stream
        self._opened = opened
        self._spec["seed"] = int(opened["seed"])
        return stream

    def _connect(self) -> Stream:
        request = {
            "job": _launcher.job_key(self._place, self._name),
            "rank": self._place.rank, "world_size": self._place.world_size,
            "dataset": self.dataset.describe(), "stream": self._spec,
            "transforms": self._transforms, **_cluster(self._place, self._name), **settings(self._arguments, self._config_file),
        }
        client = _daemon.connect()
        try:
            return self._open_stream(client, request)
        except DatasetError as error:
            path = request["dataset"]["path"]
            if not isinstance(error, DatasetNotFoundError) and not os.path.isdir(path):
                raise DatasetNotFoundError(str(error), error.details) from None
            raise
        except (BusyError, ConfigError) as error:
            client.close()
            doubts = _launcher.doubts(self._place)
            if doubts:
                said = str(error)
                raise type(error)(f"{said}{' ' if said.endswith(('.', '?')) else '. '}{doubts}", error.details) from None
            raise
        except BaseException:
            client.close()
            raise

    def _open_stream(self, client: _daemon.Client, request: Dict[str, Any]) -> Stream:
        """Opens the job, and sets where batches come from."""
        self._source = Stream(client, request, Progress())
        return self._source

    def _disconnect(self) -> None:
        source, self._source = self._source, None
        stream, self._stream = self._stream, None
        if source is not None and source is not stream:
            source.close()
        if stream is not None:
            stream.close()

    def close(self) -> None:
        """Leaves the job. Batches that the program keeps stay valid. Idempotent."""
        self._closed = True
        self._disconnect()

    def __enter__(self) -> "Loader":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def __del__(self) -> None:
        try:
            self.close()
        except Exception:
            pass

    def __getstate__(self) -> Dict[str, Any]:
        return {**self.__dict__, "_stream": None, "_source": None}

    def __setstate__(self, state: Dict[str, Any]) -> None:
        self.__dict__.update(state)
        if self._place.world_size == 1:
            self._name += f"-{secrets.token_hex(4)}"  # a job of its own, beside the original's
        _loaders.add(self)

    # What it is.

    @property
    def steps(self) -> int:
        """Batches per epoch, the same on all ranks."""
        return int(self._facts["steps"])

    def __len__(self) -> int:
        """Batches per epoch of this rank."""
        return self.steps

    @property
    def _facts(self) -> Dict[str, Any]:
        if self._opened is None:
            self._ready()
        return self._opened

    @property
    def samples(self) -> int:
        """The number of samples in the dataset, F."""
        return int(self._facts["samples"])

    @property
    def classes(self) -> List[str]:
        """The classes' names, sorted."""
        return list(self._facts["classes"])

    @property
    def seed(self) -> int:
        """The seed of the order, drawn by the daemon if none was given."""
        return int(self._facts["seed"])

    @property
    def rank(self) -> int:
        """This process's rank."""
        return self._place.rank

    @property
    def world_size(self) -> int:
        """The number of ranks."""
        return self._place.world_size

    @property
    def global_batch_size(self) -> int:
        """Samples per step over all ranks."""
        return self._spec["global_batch"]

    # Iteration.

    def set_epoch(self, epoch: int) -> None:
        """The next iteration delivers this epoch; else it is the one after the last.

        May be called as often as one likes, as scripts for ``DistributedSampler`` do.

        Args:
            epoch: from 0.
        """
        epoch = whole_number("epoch", epoch, 0)
        steps = self.steps
        if steps and self._start // steps != epoch:  # else it may begin amid the epoch, after a restart
            self._start = epoch * steps
        self._jump = True

    def __iter__(self) -> Iterator[Any]:
        """Starts the next epoch, or the rest of one after :meth:`load_state_dict`.

        Returns:
            an iterator over the epoch's batches. A newer iteration of the same loader ends it.

        Raises:
            EndError: there are only ``epochs`` epochs.
        """
        self._ready()
        steps = self.steps
        if not steps:
            return iter(())
        epoch = self._start // steps
        if self.epochs is not None and epoch >= self.epochs:
            raise EndError(f"epoch {epoch} was asked for, but the loader was made with epochs={self.epochs} "
                           f"(0 to {self.epochs - 1}): give a larger epochs=")
        self._position = self._start
        self._start = (epoch + 1) * steps
        self._jump = False
        self._audit = 0
        self._audit_whole = self._position % steps == 0
        self._iteration += 1
        return _Iteration(self, self._iteration, (epoch + 1) * steps)

    def _next(self, iteration: int, end: int) -> Any:
        """The next batch of an iteration that ends before position ``end``."""
        if iteration != self._iteration:
            raise ClosedError("a newer iteration of this loader has begun")
        position = self._position
        if position == end:
            self._finish_epoch(end)
            raise StopIteration
        source = self._source
        if source is None or source.broken:
            self._ready()
            source = self._source
        if source.position != position:
            source.seek(position)
        taken = source.next(self.timeout)
        try:
            batch = self._make(taken)
        except Exception:
            self._yielded(taken, source.stall)  # it will not come again
            raise
        self._yielded(taken, source.stall)
        return batch

    def _make(self, taken: Taken) -> Any:
        """What the user gets for a batch."""
        raise NotImplementedError

    @property
    def output(self) -> Optional[Output]:
        """What the daemon makes of every sample; None: it stays as it is."""
        return self._ready().output

    def views(self, taken: Taken) -> Any:
        """The batch's samples, one by one."""
        output = self._stream.output
        return taken.content if output is None else output.split(taken.content, taken.n)

    def _yielded(self, taken: Taken, stall: int) -> None:
        """Counts a batch, and tells the daemon."""
        _, payload, n, epoch, step, audit = taken
        if self._verify and audit_sum(epoch, column(payload, n, "ids")) != audit:
            raise AuditError(f"batch {step} of epoch {epoch} does not contain the samples that the daemon counted")
        self._audit = (self._audit + audit) & 0xFFFFFFFFFFFFFFFF
        self._position += 1
        self._batches += 1
        self._samples += n
        if stall:
            self._waits += 1
            self._stall += stall
        self._stream.ack(epoch, step, stall, self._audit)

    def _finish_epoch(self, end: int) -> None:
        if not self._verify or not self._audit_whole:
            return
        self._audit_whole = False
        epoch = end // self.steps - 1
        result = self._ready().call("audit", {"epoch": epoch})
        if result["expected"] == result["delivered"]:
            return
        if result.get("missing"):
            log.warning("epoch %d: ranks %s left before its end%s, so it cannot be verified", epoch, result["missing"],
                        f" or were not heard ({result['why']})" if result.get("why") else "")
            return
        raise AuditError(f"epoch {epoch}: the ranks got samples that sum to {result['delivered']}, "
                         f"not {result['expected']}", result)

    # State.

    def state_dict(self) -> Dict[str, Any]:
        """Where the loader is, by batches yielded: small, JSON-compatible, the same on all ranks.

        Returns:
            ``epoch`` and ``step`` of the next batch, and what the order depends on.
        """
        facts = self._facts
        steps = self.steps
        epoch, step = divmod(self._start if self._jump else self._position, steps) if steps else (0, 0)
        return {"version": 1, "epoch": epoch, "step": step, "steps": steps,
                "fingerprint": facts["fingerprint"], "samples": facts["samples"], "seed": self.seed,
                **{key: self._spec[key] for key in ("shuffle", "scheme", "tail", "drop_last", "global_batch")}}

    def load_state_dict(self, state: Dict[str, Any]) -> None:
        """Goes on where :meth:`state_dict` was called; the next iteration yields the rest of that epoch.

        Nothing is read again. The world size may differ, the global batch size may not.

        Args:
            state: what :meth:`state_dict` returned, on any rank.

        Raises:
            MismatchError: the state belongs to another dataset, seed, order or global batch size.
            ConfigError: it is no such state.
        """
        if not isinstance(state, dict) or state.get("version") != 1:
            raise ConfigError(f"not a state of an HDMLP loader: {state!r:.200}")
        facts = self._facts
        mine = {"global_batch": self._spec["global_batch"], "fingerprint": facts["fingerprint"],
                "samples": facts["samples"], "seed": self.seed, "shuffle": self._spec["shuffle"],
                "scheme": self._spec["scheme"], "tail": self._spec["tail"],
                "drop_last": self._spec["drop_last"]}
        for key, value in mine.items():
            if state.get(key) != value:
                then = f": make the loader with seed={state.get(key)!r}" if key == "seed" else ""
                raise MismatchError(f"{key} is {value!r} here, but {state.get(key)!r} in the saved state{then}", {
                    "key": key, "mine": value, "theirs": state.get(key)})
        self._start = int(state["epoch"]) * self.steps + int(state["step"])
        self._jump = True

    # What it tells.

    @property
    def stats(self) -> Stats:
        """What this process counted so far."""
        return Stats(self._batches, self._samples, self._waits, self._stall / 1e9)

    def report(self, cluster: bool = False) -> Report:
        """The job's ledger: what was read from where, and what the stalls were for.

        Args:
            cluster: over all of the job's nodes, with the epochs added up, and each node's part; the others are asked
                for it. False: of all ranks on this node, epoch by epoch.
        """
        return Report(self._ready().call("report", {"cluster": True} if cluster else None) or {})

    def explain(self, epoch: int, step: int, rank: Optional[int] = None) -> Explanation:
        """Which samples a batch consists of, without reading them.

        Args:
            epoch, step: which batch.
            rank: whose; None: this rank's.
        """
        params = {"epoch": whole_number("epoch", epoch, 0), "step": whole_number("step", step, 0)}
        if rank is not None:
            params["rank"] = whole_number("rank", rank, 0)
        result = self._ready().call("explain", params)
        return Explanation(result["ids"], result["labels"], result["paths"])

    def __repr__(self) -> str:
        return (f"{type(self).__name__}({self.dataset!r}, global_batch={self.global_batch_size}, "
                f"rank={self.rank} of {self.world_size})")


def _cluster(place: _launcher.Place, name: str) -> Dict[str, Any]:
    """OPEN's key for jobs on several nodes."""
    cluster = _launcher.cluster(place, name)
    return {} if cluster is None else {"cluster": cluster}


class _Iteration:
    """The batches of one epoch."""

    __slots__ = ("_loader", "_number", "_end")

    def __init__(self, loader: Loader, number: int, end: int):
        self._loader = loader
        self._number = number
        self._end = end

    def __iter__(self) -> "_Iteration":
        return self

    def __next__(self) -> Any:
        return self._loader._next(self._number, self._end)

    def __len__(self) -> int:
        """Batches that are left."""
        return max(0, self._end - self._loader._position) if self._number == self._loader._iteration else 0
