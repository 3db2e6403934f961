"""How far the daemon reads ahead of the training process."""

import itertools

import hdmlp.data as data
import pytest
from waiting import until

BATCH, AHEAD = 4, 2


@pytest.fixture
def folder(tmp_path):
    """400 samples of 500 bytes."""
    for i in range(400):
        path = tmp_path / "data" / f"class{i % 4}" / f"{i:03d}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(i.to_bytes(2, "big") * 250)
    return str(tmp_path / "data")


@pytest.mark.parametrize(
    "options", [{}, {"policy": "staging"}, {"staging_buffer": "100KB"}], ids=str
)
def test_at_most_prefetch_batches_are_read_ahead(real, folder, options):
    with data.DataLoader(
        data.Folder(folder), batch_size=BATCH, epochs=2, prefetch_batches=AHEAD, memory=0, **options
    ) as loader:

        def ahead(taken):
            return loader.report()["source"]["samples"] // BATCH - taken

        taken = 0
        for _ in range(2):
            for _ in itertools.islice(loader, 100):
                taken += 1
                if taken in (1, 7, 40, 150):  # until everything that may be read is, or too much
                    until(lambda taken=taken: ahead(taken) >= AHEAD, "the daemon has read ahead")
                assert ahead(taken) <= AHEAD, f"after {taken} batches"
        assert taken == 200


def test_batches_in_workers_count_as_read_ahead(real, folder):
    torch = pytest.importorskip("hdmlp.torch")
    with torch.DataLoader(
        torch.ImageFolder(folder, loader=bytes),
        batch_size=BATCH,
        shuffle=True,
        epochs=1,
        prefetch_batches=AHEAD,
        memory=0,
        num_workers=3,
        collate_fn=len,
    ) as loader:
        for taken, n in enumerate(loader, 1):
            assert n == BATCH
            assert loader.report()["source"]["samples"] <= (taken + AHEAD) * BATCH
        assert taken == 100
