"""When members of a group begin: together, late, or in the group's epoch."""

import pytest

torch = pytest.importorskip("torch")
torchvision = pytest.importorskip("torchvision")
pytest.importorskip("PIL.Image")

import hdmlp.torch as ht
from members import (
    BATCH,
    STEPS,
    TRANSFORMS,
    V,
    folder,  # noqa: F401
    joined,
    member,  # noqa: F401
)
from sharing import digest

pytestmark = pytest.mark.usefixtures("real")


def test_a_late_member_gets_its_own_first_epoch(member):
    want = member(share=None, random=True).end()
    first = member(random=True, pause=[1, 2])
    first.until(STEPS + 3)
    late = member(random=True)
    assert late.end() == want
    first.go_on()
    assert first.end() == want


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
