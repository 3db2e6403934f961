"""The generators of worker processes when ``worker_init_fn`` runs, as torch seeds its workers'."""

import random

import pytest

torch = pytest.importorskip("torch")
numpy = pytest.importorskip("numpy")

import hdmlp.torch as ht
from torch.utils.data import ConcatDataset, DataLoader, Dataset, Subset, get_worker_info

pytestmark = pytest.mark.usefixtures("real", "spawns_preloaded")


class Told(Dataset):
    """Eight times what ``worker_init_fn`` found in the worker."""

    def __len__(self):
        return 8

    def __getitem__(self, i):
        return torch.tensor(get_worker_info().dataset.told, dtype=torch.float64)


def note(number):
    info = get_worker_info()
    info.dataset.told = [
        number,
        info.seed % 2**31,
        torch.initial_seed() % 2**31,
        float(torch.rand(())),
        random.random(),
        numpy.random.random(),
    ]


def told(_):
    return torch.tensor(get_worker_info().dataset.told, dtype=torch.float64)


def rows(loader, epochs=2):
    """What each worker found, by its number, in each epoch."""
    found = []
    for _ in range(epochs):
        values = [row.tolist() for batch in loader for row in batch]
        found.append({row[0]: row[1:] for row in values})
    return found


@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("context", ["fork", "spawn"])
def test_workers_are_seeded_as_torchs(context, persistent):
    def found(loader):
        torch.manual_seed(5)
        return rows(
            loader(
                Told(),
                2,
                num_workers=2,
                worker_init_fn=note,
                multiprocessing_context=context,
                persistent_workers=persistent,
            )
        )

    want = found(DataLoader)
    assert found(ht.DataLoader) == want
    assert len(want[0]) == 2
    assert (want[0] == want[1]) == persistent


class Folder(Told):
    """Told, for as many items as the folder of the tests has."""

    def __len__(self):
        return 25

    def __getitem__(self, i):
        return super().__getitem__(i), 0


@pytest.mark.parametrize("persistent", [False, True])
def test_workers_of_a_served_folder_are_seeded_as_torchs_where_torch_draws_the_order(
    folder, persistent
):
    def found(loader, data):
        torch.manual_seed(5)
        return rows(
            loader(
                data,
                2,
                shuffle=True,
                num_workers=2,
                worker_init_fn=note,
                persistent_workers=persistent,
                multiprocessing_context="fork",
                collate_fn=torch_first,
            ),
            3,
        )

    want = found(DataLoader, Folder())
    assert found(ht.DataLoader, ht.ImageFolder(folder, loader=told)) == want
    assert len(want[0]) == 2


ARGUMENTS = {
    "seeded": {"shuffle": True, "seed": 3},
    "drawn": {"shuffle": True},
    "by ID": {},
}


@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("arguments", ARGUMENTS.values(), ids=ARGUMENTS)
def test_workers_of_a_folder_differ(folder, arguments, persistent):
    """Between workers, and between epochs if each has new ones."""
    data = ht.ImageFolder(folder, loader=told)
    with ht.DataLoader(
        data,
        2,
        num_workers=2,
        worker_init_fn=note,
        persistent_workers=persistent,
        multiprocessing_context="fork",
        collate_fn=torch_first,
        **arguments,
    ) as loader:
        first, second = rows(loader)
    assert len(first) == 2
    assert (first == second) == persistent
    seeds = {row[0] for epoch in (first, second) for row in epoch.values()}
    assert len(seeds) == (2 if persistent else 4)
    for epoch in (first, second):
        assert epoch[1][0] == (epoch[0][0] + 1) % 2**31
        assert all(row[0] == row[1] for row in epoch.values())
        assert all(a != b for a, b in zip(*epoch.values()))


def torch_first(batch):
    return [x for x, _ in batch]


def test_ranks_have_workers_of_their_own(folder):
    """Two ranks of one order do not draw the same numbers in their workers."""
    data = ht.ImageFolder(folder, loader=told)
    seeds = []
    for rank in range(2):
        with ht.DataLoader(
            data,
            2,
            shuffle=True,
            seed=3,
            rank=rank,
            world_size=2,
            num_workers=1,
            worker_init_fn=note,
            multiprocessing_context="fork",
            collate_fn=torch_first,
            name=f"rank {rank}",
        ) as loader:
            seeds.append(rows(loader, 1)[0][0][0])
    assert seeds[0] != seeds[1]


def test_items_do_not_depend_on_the_workers(folder):
    def drawn(workers):
        torch.manual_seed(5)
        data = ht.ImageFolder(folder, loader=uniform)
        with ht.DataLoader(data, 2, shuffle=True, seed=3, num_workers=workers) as loader:
            return [x.tolist() for x, _ in loader]

    assert drawn(0) == drawn(1) == drawn(2)


def uniform(_):
    return torch.rand(2)


def of_dataset(_):
    data = get_worker_info().dataset
    return torch.tensor([len(data), type(data) in (Subset, ConcatDataset)])


PARTS = {
    "Subset": lambda d: Subset(d, [0, 1, 2, 3]),
    "ConcatDataset": lambda d: ConcatDataset([d, Subset(d, [0])]),
    "whole": lambda d: d,
}


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("arguments", [{}, {"shuffle": True}])
def test_worker_info_has_the_loaders_dataset(folder, part, arguments):
    data = PARTS[part](ht.ImageFolder(folder, loader=of_dataset))
    for loader in (DataLoader, ht.DataLoader):
        batches = list(loader(data, 2, num_workers=1, multiprocessing_context="fork", **arguments))
        assert [row for x, _ in batches for row in x.tolist()] == len(data) * [
            [len(data), part != "whole"]
        ]


def change_the_folder(_):
    get_worker_info().dataset.dataset.transform = abs


def test_a_change_of_a_subsets_folder_is_found(folder):
    data = Subset(ht.ImageFolder(folder, loader=uniform), [0, 1])
    with (
        ht.DataLoader(
            data,
            2,
            num_workers=1,
            worker_init_fn=change_the_folder,
            multiprocessing_context="fork",
        ) as loader,
        pytest.raises(RuntimeError, match="worker_init_fn changed the transform"),
    ):
        next(iter(loader))
