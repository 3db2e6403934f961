"""``torch.utils.data.get_worker_info`` in the workers of loaders that the daemon serves, as timm's and transformers' worker_init_fn ask for it."""

import pytest

torch = pytest.importorskip("torch")

import hdmlp.torch as ht  # noqa: E402
from torch.utils.data import get_worker_info  # noqa: E402

pytestmark = pytest.mark.usefixtures("real")


def told(data):
    worker = get_worker_info()
    return torch.tensor([worker.id, worker.num_workers, worker.dataset.count])


def init(number):
    """Only timm's first lines, and a mark on the worker's copy of the dataset."""
    worker = get_worker_info()
    assert worker is not None and worker.id == number
    worker.dataset.count = 7


@pytest.mark.parametrize("seed", [3, None])
@pytest.mark.parametrize("context", ["fork", "spawn"])
def test_workers_of_a_served_loader(folder, seed, context):
    data = ht.ImageFolder(folder, loader=told)
    with ht.DataLoader(data, 2, shuffle=True, seed=seed, num_workers=2, worker_init_fn=init, multiprocessing_context=context) as loader:
        found = {tuple(row.tolist()) for batch, _ in loader for row in batch}
    assert found and found <= {(0, 2, 7), (1, 2, 7)}
    assert get_worker_info() is None


def other(number):
    get_worker_info().dataset.transform = abs


def test_what_is_made_of_samples_cannot_be_changed_in_a_worker(folder):
    data = ht.ImageFolder(folder, loader=told)
    with ht.DataLoader(data, 2, num_workers=2, worker_init_fn=other, multiprocessing_context="fork") as loader:
        with pytest.raises(RuntimeError, match="worker_init_fn changed the transform"):
            next(iter(loader))
