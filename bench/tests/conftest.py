"""The time limit that python/tests has, and its preloaded processes."""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "..", "python", "tests"))

from preloaded import pytest_configure, pytest_unconfigure  # noqa: F401
from timelimit import (  # noqa: F401
    pytest_runtest_call,
    pytest_runtest_setup,
    pytest_runtest_teardown,
)
