"""``ht.DataLoader`` in the place of torch's: the same batches from the same script, whatever the dataset and the sampler, or an error.

The oracle is the installed torch's own loader, after the same seeds.
"""

import pickle
import random
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

torch = pytest.importorskip("torch")
numpy = pytest.importorskip("numpy")

import hdmlp.torch as ht  # noqa: E402
from hdmlp import errors  # noqa: E402
from torch.utils.data import (ConcatDataset, DataLoader, Dataset, DistributedSampler, IterableDataset, RandomSampler, Sampler,  # noqa: E402
                              SequentialSampler, Subset, SubsetRandomSampler, TensorDataset, WeightedRandomSampler)

pytestmark = pytest.mark.usefixtures("real")


class Numbers(Dataset):
    """37 tensors, and their numbers."""

    def __len__(self):
        return 37

    def __getitem__(self, i):
        if not 0 <= i < 37:
            raise IndexError(i)
        return torch.full((3,), float(i)), i


class Stream(IterableDataset):
    """Ten numbers."""

    def __iter__(self):
        return iter(range(10))


class ByNumpy(Sampler):
    """Draws from numpy's generator."""

    def __init__(self, n):
        self.n = n

    def __len__(self):
        return self.n

    def __iter__(self):
        return iter(numpy.random.permutation(self.n).tolist())


def seconds(batch):
    return [x for _, x in batch]


def generator():
    return torch.Generator().manual_seed(3)


NUMBERS = Numbers()
LOADERS = {
    "by ID": lambda L: L(NUMBERS, 5),
    "positional": lambda L: L(NUMBERS, 5, True, None, None, 0, None, False, True),
    "defaults": lambda L: L(NUMBERS, batch_size=5, shuffle=None, sampler=None, batch_sampler=None, pin_memory=False, timeout=0,
                            worker_init_fn=None, multiprocessing_context=None, generator=None),
    "shuffle": lambda L: L(NUMBERS, 5, shuffle=True),
    "shuffle, workers": lambda L: L(NUMBERS, 5, shuffle=True, num_workers=2),
    "shuffle, workers that stay": lambda L: L(NUMBERS, 5, shuffle=True, num_workers=2, persistent_workers=True),
    "generator": lambda L: L(NUMBERS, 5, shuffle=True, generator=generator()),
    "generator, workers that stay": lambda L: L(NUMBERS, 5, shuffle=True, num_workers=2, persistent_workers=True, generator=generator()),
    "weighted": lambda L: L(NUMBERS, 5, sampler=WeightedRandomSampler(torch.arange(1, 38).float(), 50)),
    "with replacement": lambda L: L(NUMBERS, 5, sampler=RandomSampler(NUMBERS, replacement=True, num_samples=100)),
    "a part": lambda L: L(NUMBERS, 5, sampler=SubsetRandomSampler(range(3, 20)), drop_last=True),
    "sequential": lambda L: L(NUMBERS, 5, sampler=SequentialSampler(NUMBERS)),
    "numpy": lambda L: L(NUMBERS, 5, sampler=ByNumpy(37)),
    "batches": lambda L: L(NUMBERS, batch_sampler=[[1, 2], [3], [4, 5, 6], [1, 1]]),
    "one by one": lambda L: L(NUMBERS, batch_size=None),
    "one by one, workers": lambda L: L(NUMBERS, batch_size=None, shuffle=True, num_workers=2),
    "a batch larger than the dataset": lambda L: L(NUMBERS, 100),
    "the same, dropped": lambda L: L(NUMBERS, 100, drop_last=True),
    "iterable": lambda L: L(Stream(), 3),
    "subset": lambda L: L(Subset(NUMBERS, [1, 5, 7, 2]), 3, shuffle=True),
    "concatenated": lambda L: L(ConcatDataset([NUMBERS, Subset(NUMBERS, [1, 5])]), 4, shuffle=True, num_workers=1),
    "collate": lambda L: L(NUMBERS, 4, collate_fn=seconds),
    "distributed": lambda L: L(NUMBERS, 4, sampler=DistributedSampler(NUMBERS, 2, 1, seed=4)),
    "tensors": lambda L: L(TensorDataset(torch.arange(20).view(10, 2)), 3, shuffle=True),
}


def same(a, b):
    if isinstance(a, torch.Tensor):
        return torch.equal(a, b) and a.dtype == b.dtype
    if isinstance(a, (list, tuple)):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    return a == b


def seeded(make, loader):
    for seed in (torch.manual_seed, random.seed, numpy.random.seed):
        seed(7)
    return make(loader)


