"""Training loops of timm, torchvision and Ray Train, and torchdata's stateful protocol, give every
rank what they give it with torch's loader."""

from importlib.util import find_spec

import pytest

# Tests import none of them, which takes seconds: scripts do.
pytestmark = [
    pytest.mark.skipif(find_spec(name) is None, reason=f"no {name}")
    for name in ("timm", "torchdata", "ray")
]


def as_torch(script, name, ranks, *cases):
    """Runs a script of several cases: the same samples, by the daemon; and the second epoch was
    resumed after two batches."""
    theirs, ours = (script(name, which, ranks, *cases) for which in ("torch", "ours"))
    for rank in range(ranks):
        for case in cases:
            found = ours[rank][case]
            assert {
                key: value for key, value in found.items() if key in theirs[rank][case]
            } == theirs[rank][case]
            assert found["served"][0] == found["served"][1] > 0
            assert found["resumed"] == found["trained"][1][2:]
    assert "a loader other than hdmlp.torch.DataLoader reads" not in ours["said"]


@pytest.mark.parametrize("ranks, cases", [(1, ["0,0"]), (2, ["0,0", "3,0", "3,2"])])
def test_timm(script, ranks, cases):
    """Numbers of repeats and of workers."""
    as_torch(script, "train_timm.py", ranks, *cases)


@pytest.mark.parametrize("ranks, cases", [(1, ["random"]), (2, ["distributed", "repeated"])])
def test_torchvision(script, ranks, cases):
    as_torch(script, "train_torchvision.py", ranks, *cases)


@pytest.mark.parametrize("ranks, kinds", [(1, 5), (2, 2)])
def test_torchdata(script, ranks, kinds):
    """States are as exact as StatefulDataLoader's; the order is that of torch's plain loader, which
    torchdata's random samplers do not give."""
    theirs, ours = (script("train_torchdata.py", which, ranks) for which in ("torch", "ours"))
    for rank in range(ranks):
        assert len(ours[rank]) == kinds
        for kind, found in ours[rank].items():
            whole = found["whole"]
            assert whole == theirs[rank][kind]["plain"]
            assert found["resumed 0 2"] == [whole[0][2:], *whole[1:]]
            assert found["resumed 1 3"] == [whole[1][3:], *whole[2:]]
            assert found["resumed after 0"] == whole[1:]
            assert found["_served"] == sum(len(x) for epoch in whole for x, _ in epoch)
            for name in (
                [name for name in found if name.startswith("resumed")]
                if kind in ("in order", "distributed")
                else []
            ):
                assert found[name] == theirs[rank][kind][name], (kind, name)


@pytest.mark.parametrize("ranks", [1, 2])
def test_ray(script, ranks):
    """A loader with shard=True stays ours. One without is made anew, as torch's: right samples, and
    it is said.
    Ray takes a batch ahead of the loop, which the loader's state counts as yielded."""
    found = script("train_ray.py", "torch,ours", ranks, launcher="its own")
    theirs, ours = found["torch"], found["ours"]
    for rank in range(ranks):
        assert [ours[rank][key] == theirs[rank][key] for key in ("trained", "length")] == [
            True,
            True,
        ]
        assert ours[rank]["_served"][0] == ours[rank]["_served"][1] > 0
        assert ours[rank]["_resumed"] == ours[rank]["trained"][1][3:]
        assert ranks == 1 or ours[rank]["_rebuilt"] == ours[rank]["trained"][0]
    assert ("a loader other than hdmlp.torch.DataLoader reads" in found["said"]) == (ranks > 1)
