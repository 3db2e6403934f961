"""LMDBIO's figures, and LMDB beside fio."""

import json
import os
import shutil
import sys

import pytest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))

import fio
import lmdb_values
import lmdbio
import record_loaders
import rounds
import run
from lmdb_values import RANKS, named

pytestmark = pytest.mark.slow


@pytest.fixture
def scenario():
    """A scenario whose seconds fall by half of what would be ideal, and faster with HDMLP."""
    medians = {}
    for loader, faster in ((lmdbio.LMDB, 1), (lmdbio.OURS, 2)):
        for ranks in RANKS:
            seconds = 10 / faster / (1 + (ranks - 1) / 2)
            medians[named(loader, ranks)] = {
                "seconds": seconds,
                **dict.fromkeys(lmdbio.PARTS, seconds / len(lmdbio.PARTS)),
                "switches": 2.0 / faster,
                "user": 10.0,
                "system": 20.0,
                "faults": 1.0,
                "device": 1.0,
            }
    return {"title": "a title", "medians": medians}


def test_figures_have_all_ranks_and_the_paper(scenario, tmp_path):
    pytest.importorskip("matplotlib")
    import lmdbio_chart

    figure = lmdbio_chart.figure_of(scenario["medians"], "a title")
    assert len(figure.axes) == 6
    for axes in figure.axes:
        labels = [label.get_text() for label in axes.get_xticklabels()]
        assert labels[:4] == [str(ranks) for ranks in RANKS]
    scaling = {line.get_label(): line for line in figure.axes[0].get_lines()}
    assert list(scaling["paper, LMDB"].get_ydata()) == [pytest.approx(512 / 20)]
    assert list(scaling[lmdbio.LMDB].get_ydata())[-1] == pytest.approx(4.5)
    names = lmdbio.draw(scenario, str(tmp_path / "figures"))
    assert [os.path.splitext(name)[1] for name in names] == [".md", ".png", ".svg"]
    for name in names:
        assert os.path.getsize(name) > 1000
    text = (tmp_path / "figures-lmdbio.md").read_text()
    for number in ("nearly 20", "70%", "| 6 with 512 processes | 2.00 with 8 ranks"):
        assert number in text


def test_a_part_of_the_contenders_is_not_drawn(scenario, tmp_path):
    del scenario["medians"][named("HDMLP", 8)]
    assert lmdbio.draw(scenario, str(tmp_path / "figures")) == [str(tmp_path / "figures-lmdbio.md")]
    assert not lmdbio.compared(scenario["medians"])


def test_saving_again_replaces_what_was_saved(scenario, tmp_path):
    pytest.importorskip("matplotlib")
    page = tmp_path / "LMDBIO.md"
    shutil.copy(os.path.join(HERE, "../../docs/LMDBIO.md"), page)
    before = page.read_text().split(lmdbio.HEADING)[0].rstrip()
    machine = {"processors": 2, "processor": "a processor", "commit": "abc"}
    for title in ("first", "second"):
        lmdbio.save({**scenario, "title": title}, machine, str(tmp_path))
    text = page.read_text()
    assert text.startswith(before)
    assert text.count(lmdbio.HEADING) == 1
    assert "second" in text
    assert "first." not in text
    assert (tmp_path / "lmdbio.png").exists()


def test_parts_of_the_time_are_of_ranks_that_wait_for_each_other(tmp_path):
    """Of two ranks that read plainly, and meet after each step."""
    folder = tmp_path / "data" / "class0"
    folder.mkdir(parents=True)
    for number in range(8):
        (folder / f"{number}.bin").write_bytes(bytes(100))
    result = rounds.run(
        {"contender": "plain", "workers": 0},
        {
            "path": str(tmp_path / "data"),
            "batch_size": 2,
            "epochs": 1,
            "seed": 1,
            "step": 0.02,
            "synchronous": True,
            "world_size": 2,
        },
    )
    used = lmdb_values.Used(result)
    for rank in result["ranks"]:
        epoch = rank["epochs"][0]
        assert epoch["waited"] > 0
        total = epoch["end"] - epoch["begin"]
        assert epoch["stall"] + epoch["compute"] + epoch["waited"] <= total
        assert epoch["system"] <= epoch["cpu"] + 0.02  # which are counted in ticks
    assert used("switches", 0) >= 4  # sleeps
    assert used.wall(0) >= 0.04


def test_reads_of_fio_are_counted(tmp_path):
    if fio.missing():
        pytest.skip("fio is not installed")
    path = tmp_path / "data"
    path.write_bytes(os.urandom(1 << 20))
    assert fio.reads(str(path), 4096, 2, 0.2) > 0
    with pytest.raises(rounds.RoundFailed, match="fio failed"):
        fio.reads(str(path), 1000, 2, 0.2)  # no whole sectors


def test_the_row_says_what_limits_the_rate(monkeypatch, tmp_path):
    row = {"fio": 1000.0, "of_fio": 0.5, "busy": 0.97, "depth": 16}
    said = lmdb_values.beside_fio(row)
    assert "0.50 of the rate of fio with 16 reads in progress" in said
    assert "the disk is not the limit: the processors were in use 97%" in said
    assert "limit:" not in lmdb_values.beside_fio({**row, "busy": 0.4})
    assert "limit:" not in lmdb_values.beside_fio({**row, "of_fio": 0.9})
    monkeypatch.setenv("PATH", str(tmp_path))
    assert fio.missing()
    assert "fio is missing" in lmdb_values.beside_fio({**row, "fio": float("nan")})


def test_contenders_are_known():
    for key in ("lmdb", "lmdbio", "objects"):
        for scenario in run.find(key, quick=True):
            for contender in scenario.contenders:
                assert contender["contender"] in record_loaders.CONTENDERS
                assert contender.get("source", "shards") in record_loaders.OURS
            assert json.dumps(scenario.contenders)
