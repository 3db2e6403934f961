"""Loaders of several ranks whose sampler determines the order: groups of ranks that read the same
samples, and samplers that must be iterated."""

import itertools
import textwrap

import pytest

torch = pytest.importorskip("torch")

from torchrun import free_port, run, torchrun

pytestmark = [pytest.mark.usefixtures("real"), pytest.mark.slow, pytest.mark.ci]

#: What every script begins with. Each rank prints what it got, and what torch's loader gives.
HEAD = textwrap.dedent("""
    import atexit, json, logging, sys, warnings
    warnings.simplefilter("ignore")
    logging.basicConfig(stream=sys.stderr)
    import torch, torch.distributed as dist
    from torch.utils.data import DataLoader, DistributedSampler, Sampler, WeightedRandomSampler
    import hdmlp.torch as ht
    from items import Items, length

    def ids(loader, sampler=None, epochs=2):
        out = []
        for epoch in range(epochs):
            if hasattr(sampler, "set_epoch"):
                sampler.set_epoch(epoch)
            out.append([x.tolist() for x, _ in loader])
        return out

    data = ht.ImageFolder(sys.argv[1], loader=length)
    dist.init_process_group("gloo")
    # Else gloo's threads may abort the process as it exits (pytorch#179291).
    atexit.register(dist.destroy_process_group)
    me, world = dist.get_rank(), dist.get_world_size()

    def say(**what):
        dist.barrier()
        print(json.dumps({"rank": me, **what}), flush=True)
        dist.barrier()
""")


@pytest.fixture
def ranks(tmp_path, folder):
    """Runs a script by torchrun; returns the output of its ranks, by rank, and their log."""

    def start(script, count, *arguments):
        (tmp_path / "script.py").write_text(HEAD + textwrap.dedent(script))
        said, log = run(
            *torchrun(count, free_port()), str(tmp_path / "script.py"), folder, *arguments
        )
        return sorted(said, key=lambda r: r["rank"]), log

    return start


@pytest.mark.parametrize("mine", ["me // 2", "me % 2"])
def test_ranks_of_a_group_read_each_file_once(ranks, mine):
    """Tensor or pipeline parallelism: the sampler's rank and number of replicas apply, and the node
    reads each file once."""
    said, _ = ranks(
        f"""
        sampler = DistributedSampler(data, 2, {mine}, seed=3)
        loader = ht.DataLoader(data, 4, sampler=sampler)
        place = loader.rank, loader.world_size, len(loader)
        dist.barrier()
        got = ids(loader, sampler)
        state = loader.state_dict()
        again = ht.DataLoader(data, 4, sampler=sampler)
        again.load_state_dict(state)
        say(got=got, want=ids(DataLoader(Items(data), 4, sampler=sampler), sampler), place=place,
            mine={mine}, rest=[len(x) for x, _ in again],
            source=loader.report()["source"]["samples"])
        loader.close()
    """,
        4,
    )
    assert len(said) == 4
    for r in said:
        assert r["got"] == r["want"]
        assert r["place"] == [r["mine"], 2, 4]
    assert sum(r["source"] for r in said) == 25


def test_groups_are_found_without_a_launcher(ranks):
    """If no launcher gives the number of ranks, a second loader with the sampler's rank reads the
    same samples."""
    said, _ = ranks(
        """
        import os, subprocess
        prefixes = ("TORCHELASTIC", "GROUP_")
        names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_PORT")
        env = {k: v for k, v in os.environ.items() if not k.startswith(prefixes) and k not in names}
        code = '''
        import sys, torch, hdmlp.torch as ht
        from torch.utils.data import DistributedSampler
        data = ht.ImageFolder(sys.argv[1], loader=lambda data: torch.tensor(len(data)))
        def made():
            sampler = DistributedSampler(data, 2, 1, seed=3)
            return ht.DataLoader(data, 4, sampler=sampler, name="the same")
        first, second = made(), made()
        print([[x.tolist() for x, _ in loader] for loader in (first, second)])
        print(second.rank, second.world_size)
        '''
        import textwrap
        command = [os.environ["PYTHON_EXEC"], "-c", textwrap.dedent(code), sys.argv[1]]
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
        lines = done.stdout.splitlines()
        sampler = DistributedSampler(data, 2, 1, seed=3)
        want = ids(DataLoader(Items(data), 4, sampler=sampler), epochs=1) * 2
        say(got=eval(lines[0]), want=want, place=lines[1])
    """,
        1,
    )
    assert said[0]["got"] == said[0]["want"]
    assert said[0]["place"] == "1 2"


