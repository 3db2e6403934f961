"""What a worker process failed at, as the loader's process raises it."""

from __future__ import annotations

from . import child


class RemoteTraceback(Exception):
    """The traceback of an exception in a worker, as text."""

    def __init__(self, text: str):
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        return self.text


class Failed:
    """The exception that a worker raised, in the place of a batch.

    Args:
        payload: What :func:`hdmlp._workers.child.describe` packed.
        worker: The worker's number.

    Attributes:
        error: The exception, or a RuntimeError with its text.
        text: The exception's traceback.
        sample: The ID of the sample that it names; None if it names none.
    """

    def __init__(self, payload: bytes, worker: int):
        self.error, self.text, self.sample = child.rebuild_error(payload)
        self.worker = worker
