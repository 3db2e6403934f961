"""``batch_transform=`` mixes the batches of each rank as documented, in a plain loop of several
processes, in Lightning and with accelerate."""

from importlib.util import find_spec

import pytest

pytestmark = pytest.mark.skipif(
    find_spec("timm") is None or find_spec("torchvision.transforms.v2") is None,
    reason="no timm, or no v2",
)

MIXERS = ["MixUp", "CutMix", "RandomChoice", "timm"]


def check(found, ranks):
    """Each rank's batches are what the libraries' own code makes under the documented seeds, and
    no two ranks or epochs are mixed alike."""
    for name in MIXERS:
        shares = [found[rank][name]["shares"] for rank in range(ranks)]
        for rank in range(ranks):
            assert found[rank][name]["equal"], (name, rank)
            epochs = shares[rank]
            assert [len(epoch) for epoch in epochs] == [6 // ranks] * 2
            assert epochs[0] != epochs[1], (name, rank)
        assert ranks == 1 or shares[0] != shares[1], name


@pytest.mark.parametrize("ranks", [1, 2])
def test_in_a_loop(script, ranks):
    check(script("train_mixing.py", "ours", ranks, "loop", *MIXERS), ranks)


@pytest.mark.skipif(find_spec("lightning") is None, reason="no Lightning")
@pytest.mark.usefixtures("with_lightning")
@pytest.mark.parametrize("ranks", [1, 2])
def test_in_lightning(script, ranks):
    found = script("train_mixing.py", "ours", ranks, "lightning", *MIXERS, launcher="lightning")
    check(found, ranks)


@pytest.mark.skipif(find_spec("accelerate") is None, reason="no accelerate")
@pytest.mark.usefixtures("with_transformers")
@pytest.mark.parametrize("ranks", [1, 2])
def test_after_use_in(script, ranks):
    check(script("train_mixing.py", "ours", ranks, "accelerate", *MIXERS), ranks)
