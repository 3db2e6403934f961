"""Shared by the tests of datasets' identity: a rank in a process of its own, folders that look
alike, containers."""

import hashlib
import json
import os
import subprocess
import sys
import textwrap

import hdmlp
import pytest

#: Reads some epochs and prints the hashes of what it was given, in order, or the error; then waits
#: for its input to end if it is to stay. Before each epoch but the first it waits for a line,
#: if it is to step.
RANK = textwrap.dedent("""
    import hashlib, json, sys
    import hdmlp.data as data
    root, options = sys.argv[1], json.loads(sys.argv[2])
    stay, step = options.pop("stay", False), options.pop("step", False)
    epochs = options.setdefault("epochs", 1)
    try:
        loader = data.DataLoader(data.Folder(root), batch_size=4, shuffle=False, **options)
        for epoch in range(epochs):
            if epoch and step:
                print(json.dumps({"hashes": hashes}), flush=True)
                sys.stdin.readline()
            hashes = [hashlib.sha256(sample).hexdigest() for batch in loader for sample in batch[0]]
        report = loader.report().text if options.get("report") else ""
        print(json.dumps({"hashes": hashes, "report": report}), flush=True)
        if stay:
            sys.stdin.read()
    except Exception as error:
        print(json.dumps({"error": type(error).__name__, "text": str(error)}), flush=True)
""")

FILES = 40
SIZE = 3000
THEN = 1_600_000_000


def write(path, seed):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(hashlib.shake_256(seed.encode()).digest(SIZE))


def normalise(root):
    """Sets the times of all files and directories to one time, as tools that make images do."""
    for directory, _, files in os.walk(root, topdown=False):
        for name in [*files, "."]:
            os.utime(os.path.join(directory, name), ns=(THEN * 10**9,) * 2)


def make(root, seed, files=FILES):
    for i in range(files):
        write(root / "ab"[i % 2] / f"{i:03d}.jpg", f"{seed} {i}")
    normalise(root)
    return str(root)


def hashes(root):
    """The hashes of the samples that a loader without shuffling must give, by the oracle."""
    out = []
    for label in sorted(os.listdir(root)):
        if os.path.isdir(os.path.join(root, label)):
            for name in sorted(os.listdir(os.path.join(root, label))):
                with open(os.path.join(root, label, name), "rb") as file:
                    out.append(hashlib.sha256(file.read()).hexdigest())
    return out


class Rank:
    def __init__(self, root, prefix=(), environment=None, **options):
        self.process = subprocess.Popen(
            [*prefix, sys.executable, "-c", RANK, str(root), json.dumps(options)],
            env={
                **os.environ,
                "PYTHONPATH": os.path.dirname(os.path.dirname(hdmlp.__file__)),
                **(environment or {}),
            },
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def says(self):
        line = self.process.stdout.readline()
        assert line, self.process.stderr.read()
        return json.loads(line)

    def go_on(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def end(self):
        self.process.stdin.close()
        assert self.process.wait(30) == 0, self.process.stderr.read()


def read(root, prefix=(), environment=None, **options):
    rank = Rank(root, prefix, environment, **options)
    said = rank.says()
    rank.end()
    return said


@pytest.fixture
def lasting(real, monkeypatch):
    """A daemon that keeps its caches between jobs."""
    monkeypatch.setenv("HDMLP_LINGER", "20s")


@pytest.fixture
def short(real, monkeypatch):
    """A daemon for each job."""
    monkeypatch.setenv("HDMLP_LINGER", "0s")


needs_root = pytest.mark.skipif(os.getuid() != 0, reason="needs root for mount namespaces")


def container(mounts):
    """A command prefix that runs what follows in a mount namespace with these bind mounts."""
    script = "".join(f"mount --bind {what} {where} && " for what, where in mounts) + 'exec "$@"'
    return ("unshare", "-m", "--propagation", "private", "sh", "-c", script, "sh")