SAMPLERS = """
    class Shuffled(Sampler):
        '''Each rank's own permutation, cut as if all had the same.'''
        def __init__(self, dataset, seed, replicas=None):
            self.dataset, self.seed = dataset, seed
            self.num_replicas = replicas or world
            self.rank = me % self.num_replicas
        def __len__(self):
            return len(self.dataset) // self.num_replicas
        def __iter__(self):
            generator = torch.Generator().manual_seed(self.seed)
            order = torch.randperm(len(self.dataset), generator=generator).tolist()
            return iter(order[self.rank::self.num_replicas][:len(self)])

    class Weighted(Sampler):
        def __init__(self):
            pass
        def __iter__(self):
            weights, generator = torch.arange(1, 26).float(), torch.Generator().manual_seed(me)
            return iter(torch.multinomial(weights, 12, generator=generator).tolist())
        def __len__(self):
            return 12

    class Repeated(Shuffled):
        num_repeats = 3
        def __iter__(self):
            order = torch.arange(len(self.dataset)).repeat_interleave(3).tolist()
            return iter(order[self.rank::self.num_replicas][:len(self)])
"""


def opaque(ranks, make, count=2, dataset="data", epochs=2, before=""):
    return ranks(
        SAMPLERS
        + f"""
    {before}
    def made(L, d):
        return {make}
    loader = made(ht.DataLoader, {dataset})
    torch.manual_seed(me)
    got = ids(loader, epochs={epochs})
    torch.manual_seed(me)
    want = ids(made(DataLoader, Items(data)), epochs={epochs})
    dist.barrier()
    source = loader.report()["source"]["samples"] if loader._folder is not None else 0
    say(got=got, want=want, source=source)
    loader.close()
    """,
        count,
    )


@pytest.mark.parametrize(
    "make",
    [
        "L(d, 4, sampler=WeightedRandomSampler(torch.arange(1, 26).float(), 20))",
        "L(d, 4, sampler=Weighted())",
        "L(d, 4, sampler=Repeated(data, 1))",
        "L(d, 4, sampler=Shuffled(data, 1))",
    ],
)
def test_ranks_with_different_samplers_read_each_file_once(ranks, make):
    """Each gets what torch's loader gives it. Intended overlaps are not reported."""
    said, log = opaque(ranks, make)
    for r in said:
        assert r["got"] == r["want"]
    samples = {
        x for r in said for epoch in r["got"] for batch in epoch for x in batch
    }  # lengths, by which samples differ
    assert sum(r["source"] for r in said) == len(samples)
    assert "go to more than one" not in log
    assert "disagree" not in log


@pytest.mark.parametrize("dataset", ["data", "Items(data)"])
def test_overlapping_ranks_are_reported_once(ranks, dataset):
    """With the number of samples that two ranks share, for any dataset."""
    said, log = opaque(ranks, "L(d, 4, sampler=Shuffled(data, 5 + me))", 3, dataset)
    parts = [set(itertools.chain.from_iterable(r["got"][0])) for r in said]
    several = sum(1 for x in set.union(*parts) if sum(x in part for part in parts) > 1)
    assert several >= 3, "choose other seeds"
    assert all(r["got"] == r["want"] for r in said)
    assert (
        log.count(
            f"sampler=Shuffled: {several} of {len(set.union(*parts))} samples of epoch 0 go to "
            f"more than one of its 3 ranks"
        )
        == 1
    )
    assert log.count("go to more than one") == 1


def test_ranks_that_disagree_about_their_sampler_are_reported_once(ranks):
    _, log = opaque(ranks, "L(d, 4, sampler=Shuffled(data, 5, 2 + me))")
    assert (
        log.count(
            "the ranks disagree about the sampler in epoch 0: num_replicas is 2 on rank 0, and 3 "
            "on rank 1"
        )
        == 1
    )
    _, log = opaque(ranks, "L(d, 4, sampler=Shuffled(data, 5 + me // 2, 2))", 3)
    assert (
        log.count(
            "the ranks disagree about the sampler in epoch 0: ranks 0 and 2 both have rank 0 of "
            "2 of Shuffled"
        )
        == 1
    )


def test_timms_repeated_augmentation_is_served(ranks):
    """Several ranks get the same samples, as intended."""
    pytest.importorskip("timm")
    said, log = opaque(
        ranks,
        "L(d, 4, sampler=RepeatAugSampler(data))",
        before="from timm.data.distributed_sampler import RepeatAugSampler",
    )
    assert all(r["got"] == r["want"] for r in said)
    assert set(itertools.chain.from_iterable(said[0]["got"][0])) & set(
        itertools.chain.from_iterable(said[1]["got"][0])
    )
    assert "go to more than one" not in log
    assert "disagree" not in log
