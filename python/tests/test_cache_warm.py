"""`hdmlp cache warm`: a job on the directory reads nothing from the source."""

import subprocess

import pytest
import shards
from hdmlp._daemon import connecting
from test_cache_command import check, command
from test_pack import folder_of
from waiting import until

pytestmark = pytest.mark.slow

ht = pytest.importorskip("hdmlp.torch")


@pytest.fixture(autouse=True)
def short(real, monkeypatch):
    """A daemon per job: the directory is free after the job."""
    monkeypatch.setenv("HDMLP_LINGER", "0s")


def warm(*args):
    done = command("warm", *args)
    assert done.returncode == 0, done.stderr
    return done.stdout


def epoch_of(dataset, cache, **options):
    """What a job delivers in its first epoch, and how many samples came from the source."""
    loader = ht.DataLoader(
        dataset,
        4,
        shuffle=True,
        seed=1,
        cache_dir=str(cache),
        collate_fn=list,
        num_workers=0,
        **options,
    )
    items = [item for batch in loader for item in batch]
    (epoch,) = loader.report()["epochs"]
    loader.close()
    return items, epoch["source"]["samples"]


def test_a_job_on_shards_reads_nothing_from_the_source(tmp_path):
    samples = shards.make(tmp_path / "shards", (30, 40))
    cache = tmp_path / "cache"
    assert "70 of 70 samples" in warm(tmp_path / "shards", "--cache", cache)
    items, source = epoch_of(ht.WebDataset(str(tmp_path / "shards" / "*.tar")), cache)
    assert sorted(item["__key__"] for item in items) == [key for key, _ in samples]
    assert source == 0


def test_options_are_those_of_the_job(tmp_path):
    shards.make(tmp_path / "shards", (30, 40))
    cache, pattern = tmp_path / "cache", str(tmp_path / "shards" / "{000,001}.tar")
    options = ("--option", "fields=bin,cls", "--option", "missing=raise")
    warm(pattern, "--cache", cache, *options)
    assert epoch_of(ht.WebDataset(pattern, fields=("bin", "cls")), cache)[1] == 0


def test_a_job_on_a_folder_reads_nothing_from_the_source(tmp_path):
    data, cache = folder_of(tmp_path / "data"), tmp_path / "cache"
    warm(data, "--cache", cache)
    loader = ht.DataLoader(
        ht.ImageFolder(str(data), loader=raw), 4, shuffle=True, cache_dir=str(cache), num_workers=0
    )
    assert sum(len(labels) for _, labels in loader) == 200
    (epoch,) = loader.report()["epochs"]
    assert epoch["source"]["samples"] == 0


def raw(data):
    return len(data)


def test_a_killed_command_goes_on(tmp_path):
    """The copies of one that was killed are used, and those of files that changed are not."""
    data, cache = folder_of(tmp_path / "data", 2000), tmp_path / "cache"
    process = subprocess.Popen(
        [connecting.find_binary(), "cache", "warm", str(data), "--cache", str(cache)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    until(
        lambda: (
            any(file.stat().st_size > 20_000 for file in cache.glob("*/index"))
            or process.poll() is not None
        ),
        "some records",
    )
    process.kill()
    process.communicate()
    out = warm(data, "--cache", cache)
    assert "2,000 of 2,000 samples" in out
    added = int(out.split(" of them new")[0].rpartition(" ")[2].replace(",", ""))
    assert added < 2000
    status, (found,), errors = check(cache)
    assert (status, found["same"]) == (0, 2000), errors
