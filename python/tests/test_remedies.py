"""What limits a job, what would help, and what-if questions: report() and hdmlp stats."""

import json
import subprocess

import pytest
from hdmlp import data
from hdmlp._daemon import connecting

SAMPLES, SIZE = 200, 10_000

CONFIG = """
memory = "500kB"

[environment]
compute = 2
source = 1
"""


@pytest.fixture
def job(real, tmp_path, monkeypatch):
    """A loader after some epochs: 2 MB, memory for a quarter, a source that is said to give 1 MB/s
    to training that is said to consume 2 MB/s."""
    folder = tmp_path / "data" / "a"
    folder.mkdir(parents=True)
    for i in range(SAMPLES):
        (folder / f"{i:03d}.jpg").write_bytes(bytes([i]) * SIZE)
    config = tmp_path / "hdmlp.toml"
    config.write_text(CONFIG)
    monkeypatch.setenv("HDMLP_CONFIG", str(config))
    monkeypatch.delenv("HDMLP_MEMORY")
    loader = data.DataLoader(str(folder.parent), batch_size=10, seed=1, epochs=7)
    for _ in range(6):  # one alone may count as not measured, if the daemon did not run meanwhile
        for _ in loader:
            pass
    return loader


def hdmlp(*args):
    done = subprocess.run(
        [connecting.find_binary(), *args], capture_output=True, text=True, timeout=60, check=False
    )
    return done.returncode, done.stdout, done.stderr


def test_report_says_what_limits_and_what_would_help(job):
    """The source gives 1.5 of 2 MB in 1.5 s, in which training would consume 3 MB."""
    report = job.report()
    limit = report["limit"]
    assert (limit["resource"], limit["next"]["resource"]) == ("source", "compute")
    assert limit["epoch_seconds"] == pytest.approx(1.5)
    assert limit["stall_seconds"] == pytest.approx(0.5)
    assert limit["share"] == pytest.approx(1)
    assert limit["source_bytes"] == 1_500_000
    assert limit["measured_epoch_seconds"] > 0
    assert "not_measured" not in limit
    changes = {r["change"]: r for r in report["remedies"]}
    assert list(changes) == ["memory", "cache", "nodes", "source"]
    memory = changes["memory"]  # 1 MB of 2, so that the source gives 1 MB in 1 s
    assert (memory["from"], memory["amount"]) == (500_000, 1_000_000)
    assert memory["epoch_seconds_after"] == pytest.approx(1)
    assert memory["limit_after"] == "compute"
    assert memory["source_bytes_after"] == 1_000_000
    assert changes["source"]["amount"] == 2
    assert changes["nodes"]["not_measured"] == ["network"]
    sentence = str(report)
    assert "The source limits later epochs: by the model they take 1.5 s (measured: " in sentence
    assert f"The cheapest remedy is {memory['text']}: they would take 1 s, and " in sentence


def test_report_over_nodes_has_the_same(job):
    one, all_nodes = job.report(), job.report(cluster=True)
    assert all_nodes["limit"]["resource"] == one["limit"]["resource"]
    assert [r["change"] for r in all_nodes["remedies"]] == [r["change"] for r in one["remedies"]]
    assert all_nodes["nodes"][0]["model"]["epoch_bytes"] == SAMPLES * SIZE


def test_stats_and_top_say_it(job):
    code, out, _ = hdmlp("stats")
    assert code == 0
    assert "an epoch, by the model 1.500 s, would take\n  1.000 s with memory=" in out
    code, out, _ = hdmlp("top", "--once")
    assert code == 0
    assert "\nlimit: source, 1.5 s an epoch by the model; next compute 1 s; mem" in out


def test_what_if(job):
    code, out, _ = hdmlp("stats", "--what-if", "memory=1.5MB,compute=4", "--json")
    (answer,) = json.loads(out)["jobs"]
    assert code == 0
    assert answer["now"]["epoch_seconds"] == pytest.approx(1.5)
    then = answer["then"]
    assert then["epoch_seconds"] == pytest.approx(0.5)
    assert then["source_bytes"] == 500_000
    assert then["stall_seconds"] == pytest.approx(0, abs=1e-9)

    code, out, _ = hdmlp("stats", "--what-if", "nodes=4")
    assert code == 0
    assert "0.250 s" in out
    assert "not measured, so that the prediction rests on a guess: network" in out

    today = "memory=500kB,nodes=1,source=1,compute=2"
    _, out, _ = hdmlp("stats", "--what-if", today, "--json")
    (answer,) = json.loads(out)["jobs"]
    for key in ("resource", "epoch_seconds", "stall_seconds", "source_bytes"):
        assert answer["then"][key] == pytest.approx(answer["now"][key]), key


@pytest.mark.parametrize(
    "changes, words",
    [
        ("ram=1GB", '"ram" is not a key; allowed: threads, memory, cache, nodes, source'),
        ("nodes=0", 'nodes is "0"; allowed: a whole number from 1'),
        ("source=slow", 'source is "slow"; allowed: a rate above 0'),
    ],
)
def test_what_if_names_what_is_wrong(real, changes, words):
    code, out, err = hdmlp("stats", "--what-if", changes)
    assert (code, out) == (2, "")
    assert words in err
