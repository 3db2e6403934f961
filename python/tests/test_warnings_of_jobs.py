"""What a process is warned of in the middle of a job that goes on."""

import contextlib
import os
import subprocess

import pytest
from hdmlp import data, errors
from hdmlp._daemon.binary import find_binary
from throttled import Throttled, Unavailable
from waiting import until

pytestmark = pytest.mark.usefixtures("real")

SIZE = 20_000


def files(tmp_path, count):
    folder = tmp_path / "data" / "a"
    folder.mkdir(parents=True)
    for number in range(count):
        (folder / f"{number:03d}.jpg").write_bytes(bytes([number]) * SIZE)
    return folder


def got(loader):
    return [bytes(sample) for samples, _ in loader for sample in samples]


@pytest.mark.parametrize(
    "policy, does", [("skip", "left out of its batch"), ("substitute", "replaced by another one")]
)
def test_files_that_go_in_mid_run_are_warned_of(tmp_path, caplog, policy, does):
    """At the first one, and when there are ten times as many; the report has all."""
    folder = files(tmp_path, 24)
    options = {"batch_size": 4, "seed": 1, "shuffle": "none", "on_error": policy}
    with data.DataLoader(folder.parent, memory=0, prefetch_batches=1, **options) as loader:
        assert len(got(loader)) == 24
        assert "cannot be used" not in caplog.text
        for number in range(12, 24):
            os.remove(folder / f"{number:03d}.jpg")
        assert [sample[0] for sample in got(loader)][:12] == list(range(12))
        said = [text for text in caplog.messages if "cannot be used so far" in text]
        assert len(loader.report()["faults"]) == 12
    counts = [int(text.split(" sample")[0]) for text in said]  # as many as were tried by then
    assert len(counts) == 1 or counts[0] * 10 <= counts[1] <= 12, said
    assert all(f'{does} (on_error="{policy}")' in text for text in said)


def test_files_that_end_the_stream_are_no_warning(tmp_path, caplog):
    folder = files(tmp_path, 24)
    options = {"batch_size": 4, "seed": 1, "shuffle": "none", "memory": 0, "prefetch_batches": 1}
    with data.DataLoader(folder.parent, **options) as loader:
        got(loader)
        os.remove(folder / "020.jpg")
        with pytest.raises(errors.SampleError):
            got(loader)
    assert "cannot be used so far" not in caplog.text


def fill(disk):
    """Takes all that is free, at once: the job is writing as well."""
    with open(disk / "other", "wb") as other:
        size = 0
        while free := os.statvfs(disk).f_bavail * os.statvfs(disk).f_frsize:
            with contextlib.suppress(OSError):  # less is free by now
                os.posix_fallocate(other.fileno(), size, free)
                size += free


def test_a_disk_that_fills_is_warned_of(tmp_path, caplog):
    """The stream goes on from the source, right to the byte."""
    folder, disk = files(tmp_path, 200), tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=6m", "tmpfs", disk])
    if mounted.returncode:
        pytest.skip("mounting takes privileges")
    options = {"policy": "minio", "prefetch_batches": 1, "memory": 0, "cache_size": "3.9MB"}
    options.update(batch_size=4, seed=1, shuffle="none")
    options.update(cache_dir=str(disk / "cache"), disk_reserve="1B")
    try:
        with contextlib.ExitStack() as stack:
            try:  # what is read ahead for the cache takes 8 s: the disk is full before
                source = stack.enter_context(Throttled(str(folder.parent), 500_000))
            except Unavailable as error:
                pytest.skip(str(error))
            loader = stack.enter_context(data.DataLoader(source.path, **options))
            fill(disk)
            source.set(bandwidth=0)

            def said():
                """What was said of the class, after one more epoch; it is looked at each second."""
                assert got(loader) == [bytes([number]) * SIZE for number in range(200)]
                return [text for text in caplog.messages if "keeps no more samples" in text]

            assert until(said) == [
                "storage class file keeps no more samples, and later epochs read those that it "
                "lacks from the source: " + loader.report()["classes"][0]["stopped"]
            ]
    finally:
        subprocess.run(["umount", "-l", disk], check=True)


@contextlib.contextmanager
def ext4(tmp_path):
    """A directory with a file system of its own, which can be frozen."""
    image, disk = tmp_path / "image", tmp_path / "disk"
    disk.mkdir()
    with open(image, "wb") as file:
        file.truncate(64 << 20)
    for command in (["mkfs.ext4", "-q", "-F", image], ["mount", "-o", "loop", image, disk]):
        try:
            made = subprocess.run(command, capture_output=True)
        except FileNotFoundError as error:
            pytest.skip(str(error))
        if made.returncode:
            pytest.skip(f"mounting takes privileges and loop devices: {made.stderr!r}")
    try:
        yield disk
    finally:
        subprocess.run(["umount", "-l", disk], check=True)


def test_a_disk_whose_writes_hang_is_warned_of(tmp_path, caplog):
    """The stream goes on from the source, right to the byte, and reports say what was."""
    folder = files(tmp_path, 100)
    with ext4(tmp_path) as disk:
        options = {"batch_size": 4, "seed": 1, "shuffle": "none", "memory": 0}
        options.update(cache_dir=str(disk / "cache"), disk_reserve="1B", prefetch_batches=1)
        try:
            with Throttled(str(folder.parent), 500_000) as source:
                with data.DataLoader(source.path, **options) as loader:
                    subprocess.run(["fsfreeze", "-f", disk], check=True)
                    source.set(bandwidth=0)

                    def said():
                        assert got(loader) == [bytes([number]) * SIZE for number in range(100)]
                        return [text for text in caplog.messages if "has not returned for" in text]

                    (text,) = until(said)
                    assert f"A write to the cache directory {disk / 'cache'} has not" in text
                    assert loader.report()["classes"][0]["write_not_returned_seconds"] >= 5
                    subprocess.run(["fsfreeze", "-u", disk], check=True)

                    def written():
                        said()
                        return loader.report()["classes"][0]["used"] == 100 * SIZE

                    until(written)
                    (told,) = loader.report()["classes"]
                    assert told["longest_write_seconds"] >= 5
                    assert "write_not_returned_seconds" not in told
                    assert "A write to the cache directory" in loader.report()["sentence"]
        except Unavailable as error:
            pytest.skip(str(error))
        finally:
            subprocess.run(["fsfreeze", "-u", disk], capture_output=True)


def test_an_unknown_variable_is_warned_of(tmp_path, caplog, monkeypatch):
    """It stops neither a job nor a command; its value, which may be a secret, is not logged."""
    folder = files(tmp_path, 4)
    monkeypatch.setenv("HDMLP_MEMROY", "s3cret")
    with data.DataLoader(folder.parent, 4, seed=1, epochs=1) as loader:
        assert len(got(loader)) == 4
    says = 'HDMLP_MEMROY (environment) has no effect: unknown variable; did you mean "HDMLP_MEMORY"'
    assert says in caplog.text
    run = subprocess.run(
        [find_binary(), "config"], capture_output=True, text=True, check=True, timeout=60
    )
    assert says in run.stderr
    assert "s3cret" not in caplog.text + run.stderr + run.stdout
