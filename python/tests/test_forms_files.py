"""JPEGs that the daemon keeps as coefficients in a cache directory."""

import os
import pathlib
import signal
import subprocess

import pytest

torch = pytest.importorskip("torch")

from hdmlp import data, errors
from hdmlp._daemon import connecting
from nodes import slow_source
from reference import read
from test_forms import (
    BASELINE,
    OTHERS,
    PROGRESSIVE,
    epoch,
    folder,  # noqa: F401
    same,
    source_bytes,
)
from test_forms import opened as with_memory
from waiting import until

pytestmark = pytest.mark.usefixtures("real")

ALL = BASELINE + PROGRESSIVE + OTHERS


@pytest.fixture(autouse=True)
def lingers(real, monkeypatch):
    """Daemons stay until they are stopped."""
    monkeypatch.setenv("HDMLP_LINGER", "60s")


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """A cache directory, that is faster than the source, so that this is read only if need be."""
    monkeypatch.setenv("HDMLP_CONFIG", slow_source(tmp_path))
    return str(tmp_path / "cache")


def opened(folder, cache, **options):
    return with_memory(folder, memory="64KiB", cache_dir=cache, **options)


def forms(loader):
    (of_files,) = (c for c in loader.report()["classes"] if c["name"].startswith("file"))
    return of_files.get("forms", {})


def converted(loader):
    """Waits until all JPEGs that have an exact form are kept so, but for those in memory."""
    until(lambda: forms(loader).get("samples", 0) >= BASELINE - 20, "samples are converted")
    assert forms(loader)["samples"] <= BASELINE


def stop():
    """Ends the daemon, once its last job has ended: it leaves the cache directory."""
    command = [connecting.find_binary(), "stop"]
    until(lambda: subprocess.run(command, capture_output=True).returncode == 0, "the daemon ends")


def check(cache, *options):
    """What ``hdmlp cache check`` says."""
    asked = [connecting.find_binary(), "cache", "check", cache, *options]
    return subprocess.run(asked, capture_output=True, text=True)


@pytest.fixture(scope="module")
def want(folder):
    """The epochs of a job of files."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HDMLP_LINGER", "0s")
        with with_memory(folder, forms="off") as loader:
            return [epoch(loader) for _ in range(4)]


def test_pixels_are_the_same(folder, cache, want):
    """While samples are converted, and after the daemon has ended: nothing is read again."""
    with opened(folder, cache) as loader:
        assert same(epoch(loader), want[0])
        converted(loader)
        assert same(epoch(loader), want[1])
        held = forms(loader)
        assert held["as_read_bytes"] < held["bytes"] < 1.5 * held["as_read_bytes"]
        assert not {"read_again", "damaged", "paused", "restored"} & held.keys()
        read_bytes = source_bytes(loader)
        assert read_bytes == sum(p.stat().st_size for p in pathlib.Path(folder).rglob("*.jpg"))
    stop()
    with opened(folder, cache) as loader:
        for expected in want:
            assert same(epoch(loader), expected)
        assert source_bytes(loader) == 0
        assert forms(loader)["samples"] >= held["samples"]
        assert "damaged" not in forms(loader)


def test_jobs_that_need_files(folder, cache, want):
    """Beside one that decodes, from another daemon, and with verify."""
    files = [read(path) for path in sorted(pathlib.Path(folder).rglob("*.jpg"))]
    options = {"memory": "64KiB", "cache_dir": cache, "shuffle": False}
    with opened(folder, cache) as decodes:
        epoch(decodes)
        converted(decodes)
        before = source_bytes(decodes)
    stop()
    assert check(cache).returncode == 0
    with opened(folder, cache) as decodes:
        assert same(epoch(decodes), want[0])
        with data.DataLoader(folder, 16, name="raw", **options) as raw:
            assert [bytes(x) for batch in raw for x in batch.samples] == files
            until(lambda: forms(raw).get("samples", 0) == 0, "all samples are files")
            assert [bytes(x) for batch in raw for x in batch.samples] == files
            assert source_bytes(raw) == 0
        assert same(epoch(decodes), want[1])
        converted(decodes)
    stop()
    with opened(folder, cache, verify=True) as loader:  # which reads the source once to compare
        assert same(epoch(loader), want[0])
        assert source_bytes(loader) <= before


def test_an_altered_form_is_read_again(folder, cache, want):
    with opened(folder, cache) as loader:
        epoch(loader)
        converted(loader)
    stop()
    (path,) = pathlib.Path(cache).glob("*/data")
    size = path.stat().st_size
    with open(path, "r+b") as file:
        for at in range(5000, size, 9000):
            file.seek(at)
            byte = file.read(1)
            file.seek(at)
            file.write(bytes([byte[0] ^ 1]))
    found = check(cache)
    assert found.returncode != 0
    with opened(folder, cache) as loader:
        for expected in want:
            assert same(epoch(loader), expected)
        assert forms(loader)["damaged"] > 0
        assert source_bytes(loader) > 0


def test_a_killed_daemon_loses_nothing_that_is_wrong(folder, cache, want):
    """Killed while it converts: what is found afterwards is whole."""
    with opened(folder, cache) as loader:
        assert same(epoch(loader), want[0])
        until(lambda: forms(loader).get("samples", 0) > 0, "some samples are converted")
        os.kill(connecting.connect().pid, signal.SIGKILL)
        with pytest.raises(errors.DaemonDiedError):
            while True:  # some batches have been sent already
                epoch(loader)
    with opened(folder, cache) as loader:
        for expected in want:
            assert same(epoch(loader), expected)
        assert "damaged" not in forms(loader)


def test_little_room_keeps_files(folder, cache, want):
    """A directory that has room for the files alone."""
    size = sum(path.stat().st_size for path in pathlib.Path(folder).rglob("*.jpg"))
    with opened(folder, cache, cache_size=size) as loader:
        for expected in want:
            assert same(epoch(loader), expected)
        assert forms(loader) == {}
        assert source_bytes(loader) == size
