"""Samplers of which each rank, on several nodes, draws its own part: each rank gets what torch's
loader gives it, and the source is read once."""

import textwrap

import pytest

pytest.importorskip("torch")

from items import PATH
from nodes import SAMPLES, binary, folder, run_script  # noqa: F401

pytestmark = pytest.mark.slow

#: What every script begins with. Rank 0 and 1 are on node 0, rank 2 and 3 on node 1; each is a
#: process that may be killed.
HEAD = textwrap.dedent("""
    import json, logging, math, os, random, signal, sys, warnings
    import waiting
    warnings.simplefilter("ignore")
    me, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])

    def barrier(name):
        waiting.barrier(sys.argv[2], name, me, world)

    child = os.fork()
    if child:
        status = os.waitpid(child, 0)[1]
        barrier("over")  # no node leaves while another one needs it
        sys.exit(0 if os.WIFEXITED(status) else 1)
    logging.basicConfig(stream=sys.stderr)
    import torch
    from torch.utils.data import DataLoader
    import hdmlp.torch as ht
    from items import Items, length
    from hdmlp import errors

    class Parted:
        # A user's sampler: in each epoch a permutation of its own, of which each rank has its part.
        def __init__(self, data, length=40):
            self.count, self.num_replicas, self.rank = len(data), world, me
            self.epoch, self.length = 0, length
        def set_epoch(self, epoch):
            self.epoch = epoch
        def __len__(self):
            return self.length
        def __iter__(self):
            order = random.Random(7 + self.epoch).sample(range(self.count), self.count)
            return iter(order[self.rank::self.num_replicas][:self.length])

    class Counting(Parted):
        # The same, but it counts its epochs by itself.
        def __iter__(self):
            self.epoch += 1
            return super().__iter__()

    class Repeated(Parted):
        # timm's RepeatAugSampler: each sample goes to three ranks.
        def __iter__(self):
            g = torch.Generator()
            g.manual_seed(self.epoch)
            indices = torch.repeat_interleave(torch.randperm(self.count, generator=g), 3)
            return iter(indices[self.rank:len(indices):self.num_replicas].tolist()[:self.length])

    def ids(loader, sampler=None, epochs=3, first=0):
        out = []
        for epoch in range(first, first + epochs):
            if isinstance(sampler, (Parted, Repeated)) and not isinstance(sampler, Counting):
                sampler.set_epoch(epoch)
            out.append([x.tolist() for x, _ in loader])
        return out

    def say(**what):
        print(json.dumps({"rank": me, **what}), flush=True)

    data = ht.ImageFolder(sys.argv[1], loader=length)
    torch.manual_seed(me)
""")


@pytest.fixture
def run(binary, folder, tmp_path):
    """Runs a script on two nodes of two ranks each; returns what the ranks printed, and the log."""

    def start(script):
        said, done = run_script(
            binary,
            tmp_path,
            HEAD + textwrap.dedent(script),
            folder,
            HDMLP_MEMORY="32MiB",
            PYTHONPATH=PATH,
        )
        return said, done.stdout[-3000:] + done.stderr[-6000:]

    return start


@pytest.mark.parametrize("sampler", ["Repeated(data)", "Counting(data)", "Parted(data, 37)"])
def test_each_rank_gets_its_part_and_the_source_is_read_once(run, sampler):
    said, log = run(f"""
        mine, theirs, again, drawn = {sampler}, {sampler}, {sampler}, set()
        with ht.DataLoader(data, 8, sampler=mine) as loader:
            got = ids(loader, mine)
            barrier("through")
            source = loader.report(cluster=True)["total"]["source"]["bytes"]
            barrier("asked")
        for epoch in range(3):
            if type(again) is not Counting:
                again.set_epoch(epoch)
            drawn.update(again)
        files = {{i: os.path.join(sys.argv[1], data.samples[i][0]) for i in drawn}}
        say(same=got == ids(DataLoader(Items(data), 8, sampler=theirs), theirs), source=source,
            drawn={{i: os.path.getsize(file) for i, file in files.items()}})
    """)
    assert len(said) == 4, log
    assert all(value["same"] for value in said), log
    assert "reads what its ranks need" not in log
    needed = {index: size for value in said for index, size in value["drawn"].items()}
    assert 100 < len(needed) <= SAMPLES, log
    assert {value["source"] for value in said} == {sum(needed.values())}, log


