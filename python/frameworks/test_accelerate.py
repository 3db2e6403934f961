"""accelerate and transformers' Trainer, which make loaders of their own, give every rank what they give it with torch's loader."""

import pytest

pytest.importorskip("accelerate")
pytest.importorskip("transformers")


@pytest.mark.parametrize("ranks, kinds", [(1, "random,seedable,stateful"), (2, "random,seedable,stateful,split")])
def test_accelerate(same, ranks, kinds):
    ours, _ = same("train_accelerate.py", ranks, kinds)
    for rank in range(ranks):
        found = ours[rank]
        assert found["_module"].startswith("hdmlp.")
        for kind in kinds.split(","):
            assert all(a == b > 0 for a, b in found[f"_{kind}"])
        for kind in ("seedable", "stateful"):  # else accelerate does not keep what the order follows from
            whole = found[f"{kind}, whole"]
            assert found[f"{kind}, resumed"] == [whole[0][2:], whole[1]]


@pytest.mark.parametrize("ranks", [1, 2])
def test_transformers(same, ranks):
    """A Trainer that is given the dataset, its evaluation, and one that goes on from a checkpoint amid an epoch."""
    ours, theirs = same("train_hf.py", ranks)
    for rank in range(ranks):
        steps = ours[rank]["steps"]
        assert 0 < steps < len(ours[rank]["trained"])
        assert ours[rank]["resumed"] == ours[rank]["trained"][steps:]
        assert ours[rank]["_module"].startswith("hdmlp.")
        assert ours[rank]["_served"][0] == ours[rank]["_served"][1] > 0