def epochs(loader, stops=(None, 2, None)):
    """The batches of three epochs, the second one given up; and what torch's generator gives then."""
    found = []
    for stop in stops:
        found.append([])
        for step, batch in enumerate(loader):
            found[-1].append(batch)
            if step == stop:
                break
    return found, torch.rand(1).item()


@pytest.mark.parametrize("name", LOADERS)
def test_the_same_as_torch(name):
    theirs = seeded(LOADERS[name], DataLoader)
    want = epochs(theirs)
    if getattr(theirs, "_iterator", None) is not None:  # left to the garbage collector, workers that stay are waited for 5 s each
        theirs._iterator._shutdown_workers()
    ours = seeded(LOADERS[name], ht.DataLoader)
    assert isinstance(ours, DataLoader)
    got = epochs(ours)
    assert same(got[0], want[0])
    assert got[1] == want[1], "torch's generator is elsewhere"
    if name != "iterable":
        assert len(ours) == len(theirs)
    ours.close()


@pytest.mark.parametrize("name", [name for name in LOADERS if name not in ("iterable", "the same, dropped", "a batch larger than the dataset")])
def test_resuming_is_exact(name):
    """From a state anywhere in two epochs another loader yields the rest."""
    loader = seeded(LOADERS[name], ht.DataLoader)
    states, batches = [], []
    for _ in range(2):
        for batch in loader:
            batches.append(batch)
            states.append(loader.state_dict())
    per_epoch = len(loader)
    loader.close()
    for at in (0, per_epoch // 2, per_epoch - 2, per_epoch + 1):
        if (at + 1) % per_epoch == 0:  # the next epoch's beginning: test_epoch_ends.py
            continue
        state = pickle.loads(pickle.dumps(states[at]))
        torch.manual_seed(99)
        copy = LOADERS[name](ht.DataLoader)
        copy.load_state_dict(state)
        assert copy.state_dict() == state
        rest = list(copy)
        end = per_epoch * (1 if at < per_epoch else 2)
        assert same(rest, batches[at + 1:end]), at
        if at < per_epoch and name.startswith("generator"):  # it goes on as well
            assert same(list(copy), batches[per_epoch:])
        copy.close()


class Random(Dataset):
    """Random numbers of all three generators."""

    def __len__(self):
        return 20

    def __getitem__(self, i):
        return torch.tensor([torch.rand(1).item(), random.random(), numpy.random.rand(), i], dtype=torch.float64)


@pytest.mark.parametrize("workers", [0, 1, 3])
def test_random_numbers_of_items(workers):
    """They depend on neither workers nor resuming, and differ between epochs, items, and repeats of an item."""
    def make(number):
        torch.manual_seed(5)
        return ht.DataLoader(Random(), 4, sampler=[0, 0, 1, 2, 3, 3, 4, 5], num_workers=number)
    with make(0) as loader:
        want = [torch.cat(list(loader)) for _ in range(2)]
    with make(workers) as loader:
        assert same([torch.cat(list(loader)) for _ in range(2)], want)
    numbers = torch.cat(want)[:, :3]
    assert len(torch.unique(numbers)) == numbers.numel()
    with make(workers) as loader:
        first = next(iter(loader))
        state = loader.state_dict()
    with make(workers) as loader:
        loader.load_state_dict(state)
        assert same([first, *loader], list(want[0].split(4)))


def test_a_sampler_that_cannot_be_repeated():
    class Counts(Sampler):
        calls = 0

        def __init__(self):
            pass

        def __len__(self):
            return 10

        def __iter__(self):
            Counts.calls += 1
            return iter([(i + Counts.calls) % 10 for i in range(10)])
    with ht.DataLoader(NUMBERS, 2, sampler=Counts()) as loader:
        batches = iter(loader)
        next(batches), next(batches)
        state = loader.state_dict()
    with ht.DataLoader(NUMBERS, 2, sampler=Counts()) as loader:
        loader.load_state_dict(state)
        with pytest.raises(errors.MismatchError, match="the sampler yields other indices than when the state was saved"):
            iter(loader)


def test_errors_of_items_and_samplers():
    class Bad(Numbers):
        def __getitem__(self, i):
            if i == 11:
                raise KeyError("eleven")
            return super().__getitem__(i)

    def broken():
        yield 1
        raise RuntimeError("the sampler's own")
    for workers in (0, 2):
        with ht.DataLoader(Bad(), 4, num_workers=workers) as loader:
            with pytest.raises(KeyError, match="eleven") as caught:
                list(loader)
            assert caught.value.sample == 11
        with ht.DataLoader(NUMBERS, 1, sampler=broken(), num_workers=workers) as loader:
            with pytest.raises(RuntimeError, match="the sampler's own"):
                list(loader)


def info(_):
    worker = torch.utils.data.get_worker_info()
    worker.dataset.told = worker.id, worker.num_workers


class Told(Numbers):
    def __getitem__(self, i):
        return torch.tensor(self.told)


@pytest.mark.slow
@pytest.mark.parametrize("context", ["fork", "spawn"])
def test_worker_info(context):
    with ht.DataLoader(Told(), 1, num_workers=2, worker_init_fn=info, multiprocessing_context=context) as loader:
        assert {tuple(batch[0].tolist()) for batch in loader} == {(0, 2), (1, 2)}


def test_workers_see_the_dataset_as_it_is():
    """As in torch: those of a new epoch, unless they stay."""
    class Scaled(Numbers):
        scale = 1

        def __getitem__(self, i):
            return i * self.scale
    for stay, want in ((False, 74), (True, 37)):
        data = Scaled()
        with ht.DataLoader(data, 37, num_workers=1, persistent_workers=stay) as loader:
            list(loader)
            data.scale = 2
            assert next(iter(loader)).sum() == want * 18


def test_what_has_no_meaning_is_refused(folder):
    data = ht.ImageFolder(folder)
    for make, says in (
            (lambda: ht.DataLoader(data, seed=1), "seed=1, and neither shuffle nor sampler: .* say shuffle=True"),
            (lambda: ht.DataLoader(data, epochs=9), "epochs=9, and neither shuffle nor sampler"),
            (lambda: ht.DataLoader(data, memory="much"), "memory"),
            (lambda: ht.DataLoader(data, shuffle=True, memory="much"), "memory"),
            (lambda: ht.DataLoader(NUMBERS, memory="1GB"), "memory='1GB': no meaning for a Numbers"),
            (lambda: ht.DataLoader(NUMBERS, verify=True), "verify=True: no meaning"),
            (lambda: ht.DataLoader(Stream(), shard=True), "shard=True: no meaning for a Stream"),
            (lambda: ht.DataLoader(data, in_order=False), "in_order=False"),
            (lambda: ht.DataLoader(data, shuffle=True, seed=1, generator=generator()), "generator, and seed"),
            (lambda: ht.DataLoader(data, shuffle=True, shard=True, generator=generator()), "generator, and shard"),
            (lambda: ht.DataLoader(data, shard=True, sampler=SequentialSampler(data)), "shard=True, and sampler"),
            (lambda: ht.DataLoader(data, shard=False, rank=0, world_size=2), "shard=False, and rank"),
            (lambda: ht.DataLoader(data, rank=0), "rank is given without world_size"),
    ):
        with pytest.raises(errors.ConfigError, match=says):
            make()
    for make in (lambda: ht.DataLoader(data, shuffle=True, sampler=SequentialSampler(data)), lambda: ht.DataLoader(data, batch_size=None, drop_last=True),
                 lambda: ht.DataLoader(data, num_workers=0, persistent_workers=True), lambda: ht.DataLoader(data, timeout=0, batch_sampler=[[1]], batch_size=3)):
        with pytest.raises(ValueError):  # torch's own
            make()
    with ht.DataLoader(data, 4) as loader:
        with pytest.raises(ValueError, match="batch_size"):
            loader.batch_size = 8


# HDMLP's own datasets: nothing that is said of one is ignored.


def read(paths):
    found = []
    for path in paths:
        with open(path, "rb") as file:
            found.append(file.read())
    return found


def content(loader):
    return [bytes(x) for samples, _ in loader for x in samples]


def length(data):
    return torch.tensor(len(data))


def test_every_epoch_by_default_by_id(folder):
    data = ht.ImageFolder(folder)
    files = read(path for path, _ in data.samples)
    with ht.DataLoader(data, 4) as loader:
        assert content(loader) == files == content(loader)
        assert [y for _, labels in loader for y in labels.tolist()] == data.targets
    with ht.DataLoader(data, 100) as loader:
        assert len(loader) == 1 and content(loader) == files
    for more in ({}, {"shard": True, "shuffle": True, "seed": 1}, {"rank": 1, "world_size": 2}):
        with ht.DataLoader(data, 100, drop_last=True, **more) as loader:
            assert len(loader) == 0 and content(loader) == []


@pytest.mark.parametrize("name", ["shuffle", "generator", "weighted", "a part", "batches", "distributed", "own", "own, distributed"])
def test_samplers_over_a_folder(folder, name):
    """The labels and bytes that torch's loader gives, of each of three epochs, one given up; and the same position of the generators."""
    class Own(Sampler):
        def __init__(self):
            pass

        def __iter__(self):
            return iter([3, 1, 4, 1, 5, 9, 2, 6])

        def __len__(self):
            return 8

    class Backwards(DistributedSampler):
        def __iter__(self):
            return iter(list(super().__iter__())[::-1])
    made = {
        "shuffle": lambda L, d: L(d, 4, shuffle=True),
        "generator": lambda L, d: L(d, 4, shuffle=True, generator=generator()),
        "weighted": lambda L, d: L(d, 4, sampler=WeightedRandomSampler(torch.arange(1, 26).float(), 40)),
        "a part": lambda L, d: L(d, 4, sampler=SubsetRandomSampler([1, 5, 7, 20]), drop_last=True),
        "batches": lambda L, d: L(d, batch_sampler=[[0, 24], [3], [4, 5, 6]]),
        "distributed": lambda L, d: L(d, 4, sampler=DistributedSampler(d, 2, 1, seed=4)),
        "own": lambda L, d: L(d, 3, sampler=Own()),
        "own, distributed": lambda L, d: L(d, 3, sampler=Backwards(d, 2, 0)),
    }[name]
    data = ht.ImageFolder(folder, loader=length)
    want = epochs(seeded(lambda L: made(L, Items(data)), DataLoader))
    loader = seeded(lambda L: made(L, data), ht.DataLoader)
    got = epochs(loader)
    loader.close()
    assert same(got, want)


class Items(Dataset):
    """What torch's loader has of a folder: its items alone."""

    def __init__(self, data):
        self.data = data

    def __len__(self):
        return len(self.data)

    def __getitem__(self, i):
        return self.data[i]


def test_a_distributed_sampler_counts_as_it_is(folder):
    """Its seed and epoch are those of the moment at which an iteration begins, as in torch."""
    data = ht.ImageFolder(folder, loader=length)
    sampler = DistributedSampler(data, 2, 1, seed=7)
    with ht.DataLoader(data, 4, sampler=sampler) as loader:
        other = DataLoader(Items(data), 4, sampler=sampler)
        for change in (lambda: None, lambda: None, lambda: sampler.set_epoch(3), lambda: setattr(sampler, "seed", 8),
                       lambda: setattr(sampler, "shuffle", False)):
            change()
            iter(loader)
            assert same(list(loader), list(other))


def test_what_is_set_later_counts(folder):
    """Transforms that are replaced, or changed, count from the next iteration on."""
    data = ht.ImageFolder(folder, loader=length)
    with ht.DataLoader(data, 25) as loader:
        lengths, labels = next(iter(loader))
        data.transform = lambda x: x + 1
        assert torch.equal(next(iter(loader))[0], lengths + 1)
        data.target_transform = lambda y: y + 10
        assert torch.equal(next(iter(loader))[1], labels + 10)
        data.loader = lambda x: torch.tensor(0)
        assert torch.equal(next(iter(loader))[0], torch.ones(25))


class Counting:
    """A transform whose state says how often it ran."""

    def __init__(self):
        self.calls = 0

    def __call__(self, x):
        self.calls += 1
        return x + self.calls


@pytest.mark.parametrize("sampler", [None, "weighted"])
def test_a_transform_that_counts_goes_on_in_one_job(folder, sampler):
    """State that a transform keeps in this process is no other transform: the job, and what it reports, goes on."""
    data = ht.ImageFolder(folder, Counting(), loader=length)
    sampler = sampler and WeightedRandomSampler(torch.ones(25), 25, generator=generator())
    with ht.DataLoader(data, 5, sampler=sampler, num_workers=0, labels="name") as loader:
        for _ in range(3):
            list(loader)
        assert data.transform.calls == 75
        assert [epoch["batches"] for epoch in loader.report()["epochs"]] == [5, 5, 5] and loader.stats.batches == 15


def test_what_cannot_be_changed_raises(folder):
    data = ht.ImageFolder(folder)
    for change in (lambda: data.samples.append(1), lambda: data.targets.__setitem__(0, 5), lambda: data.samples.__delitem__(slice(10, None)),
                   lambda: data.classes.sort()):
        with pytest.raises(TypeError, match="torch.utils.data.Subset"):
            change()
    for name in ("samples", "targets", "imgs", "classes", "class_to_idx", "root"):
        with pytest.raises(errors.ConfigError, match=f"{name} cannot be set"):
            setattr(data, name, [])
    assert pickle.loads(pickle.dumps(data.targets)) == list(data.targets) == data.targets[:]


def test_overrides_count_or_raise(folder):
    class Three(ht.ImageFolder):
        def __getitem__(self, i):
            return (*super().__getitem__(i), i)

    class Ten(ht.ImageFolder):
        def __len__(self):
            return 10

    class Classes(ht.ImageFolder):
        def find_classes(self, directory):
            return ["cat"], {"cat": 0}
    with ht.DataLoader(Three(folder, loader=length), 5) as loader:
        assert [len(batch) for batch in loader] == [3] * 5
    with ht.DataLoader(Ten(folder, loader=length), 5, shuffle=True) as loader:
        assert len(list(loader)) == 2
    with pytest.raises(errors.ConfigError, match="find_classes"):
        Classes(folder)


def test_paths_that_name_nothing(folder, tmp_path, monkeypatch):
    with pytest.raises(errors.DatasetNotFoundError, match="empty path"):
        ht.ImageFolder("")
    assert len(ht.ImageFolder(folder.encode())) == 25 and ht.ImageFolder(folder).sample(torch.tensor(3))[1] == 0
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert len(ht.ImageFolder(folder)) == 25
    with pytest.raises(errors.DatasetNotFoundError, match="current directory was deleted"):
        ht.ImageFolder("data")


def test_items_that_are_no_files(folder):
    import os
    data = ht.ImageFolder(folder, loader=length)
    path = data.samples[0][0]
    os.remove(path)
    os.mkfifo(path)
    with pytest.raises(errors.SampleError, match="not a regular file"):
        data[0]


@pytest.mark.parametrize("variables, says", [
    ({"WORLD_SIZE": "4"}, "WORLD_SIZE=4 is set without RANK"), ({"RANK": "1"}, "RANK=1 is set without WORLD_SIZE"),
    ({"HDMLP_NODES": "a,b"}, "names 2 nodes, and nothing says which rank"),
])
def test_half_of_a_place(folder, monkeypatch, variables, says):
    """It is refused where ranks share epochs, and means nothing where they do not, as in torch."""
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    data = ht.ImageFolder(folder)
    with pytest.raises(errors.ConfigError, match=says):
        len(ht.DataLoader(data, 4, shuffle=True, shard=True))
    with ht.DataLoader(data, 4, shuffle=True, seed=1) as loader:
        assert len(content(loader)) == 25


DRAWN = {
    "shuffle": lambda L, d: L(d, 4, shuffle=True),
    "generator": lambda L, d: L(d, 4, shuffle=True, generator=generator()),
    "generator, workers": lambda L, d: L(d, 4, shuffle=True, generator=generator(), num_workers=2),
    "weighted": lambda L, d: L(d, 4, sampler=WeightedRandomSampler(torch.arange(1, 26).float(), 40)),
    "batches": lambda L, d: L(d, batch_sampler=[[0, 24], [3], [4, 5, 6]]),
    "numpy": lambda L, d: L(d, 4, sampler=ByNumpy(25)),
}


class Raw(Items):
    """A folder's bytes as numbers, for torch's loader."""

    def __getitem__(self, i):
        with open(self.data.samples[i][0], "rb") as file:
            return torch.tensor(list(file.read()[:20])), self.data.targets[i]


def first_bytes(loader, stops=(None, 2, None, None)):
    """As :func:`epochs`, of encoded samples."""
    found = []
    for stop in stops:
        found.append([])
        for step, (samples, labels) in enumerate(loader):
            found[-1].append([torch.stack([torch.tensor(list(bytes(x)[:20])) for x in samples]), labels])
            if step == stop:
                break
    return found, torch.rand(1).item()


@pytest.mark.parametrize("name", DRAWN)
def test_drawn_orders_are_served(folder, name):
    """What only a sampler tells comes from the daemon too, each file read once, and torch's generators are where its loader leaves them."""
    data = ht.ImageFolder(folder)
    files = set(range(25)) if name != "batches" else {0, 24, 3, 4, 5, 6}
    want = epochs(seeded(lambda L: DRAWN[name](L, Raw(data)), DataLoader), (None, 2, None, None))
    with seeded(lambda L: DRAWN[name](L, data), ht.DataLoader) as loader:
        assert same(first_bytes(loader), want)
        source = loader.report()["source"]
        assert source["samples"] <= 25 and source["samples"] >= len(files) * (name not in ("weighted",)), source


@pytest.mark.parametrize("name", DRAWN)
def test_resuming_drawn_orders(folder, name):
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
            assert same(rest, batches[at:steps * (1 + at // steps)])


def test_random_numbers_of_drawn_orders(folder):
    """The daemon's and Python's transforms draw the same again after a resumption, and others in other epochs."""
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


def test_others_draw_from_the_generator(folder):
    """Then the order is what the sampler yields, as in torch, and not what was foreseen."""
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


def test_indices_outside(folder):
    data = ht.ImageFolder(folder)
    assert content(ht.DataLoader(data, 2, sampler=[-1, 0])) == [read([data.samples[-1][0]])[0], read([data.samples[0][0]])[0]]
    for sampler in ([3, 25], [-26]):
        with pytest.raises(IndexError, match="in batch 0 of epoch 0; the dataset has 25 samples"):
            list(ht.DataLoader(data, 2, sampler=sampler))


def parts(data):
    first, second = torch.utils.data.random_split(data, [17, 8], generator=torch.Generator().manual_seed(1))
    return {"split": first, "the rest": second, "nested": Subset(first, [5, 3, -1, 0]), "repeated": Subset(data, [4, 4, 7])}


@pytest.mark.parametrize("part", ["split", "the rest", "nested", "repeated"])
def test_parts_of_a_folder(folder, part):
    """Subsets are served by the daemon as well, in every order."""
    data = ht.ImageFolder(folder)
    ours, theirs = parts(data)[part], parts(Raw(data))[part]
    many = DistributedSampler(ours, 2, 1, seed=4)
    for make in (lambda L, d: L(d, 3), lambda L, d: L(d, 3, shuffle=True), lambda L, d: L(d, 3, sampler=many),
                 lambda L, d: L(d, 2, sampler=WeightedRandomSampler(torch.ones(len(d)), 9)), lambda L, d: L(d, 100)):
        want = epochs(seeded(lambda L: make(L, theirs), DataLoader))
        with seeded(lambda L: make(L, ours), ht.DataLoader) as loader:
            assert same(first_bytes(loader, (None, 2, None)), want)
    with ht.DataLoader(ours, 3, shuffle=True, seed=9, epochs=2, verify=True) as loader:
        sampler = DistributedSampler(theirs, 1, 0, seed=9)
        other = DataLoader(theirs, 3, sampler=sampler)
        for epoch in range(2):
            sampler.set_epoch(epoch)
            assert same(first_bytes(loader, (None,))[0][0], list(other))
        state = loader.state_dict()
    with ht.DataLoader(data, 3, shuffle=True, seed=9, epochs=2) as loader, pytest.raises(errors.MismatchError, match="subset"):
        loader.load_state_dict(state)


def test_epochs_are_a_plan(folder, caplog):
    """Probing takes no epoch, and going on after the planned ones is said once; the order is the seed's all the same."""
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
    assert [record.message for record in caplog.records if "epochs=2 were planned" in record.message] == [
        "epoch 2 was asked for, and epochs=2 were planned: it is delivered as well; caches are not planned for it"]
    with ht.DataLoader(data, 4, shuffle=True, seed=3, epochs=2, num_workers=2, raw=False, collate_fn=len) as loader:
        pass


def test_an_iterator_beside_another(folder):
    """As in torch, zip(loader, loader) works: each has an epoch of its own."""
    data = ht.ImageFolder(folder)
    with ht.DataLoader(data, 5) as loader:
        assert all(list(map(bytes, a)) == list(map(bytes, b)) for (a, _), (b, _) in zip(loader, loader))
    torch.manual_seed(2)
    with ht.DataLoader(data, 5, shuffle=True) as loader:
        ours = [(a.tolist(), b.tolist()) for (_, a), (_, b) in zip(loader, loader)]
    torch.manual_seed(2)
    theirs = DataLoader(Raw(data), 5, shuffle=True)
    assert ours == [(a.tolist(), b.tolist()) for (_, a), (_, b) in zip(theirs, theirs)]


@pytest.mark.parametrize("taken", [0, 2])
def test_the_same_epoch_again(taken):
    """set_epoch may name one that was begun before; workers that stay begin it anew."""
    with ht.DataLoader(NUMBERS, 5, num_workers=2, persistent_workers=True) as loader:
        for _ in range(3):
            loader.set_epoch(0)
            batches = iter(loader)
            for _ in range(taken):
                next(batches)
            del batches
        loader.set_epoch(0)
        assert same(list(loader), list(DataLoader(NUMBERS, 5)))


REPEATS = {
    "subset": lambda d, n: ht.DataLoader(Subset(d, [3, 3, 3, 7, 7, 1]), 4, num_workers=n, shuffle=True, seed=1),
    "subset by ID": lambda d, n: ht.DataLoader(Subset(d, [3, 3, 3, 7, 7, 1]), 4, num_workers=n),
    "batches": lambda d, n: ht.DataLoader(d, batch_sampler=[[3, 3], [7], [3, 7, 7]], num_workers=n),
    "concatenated": lambda d, n: ht.DataLoader(ConcatDataset([Subset(d, [3, 7, 1]), Subset(d, [3, 7, 3])]), 4, num_workers=n),
    "weighted": lambda d, n: ht.DataLoader(d, 4, sampler=WeightedRandomSampler(torch.ones(25), 30, generator=generator()), num_workers=n),
}


def jittered(x):
    return x + torch.rand(1).double() / 2


@pytest.mark.parametrize("name", REPEATS)
def test_a_sample_that_comes_again_draws_anew(folder, name):
    """As in torch, each occurrence has random numbers of its own; they depend on neither workers nor resuming, and the daemon reads the files."""
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


def test_repeats_do_not_depend_on_the_world(folder):
    """Two ranks draw together what one draws."""
    data = Subset(ht.ImageFolder(folder, jittered, loader=length), [3, 3, 3, 7, 7, 1, 1, 1])
    with ht.DataLoader(data, 4, shuffle=True, seed=1) as loader:
        want = [sorted(x.tolist()) for x, _ in loader]
    loaders = [ht.DataLoader(data, 2, shuffle=True, seed=1, rank=rank, world_size=2, name="both") for rank in range(2)]
    got = [sorted(a.tolist() + b.tolist()) for (a, _), (b, _) in zip(*loaders)]
    for loader in loaders:
        loader.close()
    assert got == want


class Fed(torch.utils.data.Sampler):
    """Yields what the loop says in the middle of the epoch, as hard mining does."""

    def __init__(self):
        self.offset = 0

    def __len__(self):
        return 12

    def __iter__(self):
        for i in range(12):
            yield (i + self.offset) % 25


class Lazy(torch.utils.data.Sampler):
    """Draws each index when it is asked for it."""

    def __init__(self):
        pass

    def __len__(self):
        return 12

    def __iter__(self):
        for _ in range(12):
            yield int(torch.randint(25, ()))


def fed(loader):
    for i, batch in enumerate(loader):
        loader.sampler.offset += i
        yield batch


def drawing(loader):
    for batch in loader:
        yield batch, torch.rand(1)


def both_of(make, data, workers):
    """Two loaders side by side that draw from one generator."""
    shared = torch.Generator().manual_seed(4)
    for pair in zip(make(data, 3, shuffle=True, generator=shared, num_workers=workers), make(data, 3, shuffle=True, generator=shared, num_workers=workers)):
        yield pair
    yield torch.rand(1, generator=shared)


@pytest.mark.parametrize("workers", [0, pytest.param(2, marks=pytest.mark.slow)])
@pytest.mark.parametrize("loop", [
    lambda make, data, n: fed(make(data, 2, sampler=Fed(), num_workers=n)),
    lambda make, data, n: drawing(make(data, 2, sampler=Lazy(), num_workers=n)),
    lambda make, data, n: drawing(make(data, 2, shuffle=True, num_workers=n)),
    lambda make, data, n: zip(make(data, 2, shuffle=True, num_workers=n), make(data, 2, shuffle=True, num_workers=n)), both_of])
def test_what_the_loop_does_to_the_order(folder, loop, workers):
    """Samplers are asked when torch's loader asks them, and what they yield then is served."""
    want = []
    for make, data in ((DataLoader, Items(ht.ImageFolder(folder, loader=length))), (ht.DataLoader, ht.ImageFolder(folder, loader=length))):
        torch.manual_seed(3)
        got = [batch for _ in range(2) for batch in loop(make, data, workers)]
        state = torch.get_rng_state()
        want.append((got, state))
    assert same(*(got for got, _ in want)) and torch.equal(want[0][1], want[1][1])


def test_what_is_set_on_the_loader_counts(folder):
    data = ht.ImageFolder(folder, loader=length)
    with ht.DataLoader(data, 25) as loader:
        first, labels = next(iter(loader))
        loader.collate_fn = lambda items: len(items)
        assert list(loader) == [25]
        loader.collate_fn = torch.utils.data.default_collate
        assert same(list(loader), [[first, labels]])
        for name, value in (("shard", True), ("memory", "1MB"), ("epochs", 3)):
            with pytest.raises(ValueError, match=f"{name} attribute should not be set.*make a new loader"):
                setattr(loader, name, value)


def test_the_collate_function_of_single_items_is_ones_own_for_batches(folder):
    convert = torch.utils.data._utils.collate.default_convert
    data = ht.ImageFolder(folder, loader=length)
    with ht.DataLoader(data, 3, collate_fn=convert) as loader:
        assert same(list(loader), list(DataLoader(Items(data), 3, collate_fn=convert)))


def test_what_a_batch_larger_than_the_dataset_draws(folder):
    states = []
    for make, data in ((DataLoader, Items(ht.ImageFolder(folder))), (ht.DataLoader, ht.ImageFolder(folder))):
        torch.manual_seed(3)
        loader = make(data, 50, drop_last=True)
        assert list(loader) == []
        states.append(torch.get_rng_state())
    assert torch.equal(*states)


def test_random_numbers_without_a_seed_are_torchs(folder):
    """By ID as well: loaders side by side and anew draw others, and manual_seed, or a seed, says which."""
    data = ht.ImageFolder(folder, jittered, loader=length)

    def numbers(loaders):
        return [torch.cat([x for x, _ in loader]).flatten() for loader in loaders]

    torch.manual_seed(1)
    a, b, c = numbers([ht.DataLoader(data, 5) for _ in range(3)])
    assert not set(a.tolist()) & set(b.tolist()) and not set(b.tolist()) & set(c.tolist())
    torch.manual_seed(1)
    assert same(numbers([ht.DataLoader(data, 5) for _ in range(3)]), [a, b, c])
    assert same(*numbers([ht.DataLoader(data, 5, shuffle=False, seed=7) for _ in range(2)]))
    with ht.DataLoader(data, 5) as loader:
        batches = iter(loader)
        next(batches)
        state, rest = loader.state_dict(), [x for x, _ in batches]
    with ht.DataLoader(data, 5) as loader:
        loader.load_state_dict(state)
        assert same([x for x, _ in loader], rest)


def test_an_epoch_that_comes_again_is_said(folder, caplog):
    data = ht.ImageFolder(folder, jittered, loader=length)
    sampler = DistributedSampler(data, 1, 0)
    with ht.DataLoader(data, 5, sampler=sampler) as loader:
        for epoch in range(3):
            sampler.set_epoch(epoch)
            list(loader)
        assert "comes again" not in caplog.text
        list(loader)
        list(loader)
        assert caplog.text.count("epoch 2 of the DistributedSampler comes again") == 1


FACTOR = 1


def multiplied(items):
    return FACTOR * torch.stack([x for x, _ in items])


@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("sampler", [None, "weighted"])
def test_workers_of_an_epoch_see_the_program_as_it_is(folder, monkeypatch, persistent, sampler):
    """As in torch, unless they are to stay."""
    data = ht.ImageFolder(folder, loader=length)
    got = []
    for make, data in ((DataLoader, Items(data)), (ht.DataLoader, data)):
        monkeypatch.setattr(sys.modules[__name__], "FACTOR", 1)
        drawn = sampler and WeightedRandomSampler(torch.ones(25), 25, generator=generator())
        loader = make(data, 5, sampler=drawn, num_workers=2, collate_fn=multiplied, persistent_workers=persistent, multiprocessing_context="fork")
        epochs = []
        for _ in range(3):
            epochs.append(list(loader))
            monkeypatch.setattr(sys.modules[__name__], "FACTOR", FACTOR * 2)
        got.append(epochs)
    assert same(*got)


def test_threads_with_an_epoch_each(folder):
    """Iterations that threads begin side by side are each an epoch."""
    data = ht.ImageFolder(folder)
    for arguments in ({"shuffle": True}, {}, {"sampler": WeightedRandomSampler(torch.ones(25), 25)}):
        with ht.DataLoader(data, 4, num_workers=0, **arguments) as loader:
            with ThreadPoolExecutor(4) as threads:
                counts = list(threads.map(lambda _: sum(len(labels) for _, labels in loader), range(12)))
        assert counts == [25] * 12


def test_loader_after_loader(folder):
    """Loaders that hold each other until Python's collector comes are no reason to refuse another one."""
    data = ht.ImageFolder(folder)
    for _ in range(40):
        loader = ht.DataLoader(data, 5, shuffle=True, memory="1MB", staging_buffer="1MB")
        loader.itself = loader, iter(loader)
        next(loader.itself[1])


def test_an_iterable_dataset_goes_on(folder):
    for workers in (0, 2):
        with ht.DataLoader(Stream(), 3, num_workers=workers) as loader:
            want = list(loader)
            batches = iter(loader)
            for _ in range(2):
                next(batches)
            state = loader.state_dict()
            assert (state["epoch"], state["step"]) == (1, 2)
            list(batches)
            assert loader.state_dict()["epoch"] == 2
        with ht.DataLoader(Stream(), 3, num_workers=workers) as loader:
            loader.load_state_dict(state)
            assert loader.state_dict() == state
            assert same(list(loader), want[2:]) and same(list(loader), want)
            with pytest.raises(errors.ConfigError, match="not a state of a loader of an iterable dataset"):
                loader.load_state_dict({"epoch": 1})


@pytest.mark.parametrize("workers", [0, 2])
def test_an_epoch_that_is_named_after_iter(folder, workers):
    """Counts if torch's loader has not asked its sampler yet."""
    data = ht.ImageFolder(folder, loader=length)
    got = []
    for make, data in ((DataLoader, Items(data)), (ht.DataLoader, data)):
        sampler = DistributedSampler(data, 1, 0)
        loader = make(data, 4, sampler=sampler, num_workers=workers)
        list(loader)
        batches = iter(loader)
        sampler.set_epoch(1)
        got.append(list(batches))
    assert same(*got)
