"""A job that gives a dataset less memory than the one before, while their daemon lingers."""

import random

import pytest
from hdmlp import data

pytestmark = pytest.mark.usefixtures("real")

MIB = 1 << 20


def test_a_smaller_memory_is_what_the_job_has(tmp_path, monkeypatch, caplog):
    """The report, the warning and the argument agree."""
    monkeypatch.setenv("HDMLP_LINGER", "60s")
    folder, rng = tmp_path / "data" / "a", random.Random(1)
    folder.mkdir(parents=True)
    for number in range(64):
        (folder / f"{number:03d}.jpg").write_bytes(rng.randbytes(MIB // 4))

    def run(memory):
        """The memory class of the report, after three epochs."""
        caplog.clear()
        root = str(tmp_path / "data")
        with data.DataLoader(root, batch_size=8, epochs=3, seed=1, memory=memory) as loader:
            for _ in range(3):
                for batch in loader:
                    del batch
            return loader.report()["classes"][0]

    assert run("16MiB")["used"] == 16 * MIB
    less = run("6MiB")
    assert less["capacity"] == 6 * MIB
    assert less["held_at_start"]["bytes"] == 6 * MIB
    assert less["used"] == 6 * MIB
    assert "given_back" not in less
    assert "the caches can hold 6.0 MiB of the dataset's 16.0 MiB" in caplog.text
    assert run("16MiB")["used"] == 16 * MIB


def test_each_of_many_jobs_has_its_own_settings(tmp_path, monkeypatch, caplog):
    """Each begins as the one before it has just been closed."""
    monkeypatch.setenv("HDMLP_LINGER", "60s")
    folder = tmp_path / "data" / "a"
    folder.mkdir(parents=True)
    for number in range(64):
        (folder / f"{number:03d}.jpg").write_bytes(bytes([number]) * MIB)
    both = {"memory": "20MiB", "cache_dir": str(tmp_path / "cache"), "cache_size": "30MiB"}
    for options, capacities in 10 * [
        ({"memory": "40MiB"}, [40 * MIB]),
        (both, [20 * MIB, 30 * MIB]),
        ({"memory": 0}, []),
    ]:
        with data.DataLoader(folder.parent, batch_size=8, seed=1, **options) as loader:
            for batch in loader:
                del batch
            assert [one["capacity"] for one in loader.report()["classes"]] == capacities
    assert "another job opened this dataset" not in caplog.text


@pytest.mark.parametrize(
    "options, advice",
    [
        ({}, "raise memory, or set cache_dir to a directory on a fast local disk"),
        (
            {"cache_size": "50KB"},
            "raise memory, or the capacity of {dir} (cache_size)",
        ),
        (
            {"disk_reserve": "100TiB"},
            "raise memory, or free space on the disk of {dir}, which has 0 bytes for the dataset "
            "after disk_reserve",
        ),
    ],
)
def test_advice_for_more_cache_knows_what_is_configured(tmp_path, caplog, options, advice):
    """A cache_dir without space is not answered with the advice to set cache_dir."""
    folder, cache = tmp_path / "data" / "a", str(tmp_path / "cache")
    folder.mkdir(parents=True)
    for number in range(8):
        (folder / f"{number}.jpg").write_bytes(bytes(20_000))
    if options:
        options = {**options, "cache_dir": cache}
    with data.DataLoader(folder.parent, batch_size=8, seed=1, memory="30KB", **options) as loader:
        next(iter(loader))
    assert f"read from the source in every epoch: {advice.format(dir=cache)}" in caplog.text


def test_advice_for_more_cache_is_what_a_file_of_entries_takes(tmp_path, monkeypatch, caplog):
    """memory= and cache_size= conflict with the entries."""
    folder, file = tmp_path / "data" / "a", tmp_path / "hdmlp.toml"
    folder.mkdir(parents=True)
    for number in range(8):
        (folder / f"{number}.jpg").write_bytes(bytes(20_000))
    file.write_text('[[storage_class]]\nkind = "memory"\ncapacity = "30KB"\n')
    monkeypatch.setenv("HDMLP_CONFIG", str(file))
    monkeypatch.delenv("HDMLP_MEMORY", raising=False)
    with data.DataLoader(folder.parent, batch_size=8, seed=1) as loader:
        next(iter(loader))
    advice = f"every epoch: raise the capacity of a [[storage_class]] in {file}, or add one"
    assert advice in caplog.text


@pytest.mark.parametrize("reserve, said", [("100TiB", True), ("1MB", False)])
def test_a_disk_without_space_is_said_if_memory_holds_everything(tmp_path, caplog, reserve, said):
    """The next job will not find what this one has read."""
    folder, cache = tmp_path / "data" / "a", str(tmp_path / "cache")
    folder.mkdir(parents=True)
    (folder / "0.jpg").write_bytes(bytes(20_000))
    options = {"memory": "1MB", "cache_dir": cache, "disk_reserve": reserve}
    with data.DataLoader(folder.parent, batch_size=1, seed=1, **options) as loader:
        next(iter(loader))
    words = f"nothing can be cached in {cache}: its disk has less free space than is to be left"
    assert (words in caplog.text) is said
