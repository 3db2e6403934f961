"""Samplers over several nodes: each rank gets what torch's loader gives it, whichever ranks a node
has of which group."""

import json
import os
import subprocess
import sys
import textwrap
import uuid

import pytest

pytest.importorskip("torch")

from items import PATH
from nodes import SAMPLES, binary, folder  # noqa: F401

pytestmark = pytest.mark.slow

#: Rank 0 and 1 are on node 0, rank 2 and 3 on node 1.
SCRIPT = textwrap.dedent("""
    import json, os, sys, time, warnings
    warnings.simplefilter("ignore")
    import torch
    from torch.utils.data import DataLoader, DistributedSampler, WeightedRandomSampler
    import hdmlp.torch as ht
    from items import Items, length

    def ids(loader, sampler):
        torch.manual_seed(me)
        out = []
        for epoch in range(2):
            if hasattr(sampler, "set_epoch"):
                sampler.set_epoch(epoch)
            out.append([x.tolist() for x, _ in loader])
        return out

    me = int(os.environ["RANK"])
    data = ht.ImageFolder(sys.argv[1], loader=length)
    said = {"rank": me, "node": os.environ["GROUP_RANK"]}
    samplers = {
        "within a node": DistributedSampler(data, 2, me % 2, seed=3),
        "over nodes": DistributedSampler(data, 2, me // 2, seed=3),
        "weighted": WeightedRandomSampler(torch.arange(1, 241).float(), 100),
        "all": DistributedSampler(data, 4, me, seed=3),
    }
    for name, sampler in samplers.items():
        with ht.DataLoader(data, 8, sampler=sampler) as loader:
            got = ids(loader, sampler)
            said[name] = got == ids(DataLoader(Items(data), 8, sampler=sampler), sampler)
    print(json.dumps(said), flush=True)
    wait = sys.argv[2]
    open(os.path.join(wait, str(me)), "w").close()
    while len(os.listdir(wait)) < 4:  # no node leaves while another one needs it
        time.sleep(0.02)
""")


def test_two_nodes(binary, folder, tmp_path):
    (tmp_path / "script.py").write_text(SCRIPT)
    (tmp_path / "done").mkdir()
    environment = {
        **os.environ,
        "HDMLP_LINGER": "0s",
        "HDMLP_INDEX_DIR": str(tmp_path / "index"),
        "HDMLP_SECRET": uuid.uuid4().hex,
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": PATH,
    }
    environment.pop("HDMLP_SOCKET", None)
    done = subprocess.run(
        [
            binary,
            "dev",
            "cluster",
            "-n",
            "2",
            "--ranks-per-node",
            "2",
            "--run",
            f"samplers-{os.getpid()}",
            "--",
            sys.executable,
            str(tmp_path / "script.py"),
            folder,
            str(tmp_path / "done"),
        ],
        env=environment,
        capture_output=True,
        text=True,
        timeout=280,
    )
    said = [
        json.loads(line[line.index("{") :])
        for line in done.stdout.splitlines()
        if '{"rank"' in line
    ]
    assert done.returncode == 0 and len(said) == 4, done.stdout[-2000:] + done.stderr[-3000:]
    assert {(r["rank"], r["node"]) for r in said} == {
        (0, "0"),
        (1, "0"),
        (2, "1"),
        (3, "1"),
    } and SAMPLES == 240
    for r in said:
        for name in ("within a node", "over nodes", "weighted", "all"):
            assert r[name], (r["rank"], name)
