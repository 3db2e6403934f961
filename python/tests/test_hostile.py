"""Hostile datasets and directories, with a real daemon: it continues, and so do its other jobs."""

import os
import shutil
import signal
import struct
import subprocess
import sys

import pytest
from hdmlp import data, errors
from hdmlp._daemon import connecting

sys.path.insert(
    0,
    os.path.join(
        os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))), "bench"
    ),
)
from throttled import Throttled, Unavailable
from waiting import LIMIT, until, until_ended


def ids(samples):
    """The IDs that the samples' bytes contain."""
    return sorted(int(bytes(s).split()[1]) for s in samples)


def epoch(loader):
    return ids([s for batch in loader for s in map(bytes, batch.samples)])


@pytest.fixture
def beside(real, monkeypatch):
    """The index is in the dataset's directory, as by default."""
    monkeypatch.delenv("HDMLP_INDEX_DIR")


@pytest.fixture
def other_job(beside, tmp_path):
    """A job of the same daemon on another dataset, in the middle of an epoch, which must be able to
    continue."""
    (tmp_path / "other" / "class").mkdir(parents=True)
    for i in range(20):
        (tmp_path / "other" / "class" / f"{i:02d}.jpg").write_bytes(f"other {i} ".encode())
    loader = data.DataLoader(str(tmp_path / "other"), batch_size=4, epochs=1, name="other")
    batches = iter(loader)
    first = [bytes(s) for s in next(batches).samples]
    yield
    rest = [bytes(s) for batch in batches for s in map(bytes, batch.samples)]
    assert ids(first + rest) == list(range(20))
    loader.close()


def daemon_pid():
    client = connecting.connect()
    client.close()
    return client.pid


def peak_memory(pid):
    """The largest memory of a process, in bytes."""
    with open(f"/proc/{pid}/status") as file:
        return next(int(line.split()[1]) << 10 for line in file if line.startswith("VmHWM:"))


def test_a_sparse_index_costs_no_memory(other_job, folder, caplog):
    """An index of 4 KiB on disk claims 1 GiB. The dataset is scanned, and no memory is allocated
    for the claim."""
    samples = (1 << 30) // 9
    total = 96 + 64 + 9 * samples + 8
    path = os.path.join(folder, ".hdmlp-index")
    with open(path, "wb") as file:
        file.write(
            struct.pack("<8sII10Q", b"HDMLPIDX", 1, 0, total, samples, 1, 0, 0, 0, 0, 0, samples, 0)
        )
        file.truncate(total)
    pid = daemon_pid()
    with data.DataLoader(folder, batch_size=5) as loader:
        assert epoch(loader) == list(range(25))
    assert peak_memory(pid) < 256 << 20
    assert daemon_pid() == pid
    assert (
        f"the dataset's index is not used, and the dataset is scanned instead: read dataset "
        f"index {path}" in caplog.text
    )
    assert "holes" in caplog.text
    assert os.stat(path).st_size < 1 << 20


def test_a_fifo_in_place_of_the_index_does_not_block(other_job, folder, caplog):
    path = os.path.join(folder, ".hdmlp-index")
    os.mkfifo(path)
    with data.DataLoader(folder, batch_size=5) as loader:
        assert epoch(loader) == list(range(25))
    assert path in caplog.text
    assert "it is not a regular file" in caplog.text


