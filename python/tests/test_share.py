"""Jobs that share what they prepare: each member is a process, and gets what it would get alone."""

import contextlib
import multiprocessing
import os
import signal
from concurrent.futures import ThreadPoolExecutor

import pytest

torch = pytest.importorskip("torch")
torchvision = pytest.importorskip("torchvision")
pytest.importorskip("PIL.Image")

import hdmlp.torch as ht
import sharing
from hdmlp import _daemon, data, errors
from hdmlp import transforms as T
from reference import jpegs
from sharing import digest

V = torchvision.transforms
pytestmark = pytest.mark.usefixtures("real")

COUNTS = {"ant": 14, "bee": 13, "cat": 10}  # 37: no multiple of the batch
EPOCHS, BATCH = 3, 8
FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["torchvision.transforms", "hdmlp.torch"])
STEPS = 5
TRANSFORMS = [V.Resize(40), V.CenterCrop(32), V.ToTensor()]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return jpegs(tmp_path_factory.mktemp("jpegs") / "data", COUNTS)


class Member:
    """A process that runs ``sharing.member``."""

    def __init__(self, folder, share="s", epochs=EPOCHS, batch=BATCH, loader=(), **options):
        self.pipe, theirs = FORKS.Pipe()
        options["loader"] = {**({"share": share} if share else {}), **dict(loader)}
        self.process = FORKS.Process(
            target=sharing.member,
            args=(theirs, dict(os.environ), folder),
            kwargs={"epochs": epochs, "batch": batch, **options},
        )
        self.process.start()
        theirs.close()
        assert self.pipe.recv() is None
        self.batches = []

    def until(self, batches):
        """Waits until it has got so many batches."""
        while len(self.batches) < batches:
            self.batches.append(self.pipe.recv())

    def go_on(self):
        """Ends its pause."""
        self.pipe.send(None)

    def all(self):
        """Waits until it has got all its batches; returns them. The loader stays open."""
        while not self.batches or self.batches[-1] != "end":
            self.batches.append(self.pipe.recv())
        return self.batches[:-1]

    def end(self):
        """Waits for its end; returns its batches."""
        batches = self.all()
        self.pipe.close()
        self.process.join()
        assert self.process.exitcode == 0
        return batches

    def send(self, number):
        """Sends it a signal."""
        os.kill(self.process.pid, number)


@pytest.fixture
def member(folder):
    """Starts members, and kills those that are left at the end."""
    members = []

    def start(**options):
        members.append(Member(folder, **options))
        return members[-1]

    yield start
    for m in members:
        m.process.kill()
        m.process.join()


def transformed():
    """Returns how many samples were transformed, by job: the group's, and the others together."""
    client = _daemon.connect()
    frame = _daemon.protocol.encode_json(
        _daemon.protocol.CALL, {"id": 1, "method": "stats", "params": {}}
    )
    answer = _daemon.request(client, frame, (_daemon.protocol.REPLY,))
    client.close()
    group = rest = 0
    for job in answer["result"]["jobs"]:
        n = (job.get("preprocessing") or {}).get("samples", 0)
        if job["job"].startswith("share "):
            group += n
        else:
            rest += n
    return group, rest


def torchs(folder):
    """Returns the batches of torch's loader and torchvision, as members print them."""
    dataset = torchvision.datasets.ImageFolder(folder, V.Compose(TRANSFORMS))
    out = []
    for epoch in range(EPOCHS):
        sampler = torch.utils.data.DistributedSampler(dataset, 1, 0, seed=3)
        sampler.set_epoch(epoch)
        loader = torch.utils.data.DataLoader(dataset, BATCH, sampler=sampler)
        out += [[epoch, step, *digest(*batch)] for step, batch in enumerate(loader)]
    return out


def test_members_get_torchs_batches_prepared_once(member, folder):
    announced = {"share_members": 3}
    members = [
        member(loader=announced),
        member(loader=announced, write=True),
        member(loader=announced, keep=2),
    ]
    want = torchs(folder)
    for m in members:
        assert m.all() == want
    assert transformed() == (EPOCHS * sum(COUNTS.values()), 0)


def test_batches_of_different_sizes_are_prepared_once(member, folder):
    sizes = [8, 3, 16, 40]
    members = [
        member(batch=n, write=n == 3, random=True, loader={"share_members": len(sizes)})
        for n in sizes
    ]
    got = [m.all() for m in members]
    group, rest = transformed()
    assert group <= (EPOCHS + 1) * sum(COUNTS.values())
    assert rest == 0
    for m in members:
        m.end()
    for n, batches in zip(sizes, got):
        assert member(share=None, batch=n, random=True).end() == batches


