"""Iterators over loaders, which can be neither pickled nor copied; torch's cannot either."""

import copy
import pickle

import hdmlp.torch as ht
import pytest

pytestmark = pytest.mark.usefixtures("real")


@pytest.mark.parametrize("do", [pickle.dumps, copy.copy, copy.deepcopy])
@pytest.mark.parametrize("data", ["folder", "own"])
@pytest.mark.parametrize("begun", [False, True])
def test_an_iterator_cannot_be_copied(folder, do, data, begun):
    given = ht.ImageFolder(folder) if data == "folder" else list(range(8))
    with ht.DataLoader(given, 4, num_workers=0) as loader:
        iterator = iter(loader)
        if begun:
            next(iterator)
        with pytest.raises(NotImplementedError, match=r"copy the loader, .* state_dict"):
            do(iterator)
        next(iterator)
