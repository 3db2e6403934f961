"""Indexes of shards at URLs: made once, and gone on with, of a server that counts its requests."""

import glob
import json
import os
import select
import signal
import subprocess
import uuid

import preloaded
import pytest
from hdmlp._daemon import connecting
from object_server import BUCKET, ObjectServer
from storedfiles import stored  # noqa: F401
from waiting import until

SHARDS = [f"shards/{s:03d}.tar" for s in range(4)]


@pytest.fixture
def server(real, stored, tmp_path, monkeypatch):
    with ObjectServer(stored) as running:
        for name, value in running.environment().items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("HDMLP_INDEX_DIR", str(tmp_path / "index"))
        yield running


def command():
    return [connecting.find_binary(), "dataset", f"s3://{BUCKET}/shards/{{000..003}}.tar"]


def entries(directory):
    """Returns how many whole entries a journal has."""
    found = 0
    for path in glob.glob(os.path.join(directory, "*.part")):
        with open(path, "rb") as file:
            data = file.read()[24:]
        while len(data) >= 28 + (length := int.from_bytes(data[:4], "little")):
            found, data = found + 1, data[28 + length :]
    return found


def test_indexing_goes_on_where_it_was_killed(server, stored, tmp_path):
    whole = subprocess.run(
        [*command(), "--index-dir", str(tmp_path / "another"), "--json"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    sent = server.counts()["objects"]
    server.hold(SHARDS[2])
    running = subprocess.Popen(command(), stdout=subprocess.DEVNULL)
    until(lambda: entries(tmp_path / "index") == 3, "the other shards are finished")
    running.send_signal(signal.SIGKILL)
    running.wait()
    before = server.counts()
    with open(os.path.join(stored, SHARDS[0]), "ab") as shard:
        shard.write(b"\0" * 10240)  # another version
    running = subprocess.Popen(command(), stdout=subprocess.DEVNULL)
    until(lambda: server.counts()["gets"] > before["gets"] and server.counts()["open"] == 1)
    until(lambda: entries(tmp_path / "index") == 4, "the shard with another version is finished")
    after = server.counts()
    running.terminate()
    running.wait()
    read = {name: after["objects"][name] - before["objects"].get(name, 0) for name in sent}
    assert read == {**dict.fromkeys(SHARDS, 0), SHARDS[0]: read[SHARDS[0]]}
    # Once: what follows the archive's end may be on its way when the daemon has read that.
    size = os.path.getsize(os.path.join(stored, SHARDS[0]))
    assert sent[SHARDS[0]] <= read[SHARDS[0]] <= size
    assert after["heads"] - before["heads"] == len(SHARDS)
    with ObjectServer(stored) as another:  # which sends all; that it has another URL is no matter
        os.environ.update(another.environment())
        shown = subprocess.run(
            [*command(), "--json"], check=True, capture_output=True, text=True
        ).stdout
        counts = another.counts()
    assert [json.loads(text)["index"]["resumed"] for text in (whole, shown)] == [0, 3]
    assert set(counts["objects"]) == {SHARDS[2]}
    assert not glob.glob(str(tmp_path / "index" / "*.part"))


PROCESS = """
import json, sys
import hdmlp.torch as ht

dataset = ht.WebDataset(sys.argv[1])
print(len(dataset), flush=True)
sys.stdin.readline()
with ht.DataLoader(dataset, 8, collate_fn=list, num_workers=0) as loader:
    print(sum(len(batch) for batch in loader))
    print(json.dumps(loader.report()["requests"]["indexing"]))
"""


def test_two_daemons_that_share_a_directory_index_once(server, tmp_path):
    alone = subprocess.run(
        [*command(), "--index-dir", str(tmp_path / "another"), "--json"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    counted, took = server.counts(), json.loads(alone)["requests"]
    server.hold(SHARDS[3])
    running = []
    for _ in range(2):
        socket = {"HDMLP_SOCKET": f"hdmlp-{uuid.uuid4().hex}", "HDMLP_LINGER": "30s"}
        running.append(
            subprocess.Popen(
                [preloaded.PYTHON, "-c", PROCESS, command()[-1]],
                env={**os.environ, **socket},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
    ready, _, _ = select.select([process.stderr for process in running], [], [], 60)
    said = ready[0].readline()
    assert "another process is making the index, which is waited for" in said
    server.release(SHARDS[3])
    assert [process.stdout.readline() for process in running] == ["120\n"] * 2
    counts = server.counts()
    assert counts["heads"] - counted["heads"] >= 2 * len(SHARDS)  # both compare their versions
    found = []
    for process in running:
        process.stdin.write("\n")
        process.stdin.flush()
        assert process.stdout.readline() == "120\n"
        found.append(json.loads(process.stdout.readline()))
        assert process.wait() == 0
        for pipe in (process.stdin, process.stdout, process.stderr):
            pipe.close()
    found.sort(key=lambda indexing: indexing["from"])
    assert [indexing["from"] for indexing in found] == ["kept", "objects"]
    kept, made = (indexing["requests"] for indexing in found)
    assert kept["gets"] == 0
    # A shard that the server holds is asked for twice, and maybe in vain.
    once = took["gets"] - took["hedges"]
    assert made["gets"] - made["hedges"] == once
    assert once <= counts["gets"] - counted["gets"] <= made["gets"]
    assert all(indexing["objects"] == 4 and indexing["seconds"] > 0 for indexing in found)