def test_random_transforms_are_those_of_a_private_run(member):
    want = member(share=None, random=True).end()
    members = [member(random=True, write=i == 0, loader={"share_members": 2}) for i in range(2)]
    for m in members:
        assert m.all() == want


WORKERS = {"num_workers": 2, "multiprocessing_context": "fork"}


def test_workers_take_the_groups_batches(member):
    """Beside members without workers, and with other transforms in Python and batch sizes."""
    announced = {"share_members": 4}
    kinds = [
        {"python": True, "loader": WORKERS},
        {"python": True, "loader": {**WORKERS, "prefetch_factor": 5}, "batch": 3, "write": True},
        {"python": True, "loader": {"num_workers": 0}},
        {"write": True},
    ]
    members = [
        member(random=True, **{**kind, "loader": {**kind.get("loader", {}), **announced}})
        for kind in kinds
    ]
    got = [m.all() for m in members]
    group, rest = transformed()
    assert group <= (EPOCHS + 1) * sum(COUNTS.values())
    assert rest == 0
    for kind, batches in zip(kinds, got):
        assert member(share=None, random=True, **kind).end() == batches


def test_workers_of_members_with_a_small_window(member):
    """Which holds fewer batches than they have."""
    want = member(share=None, python=True, random=True, epochs=9).end()
    options = {"share_members": 2, "staging_buffer": "256KiB", **WORKERS, "prefetch_factor": 6}
    members = [
        member(python=True, random=True, epochs=9, write=i == 0, loader=options) for i in range(2)
    ]
    for m in members:
        assert m.all() == want


def test_a_member_whose_worker_is_killed_costs_others_nothing(member):
    """It is told, unless the worker was through with the epoch: the next one has others."""
    want = member(share=None, python=True, random=True, epochs=9).end()
    options = {"share_members": 2, "staging_buffer": "256KiB"}
    loses = member(python=True, random=True, epochs=9, loader={**WORKERS, **options}, pause=[1, 2])
    other = member(python=True, random=True, epochs=9, loader={"num_workers": 0, **options})
    loses.until(STEPS + 3)
    with open(f"/proc/{loses.process.pid}/task/{loses.process.pid}/children") as children:
        for pid in children.read().split():
            with open(f"/proc/{pid}/comm") as name:
                if name.read() != "hdmlp\n":  # it may have started the daemon
                    os.kill(int(pid), signal.SIGKILL)
    loses.go_on()
    assert other.all() == want
    with contextlib.suppress(EOFError):
        loses.all()
    got = [batch for batch in loses.batches if batch != "end"]
    assert got == want[: len(got)]


def test_kept_batches_stay(member):
    """A member that keeps all of its batches, and one that writes to all."""
    want = member(share=None, random=True).end()
    members = [
        member(random=True, keep=EPOCHS * STEPS, loader={"share_members": 2}),
        member(random=True, keep=EPOCHS * STEPS, write=True, loader={"share_members": 2}),
    ]
    for m in members:
        assert m.all() == want


@pytest.mark.parametrize("end", ["close", "del"])
def test_kept_batches_stay_when_the_loader_has_gone(folder, end):
    """Although their slots are not returned, and the group goes on."""

    def loader():
        dataset = ht.ImageFolder(folder, V.Compose(TRANSFORMS))
        small = {"staging_buffer": "256KiB"}  # batches soon lie where others did
        return ht.DataLoader(dataset, BATCH, shuffle=True, seed=3, epochs=20, share="s", **small)

    leaves, stays = loader(), loader()
    batches = iter(leaves)
    kept = [next(batches), next(batches)]
    before = [digest(*batch) for batch in kept]
    del batches
    if end == "close":
        leaves.close()
    del leaves
    with stays:
        for _ in range(3):
            for images, _ in stays:
                images.zero_()
            assert [digest(*batch) for batch in kept] == before
        report = stays.report()
        assert report["ranks"][0]["group"]["members"] == 1
        assert {"limit", "remedies"}.isdisjoint(report)  # the group's job has these


