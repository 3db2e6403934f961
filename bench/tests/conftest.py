"""The time limit that python/tests has."""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "..", "python", "tests"))

from timelimit import (  # noqa: F401
    pytest_runtest_call,
    pytest_runtest_setup,
    pytest_runtest_teardown,
)
