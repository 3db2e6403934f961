"""A loader's job, opened at the daemon as one rank."""

from __future__ import annotations

import copy
import gc
import logging
import os
import secrets
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from .._batches.source import BatchSource
from .._batches.stream import Stream
from .._daemon import connecting
from .._launch import membership
from .._lib import memory
from .._lib.arguments import settings
from .._lib.typing import Opened
from ..errors import BusyError, ConfigError, LimitError, MismatchError
from .options import Options

log = logging.getLogger("hdmlp")

#: Seconds for which a rank that is still taken is asked for again: the daemon may not have seen yet
#: that an earlier loader of this process hung up.
_RETRY = 1.0
_PAUSE = 0.02

#: All sessions that exist, of loaders that may hold memory of the daemon's.
_sessions: weakref.WeakSet[Session] = weakref.WeakSet()

#: Opens a stream on a connection, given OPEN's object and the descriptors that go with it. Returns
#: the stream, and what batches are taken from: the stream, or the source in front of it.
Opener = Callable[[connecting.Client, dict[str, Any], Sequence[int]], tuple[Stream, BatchSource]]


class Dataset(Protocol):
    """What a session has to know of a dataset.

    Attributes:
        leaves: Samples that cannot be read are delivered without their fields.
        may_change: Its files may be written while a loader is open.
    """

    leaves: bool
    may_change: bool

    def _describe(self) -> Mapping[str, object]:
        """Returns the dataset as requests name it."""

    def _manifest(self) -> int | None:
        """Returns a descriptor of the dataset's records, which the caller closes; None: no list."""

    def _check_version(self, fingerprint: str) -> None:
        """Raises MismatchError if the object has described another version of the dataset."""

    def _told(self, opened: Opened) -> None:
        """Takes what OPENED has of the dataset."""


class Session:
    """Opens a job as one rank, as often as its loader needs it.

    Args:
        dataset: The dataset.
        options: What the job is opened with.

    Attributes:
        place: Which rank this process is.
        name: The job's name within its launch.
        spec: OPEN's ``stream`` object, with the seed that the daemon has drawn once it has.
        subset: IDs of the samples that the stream is over; None means all samples.
        transforms: What the daemon does with samples; None means nothing.
        opened: The last OPENED object; None before the first.
    """

    def __init__(self, dataset: Dataset, options: Options):
        ordinal = membership.next_ordinal() if options.name is None else options.name
        self._given_name = self.name = str(ordinal)
        self._loader = membership.next_loader() if options.loader is None else options.loader
        self.place = options.place
        self.spec = options.stream.request()
        self.subset = options.stream.subset
        self.transforms = options.transforms or None
        self.verify = options.verify
        self.opened: Opened | None = None
        self._dataset = dataset
        self._config = dict(options.config)
        self._config_file = options.config_file
        _sessions.add(self)

    def copy(self) -> Session:
        """Returns a session for a copy of the loader.

        In a job of one rank, the copy is in a job of its own, beside the original's.
        """
        made = copy.copy(self)
        made.spec = dict(self.spec)
        if self.place.world_size == 1:
            made._given_name = made.name = f"{self.name}-{secrets.token_hex(4)}"
        _sessions.add(made)
        return made

    def is_named_as(self, other: Session) -> bool:
        """Reports whether both open a job of the same name, as the same rank."""
        return (self.name, self.place) == (other.name, other.place)

    def adopt(self, seed: int) -> None:
        """Changes the seed, and with it the job: other ranks may still be in the one before."""
        self.spec = {**self.spec, "seed": seed}
        self.name = f"{self._given_name}@{seed:x}"
        self.opened = None

    def connect(
        self, number: int, opener: Opener, leave: Callable[[], bool]
    ) -> tuple[Stream, BatchSource]:
        """Opens the job.

        Args:
            number: 0, or which of the loader's further iterations it is for that live at the same
                time: each has a job of its own.
            opener: Opens the stream on a connection.
            leave: Called if the rank is in use. Has an earlier loader of this process leave it, if
                that is where it is, and reports whether it was.

        Raises:
            MismatchError: The dataset changed while the loader was open.
            HDMLPError: The daemon refuses the job, or there is no daemon.
        """
        stream, source = self._persist(number, opener, leave)
        try:
            self._compare(stream.opened)
        except MismatchError:
            source.close()
            stream.close()
            raise
        if self.opened is None:
            for warning in stream.opened.get("warnings") or ():
                log.warning("%s", warning)
        self.opened = stream.opened
        self.spec["seed"] = int(stream.opened["seed"])
        return stream, source

    def _persist(
        self, number: int, opener: Opener, leave: Callable[[], bool]
    ) -> tuple[Stream, BatchSource]:
        """Opens the job; retries while earlier loaders of this process hold what it needs."""
        deadline, collected = time.monotonic() + _RETRY, False
        while True:
            try:
                return self._open(number, opener)
            except (BusyError, LimitError) as error:
                if isinstance(error, BusyError) and leave():
                    continue
                # Loaders in reference cycles hold memory until they are collected.
                if isinstance(error, LimitError) and not collected:
                    alive, collected = len(_sessions), True
                    gc.collect()
                    if len(_sessions) == alive:
                        raise
                if time.monotonic() > deadline:
                    raise
                time.sleep(_PAUSE)

    def _open(self, number: int, opener: Opener) -> tuple[Stream, BatchSource]:
        request = self._request(self.name if not number else f"{self.name}+{number}")
        fds = []
        manifest = self._dataset._manifest()
        if manifest is not None:
            request["dataset"]["manifest"] = True
            fds.append(manifest)
        if self.subset is not None:
            request["stream"] = {**self.spec, "subset": {"count": len(self.subset)}}
            fds.append(memory.listed(self.subset))
        client = None
        try:
            client = connecting.connect()
            return opener(client, request, fds)
        except BaseException as error:
            if client is not None:
                client.close()
            if isinstance(error, (BusyError, ConfigError)):
                doubts = membership.doubts(self.place)
                if doubts:
                    text = str(error)
                    end = " " if text.endswith((".", "?")) else ". "
                    raise type(error)(f"{text}{end}{doubts}", error.details) from None
            raise
        finally:
            for fd in fds:
                os.close(fd)

    def _request(self, name: str) -> dict[str, Any]:
        """Returns OPEN's object for the job of this name."""
        request = {
            "job": membership.job_key(self.place, name),
            "rank": self.place.rank,
            "world_size": self.place.world_size,
            "dataset": {**self._dataset._describe(), "view": True},
            "verify": self.verify,
            "stream": self.spec,
            "transforms": self.transforms,
            "share": {
                "loader": str(self._loader),
                "ahead": 0,
                "again": self.opened is not None,
            },
            **settings(self._config, self._config_file),
        }
        if self._dataset.leaves:
            request["leave"] = True
        cluster = membership.cluster(self.place, name)
        if cluster is not None:
            request["cluster"] = cluster
        return request

    def _compare(self, opened: Opened) -> None:
        """Raises MismatchError if the dataset is of another version than it was."""
        changed = self.opened is not None and self.opened["fingerprint"] != opened["fingerprint"]
        if self.opened is not None and changed and not self._dataset.may_change:
            raise MismatchError(
                "the dataset changed while the loader was open; make a new loader",
                {
                    "key": "fingerprint",
                    "mine": self.opened["fingerprint"],
                    "theirs": opened["fingerprint"],
                },
            )
        # On several nodes it is node 0's version, which differs where files cannot be read.
        if self.place.nodes == 1:
            self._dataset._check_version(opened["fingerprint"])
        self._dataset._told(opened)