def test_a_member_that_goes_on_after_the_daemon_died_waits_for_no_others(folder):
    """The other members may have ended: share_members is for the first batch."""

    epochs, died = 20, 0

    def loader():
        dataset = ht.ImageFolder(folder, V.Compose(TRANSFORMS))
        group = {"share": "s", "share_members": 2, "staging_buffer": "256KiB"}
        return ht.DataLoader(dataset, BATCH, shuffle=True, seed=3, epochs=epochs, **group)

    with loader() as stays:
        with loader() as ends, ThreadPoolExecutor() as pool:
            batches, others = iter(stays), iter(ends)
            first = pool.submit(next, others)
            got = [digest(*next(batches))]
            assert digest(*first.result()) == got[0]
            del first, others
        os.kill(_daemon.connect().pid, signal.SIGKILL)
        while len(got) < epochs * STEPS:
            try:
                got.append(digest(*next(batches)))
            except errors.DaemonDiedError:
                died += 1
            except StopIteration:
                batches = iter(stays)
    assert died == 1
    assert got[: EPOCHS * STEPS] == [tuple(batch[2:]) for batch in torchs(folder)]


@pytest.mark.parametrize("killed", [1, 2])
def test_members_that_are_killed_cost_others_nothing(member, killed):
    want = member(share=None, random=True).end()
    announced = {"share_members": 3}
    members = [
        member(random=True, loader=announced, pause=[0, 2] if i < killed else [0, 3])
        for i in range(3)
    ]
    for m in members[:killed]:
        m.until(3)
        m.process.kill()
        m.process.join()
    for m in members[killed:]:
        m.until(4)
        m.go_on()
        assert m.all() == want


def test_a_stopped_member_is_detached_and_continues(member):
    """With a small window, in which the others cannot finish while it holds them up."""
    want = member(share=None, epochs=20).end()
    options = {"share_members": 2, "staging_buffer": "256KiB"}
    stopped = member(epochs=20, loader=options, pause=[0, 2])
    other = member(epochs=20, loader=options)
    stopped.until(3)
    stopped.send(signal.SIGSTOP)
    assert other.end() == want
    stopped.send(signal.SIGCONT)
    stopped.go_on()
    assert stopped.end() == want


def test_a_late_member_gets_its_own_first_epoch(member):
    want = member(share=None, random=True).end()
    first = member(random=True, pause=[1, 2])
    first.until(STEPS + 3)
    late = member(random=True)
    assert late.end() == want
    first.go_on()
    assert first.end() == want


def joined(folder, epochs=9, **loader):
    """Returns a loader that joins the group of ``test_a_late_member_may_join``."""
    dataset = ht.ImageFolder(folder, V.Compose(TRANSFORMS))
    return ht.DataLoader(dataset, BATCH, **{**options(epochs=epochs, share_join=True), **loader})


def test_a_late_member_may_join_in_the_groups_epoch(member, folder):
    """Its epoch, its state and its order are those of that epoch, and it goes on from there."""
    want = member(share=None, epochs=6).end()
    first = member(epochs=9, pause=[2, 2])
    first.until(2 * STEPS + 3)
    with joined(folder) as loader:
        state = loader.state_dict()
        assert (loader.epoch, state["epoch"], state["step"]) == (2, 2, 0)
        got = []
        for epoch in range(loader.epoch, 6):
            got += [[epoch, step, *digest(*batch)] for step, batch in enumerate(loader)]
        assert got == want[2 * STEPS :]
        assert loader.epoch == 6
        with joined(folder) as later:  # the furthest member counts
            assert later.epoch == 6
            later.set_epoch(1)
            assert later.epoch == 1
            assert digest(*next(iter(later))) == tuple(want[STEPS][2:])
        with joined(folder) as resumed:
            resumed.load_state_dict(state)
            assert digest(*next(iter(resumed))) == tuple(want[2 * STEPS][2:])
        with joined(folder, share_join=False) as apart:
            assert apart.epoch == 0
    first.go_on()
    first.all()


def test_a_sampler_joins_too(member, folder):
    """A DistributedSampler goes to the group's epoch, unless the user has set another."""
    want = member(share=None, epochs=4).end()
    first = member(epochs=9, pause=[2, 2])
    first.until(2 * STEPS + 3)
    for epoch in (None, 1):
        dataset = ht.ImageFolder(folder, V.Compose(TRANSFORMS))
        sampler = torch.utils.data.DistributedSampler(dataset, 1, 0, seed=3)
        if epoch:
            sampler.set_epoch(epoch)
        group = {"epochs": 9, "share": "s", "share_join": True}
        with ht.DataLoader(dataset, BATCH, sampler=sampler, **group) as loader:
            assert loader.epoch == (epoch or 2)
            assert digest(*next(iter(loader))) == tuple(want[(epoch or 2) * STEPS][2:])
            assert sampler.epoch == (epoch or 2)
    first.go_on()
    first.all()


