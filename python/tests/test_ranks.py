"""The samples of each rank, in real processes of torch.distributed: those of torch's loader,
wherever the loader was made."""

import textwrap

import preloaded
import pytest

torch = pytest.importorskip("torch")

from torchrun import free_port, run, torchrun

pytestmark = [pytest.mark.usefixtures("real"), pytest.mark.slow]

#: Ranks started by mp.spawn, or by torchrun; each prints what it got, and what torch's loader
#: gives.
SCRIPT = textwrap.dedent("""
    import json, os, sys, warnings, logging
    warnings.simplefilter("ignore")
    logging.basicConfig(stream=sys.stderr)
    import torch, torch.distributed as dist, torch.multiprocessing as mp
    from torch.utils.data import DataLoader, DistributedSampler
    import hdmlp.torch as ht
    from items import Items, length

    root, how, port = sys.argv[1:4]
    data = ht.ImageFolder(root, loader=length)

    def ids(loader, epochs=2, sampler=None):
        out = []
        for epoch in range(epochs):
            if sampler is not None:
                sampler.set_epoch(epoch)
            out.append([x.tolist() for x, _ in loader])
        return out

    def rank(number, early):
        if "RANK" not in os.environ:
            os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
            dist.init_process_group("gloo", rank=number, world_size=2)
        else:
            dist.init_process_group("gloo")
        me, world = dist.get_rank(), dist.get_world_size()
        sampler = DistributedSampler(data, shuffle=True, seed=3)
        got, want = {}, {}
        made = early or ht.DataLoader(data, 4, shuffle=True, seed=3, shard=True)
        got["shard"] = [len(made), made.rank, made.world_size, ids(made)]
        torchs = DataLoader(Items(data), 4, sampler=sampler)
        want["shard"] = [len(torchs), me, world, ids(torchs, 2, sampler)]
        with ht.DataLoader(data, 4, sampler=sampler) as loader:
            got["sampler"] = ids(loader, 2, sampler)
        want["sampler"] = ids(DataLoader(Items(data), 4, sampler=sampler), 2, sampler)
        with ht.DataLoader(data, 5) as loader:  # every rank gets all
            got["validation"] = [len(loader), ids(loader)]
        want["validation"] = [len(DataLoader(Items(data), 5)), ids(DataLoader(Items(data), 5))]
        if me == 0:  # and one rank alone may iterate
            with ht.DataLoader(data, 5) as loader:
                got["one"] = ids(loader, 1)
            want["one"] = ids(DataLoader(Items(data), 5), 1)
        # A group of ranks that read the same.
        halves = DistributedSampler(data, num_replicas=1, rank=0, shuffle=True, seed=9)
        with ht.DataLoader(data, 4, sampler=halves) as loader:
            got["group"] = ids(loader, 2, halves)
        want["group"] = ids(DataLoader(Items(data), 4, sampler=halves), 2, halves)
        drawn = ht.DataLoader(data, 4, shuffle=True, shard=True)
        seeds = [None] * world
        dist.all_gather_object(seeds, drawn.seed)
        got["seed"], want["seed"] = len(set(seeds)), 1
        dist.barrier()
        print(json.dumps({"rank": me, "got": got, "want": want}), flush=True)
        dist.barrier()
        made.close()
        # Else gloo's threads may abort the process as it exits (pytorch#179291).
        dist.destroy_process_group()

    if __name__ == "__main__":
        # Before there is a process group.
        early = ht.DataLoader(data, 4, shuffle=True, seed=3, shard=True)
        if how == "spawn":
            mp.spawn(rank, (early,), nprocs=2)
        else:
            rank(0, early)
""")


@pytest.fixture
def script(tmp_path):
    (tmp_path / "script.py").write_text(SCRIPT)
    return str(tmp_path / "script.py")


@pytest.mark.parametrize("how", ["spawn", "torchrun"])
def test_every_rank_gets_what_torch_gives_it(folder, script, how):
    port = free_port()
    launcher = [preloaded.PYTHON] if how == "spawn" else torchrun(2, port)
    ranks, _ = run(*launcher, script, folder, how, port)
    assert {r["rank"] for r in ranks} == {0, 1}
    for r in ranks:
        for key, value in r["want"].items():
            assert r["got"][key] == value, (r["rank"], key)


def test_a_shuffled_loader_that_is_not_shared_warns_once(folder, tmp_path):
    code = (
        "import sys, logging; logging.basicConfig(); import hdmlp.torch as ht\n"
        "for _ in range(2):\n    loader = ht.DataLoader(ht.ImageFolder(sys.argv[1]), 4, "
        "shuffle=True, seed=1); list(loader); list(loader)\n"
        "ht.DataLoader(ht.ImageFolder(sys.argv[1]), 4)"
    )
    (tmp_path / "s.py").write_text(code)
    _, said = run(*torchrun(2, free_port()), str(tmp_path / "s.py"), folder)
    assert (
        said.count("not shared among the 2 ranks: each rank gets all samples; give shard=True") == 4
    )  # each loader of each process, once


def test_a_rank_that_changes_is_refused(folder, monkeypatch):
    import hdmlp.torch as ht
    from hdmlp import errors

    with ht.DataLoader(ht.ImageFolder(folder), 4, shuffle=True, seed=1, shard=True) as loader:
        assert len(loader) == 7
        monkeypatch.setenv("RANK", "1")
        monkeypatch.setenv("WORLD_SIZE", "2")
        with pytest.raises(errors.ConfigError, match=r"began as rank 0 of 1 .* now rank 1 of 2"):
            iter(loader)