def test_breaks_probes_and_resuming_keep_the_parts(run):
    said, log = run("""
        def theirs(epochs, first=0):
            sampler = Parted(data)
            return ids(DataLoader(Items(data), 8, sampler=sampler), sampler, epochs, first)

        sampler = Parted(data)
        with ht.DataLoader(data, 8, sampler=sampler) as loader:
            if me == 0:  # one rank looks at its first batch, and the others do not
                probe = next(iter(loader))[0].tolist()
            got = ids(loader, sampler, 2)
            sampler.set_epoch(2)
            for step, (x, _) in enumerate(loader):  # all break off
                if step == 1:
                    break
            state = loader.state_dict()
            got += ids(loader, sampler, 1, 3)
            barrier("broken off")
        alike = got == theirs(2) + theirs(1, 3)
        sampler = Parted(data)
        with ht.DataLoader(data, 8, sampler=sampler, verify=True) as loader:
            loader.load_state_dict(json.loads(json.dumps(state)))
            rest = [x.tolist() for x, _ in loader]
            after = ids(loader, sampler, 1, 3)
            barrier("resumed")
        say(alike=alike, rest=rest == theirs(1, 2)[0][2:], after=after == theirs(1, 3))
    """)
    assert len(said) == 4, log
    assert all(value["alike"] and value["rest"] and value["after"] for value in said), (said, log)
    assert "reads what its ranks need" not in log


def test_a_sample_on_several_ranks_draws_other_numbers_on_each(run):
    said, log = run("""
        class Same(Parted):
            def __iter__(self):
                return iter([5] * 6)

        def draw(_):
            return torch.rand(1).item()

        noisy = ht.ImageFolder(sys.argv[1], loader=length, transform=draw)
        drawn = []
        for workers in (0, 2):
            torch.manual_seed(5 + me)  # of rank 0's the job's seed is drawn
            with ht.DataLoader(noisy, 3, sampler=Same(noisy, 6), num_workers=workers) as loader:
                drawn.append([[n for x, _ in loader for n in x.tolist()] for epoch in range(2)])
                barrier(f"drawn by {workers}")
        say(numbers=drawn[0], alike=drawn[0] == drawn[1])
    """)
    assert len(said) == 4, log
    assert all(value["alike"] for value in said), log
    numbers = [n for value in said for epoch in value["numbers"] for n in epoch]
    assert len(numbers) == len(set(numbers)) == 4 * 2 * 6, said
    assert "reads what its ranks need" not in log


def test_simultaneous_iterators_have_an_epoch_each(run):
    said, log = run("""
        def pairs(loader):
            return [
                [(x.tolist(), y.tolist()) for (x, _), (y, _) in zip(loader, loader)]
                for _ in range(2)
            ]

        with ht.DataLoader(data, 8, sampler=Counting(data)) as loader:
            got = pairs(loader)
            barrier("zipped")
        say(same=got == pairs(DataLoader(Items(data), 8, sampler=Counting(data))))
    """)
    assert [value["same"] for value in said] == [True] * 4, log
    assert "reads what its ranks need" not in log


