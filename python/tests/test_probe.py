"""`hdmlp probe` on machines of known rates: a throttled source, and nodes with limited links."""

import json
import os
import random
import subprocess
import sys
import uuid

import pytest
from hdmlp import errors
from hdmlp._daemon import connecting
from nodes import binary  # noqa: F401  # a fixture

sys.path.append(
    os.path.join(
        os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))), "bench"
    ),
)
from throttled import Throttled, Unavailable


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """600 samples of 20 to 200 kB."""
    root, rng = tmp_path_factory.mktemp("probe") / "data", random.Random(1)
    for number in range(600):
        directory = root / "ab"[number % 2]
        directory.mkdir(parents=True, exist_ok=True)
        (directory / f"{number:04d}.jpg").write_bytes(rng.randbytes(rng.randrange(20_000, 200_000)))
    return str(root)


def probed(arguments, tmp_path, **variables):
    """Runs it; returns what it printed as JSON, after what its processes print before that."""
    environment = {**os.environ, "HDMLP_INDEX_DIR": str(tmp_path / "index"), **variables}
    environment.pop("HDMLP_SOCKET", None)
    done = subprocess.run(
        arguments, env=environment, capture_output=True, text=True, timeout=200, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_rates_of_a_throttled_source_are_found(data, tmp_path):
    """The bandwidth within 10 %, and the latency, which is at least that of an open."""
    try:
        path = connecting.find_binary()
    except errors.DaemonNotFoundError as error:
        pytest.skip(str(error))
    try:
        with Throttled(data, 40_000_000, latency=0.005) as source:
            out = probed([path, "probe", source.path, "--time", "15s", "--json"], tmp_path)
    except Unavailable as error:
        pytest.skip(str(error))
    said = json.loads(out)
    known = said["node"]["source"]
    assert known["origin"] == "probed"
    assert 36 < 1 / known["s_per_mb_queued"] < 44
    assert 0.0045 < known["latency_s"] < 0.02
    assert said["seconds"] < 25
    for curve in said["source"]:
        best = max(point["mbps"]["median"] for point in curve["points"])
        assert best < 44
        assert all(0 < point["processor_s"] < 0.05 for point in curve["points"])
    with open(said["environment"], encoding="utf-8") as file:
        assert "source_work" in file.read()
    # The simulator takes the file.
    scenario = tmp_path / "scenario.toml"
    scenario.write_text(
        "[environment]\nnodes = 1\ncompute = 100\npreprocess = 100\nnetwork = 100\n"
        "source_network = 100\nsource = 1\n"
        '[[environment.storage_class]]\nname = "staging"\ncapacity = 100\nthreads = 1\nread = 1\n'
        "[dataset]\nsamples = 1000\nmu = 0.1\n[job]\nepochs = 2\nglobal_batch_size = 10\n"
        '[simulate]\npolicies = ["cooperative"]\n'
    )
    simulated = json.loads(
        probed(
            [path, "simulate", str(scenario), "--environment", said["environment"], "--json"],
            tmp_path,
        )
    )
    assert simulated


def test_two_nodes_measure_the_network_between_them(binary, data, tmp_path):
    out = probed(
        [
            *(binary, "dev", "cluster", "-n", "2", "--rate", "80mbit"),
            *("--run", f"probe-{os.getpid()}", "--"),
            *(sys.executable, "-m", "hdmlp", "probe", data, "--time", "12s", "--json"),
        ],
        tmp_path,
        HDMLP_SECRET=uuid.uuid4().hex,
    )
    lines = [line.removeprefix("[0.0] ") for line in out.splitlines() if line.startswith("[0.0]")]
    said = json.loads("\n".join(lines))
    assert said["nodes"] == 2
    assert [total["nodes"] for total in said.get("source_by_nodes", [])] == [1, 2], said["skipped"]
    known = said["node"]["network"]
    assert known["origin"] == "probed"
    # 80 Mbit/s are 10 MB/s, of which headers take some.
    assert 7 < 1 / known["s_per_mb_queued"] < 10.5
    with open(said["environment"], encoding="utf-8") as file:
        assert "nodes = 2" in file.read()