def test_the_first_of_a_group_joins_in_epoch_0(folder):
    with joined(folder) as loader:
        assert loader.epoch == 0
        with joined(folder) as other:  # none has begun
            assert other.epoch == 0


def test_members_may_take_different_numbers_of_epochs(member):
    want = member(share=None, epochs=4).end()
    short, long = (member(epochs=n, loader={"share_members": 2}) for n in (2, 4))
    assert short.end() == want[: 2 * STEPS]
    assert long.end() == want


def test_the_variable_makes_members_of_loaders_that_can_be(member, monkeypatch, folder, caplog):
    want = member(share=None).end()
    monkeypatch.setenv("HDMLP_SHARE", "v")
    monkeypatch.setenv("HDMLP_SHARE_MEMBERS", "2")
    members = [member(share=None) for _ in range(2)]
    for m in members:
        assert m.all() == want
    assert transformed() == (EPOCHS * sum(COUNTS.values()), 0)
    with data.DataLoader(data.Folder(folder), batch_size=8, epochs=1) as loader:
        assert len(list(loader)) == STEPS
    assert "nothing to share" in caplog.text


def options(**changes):
    """Returns the arguments of a loader in the group of the tests below."""
    return {"shuffle": True, "seed": 3, "epochs": 2, "share": "s", **changes}


@pytest.mark.parametrize(
    "key, changes",
    [
        ("seed", {"seed": 4}),
        ("drop_last", {"drop_last": True}),
    ],
)
def test_a_member_that_differs_is_refused(folder, key, changes):
    dataset = ht.ImageFolder(folder, V.Compose(TRANSFORMS))
    with ht.DataLoader(dataset, batch_size=8, **options()) as first:
        with pytest.raises(errors.MismatchError, match=f'share = "s".*: {key} is') as refused:
            ht.DataLoader(dataset, **{"batch_size": 8, **options(**changes)})
        assert refused.value.details["key"] == key
        assert len(list(first)) == STEPS


def test_other_transforms_are_refused(folder):
    dataset = ht.ImageFolder(folder, V.Compose(TRANSFORMS))
    with ht.DataLoader(dataset, batch_size=8, **options()):
        other = ht.ImageFolder(folder, V.Compose([TRANSFORMS[0], V.CenterCrop(20), V.ToTensor()]))
        with pytest.raises(errors.MismatchError, match=r'transforms is \{"name":"CenterCrop".* in'):
            ht.DataLoader(other, batch_size=8, **options())


@pytest.mark.parametrize(
    "transforms, changes, says",
    [
        ([], {}, "nothing to share"),
        ([V.ColorJitter(0.1), V.ToTensor()], {}, "images of different sizes"),
        (TRANSFORMS, {"on_error": "skip"}, "on_error"),
        (TRANSFORMS, {"policy": "naive"}, "naive"),
        (TRANSFORMS, {"share": "x" * 129}, "at most 128 bytes"),
        (TRANSFORMS, {"share_members": -1}, "share_members"),
        (TRANSFORMS, {"share": None, "share_join": True}, "share_join.* without share"),
    ],
    ids=["raw", "ragged", "on_error", "naive", "name", "members", "join"],
)
def test_what_cannot_be_shared_raises(folder, transforms, changes, says):
    dataset = ht.ImageFolder(folder, V.Compose(transforms) if transforms else None)
    with pytest.raises(errors.ConfigError, match=says):
        ht.DataLoader(dataset, batch_size=8, **options(**changes))


def test_a_dataset_is_the_same_by_a_symbolic_link(folder, tmp_path):
    (tmp_path / "link").symlink_to(folder)
    datasets = [ht.ImageFolder(path, V.Compose(TRANSFORMS)) for path in (folder, tmp_path / "link")]
    loaders = [ht.DataLoader(dataset, batch_size=8, **options()) for dataset in datasets]
    batches = [[digest(*batch) for batch in loader] for loader in loaders]
    assert batches[0] == batches[1]
    for loader in loaders:
        loader.close()


def test_an_unseeded_member_takes_the_groups_seed(folder):
    dataset = data.Folder(folder)
    made = [T.CenterCrop(16), T.ToTensor()]
    loaders = [data.DataLoader(dataset, 8, epochs=1, transforms=made, share="s") for _ in range(2)]
    assert loaders[0].seed == loaders[1].seed
    for loader in loaders:
        loader.close()
