"""The matrix of frameworks shows the results of its tests and rounds."""

import json
import os
import subprocess
import sys

import pytest

HERE = os.path.dirname(os.path.abspath(__file__))
BENCH = os.path.dirname(HERE)
sys.path.insert(0, BENCH)

import frameworks
import newest
import run
from throttled import Unavailable

FRAMEWORK = frameworks.FRAMEWORKS[0]

TESTS = """
import pytest

@pytest.mark.parametrize("kind, ranks", [("a", 1), ("a", 2), ("b", 2)])
def test_trainer(kind, ranks):
    assert (kind, ranks) != ("b", 2)

def test_alone():
    pass

def test_skipped():
    pytest.skip("no such package")

@pytest.fixture
def broken():
    raise RuntimeError

def test_broken(broken):
    pass
"""


def test_outcomes_of_tests_are_counted(tmp_path):
    (tmp_path / "test_some.py").write_text(TESTS)
    said = tmp_path / "outcomes"
    subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            "-p",
            "outcomes",
            str(tmp_path),
        ],
        cwd=tmp_path,
        capture_output=True,
        env={**os.environ, "OUTCOMES": str(said), "PYTHONPATH": BENCH},
    )
    found = [json.loads(line) for line in said.read_text().splitlines()]
    assert [(one["test"], one["ranks"], one["outcome"]) for one in found] == [
        ("test_trainer", 1, "passed"),
        ("test_trainer", 2, "passed"),
        ("test_trainer", 2, "failed"),
        ("test_alone", 1, "passed"),
        ("test_skipped", 1, "skipped"),
        ("test_broken", 1, "failed"),
    ]
    assert frameworks.shown(found, FRAMEWORK, 1) == "yes"
    assert frameworks.shown(found, FRAMEWORK, 2) == "NO"
    for name in ("test_skipped", "test_absent"):
        assert frameworks.shown(found, FRAMEWORK._replace(test=name), 1) == "not tested"
    assert frameworks.shown(found, FRAMEWORK._replace(test="test_broken"), 1) == "NO"


def test_the_page_shows_every_row():
    outcomes = [
        {"test": framework.test, "ranks": ranks, "outcome": "passed"}
        for framework in frameworks.FRAMEWORKS
        for ranks in (1, 2)
    ]
    rows = {
        contender["name"]: {"same": "yes", "resume": "yes", "ratio": 0.5}
        for contender in frameworks.Frameworks.contenders[1:]
    }
    rows[frameworks.Frameworks.contenders[1]["name"]]["ratio"] = 1.5
    scenario = frameworks.Frameworks(10, 1)
    report = {
        "quick": False,
        "machine": {"processors": 2, "processor": "x"},
        "scenarios": {
            "frameworks": {
                "title": "frameworks; times with 10 JPEGs",
                "commit": "c",
                "at": "now",
                "conditions": {"versions": {"torch": "2"}, "tests": outcomes},
                "medians": rows,
                "rounds": {},
                "conclusions": scenario.conclusions(rows),
            }
        },
    }
    lines = frameworks.page(report).splitlines()
    table = [line.split(" | ") for line in lines if line.startswith("|")][2:]
    assert len(table) == 2 * len(frameworks.FRAMEWORKS)
    assert table[0][2:] == ["yes", "yes", "FAILED |"]
    assert table[1][-1] == "1.50 |"
    assert table[2][-1] == "0.50 |"
    assert any(
        line.startswith("Epochs that take more than 1.05 of torch's time: ")
        and line.endswith("(1.50).")
        for line in lines
    )


def test_a_scenario_that_cannot_be_prepared_fails(monkeypatch, capsys):
    monkeypatch.setattr(newest, "PYTHON", "/nonexistent/python")
    with pytest.raises(Unavailable, match="make setup-ci"):
        newest.versions("torch")
    (scenario,) = run.find("frameworks", quick=True)
    found = run.measure(scenario, 1, True)
    assert set(found["failed"]) == {contender["name"] for contender in scenario.contenders}
    assert not found["medians"]
