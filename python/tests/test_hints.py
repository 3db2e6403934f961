"""Errors and warnings that say what to do, and that it helps."""

import logging
import os
import pathlib
import subprocess
import sys

import hdmlp.torch as ht
import pytest
import torch.utils.data
from hdmlp import data, errors
from hdmlp._daemon import connecting
from PIL import Image


class Stream(torch.utils.data.IterableDataset):
    def __iter__(self):
        return iter(range(8))


@pytest.mark.parametrize("given", [{"epochs": 2}, {"seed": 3}, {"shard": True}])
def test_an_iterable_dataset_determines_its_epochs_and_order(given):
    (name, value), *_ = given.items()
    with pytest.raises(errors.ConfigError) as caught:
        ht.DataLoader(Stream(), batch_size=4, **given)
    assert str(caught.value) == (
        f"{name}={value}: no meaning for the iterable dataset Stream, which itself determines "
        "what an epoch is, in which order its items come and what they draw; leave it out"
    )
    assert [batch.tolist() for batch in ht.DataLoader(Stream(), batch_size=4)] == [
        [0, 1, 2, 3],
        [4, 5, 6, 7],
    ]


@pytest.mark.parametrize("url", ["abfs://bucket/data", "gs://bucket", "S3://host/data/"])
@pytest.mark.parametrize("make", [data.Folder, ht.ImageFolder, data.DataLoader])
def test_a_url_is_no_relative_path(make, url):
    with pytest.raises(errors.DatasetNotFoundError, match=f"^{url}: HDMLP does not read .*; "):
        make(url)


def test_a_url_is_no_directory_of_a_cache(real, folder):
    with pytest.raises(errors.ConfigError, match=r'cache_dir = "s3://bucket/x" .*a URL.*mount'):
        data.DataLoader(folder, cache_dir="s3://bucket/x")


@pytest.mark.parametrize(
    "command, what",
    [
        (["dataset", "gs://bucket/x"], "HDMLP does not read gs://"),
        (["config", "--set", "cache_dir=gs://bucket/x"], "a URL, and HDMLP uses directories"),
        (["probe", "gs://bucket/x"], "HDMLP does not read gs://"),
    ],
)
def test_a_url_is_no_relative_path_of_commands(command, what):
    done = subprocess.run(
        [connecting.find_binary(), *command], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 2
    assert "gs://bucket/x" in done.stderr
    assert what in done.stderr


def test_shard_belongs_to_the_loader_of_torch(folder):
    with pytest.raises(errors.ConfigError, match=r"shard=True: the ranks .* leave it out"):
        data.DataLoader(folder, shard=True)


@pytest.mark.parametrize(
    "names, warned",
    [
        (["train", "val"], True),
        (["test", "training", "valid"], True),
        (["Train", "Test"], True),
        (["test", "val"], False),
        (["bus", "train"], False),
        (["train"], False),
    ],
)
def test_parts_of_a_dataset_are_no_classes(real, tmp_path, caplog, names, warned):
    for name in names:
        (tmp_path / "data" / name / "cat").mkdir(parents=True)
        Image.new("RGB", (4, 4)).save(tmp_path / "data" / name / "cat" / "0.png")
    with caplog.at_level(logging.WARNING, "hdmlp"):
        with data.DataLoader(str(tmp_path / "data"), epochs=1) as loader:
            assert len(list(loader)) == len(names)
    said = [r.getMessage() for r in caplog.records if "parts of a dataset" in r.getMessage()]
    assert len(said) == warned
    if warned:
        first = sorted(names)[0]
        assert said[0].endswith(f"give one of them, such as {tmp_path}/data/{first}")


def test_torchs_loader_without_torch_names_the_other_one():
    without = "import sys; sys.modules['torch'] = None; import hdmlp.torch"
    done = subprocess.run([sys.executable, "-c", without], capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        "ModuleNotFoundError: hdmlp.torch needs torch, which is not installed: install it (pip "
        "install torch), or use hdmlp.data, whose DataLoader gives NumPy arrays and needs no torch"
    )


def test_the_version_is_a_command_too():
    binary = connecting.find_binary()
    by_flag, by_command = (
        subprocess.run([binary, word], capture_output=True, text=True, check=True).stdout
        for word in ("--version", "version")
    )
    assert by_command == by_flag


def test_a_binary_of_another_version_is_named(real, folder, monkeypatch, tmp_path):
    """`hdmlp stop` would not help: the next daemon is of that version too."""
    program = pathlib.Path(connecting.find_binary()).read_bytes()
    now = connecting.__version__.encode()
    other = tmp_path / "hdmlp"
    other.write_bytes(program.replace(now, b"9" + now[1:]))
    other.chmod(0o755)
    monkeypatch.setenv("HDMLP_BINARY", str(other))
    with pytest.raises(errors.VersionError) as caught:
        data.DataLoader(folder)
    assert f"{other} (HDMLP_BINARY), is hdmlp 9{now[1:].decode()};" in str(caught.value)
    assert "hdmlp stop" not in str(caught.value)
    monkeypatch.setenv("HDMLP_BINARY", str(tmp_path / "none"))  # the other one's daemon runs
    with pytest.raises(errors.VersionError, match="hdmlp stop"):
        data.DataLoader(folder)
    monkeypatch.setenv("HDMLP_BINARY", str(other))
    assert os.environ["HDMLP_BINARY"] == str(other)
