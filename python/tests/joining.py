"""Runs over several nodes that fail to come together, for tests: what each rank reports."""

import re

from nodes import Nodes

# Addresses of `hdmlp dev cluster`.
IP = r"10\.\d+\.\d+\.\d+"
BASE = {"batch_size": 8, "memory": "2MB", "epochs": 1, "start_timeout": "4s"}


def start(binary, folder, tmp_path, nodes, options, of_node, expect):
    """Runs a job that fails to start; returns what the ranks in expect said. All ranks stay until
    then."""
    done, together = tmp_path / "done", tmp_path / "together"
    together.mkdir()
    options = {**BASE, "together": [str(together), nodes], **options}
    run = Nodes(
        binary,
        folder,
        nodes,
        {**options, "of_node": {str(n): o for n, o in of_node.items()}, "until": str(done)},
        1,
        tmp_path,
    )
    try:
        run.wait(lambda: set(expect) <= run.said.keys(), f"ranks {expect} give up")
    finally:
        done.touch()
        run.end()
    return run.said


def check(said, kind, words):
    assert said["kind"] == kind, said
    assert re.search(words, said["error"]), said
