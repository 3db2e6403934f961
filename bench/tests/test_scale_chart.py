"""The chart of how a cluster scales."""

import json
import os
import subprocess

import pytest

HERE = os.path.dirname(__file__)


def test_every_size_is_drawn(tmp_path):
    """docs/scale.json can be drawn, and each panel has all numbers of nodes."""
    pytest.importorskip("matplotlib")
    import scale_chart

    with open(os.path.join(HERE, "../../docs/scale.json"), encoding="utf-8") as file:
        sizes = json.load(file)
    figure = scale_chart.figure_of(sizes)
    for axes in figure.axes:
        assert [int(label.get_text()) for label in axes.get_xticklabels()] == [
            size["nodes"] for size in sizes
        ]
        assert axes.get_lines()
    figure.savefig(tmp_path / "chart.png")
    assert (tmp_path / "chart.png").stat().st_size > 1000


@pytest.mark.parametrize(
    "given, saved", [((), True), (("SIZES=4,16",), False), (("SIZES=4,16", "SAVE=1"), True)]
)
def test_other_sizes_do_not_replace_what_is_committed(given, saved):
    shown = subprocess.run(
        ["make", "-n", "-C", os.path.join(HERE, "../.."), "scale", *given],
        capture_output=True,
        text=True,
        check=True,
    )
    assert ("docs/scale.json" in shown.stdout) == saved
    assert ("docs/scale.png" in shown.stdout) == saved
