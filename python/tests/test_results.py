"""Batches from a worker to the training process: where they are, and which slots are kept."""

import gc
import weakref

import pytest

torch = pytest.importorskip("torch")
numpy = pytest.importorskip("numpy")

from hdmlp._batches.segments import Segment
from hdmlp._workers.results import Place, Slots, decode, encode, slots_of


class Both:
    """A worker's slots, and the training process's maps of them."""

    def __init__(self):
        self.slots = Slots(self.announce, self.forget)
        self.segments = {}

    def announce(self, number, size, fd):
        self.segments[number] = Segment(fd, size, True)

    def forget(self, number):
        del self.segments[number]

    def give_back(self, numbers):
        for number in numbers:
            self.slots.free(number)

    def pass_on(self, value, place=None):
        payload = bytearray(encode(1, value, place or Place(self.slots)))
        return decode(payload, self.segments, self.give_back), payload


def test_spare_slots_are_unmapped_on_both_sides():
    both = Both()
    taken = [both.slots.take(4096 * (n + 1)).number for n in range(12)]
    for number in taken:
        both.slots.free(number)
    assert sorted(both.segments) == taken[-Slots.SPARE :]  # the largest
    assert both.slots.take(1).number == taken[-Slots.SPARE]
    assert len(both.segments) == Slots.SPARE


def test_a_batch_is_freed_when_it_is_sent():
    """Not when the collector runs: what torch collates in a worker fills /dev/shm until then."""
    both = Both()
    batch = [torch.arange(9.0), numpy.arange(9), torch.arange(20.0)[::2]]
    alive = [weakref.ref(value) for value in batch]
    gc.collect()
    gc.disable()
    try:
        got, _ = both.pass_on(batch)
        assert got[0].tolist() == batch[0].tolist()
        del batch
        assert [ref() for ref in alive] == [None] * 3
    finally:
        gc.enable()


def test_only_tensors_in_shared_memory_are_found_there():
    both = Both()
    place = Place(both.slots)
    place.reserve(5000)
    (slot,) = place.taken
    for offset, nbytes, found in (
        (0, 1, True),
        (0, slot.size, True),
        (slot.size - 8, 8, True),
        (64, 100, True),
        (-1, 1, False),
        (-8, 16, False),
        (slot.size - 8, 9, False),
        (slot.size, 1, False),
        (slot.size + 10_000, 8, False),
    ):
        assert place.find(slot.address + offset, nbytes) == ((slot, offset) if found else None)


def test_tensors_in_shared_memory_and_elsewhere_are_transferred():
    both = Both()
    place = Place(both.slots)
    memory, offset = place.reserve(4000)
    inside = torch.frombuffer(memory, dtype=torch.float32, count=1000, offset=offset)
    inside.copy_(torch.arange(1000.0))
    elsewhere = [
        torch.full((n,), float(n)) for n in (1, 10, 100_000, 1_000_000)
    ]  # of which the largest lie in maps of their own
    value = {
        "inside": inside,
        "part": inside[100:200],
        "elsewhere": elsewhere,
        "array": numpy.arange(7),
        "none": torch.empty(0, 2),
        "text": "x" * 40_000,
    }
    got, payload = both.pass_on(value, place)
    assert torch.equal(got["inside"], inside)
    assert torch.equal(got["part"], inside[100:200])
    assert all(torch.equal(a, b) for a, b in zip(got["elsewhere"], elsewhere))
    assert (got["array"] == numpy.arange(7)).all()
    assert got["none"].shape == (0, 2)
    assert got["text"] == value["text"]
    assert set(slots_of(payload)) == set(both.segments)


def test_a_slot_is_returned_with_its_last_tensor():
    both = Both()
    got, _ = both.pass_on([torch.ones(1000), numpy.ones(1000)])
    part = got[0][500:].detach().numpy()
    was = part.copy()
    del got
    gc.collect()
    other, _ = both.pass_on([torch.zeros(1000), numpy.zeros(1000)])
    assert (part == was).all()
    del part, other
    gc.collect()
    assert not both.slots._busy


def test_strides_arrive():
    """As from torch's workers."""
    both = Both()
    images = torch.rand(4, 3, 10, 12)
    wide = torch.rand(100, 50)
    value = {
        "channels_last": images.contiguous(memory_format=torch.channels_last),
        "transposed": torch.rand(5, 7).t(),
        "expanded": torch.rand(3, 1).expand(3, 1000),
        "part": wide[10:80, 5:30],
        "scalar": torch.tensor(3.0),
        "empty": torch.empty(0, 3).t(),
        "bool": torch.tensor([True, False])[1:],
    }
    got, payload = both.pass_on(value)
    assert {k: (v.stride(), v.shape) for k, v in got.items()} == {
        k: (v.stride(), v.shape) for k, v in value.items()
    }
    assert all(torch.equal(got[k], value[k]) for k in value)
    assert got["channels_last"].is_contiguous(memory_format=torch.channels_last)
    assert sum(both.segments[n].size for n in slots_of(payload)) < 64 << 10


def test_of_a_much_larger_storage_only_the_elements_go():
    both = Both()
    table = torch.arange(4_000_000).view(1000, 4000)
    value = [table[3], table[:, 3], table[5:7, :100]]
    got, payload = both.pass_on(value)
    assert all(torch.equal(a, b) for a, b in zip(got, value))
    assert sum(both.segments[n].size for n in slots_of(payload)) < 1 << 20


def test_tensors_of_one_storage_share_memory():
    """Inputs and targets of a language model, for instance."""
    both = Both()
    tokens = torch.arange(1000).view(10, 100)
    place = Place(both.slots)
    memory, offset = place.reserve(8000)
    inside = torch.frombuffer(memory, dtype=torch.int64, count=1000, offset=offset).view(10, 100)
    inside.copy_(tokens)
    for value, where in ((tokens, None), (inside, place)):
        got, payload = both.pass_on([value[:, :-1], value[:, 1:], value], where)
        assert all(map(torch.equal, got, [tokens[:, :-1], tokens[:, 1:], tokens]))
        got[0][0, 5] = -1
        assert got[1][0, 4] == got[2][0, 5] == -1
        assert sum(both.segments[n].size for n in slots_of(payload)) == 8192
        inside.copy_(tokens)


def test_arrays_arrive_writable():
    both = Both()
    value = [
        numpy.frombuffer(bytes(range(4)), numpy.uint8),
        numpy.broadcast_to(numpy.arange(3.0), (4, 3)),
        numpy.asfortranarray(numpy.arange(6).reshape(2, 3)),
        numpy.array([{}, None]),
        numpy.ma.masked_array([1, 2], [False, True]),
    ]
    for array in value:
        array.flags.writeable = False
    got, _ = both.pass_on(value)
    for a, b in zip(got, value):
        assert type(a) is type(b)
        assert a.flags.writeable
        assert (a == b).all()
        assert a.flags.f_contiguous == b.flags.f_contiguous
