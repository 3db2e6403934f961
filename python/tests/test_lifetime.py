"""What loaders hold, and until when; and what becomes of one whose daemon is stopped."""

import subprocess

import pytest

from hdmlp import _daemon, data, errors
from raw import read


def test_a_daemon_that_is_stopped_names_the_way_to_continue(real, folder):
    with data.DataLoader(folder, batch_size=4, seed=7, prefetch_batches=2) as loader:
        batches = iter(loader)
        got = [read(next(batches).samples)]
        subprocess.run([_daemon.find_binary(), "stop", "--force"], check=True)
        with pytest.raises(errors.DaemonDiedError, match=r"call next\(\) on the iterator again"):
            got.extend(read(batch.samples) for batch in batches)
        got += [read(batch.samples) for batch in batches]
        assert got == [list(loader.explain(0, step).ids) for step in range(len(loader))]
