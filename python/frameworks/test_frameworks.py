"""Every rank is given what torch's loader gives it."""

import pytest

pytest.importorskip("lightning")
pytest.importorskip("accelerate")
pytest.importorskip("transformers")


@pytest.mark.parametrize("strategy, ranks", [("auto", 1), ("ddp", 2), ("ddp_spawn", 2)])
@pytest.mark.parametrize("where", ["arguments", "hooks"])
def test_lightning(same, strategy, ranks, where):
    """Loaders made before there are ranks, and in hooks; validation, for which the ranks share as well."""
    found = same("train_lightning.py", ranks, strategy, where, "{}", launcher="lightning")
    assert sum(len(x) for rank in range(ranks) for epoch, x, _ in found[rank][0] if epoch == 1) == 26


@pytest.mark.parametrize("extra", ['{"overfit_batches": 2}', '{"limit_train_batches": 3}', '{"num_sanity_val_steps": 0, "check_val_every_n_epoch": 2}'])
def test_what_lightning_does_with_loaders(same, extra):
    same("train_lightning.py", 1, "auto", "arguments", extra, launcher="lightning")


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("skip", ["whole", "skip"])
def test_accelerate(same, ranks, skip):
    same("train_accelerate.py", ranks, skip)


def test_transformers(same):
    found = same("train_hf.py", 1)
    assert sum(map(len, found[0])) == 52
