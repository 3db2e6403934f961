"""Slots of batches that the daemon transformed: returned in notes, and kept without limit."""

import pytest

torch = pytest.importorskip("torch")
torchvision = pytest.importorskip("torchvision")
numpy = pytest.importorskip("numpy")
Image = pytest.importorskip("PIL.Image")

import hdmlp.torch as ht
from hdmlp._batches.stream import _End
from hdmlp._lib import protocol
from offloaded import REFERENCE, TENSOR, folder, same  # noqa: F401
from reference import batches

pytestmark = pytest.mark.usefixtures("real")


def acknowledged(stream):
    """The number of slots that the stream acknowledges from now on, as a list of one."""
    count, send = [0], stream._connection.send

    def counted(frame):
        if frame[4] == protocol.ACK:
            count[0] += sum(
                not slot >> 31
                for (slot,) in protocol.U32.iter_unpack(frame[protocol.ACK_FRAME.size :])
            )
        send(frame)

    stream._connection.send = counted
    return count


@pytest.mark.parametrize("noted", [True, False])
def test_slots_are_returned_in_notes_or_acknowledgements(folder, noted):
    want = batches(folder, 4, 40, 3, False, 0, 1, REFERENCE)
    with ht.DataLoader(
        ht.ImageFolder(folder, TENSOR), 4, seed=3, epochs=40, staging_buffer="64KiB", shuffle=True
    ) as loader:
        stream = loader._engine._feeds[0].stream
        offered, count = stream._staging.returns, acknowledged(stream)
        if not noted:  # as on processors that do not keep the order of stores
            stream._staging.returns = None
        kept = []
        for epoch in range(40):
            got = []
            for images, labels in loader:
                got.append((images.clone(), labels.clone()))
                kept = [*kept[-1:], (images, got[-1][0])]
                del images
                assert all(torch.equal(view, was) for view, was in kept)
                # So that next() does not wait, and return slots while it does.
                while not loader._engine._feeds[0].source._made and not any(
                    isinstance(item, (bytearray, _End)) for item in stream._items
                ):
                    if not stream.pump():
                        stream._connection.wait(None)
            assert same(got, want[epoch])
    if noted and offered is not None:
        assert offered._noted >= 200
        assert count[0] <= 20
    else:
        assert count[0] >= 200


def test_more_batches_can_be_kept_than_there_are_notes(folder):
    """600 batches at once, in extra segments."""
    with ht.DataLoader(
        ht.ImageFolder(folder, TENSOR), 1, seed=3, epochs=60, staging_buffer="8MB", shuffle=True
    ) as loader:
        stream = loader._engine._feeds[0].stream
        for _ in range(3):
            kept = [(images, images.clone()) for _ in range(20) for images, _ in loader]
            assert len(kept) == 420
            assert all(torch.equal(view, was) for view, was in kept)
            del kept
        assert len(stream._staging.segments) <= 2 + len(stream._items)
