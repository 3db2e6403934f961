"""Batches have the types that torch's loader gives them: containers, labels, tensors."""

import collections

import pytest

torch = pytest.importorskip("torch")
numpy = pytest.importorskip("numpy")

import hdmlp.torch as ht
from dropin import same
from hdmlp.torch._data.collation import pinned
from torch.utils.data import DataLoader, Dataset

pytestmark = pytest.mark.usefixtures("real")


class Pinned(torch.Tensor):
    """Stands for a tensor in pinned memory."""


@pytest.fixture
def pins(monkeypatch):
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda x, *_: x.as_subclass(Pinned))


class Own(dict):
    def pin_memory(self):
        return "its own"


class More(list):
    def __init__(self, name, values):
        super().__init__(values)
        self.name = name


class Tuple(tuple):
    __slots__ = ()


Pair = collections.namedtuple("Pair", "a b")


def test_pinning_keeps_types(pins):
    tensor = torch.ones(2)
    more = More("x", [tensor, 1])
    for value in (
        collections.OrderedDict(b=tensor, a=1),
        collections.defaultdict(list, a=tensor),
        collections.UserDict(a=tensor),
        collections.UserList([tensor]),
        Pair(tensor, "b"),
        Tuple([tensor]),
        (tensor, 1),
        more,
    ):
        got = pinned(value)
        assert type(got) is type(value)
        values = list(got.values() if hasattr(got, "values") else got)
        assert type(values[0]) is Pinned
        assert got is not value
    assert pinned(more).name == "x"
    assert type(more[0]) is torch.Tensor
    assert list(pinned(collections.OrderedDict(b=tensor, a=1))) == ["b", "a"]
    assert pinned(Own()) == "its own"
    view = memoryview(b"abc")
    assert pinned([view, b"abc", "abc", 3]) == [view, b"abc", "abc", 3]
    assert pinned([view])[0] is view
    assert pinned(range(3)) == [0, 1, 2]


class Of(Dataset):
    """Four items that a function makes."""

    def __init__(self, make):
        self.make = make

    def __len__(self):
        return 4

    def __getitem__(self, i):
        return self.make(i)


ITEMS = {
    "names": lambda i: (torch.full((2,), i), "abcd"[i]),
    "names alone": lambda i: "abcd"[i],
    "two names": lambda i: ("abcd"[i], "efgh"[i]),
    "lists": lambda i: [torch.full((2,), i), i],
    "numbers": lambda i: (torch.full((2,), i), i),
}


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("make", ITEMS.values(), ids=ITEMS)
def test_labels_have_torchs_types(make, workers):
    arguments = {"num_workers": workers}
    if workers:
        arguments["multiprocessing_context"] = "fork"
    ours, theirs = ht.DataLoader(Of(make), 2, **arguments), DataLoader(Of(make), 2, **arguments)
    assert same(list(ours), list(theirs))


def test_sparse_tensors_are_stacked(folder):
    """As by torch 1, whose workers cannot do it; torch 2 refuses it."""
    data = ht.ImageFolder(folder, loader=lambda _: torch.eye(2).to_sparse())
    with ht.DataLoader(data, 2, num_workers=0) as loader:
        if torch.__version__ >= "2":
            with pytest.raises(RuntimeError, match="Batches of sparse tensors"):
                next(iter(loader))
            return
        images, labels = next(iter(loader))
    assert images.is_sparse
    assert torch.equal(images.to_dense(), torch.eye(2).expand(2, 2, 2))
    assert labels.tolist() == [0, 0]


def channels_last(batch):
    return torch.stack([x for x, _ in batch]).contiguous(memory_format=torch.channels_last)


def read_only(batch):
    return numpy.frombuffer(bytes(range(4)), numpy.uint8)


def test_workers_results_are_torchs():
    images = Of(lambda i: (torch.rand(3, 4, 5), i))
    for loader in (DataLoader, ht.DataLoader):
        batch = next(iter(loader(images, 2, num_workers=1, collate_fn=channels_last)))
        assert batch.is_contiguous(memory_format=torch.channels_last)
        array = next(iter(loader(images, 2, num_workers=1, collate_fn=read_only)))
        array += 1
