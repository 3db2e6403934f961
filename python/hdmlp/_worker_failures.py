"""What a worker process could not do, as the loader's process raises it."""

from __future__ import annotations

from . import _worker


class RemoteTraceback(Exception):
    """The traceback of an exception that happened in a worker, as text."""

    def __init__(self, text: str):
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        return self.text


class Failed:
    """In place of a batch: the exception that a worker had."""

    def __init__(self, payload: bytes, worker: int):
        self.error, self.text, self.sample = _worker.rebuild_error(payload)
        self.worker = worker
