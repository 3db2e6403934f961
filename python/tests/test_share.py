"""Jobs that share what they prepare: each member is a process, and gets what it would get alone."""

import contextlib
import os
import signal
from concurrent.futures import ThreadPoolExecutor

import pytest

torch = pytest.importorskip("torch")
torchvision = pytest.importorskip("torchvision")
pytest.importorskip("PIL.Image")

import hdmlp.torch as ht
from hdmlp import errors
from hdmlp._daemon import connecting
from members import (
    BATCH,
    COUNTS,
    EPOCHS,
    STEPS,
    TRANSFORMS,
    V,
    folder,  # noqa: F401
    member,  # noqa: F401
    torchs,
    transformed,
)
from sharing import digest

pytestmark = pytest.mark.usefixtures("real")


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


def test_views_are_prepared_once(member):
    """Of batches of different sizes."""
    sizes = [8, 3]
    members = [member(batch=n, random="views", loader={"share_members": 2}) for n in sizes]
    got = [m.all() for m in members]
    group, rest = transformed()
    assert group <= (EPOCHS + 1) * sum(COUNTS.values())
    assert rest == 0
    for m, n, batches in zip(members, sizes, got):
        m.end()
        assert member(share=None, batch=n, random="views").end() == batches


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


@pytest.mark.parametrize("staging_buffer", ["256KiB", "16MiB"])
def test_images_of_different_sizes_are_shared(member, staging_buffer):
    """In a window that holds some batches and in one that holds all, with and without workers."""
    want = member(share=None, python="images", random=True, epochs=4).end()
    options = {"share_members": 3, "staging_buffer": staging_buffer}
    members = [
        member(python="images", random=True, epochs=4, loader={**workers, **options})
        for workers in (WORKERS, {"num_workers": 0}, {**WORKERS, "prefetch_factor": 6})
    ]
    for m in members:
        assert m.all() == want
    group, rest = transformed()
    assert group <= 5 * sum(COUNTS.values())
    assert rest == 0


def test_a_member_whose_worker_is_killed_costs_others_nothing(member):
    """It is notified, and ends."""
    want = member(share=None, python=True, random=True, epochs=9).end()
    options = {"share_members": 2, "staging_buffer": "256KiB"}
    workers = {**WORKERS, "prefetch_factor": 1}  # which have steps 1 and 2 at most when it pauses
    loses = member(python=True, random=True, epochs=9, loader={**workers, **options}, pause=[1, 0])
    other = member(python=True, random=True, epochs=9, loader={"num_workers": 0, **options})
    loses.until(STEPS + 1)
    with open(f"/proc/{loses.process.pid}/task/{loses.process.pid}/children") as children:
        for pid in children.read().split():
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # of epoch 0
                with open(f"/proc/{pid}/comm") as name:
                    if name.read() != "hdmlp\n":  # it may have started the daemon
                        os.kill(int(pid), signal.SIGKILL)
    loses.go_on()
    assert other.all() == want
    with pytest.raises(EOFError):
        loses.all()
    assert loses.batches == want[: len(loses.batches)]


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
        os.kill(connecting.connect().pid, signal.SIGKILL)
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
