"""The grid of cells, in which no policy of an earlier commit may be faster."""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

import grid
import run


def test_policies_far_from_the_best_are_run_once(monkeypatch):
    """Of the grid; ours is run in each round, also if it is the slowest."""
    seconds = {"HDMLP, cooperative": 9.0, "before, minio": 1.0, "before, staging": 1.6}
    cell = grid.Cell("grid/disk/40/40", "40", 2.0, disk=40e6)
    cell.contenders = [{"name": name, "contender": "bare"} for name in seconds]
    ran = []

    def measure(contender):
        ran.append(contender["name"])
        figures = {key: seconds[contender["name"]] for key, _, _ in cell.columns}
        return {
            "contender": contender,
            "figures": figures,
            "ranks": [{}],
            "errors": [],
            "others": 0,
        }

    monkeypatch.setattr(cell, "measure", measure)
    monkeypatch.setattr(cell, "prepare", lambda: None)
    cell.title = ""
    assert run.measure(cell, 3, has_torch=True)["failed"] == {}
    assert sorted(ran) == ["HDMLP, cooperative"] * 3 + ["before, minio"] * 3 + ["before, staging"]
