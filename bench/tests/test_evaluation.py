"""The page of make evaluation: its table of rows, what is computed of rounds, and what it shows."""

import inspect
import json
import os
import sys
from pathlib import Path

import pytest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))

import rounds
from evaluation import __main__ as program
from evaluation import cluster, loading, page
from evaluation.lines import Line, Row, middle
from evaluation.table import ROWS

MACHINE = {
    "processors": 2,
    "processor": "a processor",
    "memory": 16e9,
    "kernel": "6.1",
    "versions": {"torch": "2.15", "torchvision": "0.30"},
}


def row(key="rates", measure=lambda: [], **changed):
    texts = dict.fromkeys(("item", "title", "printed", "here", "differs"), "a text")
    return Row(**{"key": key, **texts, "measure": measure, "quick": {}, "full": {}, **changed})


def result(lines=(), **changed):
    return {
        "lines": [line._asdict() for line in lines],
        "failed": None,
        "at": "2026-11-30T10:00+00:00",
        "commit": "abc",
        "seconds": 12.3,
        "quick": False,
        "others": 0.01,
        "stolen": 0.0,
        **changed,
    }


def test_deviations_are_from_printed_numbers():
    assert Line("", 1.5, "x", paper=2.0).deviation == pytest.approx(-0.25)
    assert Line("", 1.5, "x").deviation is None
    assert middle("", [3.0, 1.0, 2.0], "s") == Line("", 2.0, "s", spread=(1.0, 3.0))
    assert middle("", [3.0], "s") == Line("", 3.0, "s")


@pytest.mark.parametrize(
    "value, unit, shown",
    [
        (0.1234, "%", "12.34 %"),
        (2.345, "x", "2.35 x"),
        (1132, "x", "1,132 x"),
        (123.4, "s", "123 s"),
        (12.34, "s", "12.3 s"),
        (1.234, "s", "1.23 s"),
        (1234.5, "images/s", "1,234 images/s"),
        (0.01234, "ms", "0.0123 ms"),
        (0.0, "ms", "0 ms"),
    ],
)
def test_numbers(value, unit, shown):
    assert page.number(value, unit) == shown


def test_columns_that_are_empty_are_left_out():
    assert page.table([Line("a", 1.0, "s"), Line("b", 2.0, "s")]).splitlines() == [
        "|  | here |",
        "| --- | ---: |",
        "| a | 1.00 s |",
        "| b | 2.00 s |",
    ]
    shown = page.table([Line("a", 3.0, "x", paper=2.0, spread=(2.0, 4.0)), Line("b", 1.0, "x")])
    assert shown.splitlines() == [
        "|  | here | range | paper | deviation |",
        "| --- | ---: | ---: | ---: | ---: |",
        "| a | 3.00 x | 2.00 x to 4.00 x | 2.00 x | +50 % |",
        "| b | 1.00 x |  |  |  |",
    ]


def test_a_row_that_failed_says_why_and_the_others_stay():
    rows = [row("good"), row("bad"), row("absent")]
    results = {"good": result([Line("a", 1.0, "s")]), "bad": result(failed="no source\n" * 3)}
    assert page.failed(rows, results) == {"bad": "no source\n" * 3, "absent": "not run"}
    text = page.markdown(rows, results, MACHINE)
    assert "FAILED, or not run: bad, absent." in text
    assert "FAILED:\n\n```text\nno source\n" in text
    assert "| a | 1.00 s |" in text
    assert not page.failed(rows[:1], results)


def test_what_disturbed_a_row_is_said():
    rows = [row()]
    quiet = page.markdown(rows, {"rates": result()}, MACHINE)
    assert "compare ratios" not in quiet.split("## a text")[1]
    busy = page.markdown(rows, {"rates": result(others=0.5, quick=True)}, MACHINE)
    said = " ".join(busy.split())
    assert "12 s, with QUICK=1. Other programs, and the row's own daemons, used 50% of" in said


