"""accelerate and transformers' Trainer, which make loaders of their own, give every rank what they give it with torch's loader."""

import pytest

pytest.importorskip("accelerate")
pytest.importorskip("transformers")


@pytest.mark.parametrize("kind, ranks", [("random", 1), ("random", 2), ("seedable", 1), ("seedable", 2), ("stateful", 1), ("stateful", 2), ("split", 2)])
def test_accelerate(same, kind, ranks):
    ours, _ = same("train_accelerate.py", ranks, kind)
    for rank in range(ranks):
        assert ours[rank]["_kind"] == "hdmlp"
        assert all(a == b > 0 for a, b in ours[rank]["_served"])
        if kind in ("seedable", "stateful"):  # else accelerate does not keep what the order follows from
            assert ours[rank]["resumed"] == [ours[rank]["whole"][0][2:], ours[rank]["whole"][1]]


@pytest.mark.parametrize("ranks", [1, 2])
def test_transformers(same, ranks):
    """A Trainer that is given the dataset, its evaluation, and one that goes on from a checkpoint amid an epoch."""
    ours, theirs = same("train_hf.py", ranks)
    for rank in range(ranks):
        steps = ours[rank]["steps"]
        assert 0 < steps < len(ours[rank]["trained"])
        assert ours[rank]["resumed"] == ours[rank]["trained"][steps:]
        assert ours[rank]["_kind"] == "hdmlp"
