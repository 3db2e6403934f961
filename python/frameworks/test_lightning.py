"""Lightning's Trainer and Fabric give every rank what they give it with torch's loader, and go on
exactly where they were."""

from importlib.util import find_spec

import pytest

pytestmark = [
    pytest.mark.skipif(find_spec("lightning") is None, reason="no Lightning"),
    pytest.mark.usefixtures("with_lightning"),
]


@pytest.mark.parametrize(
    "strategy, ranks, parts",
    [
        ("auto", 1, "arguments,hooks,options,resume"),
        ("ddp", 2, "arguments,hooks,resume"),
        ("ddp_spawn", 2, "arguments,hooks"),
    ],
)
def test_trainer(same, strategy, ranks, parts):
    """Loaders made before there are ranks, and in hooks; validation, for which the ranks share as
    well; checkpoints amid an epoch, and at its end."""
    ours, theirs = same("train_lightning.py", ranks, strategy, parts, launcher="lightning")
    for part in ("arguments", "hooks"):
        given = [
            x
            for rank in range(ranks)
            for epoch, (batch, _) in ours[rank][part][0]
            if epoch == 1
            for x in batch
        ]
        assert len(given) == len(set(given)) == 26
    for rank in range(ranks):
        for name, value in ours[rank].items():
            if name.startswith("_"):
                assert [a == b > 0 for a, b in value] == [True], (name, value)
    for rank in range(ranks if "resume" in parts else 0):
        whole = theirs[rank]["whole"][0]
        resumed = {
            int(name.split()[-1]): value[0]
            for name, value in ours[rank].items()
            if name.startswith("from step")
        }
        assert len(resumed) == 3
        for step, value in resumed.items():
            assert value == whole[step:], step


@pytest.mark.parametrize("ranks", [1, 2])
def test_fabric(same, ranks):
    ours, theirs = same("train_fabric.py", ranks)
    for rank in range(ranks):
        assert ours[rank]["_resumed"] == theirs[rank]["trained"][1][2:]
        assert ours[rank]["_served"][0] == sum(
            len(x) for epoch in ours[rank]["trained"] for x, _ in epoch
        )
