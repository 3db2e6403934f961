"""What resuming survives: iterators that are made and not asked; and what it does not restore."""

import pytest

torch = pytest.importorskip("torch")

import hdmlp.torch as ht
from dropin import NUMBERS, Numbers, Stream, generator, same

pytestmark = pytest.mark.usefixtures("real")

LOADERS = {
    "served": lambda d, n: ht.DataLoader(d, 4, shuffle=True, seed=1, num_workers=n),
    "given": lambda d, n: ht.DataLoader(d, 4, shuffle=True, num_workers=n),
    "given, generator": lambda d, n: ht.DataLoader(
        d, 4, shuffle=True, generator=generator(), num_workers=n
    ),
    "drawn": lambda d, n: ht.DataLoader(NUMBERS, 5, shuffle=True, num_workers=n),
    "seeded": lambda d, n: ht.DataLoader(NUMBERS, 5, shuffle=True, seed=2, num_workers=n),
    "workers that stay": lambda d, n: ht.DataLoader(
        NUMBERS, 5, shuffle=True, num_workers=1, persistent_workers=True
    ),
}


def plain(batches):
    return [y.tolist() for _, y in batches]


@pytest.mark.parametrize("set_epoch", [False, True])
@pytest.mark.parametrize("workers", [0, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", LOADERS)
def test_an_iterator_that_is_not_asked_leaves_the_state(folder, name, workers, set_epoch):
    """Frameworks make some; the next one resumes."""
    data = ht.ImageFolder(folder)
    with LOADERS[name](data, workers) as loader:
        list(loader)
        batches = iter(loader)
        next(batches), next(batches)
        state = loader.state_dict()
        want = plain(batches)
    torch.manual_seed(99)
    with LOADERS[name](data, workers) as loader:
        loader.load_state_dict(state)
        iter(loader)
        kept = iter(loader)
        assert loader.state_dict()["step"] == 2
        if set_epoch:
            loader.set_epoch(1)
        batches = iter(loader)
        assert plain(batches) == want
        assert loader.epoch == 2
        loader.set_epoch(5)
        iter(loader)
        assert (loader.epoch, loader.state_dict()["step"]) == (5, 0)
        del kept


def test_another_epoch_replaces_what_an_unasked_iterator_would_resume():
    with ht.DataLoader(NUMBERS, 5, shuffle=True, seed=2) as loader:
        want = list(loader), list(loader)
        next(iter(loader))
        state = loader.state_dict()
        loader.load_state_dict(state)
        iter(loader)
        loader.set_epoch(1)
        assert same(list(loader), want[1])


@pytest.mark.parametrize("set_on", ["loader", "sampler"])
@pytest.mark.parametrize("name", ["served", "seeded"])
def test_another_epoch_replaces_a_loaded_state(folder, name, set_on):
    data = ht.ImageFolder(folder)
    with LOADERS[name](data, 0) as loader:
        want = [plain(loader) for _ in range(4)]
    with LOADERS[name](data, 0) as loader:
        next(iter(loader))
        loader.load_state_dict(loader.state_dict())
        (loader if set_on == "loader" else loader.sampler).set_epoch(3)
        assert plain(loader) == want[3]
        assert loader.epoch == 4


class Stateful(Numbers):
    def state_dict(self):
        return {}

    def load_state_dict(self, state):
        pass


@pytest.mark.parametrize("workers", [0, 1])
def test_a_datasets_own_state_is_not_saved_and_a_warning_says_so(caplog, workers):
    class Streaming(Stateful, Stream):
        pass

    for data in (Stateful(), Streaming()):
        caplog.clear()
        with ht.DataLoader(data, 4, num_workers=workers) as loader:
            next(iter(loader))
            assert "state_dict" not in caplog.text
            loader.state_dict(), loader.state_dict()
        said = f"the {type(data).__name__} has a state_dict, which, unlike"
        assert caplog.text.count(said) == 1
    caplog.clear()
    with ht.DataLoader(NUMBERS, 4) as loader:
        loader.state_dict()
    assert "state_dict" not in caplog.text
