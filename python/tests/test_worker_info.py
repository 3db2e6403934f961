"""``torch.utils.data.get_worker_info`` in the workers of loaders that the daemon serves, as used by
timm's and transformers' worker_init_fn."""

import os
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")

import hdmlp.torch as ht
from torch.utils.data import get_worker_info

pytestmark = [pytest.mark.usefixtures("real", "spawns_preloaded"), pytest.mark.slow]


def told(data):
    worker = get_worker_info()
    return torch.tensor([worker.id, worker.num_workers, worker.dataset.count])


def init(number):
    """timm's first lines, and a mark on the worker's copy of the dataset."""
    worker = get_worker_info()
    assert worker is not None
    assert worker.id == number
    worker.dataset.count = 7


@pytest.mark.parametrize("seed", [3, None])
@pytest.mark.parametrize("context", ["fork", "spawn"])
def test_workers_of_a_served_loader_have_worker_info(folder, seed, context):
    data = ht.ImageFolder(folder, loader=told)
    with ht.DataLoader(
        data,
        2,
        shuffle=True,
        seed=seed,
        num_workers=2,
        worker_init_fn=init,
        multiprocessing_context=context,
    ) as loader:
        found = {tuple(row.tolist()) for batch, _ in loader for row in batch}
    assert found
    assert found <= {(0, 2, 7), (1, 2, 7)}
    assert get_worker_info() is None


def other(number):
    get_worker_info().dataset.transform = abs


def test_worker_init_fn_cannot_change_the_transform(folder):
    data = ht.ImageFolder(folder, loader=told)
    with (
        ht.DataLoader(
            data, 2, num_workers=2, worker_init_fn=other, multiprocessing_context="fork"
        ) as loader,
        pytest.raises(RuntimeError, match="worker_init_fn changed the transform"),
    ):
        next(iter(loader))


def page_faults(setting: str, **environment: str) -> int:
    """Pages mapped while eight arrays of 600 KB at a time were made and dropped, 100 times."""
    script = f"""
import resource, numpy
from hdmlp._workers import child
{setting}
[numpy.ones(150_000, numpy.float32) for _ in range(8)]
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(100):
    [numpy.ones(150_000, numpy.float32) for _ in range(8)]
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""
    return int(
        subprocess.run(
            [sys.executable, "-c", script],
            env={**os.environ, **environment},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
    )


def test_a_worker_reuses_the_memory_of_dropped_pictures():
    assert page_faults("") > 10 * page_faults("child.keep_memory()")


def test_the_users_settings_of_malloc_apply():
    assert (
        page_faults(
            "child.keep_memory()",
            MALLOC_TRIM_THRESHOLD_="131072",
            MALLOC_MMAP_THRESHOLD_="131072",
        )
        > 10_000
    )
