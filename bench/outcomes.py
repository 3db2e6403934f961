"""A pytest plugin that writes the outcome of each test as a line of JSON to the file that OUTCOMES
names: its function, its number of ranks, whether it passed."""

import json
import os

import pytest


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    report = (yield).get_result()
    if report.when != "call" and report.passed:
        return
    parameters = item.callspec.params if hasattr(item, "callspec") else {}
    with open(os.environ["OUTCOMES"], "a", encoding="utf-8") as file:
        print(
            json.dumps(
                {
                    "test": getattr(item, "originalname", item.name),
                    "id": item.name,
                    "ranks": parameters.get("ranks", 1),
                    "outcome": report.outcome,
                }
            ),
            file=file,
        )
