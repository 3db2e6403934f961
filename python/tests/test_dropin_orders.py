"""Orders that only iterating over a sampler gives, and subsets: the daemon reads them in the order
of torch's loader."""

import pickle

import pytest

torch = pytest.importorskip("torch")

import hdmlp.torch as ht
from dropin import (
    DRAWN,
    NUMBERS,
    REPEATS,
    Items,
    Raw,
    content,
    epochs,
    first_bytes,
    generator,
    jittered,
    length,
    parts,
    read,
    same,
    seeded,
)
from hdmlp import errors
from torch.utils.data import (
    DataLoader,
    DistributedSampler,
    RandomSampler,
    Subset,
    WeightedRandomSampler,
)

pytestmark = pytest.mark.usefixtures("real")


@pytest.mark.parametrize("name", DRAWN)
def test_orders_drawn_by_a_sampler_are_served(folder, name):
    """Each file is read once, and torch's generators end in the state in which its loader leaves
    them."""
    data = ht.ImageFolder(folder)
    files = set(range(25)) if name != "batches" else {0, 24, 3, 4, 5, 6}
    want = epochs(seeded(lambda L: DRAWN[name](L, Raw(data)), DataLoader), (None, 2, None, None))
    with seeded(lambda L: DRAWN[name](L, data), ht.DataLoader) as loader:
        assert same(first_bytes(loader), want)
        source = loader.report()["source"]
        assert source["samples"] <= 25, source
        assert source["samples"] >= len(files) * (name not in ("weighted",)), source


