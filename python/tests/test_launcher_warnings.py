"""What a user reads whose environment has which rank a process is, but not all of it."""

import os
import subprocess
import sys

import pytest
from hdmlp import errors
from hdmlp._launch import membership as launcher


@pytest.mark.parametrize(
    "script, warnings",
    [
        ("RANK=0 $R & RANK=1 $R & wait", 0),
        ("RANK=0 sh -c '$R; true' & RANK=1 sh -c '$R; true' & wait", 2),
        ("export MASTER_ADDR=a MASTER_PORT=1; RANK=0 sh -c '$R; true'", 0),
        ("RANK=0 TORCHELASTIC_RUN_ID=1 $R", 0),
    ],
    ids=["from one shell", "from two shells", "with an address", "torchrun"],
)
def test_ranks_that_share_nothing_are_warned(script, warnings, tmp_path):
    """RANK and WORLD_SIZE set in two shells make two jobs, which each would think to be whole."""
    rank = tmp_path / "rank.py"
    rank.write_text(
        "import logging, os, pathlib, sys, time\n"
        "from hdmlp._launch import membership\n"
        "logging.basicConfig()\n"
        "here, both = pathlib.Path(__file__).parent, '&' in sys.argv[1]\n"
        "(here / f\"{os.environ['RANK']}.here\").touch()\n"
        "while both and len(list(here.glob('*.here'))) < 2:\n"
        "    time.sleep(0.01)\n"
        "membership.find()\n"
        "membership.find()\n"
        "(here / f\"{os.environ['RANK']}.done\").touch()\n"
        "while both and len(list(here.glob('*.done'))) < 2:\n"
        "    time.sleep(0.01)\n"
    )
    both = "&" if "&" in script else "1"
    environ = {**os.environ, "WORLD_SIZE": "2", "R": f"{sys.executable} {rank} {both}"}
    done = subprocess.run(
        ["sh", "-c", f"{script}\ntrue"], env=environ, capture_output=True, text=True, check=True
    )
    assert done.stderr.count("set MASTER_ADDR and MASTER_PORT to the same values") == warnings


def test_rank_without_world_size_is_warned(caplog):
    launcher.find(environ={"RANK": "0"})
    assert "RANK=0 is set without WORLD_SIZE" in caplog.text


@pytest.mark.parametrize(
    "rank, size", [("RANK", "WORLD_SIZE"), ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE")]
)
def test_ranks_out_of_range_name_their_variables(rank, size):
    with pytest.raises(errors.ConfigError, match=f"^{rank}=2 and {size}=2: ranks count from 0"):
        launcher.find(environ={rank: "2", size: "2"})


def test_a_loader_does_not_warn_with_each_batch(monkeypatch, caplog):
    """Each state has the rank."""
    torch = pytest.importorskip("torch")
    import hdmlp.torch as ht

    for name, value in (
        ("RANK", "0"),
        ("WORLD_SIZE", "2"),
        ("MASTER_ADDR", "192.0.2.1"),
        ("MASTER_PORT", "1"),
    ):
        monkeypatch.setenv(name, value)
    with ht.DataLoader(torch.utils.data.TensorDataset(torch.arange(9)), shuffle=True) as loader:
        batches = iter(loader)
        next(batches)
        caplog.clear()
        assert len(list(batches)) == 8
        assert loader.state_dict()["rank"] == 0
    assert not caplog.records
