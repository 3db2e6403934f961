"""The number of worker processes that a loader starts by default."""

import os

import pytest
from hdmlp._launch import processors as _processors
from hdmlp._launch.processors import local_ranks, processors, unasked, workers_that_pay


def grouped(root, groups, own):
    """A file system in which this process is in the control group ``own``, and the groups have
    these quotas."""
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/cgroup").write_text(own)
    for path, text in groups.items():
        file = root / "sys/fs/cgroup" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return str(root)


@pytest.mark.parametrize(
    "groups, own, most",
    [
        ({}, "", 64),
        ({"cpu.max": "max 100000"}, "0::/\n", 64),
        ({"cpu.max": "350000 100000\n"}, "0::/\n", 4),
        ({"a/b/cpu.max": "max 100000", "a/cpu.max": "200000 100000"}, "0::/a/b\n", 2),
        ({"cpu.max": "50000 100000"}, "0::/host/only\n", 1),
        ({"cpu.max": "nonsense"}, "0::/\n", 64),
        (
            {
                "cpu,cpuacct/x/cpu.cfs_quota_us": "300000",
                "cpu,cpuacct/x/cpu.cfs_period_us": "100000",
            },
            "5:cpu,cpuacct:/x\n1:memory:/y\n",
            3,
        ),
        ({"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, "5:cpu:/\n", 64),
    ],
)
def test_the_quota_limits_the_processors(tmp_path, monkeypatch, groups, own, most):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(64)))
    assert processors(grouped(tmp_path, groups, own)) == most


def test_the_affinity_limits_the_processors(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {3, 5})
    assert processors(grouped(tmp_path, {"cpu.max": "800000 100000"}, "0::/\n")) == 2
    assert processors(str(tmp_path / "nothing")) == 2


@pytest.mark.parametrize(
    "available, ranks, count",
    [
        (1, 1, 0),
        (2, 1, 2),
        (3, 1, 2),
        (8, 1, 7),
        (8, 4, 2),
        (8, 8, 0),
        (2, 4, 0),
        (128, 1, 16),
        (64, 8, 7),
    ],
)
def test_ranks_share_the_processors(available, ranks, count):
    assert workers_that_pay(available, ranks) == count
    assert count * ranks <= max(available, ranks)


def test_the_ranks_of_the_node_are_counted(monkeypatch):
    for name in list(os.environ):
        if name.startswith(("SLURM_", "OMPI_", "PMI", "MPI_")) or name in (
            "RANK",
            "WORLD_SIZE",
            "LOCAL_RANK",
            "LOCAL_WORLD_SIZE",
            "GROUP_RANK",
            "GROUP_WORLD_SIZE",
        ):
            monkeypatch.delenv(name)
    assert local_ranks() == 1
    for name, value in {
        "RANK": "3",
        "WORLD_SIZE": "8",
        "LOCAL_RANK": "3",
        "LOCAL_WORLD_SIZE": "4",
        "GROUP_RANK": "0",
        "GROUP_WORLD_SIZE": "2",
    }.items():
        monkeypatch.setenv(name, value)
    assert local_ranks() == 4
    monkeypatch.delenv("RANK")
    assert local_ranks() == 1  # an error in the rank is raised elsewhere


def test_the_number_of_workers_is_logged(monkeypatch):
    monkeypatch.setattr(_processors, "processors", lambda: 8)
    monkeypatch.setattr(_processors, "local_ranks", lambda: 2)
    count, text = unasked("fork")
    assert count == 3
    assert "3 worker processes" in text
    assert "8 processors, shared by 2 ranks" in text
    assert "num_workers=" in text
    for method in ("spawn", "forkserver"):
        count, text = unasked(method)
        assert count == 0
        assert method in text
        assert "num_workers=3" in text
        assert "__main__" in text
    monkeypatch.setattr(_processors, "processors", lambda: 2)
    assert unasked("fork") == (0, "")
