"""A loader with the name of an earlier one of this process, as a notebook's cell makes it again."""

import os

import pytest

torch = pytest.importorskip("torch")

import hdmlp.torch as ht
from hdmlp import data, errors

pytestmark = pytest.mark.usefixtures("real")

KINDS = {
    "torch": lambda folder: ht.DataLoader(ht.ImageFolder(folder), 5, name="train", raw=True),
    "raw": lambda folder: data.DataLoader(folder, 5, name="train", seed=1),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("taken", [0, 2, 5])
def test_a_loader_takes_the_place_of_an_earlier_one(folder, caplog, kind, taken):
    """Also if a loop over that one was left, by whatever way."""
    first = KINDS[kind](folder)
    for step, _ in enumerate(first):
        if step + 1 >= taken:
            break
    second = KINDS[kind](folder)
    assert len(list(second)) == 5
    assert "name='train': an earlier loader of this process has this name" in caplog.text
    with pytest.raises(errors.ClosedError):
        list(first)
    assert len(list(second)) == 5
    second.close()


@pytest.mark.parametrize("kind", KINDS)
def test_one_that_is_in_use_is_not_replaced(folder, kind):
    """The error names it, and not another process."""
    first = KINDS[kind](folder)
    iterator = iter(first)
    next(iterator)
    with pytest.raises(errors.BusyError, match="an earlier loader of this process") as refused:
        next(iter(KINDS[kind](folder)))
    assert "another process" not in str(refused.value)
    assert len(list(iterator)) == 4
    first.close()
    with KINDS[kind](folder) as second:
        assert len(list(second)) == 5


def test_a_child_leaves_its_parents_loader_alone(folder):
    """It has a copy, and a job of its own."""
    with KINDS["raw"](folder) as loader:
        iterator = iter(loader)
        next(iterator)
        child = os.fork()
        if not child:
            try:
                count = len(list(KINDS["raw"](folder)))
                os._exit(0 if count == 5 else 1)
            finally:
                os._exit(3)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert len(list(iterator)) == 4
