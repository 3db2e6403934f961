"""CoorDL's figures: the paper's numbers, the deviations, and that every figure has its rows."""

import os
import sys

import pytest

HERE = os.path.dirname(__file__)
sys.path.insert(0, os.path.join(HERE, "..", "coordl"))

tomllib = pytest.importorskip("tomllib")

import page
from paper import Item, Number, Paper, Row
from simulator import SCENARIOS, Run, _mb


def test_every_number_has_its_place():
    with open(os.path.join(HERE, "../coordl/paper.toml"), "rb") as file:
        numbers = tomllib.load(file)
    for item, entries in numbers.items():
        if item in ("models", "images"):
            continue
        for name, entry in entries.items():
            if name != "cached":  # what a table is by
                assert entry["at"], (item, name)
                assert set(entry) <= {"value", "at", "used", "each"}, (item, name)


@pytest.mark.parametrize(
    "paper, ours, deviation",
    [
        (100, 110, 0.1),
        (100, 100, 0),
        ([10, 20], 15, 0),
        ([10, 20], 25, 0.25),
        ([10, 20], 5, -0.5),
        (0, 0, 0),
        (0, 1, None),
    ],
)
def test_deviation(paper, ours, deviation):
    found = Row("", Number(paper, ""), ours).deviation
    assert found == (deviation if deviation is None else pytest.approx(deviation))


def test_page_says_why_a_number_deviates():
    rows = [
        Row("close", Number(100, "section 1"), 101, why="not shown"),
        Row("far", Number(1, "section 2", used=True), 2, "x", why="another disk"),
    ]
    text = page.markdown([Item("table 1", "A table", "how", rows)], 2)
    assert "| close | 100 | 101 | +1.0 % |  | section 1 |" in text
    assert "| far | 1.00 x | 2.00 x | +100.0 % | *used*; another disk | section 2 |" in text


def test_rates_are_those_of_table_7():
    paper = Paper()
    rates = paper.rates("ResNet18", "imagenet-1k")
    with open(os.path.join(SCENARIOS, "imagenet-1k.toml"), "rb") as file:
        stated = tomllib.load(file)["environment"]
    assert rates["compute"] == pytest.approx(stated["compute"], rel=1e-3)
    assert rates["preprocess"] == pytest.approx(stated["preprocess"], rel=1e-3)


@pytest.mark.parametrize(
    "name, gigabytes",
    [
        ("imagenet-1k", 146),
        ("openimages", 645),
        ("openimages-hdd", 645),
        ("imagenet-22k", 1300),
        ("fma", 950),
        ("tfrecord", 146),
    ],
)
def test_datasets_have_the_papers_sizes(name, gigabytes):
    """Table 1."""
    with open(os.path.join(SCENARIOS, name + ".toml"), "rb") as file:
        dataset = tomllib.load(file)["dataset"]
    assert dataset["samples"] * _mb(dataset["mu"]) / 1e3 == pytest.approx(gigabytes, rel=2e-3)


class Simulated:
    """Answers at once, always the same."""

    def run(self, scenario, policy, **values):
        assert os.path.exists(os.path.join(SCENARIOS, scenario + ".toml"))
        return Run(10.0, 5.0, 100.0, [5.0] * 8, [(1.0, 500.0)] * 800)

    def analyze(self, file):
        assert os.path.exists(os.path.join(SCENARIOS, file))
        caches = [{"share": x / 20, "fetch_samples_per_s": 1.0} for x in range(21)]
        return {"by_cache": caches, "needed": {"cache_share": 0.5}}


@pytest.mark.slow
def test_every_figure_has_rows_and_is_drawn(tmp_path):
    pytest.importorskip("matplotlib")
    import redraw

    names = set()
    for make in redraw.ITEMS:
        item = make(Simulated(), Paper())
        assert item.rows, make
        assert item.title, make
        assert item.how, make
        assert item.name == make.__name__.replace("_", " ")
        names.add(item.name)
        redraw.draw(item, str(tmp_path), str(tmp_path))
        if item.draw is not None:
            assert (tmp_path / page.picture(item)).stat().st_size > 1000
    assert names >= {
        *(f"figure {n}" for n in (2, 3, 4, 5, 8, 11, 16, 17, 18)),
        *(f"figure 9{part}" for part in "abcde"),
        *(f"table {n}" for n in (3, 5, 6, 7)),
    }


def test_an_unknown_figure_is_refused(capsys):
    pytest.importorskip("matplotlib")
    import redraw

    assert redraw.main("hdmlp", ".", ["figure 99"]) == 2
    assert "figure 9a" in capsys.readouterr().err
