"""Checks that what is yielded is what the daemon delivered and what the epoch consists of."""

from __future__ import annotations

import logging

from .._batches.source import Taken, column
from .._batches.stream import Stream
from .._lib.protocol import audit_sum
from ..errors import AuditError

log = logging.getLogger("hdmlp")


def check_batch(taken: Taken) -> None:
    """Compares a batch's samples with the daemon's audit of it.

    Raises:
        AuditError: They differ.
    """
    if audit_sum(taken.epoch, column(taken.payload, taken.n, "ids", taken.outputs)) != taken.audit:
        raise AuditError(
            f"batch {taken.step} of epoch {taken.epoch} does not contain the samples that the "
            "daemon counted"
        )


def check_epoch(stream: Stream, epoch: int) -> None:
    """Compares what all ranks got of an epoch with what it consists of.

    Raises:
        AuditError: They differ.
    """
    result = stream.call("audit", {"epoch": epoch})
    if result["expected"] == result["delivered"]:
        return
    if result.get("missing"):
        log.warning(
            "epoch %d: ranks %s left before its end%s, so it cannot be verified",
            epoch,
            result["missing"],
            f" or did not answer ({result['why']})" if result.get("why") else "",
        )
        return
    if result.get("why"):
        log.warning("epoch %d cannot be verified: %s", epoch, result["why"])
        return
    raise AuditError(
        f"epoch {epoch}: the ranks got samples that sum to {result['delivered']}, "
        f"not {result['expected']}",
        result,
    )
