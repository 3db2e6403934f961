"""Samplers over several nodes: each rank gets what torch's loader gives it, however its group is
spread over nodes."""

import textwrap

import pytest

pytest.importorskip("torch")

from items import PATH
from nodes import SAMPLES, binary, folder, run_script  # noqa: F401

pytestmark = pytest.mark.slow

#: Rank 0 and 1 are on node 0, rank 2 and 3 on node 1.
SCRIPT = textwrap.dedent("""
    import json, os, sys, warnings
    warnings.simplefilter("ignore")
    import torch
    from torch.utils.data import DataLoader, DistributedSampler, WeightedRandomSampler
    import hdmlp.torch as ht
    from items import Items, length
    from waiting import barrier

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
    barrier(sys.argv[2], "end", me, 4)  # no node leaves while another one needs it
""")


def test_samplers_on_two_nodes_give_torchs_batches(binary, folder, tmp_path):
    said, done = run_script(binary, tmp_path, SCRIPT, folder, PYTHONPATH=PATH)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]
    assert len(said) == 4, done.stdout[-2000:] + done.stderr[-3000:]
    assert {(r["rank"], r["node"]) for r in said} == {
        (0, "0"),
        (1, "0"),
        (2, "1"),
        (3, "1"),
    }
    assert SAMPLES == 240
    for r in said:
        for name in ("within a node", "over nodes", "weighted", "all"):
            assert r[name], (r["rank"], name)
