"""Jobs that share what they prepare, of images that the daemon keeps as coefficients."""

import os
import pathlib
import signal

import pytest

torch = pytest.importorskip("torch")

from hdmlp import data, errors
from hdmlp._daemon import connecting
from reference import read
from test_forms import (
    MEMORY,
    converted,
    epoch,
    folder,  # noqa: F401
    forms,
    lingers,  # noqa: F401
    opened,
    same,
)
from waiting import until

pytestmark = pytest.mark.usefixtures("real")

GROUP = {"share": "s"}


def epochs(*loaders):
    """What each loader delivers in an epoch, of which all take a batch in turn."""
    got = [[] for _ in loaders]
    for batches in zip(*loaders, strict=True):
        for each, (x, y) in zip(got, batches):
            each.append((x.clone(), y.clone()))
    return got


@pytest.fixture(scope="module")
def want(folder):
    """The epochs of a job of its own, of files."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HDMLP_LINGER", "0s")
        with opened(folder, forms="off") as loader:
            return [epoch(loader) for _ in range(5)]


@pytest.fixture
def files(folder):
    return sorted(pathlib.Path(folder).rglob("*.jpg"))


def test_a_group_and_a_job_of_its_own(folder, want, files):
    """The same pixels, before and after all samples have become coefficients."""
    with opened(folder, **GROUP) as a, opened(folder, **GROUP) as b, opened(folder) as alone:
        for n, expected in enumerate(want):
            for got in epochs(a, b, alone):
                assert same(got, expected)
            if n == 0:
                converted(alone)
        held = forms(alone)
        assert not {"read_again", "damaged", "paused"} & held.keys()
        assert all("group" in loader.report()["ranks"][0] for loader in (a, b))
        read_of_all = {tier["tier"]: tier["samples"] for tier in alone.report()["tiers"]}
        assert read_of_all["source"] == len(files)


def test_a_job_that_needs_files_joins(folder, want, files):
    """Beside a group in the middle of an epoch: it gets the files, and the group its pixels."""
    with opened(folder, **GROUP) as a, opened(folder, **GROUP) as b:
        for got in epochs(a, b):
            assert same(got, want[0])
        converted(a)
        batches = zip(a, b, strict=True)
        got = [next(batches)]
        with data.DataLoader(folder, 16, memory=MEMORY, shuffle=False, name="raw") as raw:
            taken = [bytes(x) for batch in raw for x in batch.samples]
            assert taken == [read(path) for path in files]
            got += batches
            for i in range(2):
                assert same([each[i] for each in got], want[1])
            assert forms(raw)["paused"] is True
            until(lambda: forms(raw)["samples"] == 0, "all samples are files again")
        for got in epochs(a, b):
            assert same(got, want[2])


def test_a_job_that_verifies_joins(folder, want):
    with opened(folder, **GROUP) as a, opened(folder, **GROUP) as b:
        for got in epochs(a, b):
            assert same(got, want[0])
        converted(a)
        with opened(folder, verify=True, name="verifies") as loader:
            for got, expected in zip(epochs(a, b, loader), (want[1], want[1], want[0])):
                assert same(got, expected)
            until(lambda: forms(loader).get("samples", 0) == 0, "all samples are files")


def test_a_group_goes_on_after_its_daemon_died(folder, want):
    """In the middle of an epoch, from another daemon, whose memory is empty."""

    def after(batches):
        try:
            return next(batches, None)
        except errors.DaemonDiedError:
            return next(batches, None)

    with opened(folder, **GROUP) as a, opened(folder, **GROUP) as b:
        for got in epochs(a, b):
            assert same(got, want[0])
        converted(a)
        both = [iter(a), iter(b)]
        got = [[next(batches)] for batches in both]
        os.kill(connecting.connect().pid, signal.SIGKILL)
        while all(taken := [after(batches) for batches in both]):
            for each, (x, y) in zip(got, taken):
                each.append((x.clone(), y.clone()))
        for each in got:
            assert same(each, want[1])
        for got in epochs(a, b):
            assert same(got, want[2])
        converted(a)