def test_all_rows_have_what_they_take():
    assert len({one.key for one in ROWS}) == len(ROWS)
    for one in ROWS:
        parameters = inspect.signature(one.measure)
        for given in (one.quick, one.full):
            parameters.bind(**given)
        assert one.quick != one.full
        nodes = (*one.quick.get("nodes", ()), *one.full["nodes"]) if _several(one) else ()
        assert set(nodes) <= set(cluster.SOURCE), "the source has a rate for so many nodes"


def _several(one):
    return isinstance(one.full.get("nodes"), tuple)


def test_epochs_are_of_all_ranks():
    def rank(begin, end, stall, longest):
        epoch = {"begin": begin, "end": end, "stall": stall, "longest": longest, "steps": 4}
        return {"epochs": [epoch]}

    result_ = {"ranks": [rank(0.0, 4.0, 1.0, 0.5), rank(1.0, 5.0, 3.0, 0.75)]}
    (epoch,) = cluster.epochs(result_)
    assert epoch == cluster.Epoch(seconds=5.0, stall=2.0, longest=0.75, steps=4, share=0.5)


def test_steps_and_the_source_are_as_much_slower():
    assert cluster.step("ResNet-50", 219) == pytest.approx(cluster.SLOWER)
    assert cluster.RATES["SqueezeNet"] == pytest.approx(398.4, abs=0.1)
    assert cluster.RATES["ResNet-50, four V100"] == pytest.approx(2754, abs=0.5)
    assert cluster.source(1) == pytest.approx(66e6 / cluster.SLOWER)


def test_hymenoptera_has_two_classes(tmp_path, monkeypatch):
    monkeypatch.setattr(loading, "DATA", str(tmp_path))
    monkeypatch.setattr(loading, "ANTS", 3)
    monkeypatch.setattr(loading, "BEES", 2)
    path, size = loading.ants_and_bees()
    files = {folder: os.listdir(os.path.join(path, folder)) for folder in os.listdir(path)}
    assert {folder: len(names) for folder, names in files.items()} == {"ants": 3, "bees": 2}
    assert not set(files["ants"]) & set(files["bees"])
    assert size == sum(file.stat().st_size for file in Path(path).rglob("*.jpg"))
    assert loading.ants_and_bees() == (path, size)


def test_rows_are_chosen_by_their_keys():
    assert program.chosen("") == list(ROWS)
    assert [one.key for one in program.chosen("sharing, imagenet")] == ["sharing", "imagenet"]
    with pytest.raises(ValueError, match="no row is called 'nothing'; there are hymenoptera, "):
        program.chosen("nothing")


def test_a_row_that_fails_is_a_result():
    def fail():
        raise rounds.RoundFailed("rank 1 ended")

    found = program.measured(row(measure=fail), quick=True, left=60.0)
    assert (found["failed"], found["lines"], found["quick"]) == ("rank 1 ended", [], True)
    found = program.measured(row(measure=lambda: [Line("a", 1.0, "s")]), quick=False, left=60.0)
    assert (found["failed"], found["lines"]) == (None, [Line("a", 1.0, "s")._asdict()])


def test_no_row_begins_after_the_time():
    found = program.measured(row(measure=lambda: 1 / 0), quick=True, left=-1.0)
    assert "was over before it began" in found["failed"]


def test_a_row_ends_with_the_time(monkeypatch):
    monkeypatch.setattr(program.signal, "setitimer", lambda timer, left: None)
    found = program.measured(row(measure=program.stop), quick=True, left=1.0)
    assert "was over before it ended" in found["failed"]


def test_rows_that_are_not_run_keep_their_figures(tmp_path):
    assert program.earlier(tmp_path) == {}
    kept = {ROWS[0].key: result([Line("a", 1.0, "s")])}
    program.write(tmp_path, {**kept, "gone": result()}, MACHINE)
    assert program.earlier(tmp_path) == kept
    assert "| a | 1.00 s |" in (tmp_path / "EVALUATION.md").read_text(encoding="utf-8")


def test_the_page_is_of_its_figures():
    docs = Path(HERE).parents[1] / "docs"
    report = json.loads((docs / "evaluation.json").read_text(encoding="utf-8"))
    text = (docs / "EVALUATION.md").read_text(encoding="utf-8")
    assert page.markdown(ROWS, report["rows"], report["machine"]) == text