@pytest.fixture
def mount(folder):
    """The folder on a file system of its own, which can be made to hang."""
    throttled = Throttled(folder, 0)
    try:
        throttled.__enter__()
    except Unavailable as error:
        pytest.skip(str(error))
    try:
        yield throttled
        throttled.set(hang_names="")
    finally:
        throttled.__exit__(None, None, None)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name, op, path",
    [
        ("bee", "getdents", ""),
        ("cat/003.jpg", "getdents", "/cat"),
        (".hdmlp-index", "stat", "/.hdmlp-index"),
    ],
)
def test_a_hanging_scan_fails_after_source_timeout(
    real, other_job, mount, caplog, monkeypatch, tmp_path, name, op, path
):
    """It warns after 10 s, and other jobs continue."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    pid = daemon_pid()
    mount.set(hang_names=name)
    with (
        pytest.raises(
            errors.DatasetError,
            match=rf"dataset {mount.path}{path}: .*: {op} has not returned for 1[12]\S* "
            rf"?s.*source_timeout is 12s",
        ),
        data.DataLoader(mount.path, batch_size=5, source_timeout="12s") as loader,
    ):
        next(iter(loader))
    told = [r.getMessage() for r in caplog.records if "has not returned for 10 s" in r.getMessage()]
    assert len(told) == 1
    assert f"{op} of {mount.path}{path} has" in told[0]
    mount.set(hang_names="")
    with data.DataLoader(mount.path, batch_size=5) as loader:
        assert epoch(loader) == list(range(25))
    assert daemon_pid() == pid


@pytest.mark.slow
def test_ctrl_c_ends_a_process_whose_scan_hangs(real, mount):
    """The daemon ends after its linger time, although the system call still hangs."""
    mount.set(hang_names="bee")
    program = f"from hdmlp import data\nnext(iter(data.DataLoader({mount.path!r}, batch_size=5)))"
    process = subprocess.Popen([sys.executable, "-c", program], stderr=subprocess.PIPE, text=True)
    until(lambda: mount.counters()["hung"] > 0, "the scan hangs")
    pid = daemon_pid()
    process.send_signal(signal.SIGINT)
    assert "KeyboardInterrupt" in process.communicate(timeout=LIMIT)[1]
    until_ended(pid)


def test_ctrl_c_ends_a_command_whose_scan_hangs(real, mount, tmp_path):
    mount.set(hang_names="bee")
    process = subprocess.Popen(
        [connecting.find_binary(), "dataset", f"--index-dir={tmp_path}/index", mount.path],
        stderr=subprocess.PIPE,
    )
    until(lambda: mount.counters()["hung"] > 0, "the scan hangs")
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=LIMIT)
    assert process.returncode == 130


def fill(folder, cache, text):
    """Fills a cache, by a daemon of its own, with a dataset of the same names, sizes and times,
    whose samples begin with ``text``."""
    twin = f"{folder}-{text}"
    shutil.copytree(folder, twin)
    for directory, _, names in os.walk(twin):
        for name in names:
            path = os.path.join(directory, name)
            with open(path, "r+b") as file:
                file.write(text.encode())
            original = os.stat(os.path.join(folder, os.path.relpath(path, twin)))
            os.utime(path, ns=(original.st_atime_ns, original.st_mtime_ns))
    with data.DataLoader(twin, batch_size=5, memory="1B", cache_dir=cache) as loader:
        assert all(bytes(s).startswith(text.encode()) for batch in loader for s in batch.samples)
    pid = daemon_pid()
    subprocess.run([connecting.find_binary(), "stop", "--force"], check=True)
    until_ended(pid)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_a_cache_of_another_user_is_refused(real, folder, tmp_path):
    """It is full of forged samples with correct checksums: none of them is served."""
    cache = str(tmp_path / "cache")
    fill(folder, cache, "forged")
    for directory, _, names in os.walk(cache):
        for name in ("", *names):
            os.chown(os.path.join(directory, name), 1001, 1001)
    with (
        pytest.raises(
            errors.ConfigError,
            match=rf"{cache} belongs to user 1001 \(mode 0700\), and the daemon runs as user "
            rf"0.*choose another directory",
        ),
        data.DataLoader(folder, batch_size=5, memory="1B", cache_dir=cache) as loader,
    ):
        assert epoch(loader) == list(range(25))


def test_a_cache_that_others_may_write_to_is_refused(real, folder, tmp_path):
    cache = str(tmp_path / "cache")
    fill(folder, cache, "sample")
    os.chmod(cache, 0o777)
    with pytest.raises(
        errors.ConfigError, match=rf"{cache} is writable by others .*mode 0777.*chmod 700"
    ):
        data.DataLoader(folder, batch_size=5, memory="1B", cache_dir=cache)
    with data.DataLoader(
        folder, batch_size=5, memory="1B", cache_dir=os.path.join(cache, "hdmlp")
    ) as loader:
        assert epoch(loader) == list(range(25))


@pytest.mark.parametrize("kind", ["symlink", "hard link", "linked directory"])
def test_a_link_in_a_cache_is_refused(real, folder, tmp_path, kind):
    """The file that it leads to is not changed."""
    cache = str(tmp_path / "cache")
    fill(folder, cache, "sample")
    (store,) = (os.path.join(cache, name) for name in os.listdir(cache) if name != "HDMLP-CACHE")
    victims = tmp_path / "victims"
    victims.mkdir()
    for name in ("data", "index"):
        (victims / name).write_bytes(b"precious")
    refused = os.path.join(store, "data")
    if kind == "linked directory":
        refused = store
        shutil.rmtree(store)
        os.symlink(victims, store)
    else:
        os.remove(refused)
        (os.link if kind == "hard link" else os.symlink)(victims / "data", refused)
    with pytest.raises(errors.ConfigError, match=rf"{refused} (is a symbolic link|has 2 names)"):
        data.DataLoader(folder, batch_size=5, memory="1B", cache_dir=cache)
    assert [(victims / name).read_bytes() for name in ("data", "index")] == [b"precious"] * 2
