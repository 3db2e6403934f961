"""What limits a job, what would help, and what-if questions: report() and hdmlp stats."""

import json
import subprocess

import pytest
from hdmlp import _daemon, data

SAMPLES, SIZE = 200, 10_000

CONFIG = """
memory = "500kB"

[environment]
compute = 2
source = 1
"""


@pytest.fixture
def job(real, tmp_path, monkeypatch):
    """A loader after two epochs: 2 MB, memory for a quarter, a source that is said to give 1 MB/s
    to training that is said to consume 2 MB/s."""
    folder = tmp_path / "data" / "a"
    folder.mkdir(parents=True)
    for i in range(SAMPLES):
        (folder / f"{i:03d}.jpg").write_bytes(bytes([i]) * SIZE)
    config = tmp_path / "hdmlp.toml"
    config.write_text(CONFIG)
    monkeypatch.setenv("HDMLP_CONFIG", str(config))
    monkeypatch.delenv("HDMLP_MEMORY")
    loader = data.DataLoader(str(folder.parent), batch_size=10, seed=1, epochs=3)
    for _ in range(2):
        for _ in loader:
            pass
    yield loader


def test_x(job):
    r = job.report()
    print(json.dumps({k: r.get(k) for k in ("limit", "remedies", "sentence", "environment")}, indent=1))
    for args in (["stats"], ["stats", "--what-if", "memory=2MB,nodes=1"], ["top", "--once"]):
        p = subprocess.run([_daemon.find_binary(), *args], capture_output=True, text=True)
        print(p.stdout, p.stderr)
    assert 0