def test_parts_that_cannot_be_shared_are_read_separately_on_all_ranks(run):
    said, log = run("""
        class Uncopied(Parted):
            def __init__(self, data):
                super().__init__(data)
                if me == 2:
                    self.running = (n for n in range(3))

        class Wrong(Parted):
            # Rank 1 yields an index that there is not, in epoch 1.
            def __iter__(self):
                order = list(super().__iter__())
                if me == 1 and self.epoch == 1:
                    order[12] = 1000
                return iter(order)

        class Changing(Parted):
            # Its epochs have other lengths, on all ranks alike.
            def __iter__(self):
                return iter(list(super().__iter__())[self.epoch:])

        class Swapped(Parted):
            # Its ranks are not those of the launcher.
            def __init__(self, data):
                super().__init__(data)
                self.rank = me ^ 1 if me < 2 else me

        samplers = {
            "lengths": lambda data: Parted(data, 20 + me),
            "uncopied": Uncopied,
            "changing": Changing,
            "swapped": Swapped,
        }
        for name, sampler in samplers.items():
            mine, other = sampler(data), sampler(data)
            with ht.DataLoader(data, 8, sampler=mine) as loader:
                got = ids(loader, mine)
                barrier(name)
            say(name=name, same=got == ids(DataLoader(Items(data), 8, sampler=other), other))
        mine = Wrong(data)
        with ht.DataLoader(data, 8, sampler=mine) as loader:
            got, error = [], ""
            try:
                for epoch in range(3):
                    mine.set_epoch(epoch)
                    for x, _ in loader:
                        got.append(x.tolist())
            except IndexError as raised:
                error = str(raised)
            barrier("wrong")
        say(name="wrong", batches=len(got), error=error)
    """)
    assert len(said) == 5 * 4, log
    for name in ("lengths", "uncopied", "changing", "swapped"):
        assert [value["same"] for value in said if value["name"] == name] == [True] * 4, (
            name,
            said,
            log,
        )
    wrong = {value["rank"]: value for value in said if value["name"] == "wrong"}
    assert "index 1000" in wrong[1]["error"], wrong
    assert wrong[1]["batches"] == 5 + 1, wrong
    assert all(wrong[rank]["batches"] == 15 and not wrong[rank]["error"] for rank in (0, 2, 3)), (
        wrong
    )
    for why in (
        "rank 1 has 21 samples in epoch 0, and rank 0 has 20",
        "epoch 1 has 39 samples on each rank, and had 40 before",
        "index 1000",
    ):
        assert why in log


def test_a_loader_that_one_rank_alone_iterates_is_read_separately(run):
    said, log = run("""
        sampler = Parted(data)
        with ht.DataLoader(data, 8, sampler=sampler, start_timeout="2s") as loader:
            if me == 0:
                got = ids(loader, sampler)
                say(same=got == ids(DataLoader(Items(data), 8, sampler=sampler), sampler))
    """)
    assert said == [{"rank": 0, "same": True}], log
    assert "of the 2 ranks of node 0 only [0] opened the loader within 2s" in log
    assert "reads what its ranks need" in log


def test_a_part_of_another_length_ends_all_ranks(run):
    said, log = run("""
        class Shorter(Parted):
            def __iter__(self):
                order = list(super().__iter__())
                return iter(order[:30] if me == 3 and self.epoch == 1 else order)

        sampler = Shorter(data)
        with ht.DataLoader(data, 8, sampler=sampler, timeout=120) as loader:
            batches = 0
            try:
                for epoch in range(2):
                    sampler.set_epoch(epoch)
                    for _ in loader:
                        batches += 1
            except errors.MismatchError as error:
                say(batches=batches, error=str(error), details=error.details)
            barrier("ended")
    """)
    assert len(said) == 4, log
    for value in said:
        assert value["batches"] == 5, said
        assert (
            "rank 3 ends epoch 1 at index 30, and the part of each rank had 40 samples"
            in value["error"]
        ), said
        assert value["details"]["epoch"] == 1
        assert value["details"]["of_rank"] == 3


@pytest.mark.parametrize("killed", [[3], [2, 3]])
def test_ranks_that_are_killed_end_the_others(run, killed):
    said, log = run(f"""
        killed = {killed}
        sampler = Parted(data)
        with ht.DataLoader(data, 8, sampler=sampler, timeout=120) as loader:
            first = ids(loader, sampler, 1)
            if me in killed:
                os.kill(os.getpid(), signal.SIGKILL)
            try:
                ids(loader, sampler, 1, 1)
            except errors.MismatchError as error:
                say(error=str(error), batches=len(first[0]))
    """)
    assert [value["rank"] for value in said] == [rank for rank in range(4) if rank not in killed], (
        log
    )
    for value in said:
        assert "the order of epoch 1 cannot be determined" in value["error"], said
        assert value["batches"] == 5, said
        assert "has left the job" in value["error"] or "node 1 is gone" in value["error"]