@pytest.mark.parametrize("name", DRAWN)
def test_orders_drawn_by_a_sampler_resume(folder, name):
    data = ht.ImageFolder(folder)
    with seeded(lambda L: DRAWN[name](L, data), ht.DataLoader) as loader:
        states, batches = [loader.state_dict()], []
        for _ in range(2):
            for samples, labels in loader:
                batches.append(([bytes(x) for x in samples], labels))
                states.append(loader.state_dict())
        steps = len(loader)
    for at in (1, steps - 1, steps + 2 if steps > 3 else steps + 1):
        torch.manual_seed(99)
        with DRAWN[name](ht.DataLoader, data) as copy:
            copy.load_state_dict(pickle.loads(pickle.dumps(states[at])))
            assert copy.state_dict() == states[at]
            rest = [([bytes(x) for x in samples], labels) for samples, labels in copy]
            assert same(rest, batches[at : steps * (1 + at // steps)])


def test_transforms_draw_the_same_after_resuming(folder):
    """The daemon's and Python's, and they draw other numbers in other epochs."""

    def draw(x):
        return x.float() + torch.rand(1)

    data = ht.ImageFolder(folder, draw, loader=length)
    torch.manual_seed(4)
    with ht.DataLoader(data, 4, shuffle=True) as loader:
        batches = iter(loader)
        head = [next(batches) for _ in range(3)]
        state = loader.state_dict()
        rest = list(batches)
        again = list(loader)
    assert len(torch.unique(torch.cat([x % 1 for x, _ in head + rest + again]))) == 50
    torch.manual_seed(5)
    with ht.DataLoader(data, 4, shuffle=True) as loader:
        loader.load_state_dict(state)
        assert same(list(loader), rest)


def test_draws_by_others_from_the_generator_change_the_order_as_in_torch(folder):
    """The sampler's order applies then, not the one that was computed ahead."""

    def given(L, d):
        g = generator()
        loader = L(d, 4, sampler=RandomSampler(d, replacement=True, num_samples=100, generator=g))
        found = []
        for step, batch in enumerate(loader):
            found.append(batch[1].tolist())
            if step == 3:
                torch.rand(7, generator=g)
        return found

    data = ht.ImageFolder(folder)
    assert given(ht.DataLoader, data) == given(DataLoader, Raw(data))


def test_indices_out_of_range_raise(folder):
    data = ht.ImageFolder(folder)
    assert content(ht.DataLoader(data, 2, sampler=[-1, 0])) == [
        read([data.samples[-1][0]])[0],
        read([data.samples[0][0]])[0],
    ]
    for sampler in ([3, 25], [-26]):
        with pytest.raises(IndexError, match="in batch 0 of epoch 0; the dataset has 25 samples"):
            list(ht.DataLoader(data, 2, sampler=sampler))


@pytest.mark.parametrize("part", ["split", "the rest", "nested", "repeated"])
def test_subsets_of_a_folder_are_served(folder, part):
    """In every order."""
    data = ht.ImageFolder(folder)
    ours, theirs = parts(data)[part], parts(Raw(data))[part]
    many = DistributedSampler(ours, 2, 1, seed=4)
    for make in (
        lambda L, d: L(d, 3),
        lambda L, d: L(d, 3, shuffle=True),
        lambda L, d: L(d, 3, sampler=many),
        lambda L, d: L(d, 2, sampler=WeightedRandomSampler(torch.ones(len(d)), 9)),
        lambda L, d: L(d, 100),
    ):
        want = epochs(seeded(lambda L, make=make: make(L, theirs), DataLoader))
        with seeded(lambda L, make=make: make(L, ours), ht.DataLoader) as loader:
            assert same(first_bytes(loader, (None, 2, None)), want)
    with ht.DataLoader(ours, 3, shuffle=True, seed=9, epochs=2, verify=True) as loader:
        sampler = DistributedSampler(theirs, 1, 0, seed=9)
        other = DataLoader(theirs, 3, sampler=sampler)
        for epoch in range(2):
            sampler.set_epoch(epoch)
            assert same(first_bytes(loader, (None,))[0][0], list(other))
        state = loader.state_dict()
    with (
        ht.DataLoader(data, 3, shuffle=True, seed=9, epochs=2) as loader,
        pytest.raises(errors.MismatchError, match="subset"),
    ):
        loader.load_state_dict(state)


def test_epochs_beyond_the_planned_ones_warn_once(folder, caplog):
    """Looking at a first batch uses up no epoch, and the order is the seed's in any case."""
    data = ht.ImageFolder(folder)
    with ht.DataLoader(data, 4, shuffle=True, seed=3, epochs=2, verify=True) as loader:
        for _ in range(3):
            iter(loader)
        sampler = DistributedSampler(data, 1, 0, seed=3)
        for epoch in range(5):
            sampler.set_epoch(epoch)
            assert content(loader) == read(data.samples[i][0] for i in sampler), epoch
        loader.set_epoch(1)
        sampler.set_epoch(1)
        assert content(loader) == read(data.samples[i][0] for i in sampler)
    assert [record.message for record in caplog.records if "epochs=2" in record.message] == [
        "epoch 2 is after the last of epochs=2: it is delivered, but caches are not planned for "
        "it; give a larger epochs="
    ]
    with ht.DataLoader(
        data, 4, shuffle=True, seed=3, epochs=2, num_workers=2, raw=False, collate_fn=len
    ) as loader:
        pass


def test_simultaneous_iterators_have_an_epoch_each(folder):
    """zip(loader, loader) works, as in torch."""
    data = ht.ImageFolder(folder)
    with ht.DataLoader(data, 5) as loader:
        assert all(
            list(map(bytes, a)) == list(map(bytes, b)) for (a, _), (b, _) in zip(loader, loader)
        )
    torch.manual_seed(2)
    with ht.DataLoader(data, 5, shuffle=True) as loader:
        ours = [(a.tolist(), b.tolist()) for (_, a), (_, b) in zip(loader, loader)]
    torch.manual_seed(2)
    theirs = DataLoader(Raw(data), 5, shuffle=True)
    assert ours == [(a.tolist(), b.tolist()) for (_, a), (_, b) in zip(theirs, theirs)]


@pytest.mark.parametrize("workers", [0, 1])
def test_simultaneous_iterators_are_in_the_samplers_epoch(folder, workers):
    """The one of when torch's loader asks the sampler: at once, if there are workers."""
    data = ht.ImageFolder(folder, loader=length)
    ours, theirs = (DistributedSampler(data, 1, 0, seed=3) for _ in range(2))
    with ht.DataLoader(data, 5, sampler=ours, num_workers=workers) as loader:
        torchs = DataLoader(Items(data), 5, sampler=theirs, num_workers=workers)
        for _ in range(2):
            assert same(list(zip(loader, loader)), list(zip(torchs, torchs)))
        pairs = [iter(loader), iter(torchs)], [iter(loader), iter(torchs)]
        ours.set_epoch(2)
        theirs.set_epoch(2)
        pairs = *pairs, [iter(loader), iter(torchs)]
        for mine, its in pairs[::-1]:
            assert same(list(mine), list(its))


@pytest.mark.parametrize("taken", [0, 2])
def test_set_epoch_may_name_an_epoch_again(taken):
    """Persistent workers begin it anew."""
    with ht.DataLoader(NUMBERS, 5, num_workers=2, persistent_workers=True) as loader:
        for _ in range(3):
            loader.set_epoch(0)
            batches = iter(loader)
            for _ in range(taken):
                next(batches)
            del batches
        loader.set_epoch(0)
        assert same(list(loader), list(DataLoader(NUMBERS, 5)))


@pytest.mark.parametrize("name", REPEATS)
def test_each_occurrence_of_a_sample_draws_its_own_numbers(folder, name):
    """As in torch; they depend on neither workers nor resuming, and the daemon reads the files."""
    data = ht.ImageFolder(folder, jittered, loader=length)
    found = []
    for workers in (0, 2):
        torch.manual_seed(8)
        with REPEATS[name](data, workers) as loader:
            batches, states = [], []
            for _ in range(2):
                for x, _ in loader:
                    batches.append(x)
                    states.append(loader.state_dict())
            steps = len(loader)
            assert "source" in loader.report()
        found.append(batches)
        with REPEATS[name](data, workers) as copy:
            copy.load_state_dict(states[0])
            assert same([x for x, _ in copy], batches[1:steps])
    assert same(*found)
    numbers = torch.cat(found[0])
    assert len(torch.unique(numbers)) == len(numbers)


class Iterators:
    """Batches of four indices, each of which can be iterated once."""

    def __len__(self):
        return 5

    def __iter__(self):
        return (map(abs, range(-4 * i - 4, -4 * i)) for i in range(5))


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("collate", [None, list])
def test_batches_may_be_iterators(folder, collate, workers):
    """As with torch's loader without workers."""
    data = ht.ImageFolder(folder, loader=length)
    for mine, its in ((data, Items(data)), (NUMBERS, NUMBERS)):
        want = list(DataLoader(its, batch_sampler=Iterators(), collate_fn=collate))
        with ht.DataLoader(
            mine, batch_sampler=Iterators(), collate_fn=collate, num_workers=workers
        ) as loader:
            assert same(list(loader), want)


class Repeated(torch.utils.data.Sampler):
    """Each sample twice, for one of some ranks, as for repeated augmentation."""

    def __init__(self, rank, num_replicas):
        self.rank, self.num_replicas = rank, num_replicas

    def __len__(self):
        return 24 // self.num_replicas

    def __iter__(self):
        return iter([i // 2 for i in range(24)][self.rank :: self.num_replicas])


def test_ranks_that_get_the_same_sample_draw_different_numbers(folder):
    """Those of its positions in the epoch of all ranks."""
    data = ht.ImageFolder(folder, jittered, loader=length)

    def drawn(rank, ranks):
        torch.manual_seed(1)  # as scripts do on every rank
        with ht.DataLoader(data, 12 // ranks, sampler=Repeated(rank, ranks)) as loader:
            return torch.cat([x for x, _ in loader]).flatten()

    whole = drawn(0, 1)
    assert len(torch.unique(whole)) == 24
    assert torch.equal(torch.stack([drawn(rank, 2) for rank in (0, 1)], 1).flatten(), whole)


def test_draws_for_repeated_samples_do_not_depend_on_the_world_size(folder):
    data = Subset(ht.ImageFolder(folder, jittered, loader=length), [3, 3, 3, 7, 7, 1, 1, 1])
    with ht.DataLoader(data, 4, shuffle=True, seed=1) as loader:
        want = [sorted(x.tolist()) for x, _ in loader]
    loaders = [
        ht.DataLoader(data, 2, shuffle=True, seed=1, rank=rank, world_size=2, name="both")
        for rank in range(2)
    ]
    got = [sorted(a.tolist() + b.tolist()) for (a, _), (b, _) in zip(*loaders)]
    for loader in loaders:
        loader.close()
    assert got == want
