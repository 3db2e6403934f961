"""A loader's state, resuming, verification, and the connections that it holds."""

import os

import pytest
from hdmlp import data, errors
from raw import expected, read


@pytest.fixture
def loader(daemon, folder):
    with data.DataLoader(folder, batch_size=4, seed=7) as made:
        yield made


def test_a_state_has_the_epoch_that_set_epoch_named(daemon, folder, loader):
    def at():
        state = loader.state_dict()
        return state["epoch"], state["step"]

    loader.set_epoch(5)
    assert at() == (5, 0)
    next(iter(loader))
    assert at() == (5, 1)
    loader.set_epoch(2)
    assert at() == (2, 0)
    state = loader.state_dict()
    with data.DataLoader(folder, batch_size=4, seed=7) as other:
        other.load_state_dict(state)
        assert [read(b.samples) for b in other] == expected(other, 25, 2)


def test_a_running_iteration_counts_after_set_epoch(loader):
    """Until its end: an epoch that is set meanwhile is the next iteration's."""

    def at():
        state = loader.state_dict()
        return state["epoch"], state["step"]

    batches = iter(loader)
    next(batches)
    loader.set_epoch(5)
    assert at() == (5, 0)  # as if the loop ended here
    next(batches)
    assert at() == (0, 2)
    loader.set_epoch(0)
    next(batches)
    assert at() == (0, 3)
    loader.set_epoch(2)
    assert len(list(batches)) == 4
    assert at() == (2, 0)
    following = iter(loader)
    next(following)
    assert at() == (2, 1)
    loader.set_epoch(3)  # the epoch that follows anyway
    next(following)
    assert at() == (2, 2)
    list(following)
    assert at() == (3, 0)


OTHERS = {
    "fingerprint": "x",
    "samples": 24,
    "seed": 8,
    "shuffle": "feistel",
    "scheme": "uniform",
    "tail": "drop",
    "drop_last": True,
    "global_batch": 5,
    "subset": "0123456789abcdef",
}


@pytest.mark.parametrize("key", OTHERS)
def test_a_state_of_another_stream_is_refused(loader, key):
    state = loader.state_dict()
    for other in ({**state, key: OTHERS[key]}, {k: v for k, v in state.items() if k != key}):
        if other.get(key) == state[key]:
            continue  # no subset is as good as none said
        with pytest.raises(errors.MismatchError, match=f"^{key} is ") as caught:
            loader.load_state_dict(other)
        assert caught.value.details == {"key": key, "mine": state[key], "theirs": other.get(key)}
    assert loader.state_dict() == state


def test_what_to_do_about_another_stream_is_said(loader, folder):
    """The dataset is named, and the arguments that the user gives."""
    state = loader.state_dict()
    for key, value, says in (
        ("fingerprint", "x", f"the dataset {folder} was changed after the state was saved"),
        ("seed", 8, r"make the loader with seed=8$"),
        ("global_batch", 12, r"with 1 rank, make the loader with batch_size=12$"),
    ):
        with pytest.raises(errors.MismatchError, match=says):
            loader.load_state_dict({**state, key: value})
    with (
        data.DataLoader(folder, 2, seed=7, rank=0, world_size=2) as two,
        pytest.raises(errors.MismatchError, match=r"with 2 ranks, make .* with batch_size=4$"),
    ):
        two.load_state_dict({**two.state_dict(), "global_batch": 8})


@pytest.mark.parametrize(
    "key, value",
    [
        ("step", 7),
        ("step", -1),
        ("step", 1.5),
        ("step", None),
        ("epoch", 1 << 32),
        ("epoch", -1),
        ("epoch", "1"),
        ("version", 2),
    ],
)
def test_an_invalid_state_is_refused(loader, key, value):
    state = loader.state_dict()
    with pytest.raises(errors.ConfigError, match="state"):
        loader.load_state_dict({**state, key: value})
    assert loader.state_dict() == state


def test_a_batch_is_verified_against_the_daemons_count(daemon, folder):
    daemon.miscount_at = (0, 2)
    with data.DataLoader(folder, batch_size=4, seed=7, verify=True) as loader:
        batches = iter(loader)
        next(batches), next(batches)
        with pytest.raises(errors.AuditError, match="batch 2 of epoch 0"):
            next(batches)
    with data.DataLoader(folder, batch_size=4, seed=7) as loader:
        assert len(list(loader)) == 7


def test_every_epoch_that_is_delivered_whole_is_verified(daemon, folder):
    with data.DataLoader(folder, batch_size=4, seed=7, verify=True) as loader:
        for lie in (0, 1, 0, 1):
            daemon.lie = lie
            if lie:
                with pytest.raises(errors.AuditError, match="the ranks got samples that sum to"):
                    list(loader)
            else:
                assert len(list(loader)) == 7
        state = {**loader.state_dict(), "step": 3}
    daemon.lie = 1
    with data.DataLoader(folder, batch_size=4, seed=7, verify=True) as loader:
        loader.load_state_dict(state)
        assert len(list(loader)) == 4  # what was delivered before is unknown


def jobs(daemon):
    return {session.key[0] for session in daemon.sessions if session.key is not None}


def failed_at_2(daemon, loader):
    """An iterator which failed for its third batch, and would not any more."""
    batches = iter(loader)
    daemon.fail_at = (0, 2)
    next(batches), next(batches)
    with pytest.raises(errors.SampleError):
        next(batches)
    daemon.fail_at = None
    return batches


def test_a_failed_iterator_does_not_block_the_next(daemon, loader):
    """An exception's traceback keeps it alive, and it must not occupy the job."""
    failed = failed_at_2(daemon, loader)
    assert [read(b.samples) for b in loader] == expected(loader, 25, 1)
    assert len(jobs(daemon)) == 1
    assert [read(b.samples) for b in failed] == expected(loader, 25, 0)[2:]


def test_an_iterator_that_failed_does_not_take_the_next_ones_job(daemon, folder, loader):
    """It continues in another one."""
    failed = failed_at_2(daemon, loader)
    following = iter(loader)
    got = [read(next(following).samples)]
    assert [read(b.samples) for b in failed] == expected(loader, 25, 0)[2:]
    got += [read(b.samples) for b in following]
    assert got == expected(loader, 25, 1)
    assert len(jobs(daemon)) == 2


def test_a_dataset_that_changed_while_the_loader_was_open_is_refused(daemon, folder, loader):
    """When the job is opened again; the connection is closed."""
    daemon.die_at = (0, 3)
    batches = iter(loader)
    with pytest.raises(errors.DaemonDiedError):
        list(batches)
    daemon.die_at = None
    with open(os.path.join(folder, "ant", "new.jpg"), "wb") as file:
        file.write(b"sample 25 ")
    with pytest.raises(
        errors.MismatchError, match="the dataset changed while the loader was open"
    ) as caught:
        next(batches)
    refused = daemon.session
    refused.join(30)
    assert not refused.is_alive(), caught  # whose traceback must not keep it
