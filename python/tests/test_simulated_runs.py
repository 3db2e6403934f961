"""`hdmlp simulate --from-run` predicts real runs: which bytes come from where. Times are compared
by bench/fromrun.py, because a test must not depend on the machine's load.
"""

import json
import os
import subprocess
import sys

import pytest
from hdmlp import _daemon
from hdmlp.data import DataLoader
from identities import short  # noqa: F401

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "..", "bench"))
from throttled import Throttled, Unavailable

pytestmark = pytest.mark.slow

FILES, SIZE, EPOCHS, BATCH = 64, 16384, 3, 8


@pytest.fixture
def shown(tmp_path):
    """A folder behind a mount of 4 MB/s: an epoch from there takes 0.25 s."""
    for number in range(FILES):
        path = tmp_path / "data" / "ab"[number % 2] / f"{number:02}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(number.to_bytes(2, "big") * (SIZE // 2))
    try:
        with Throttled(str(tmp_path / "data"), 4_000_000) as mount:
            yield mount.path
    except Unavailable as error:
        pytest.skip(str(error))


def predicted(report, tmp_path, *flags):
    path = tmp_path / "report.json"
    path.write_text(json.dumps(report))
    done = subprocess.run(
        [_daemon.find_binary(), "simulate", "--json", "--from-run", str(path), *flags],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done
    return json.loads(done.stdout)


def amounts(answer, key):
    """By what they are, in files."""
    return {
        row["what"]: round(row[key] * 1e6 / SIZE, 3)
        for row in answer["rows"]
        if row["unit"] == "MB"
    }


@pytest.mark.parametrize("held", [0, FILES // 2, FILES])
def test_bytes_by_tier(short, shown, tmp_path, held):
    with DataLoader(
        shown,
        batch_size=BATCH,
        epochs=EPOCHS,
        seed=3,
        memory=f"{held * SIZE}B",
        prefetch_batches=1,
    ) as loader:
        for _ in range(EPOCHS):
            assert sum(len(batch.samples) for batch in loader) == FILES
        report, cluster = loader.report(), loader.report(cluster=True)
    reads = EPOCHS * (FILES - held) + held
    for saved in (report, cluster):
        answer = predicted(saved, tmp_path)
        expected, measured = (amounts(answer, key) for key in ("predicted", "measured"))
        for rows in (expected, measured):
            read = rows.pop("read from the source")
            assert sum(rows.values()) == EPOCHS * FILES
            # A read may serve two epochs, if the one that begins needs what is still being read.
            assert reads - (0 if held == FILES else BATCH) <= read <= reads
        # What is read once may be delivered first by either tier: classes are filled ahead of the
        # batches where the source would be idle.
        if not held:
            assert expected == measured
    epochs = [row["what"] for row in answer["rows"] if row["what"].startswith("epoch")]
    assert len(epochs) == EPOCHS
    assert answer["policy"] == "cooperative"


def test_what_if(short, shown, tmp_path):
    """More memory and more nodes hold more of the dataset."""
    with DataLoader(
        shown,
        batch_size=BATCH,
        epochs=EPOCHS,
        seed=3,
        memory=f"{FILES // 4 * SIZE}B",
        prefetch_batches=1,
    ) as loader:
        for _ in range(EPOCHS):
            assert sum(len(batch.samples) for batch in loader) == FILES
        report = loader.report()
    for flags in (["--memory", f"{FILES * SIZE}B"], ["--nodes", "4"]):
        answer = predicted(report, tmp_path, *flags)
        measured = amounts(answer, "measured")["read from the source"]
        (source,) = (row for row in answer["what_if"]["rows"] if row["unit"] == "MB")
        # Reads that serve two epochs depend on when each of them begins.
        assert source["as_it_ran"] * 1e6 / SIZE == pytest.approx(measured, rel=0.1)
        # Each file once, and what is read directly: by what the run measured, other nodes may look
        # slower than the source.
        assert FILES <= round(source["what_if"] * 1e6 / SIZE) <= measured * 2 / 3
