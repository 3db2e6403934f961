"""Samples one by one, read by the daemon: of datasets whose files this process cannot open."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping

from .._lib.memory import create
from .._lib.progress import Progress
from ..errors import DaemonDiedError
from . import connecting

#: Fields of a sample begin at multiples of this, in bytes.
_ALIGN = 64


class Reader:
    """Reads samples of a dataset, which stays open in the daemon.

    Args:
        params: The dataset, and the settings, as the method ``dataset`` takes them.
        manifest: The dataset's records; None: the daemon finds them.
    """

    def __init__(self, params: Mapping[str, object], manifest: bytes | None):
        self._params, self._manifest = dict(params), manifest
        self._lock = threading.Lock()
        self._calls: connecting.Calls | None = None
        self._pid = 0

    def read(self, index: int) -> list[bytes | None]:
        """Returns the fields of a sample; None for one that it does not have.

        Args:
            index: The sample's ID.

        Raises:
            HDMLPError: It cannot be read.
        """
        with self._lock:
            if self._pid != os.getpid():  # a fork's connection is its parent's
                self._calls, self._pid = None, os.getpid()
            try:
                return self._read(index)
            except DaemonDiedError:
                if self._calls is None:
                    raise
                self._calls = None
                return self._read(index)

    def _read(self, index: int) -> list[bytes | None]:
        if self._calls is None:
            self._calls = connecting.Calls(Progress())
        memory = create("hdmlp-sample")
        try:
            params = {**self._params, "sample": index}
            answer = self._calls.call("read", params, self._manifest, memory)
            fields: list[bytes | None] = []
            at = 0
            for length in answer["lengths"]:
                if length < 0:
                    fields.append(None)
                    continue
                at += -at % _ALIGN
                fields.append(os.pread(memory, length, at))
                at += length
            return fields
        finally:
            os.close(memory)
