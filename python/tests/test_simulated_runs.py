"""`hdmlp simulate --from-run` predicts real runs: which bytes come from where. Times are compared
by bench/fromrun.py, because a test must not depend on the machine's load.
"""

import json
import os
import subprocess
import sys

import pytest
from hdmlp._daemon import connecting
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
        [connecting.find_binary(), "simulate", "--json", "--from-run", str(path), *flags],
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


def test_files_in_a_cache_directory(short, shown, tmp_path):
    """The report has what was written to the directory, by which the prediction goes."""
    with DataLoader(
        shown,
        batch_size=BATCH,
        epochs=EPOCHS,
        seed=3,
        memory="0B",
        cache_dir=str(tmp_path / "cache"),
        cache_size=f"{2 * FILES * SIZE}B",
    ) as loader:
        for _ in range(EPOCHS):
            assert sum(len(batch.samples) for batch in loader) == FILES
        report = loader.report()
    (kept,) = report["classes"]
    assert kept["written"]["samples"] == FILES
    assert kept["written"]["bytes"] == FILES * SIZE
    assert 0 < kept["written"]["busy_seconds"] < sum(epoch["seconds"] for epoch in report["epochs"])
    expected, measured = (
        amounts(predicted(report, tmp_path), key) for key in ("predicted", "measured")
    )
    for rows in (expected, measured):
        assert rows.pop("read from the source") == FILES
        assert sum(rows.values()) == EPOCHS * FILES


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


def test_what_if_about_the_source_of_a_warm_run(short, shown, tmp_path):
    """A run that found all in memory does not show how fast the source is; an earlier one did."""

    def loader():
        return DataLoader(shown, batch_size=BATCH, epochs=EPOCHS, seed=3, memory=f"{FILES * SIZE}B")

    with loader() as first:
        for _ in range(EPOCHS):
            assert sum(len(batch.samples) for batch in first) == FILES
        with loader() as second:
            for _ in range(EPOCHS):
                assert sum(len(batch.samples) for batch in second) == FILES
            report = second.report()
    assert report["source"]["bytes"] == 0
    assert "unsure" not in predicted(report, tmp_path)
    answer = predicted(report, tmp_path, "--memory", "0")
    assert any("from the source: too little" in text for text in answer["unsure"])
    (took,) = (row for row in answer["what_if"]["rows"] if row["what"] == "all epochs")
    # 3 MB; the mount gives 4 MB/s after a burst.
    assert took["what_if"] > took["as_it_ran"] + 0.2
