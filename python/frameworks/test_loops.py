"""Training loops of timm, torchvision and Ray Train, and torchdata's stateful protocol, give every rank what they give it with torch's loader."""

import pytest

pytest.importorskip("timm")
pytest.importorskip("torchdata")


def is_served_and_goes_on(ours, ranks):
    """Samples came from the daemon; with two ranks, the second epoch was resumed after two batches."""
    for rank in range(ranks):
        counted = ours[rank].get("_served")
        assert counted is None or counted[0] == counted[1] > 0
        assert ranks == 1 or ours[rank]["_resumed"] == ours[rank]["trained"][1][2:]


@pytest.mark.parametrize("ranks, repeats, workers", [(1, 0, 0), (2, 0, 0), (2, 3, 0), (2, 3, 2)])
def test_timm(same, ranks, repeats, workers):
    ours, _ = same("train_timm.py", ranks, repeats, workers)
    is_served_and_goes_on(ours, ranks)


@pytest.mark.parametrize("ranks, kind", [(1, "random"), (2, "distributed"), (2, "repeated")])
def test_torchvision(same, ranks, kind):
    ours, _ = same("train_torchvision.py", ranks, kind)
    is_served_and_goes_on(ours, ranks)


@pytest.mark.parametrize("kind", ["in order", "random", "weighted", "distributed", "stateful distributed"])
def test_torchdata(script, kind):
    """States are as exact as StatefulDataLoader's; the order is that of torch's plain loader, which torchdata's random samplers do not give."""
    theirs, ours = (script("train_torchdata.py", which, 1, kind)[0] for which in ("torch", "ours"))
    assert ours["whole"] == theirs["_plain"]
    for name, value in ours.items():
        if name.startswith("resumed after"):
            assert value == ours["whole"][1:]
        elif name.startswith("resumed"):
            epoch, step = map(int, name.split()[1:])
            assert value == [ours["whole"][epoch][step:], *ours["whole"][epoch + 1:]]
        if name.startswith("resumed") and kind in ("in order", "distributed"):
            assert value == theirs[name]


@pytest.mark.parametrize("ranks", [1, 2])
def test_ray(script, ranks):
    """A loader with shard=True stays ours. One without is made anew, as torch's: right samples, and it is said."""
    theirs, ours = (script("train_ray.py", which, ranks) for which in ("torch", "ours"))
    for rank in range(ranks):
        assert [ours[rank][key] == theirs[rank][key] for key in ("trained", "length")] == [True, True]
        assert ours[rank]["_served"][0] == ours[rank]["_served"][1] > 0
        assert ranks == 1 or ours[rank]["_rebuilt"] == ours[rank]["trained"][0]
    assert ours["said"].count("a loader other than hdmlp.torch.DataLoader reads") == (0 if ranks == 1 else ranks)
