"""Raw batches: what ends an iteration, and what a loader does afterwards."""

import os
import signal

import pytest
from hdmlp import data, errors
from hdmlp._daemon import view
from raw import expected, read, when_waiting


@pytest.mark.parametrize(
    "kind, cls",
    [
        ("config", errors.ConfigError),
        ("dataset", errors.DatasetError),
        ("sample", errors.SampleError),
        ("mismatch", errors.MismatchError),
        ("limit", errors.LimitError),
        ("busy", errors.BusyError),
        ("permission", errors.AccessDeniedError),
        ("version", errors.VersionError),
        ("protocol", errors.ProtocolError),
        ("internal", errors.InternalError),
        ("new", errors.HDMLPError),
    ],
)
def test_errors_of_open_have_their_class(daemon, folder, kind, cls):
    daemon.open_error = {"kind": kind, "message": "no good", "details": {"need": 1}}
    with pytest.raises(cls, match=r"^no good$") as caught:
        data.DataLoader(folder)
    assert isinstance(caught.value, errors.HDMLPError)
    assert caught.value.details == {"need": 1}


def test_a_dataset_that_cannot_be_opened_leaves_no_connection(daemon, folder, monkeypatch):
    monkeypatch.setattr(view, "call_with_timeout", lambda *_: os.open("/nowhere", os.O_RDONLY))
    with pytest.raises(errors.DatasetNotFoundError) as caught:
        data.DataLoader(folder, batch_size=4)
    (refused,) = daemon.sessions
    refused.join(30)
    assert not refused.is_alive(), caught  # whose traceback must not keep it


def test_a_failing_sample_raises_in_its_place(daemon, folder):
    daemon.fail_at = (0, 3)
    with data.DataLoader(folder, batch_size=4, seed=7) as loader:
        batches = iter(loader)
        for _ in range(3):
            next(batches)
        with pytest.raises(errors.SampleError) as caught:
            next(batches)
        assert caught.value.sample == 1
        assert caught.value.path == "cat/1.jpg"
        daemon.fail_at = None
        assert [read(b.samples) for b in loader] == expected(loader, 25, 1)


def test_a_dead_daemons_log_is_in_the_error(daemon, folder):
    daemon.die_at = (0, 2)
    loader = data.DataLoader(folder, batch_size=4, seed=7)
    batches = iter(loader)
    next(batches), next(batches)
    with pytest.raises(errors.DaemonDiedError, match="the disk is on fire"):
        next(batches)
    daemon.die_at = None
    assert read(next(batches).samples) == expected(loader, 25, 0)[2]  # a new one takes over
    loader.close()


def test_timeout_limits_the_wait(daemon, folder):
    with data.DataLoader(folder, batch_size=4, seed=7, timeout=0.2) as loader:
        daemon.gate.clear()
        batches = iter(loader)
        with pytest.raises(TimeoutError):
            next(batches)
        daemon.gate.set()
        assert read(next(batches).samples) == expected(loader, 25, 0)[0]


def test_interrupt_leaves_a_usable_loader(daemon, folder):
    with data.DataLoader(folder, batch_size=4, seed=7) as loader:
        daemon.gate.clear()
        batches = iter(loader)
        when_waiting(daemon, lambda: os.kill(os.getpid(), signal.SIGINT))
        with pytest.raises(KeyboardInterrupt):
            next(batches)
        daemon.gate.set()
        assert [read(b.samples) for b in batches] == expected(loader, 25, 0)


def test_interrupt_inside_a_section_reopens(daemon, folder):
    with data.DataLoader(folder, batch_size=4, seed=7) as loader:
        batches = iter(loader)
        next(batches)
        loader._feeds[0].stream._link.busy = True
        assert [read(b.samples) for b in batches] == expected(loader, 25, 0)[1:]


def test_a_forked_child_has_a_connection_of_its_own(daemon, folder):
    loader = data.DataLoader(folder, batch_size=4, seed=7)
    batches = iter(loader)
    kept = next(batches)
    assert read(kept.samples) == expected(loader, 25, 0)[0]
    pid = os.fork()
    if pid == 0:
        ok = False
        try:
            ok = read(next(batches).samples) == expected(loader, 25, 0)[1]
            del kept
        finally:
            os._exit(0 if ok else 1)
    assert os.waitpid(pid, 0)[1] == 0
    assert len(list(batches)) == 6
    loader.close()


def test_collate_fn_gets_the_batch(daemon, folder):
    with data.DataLoader(
        folder, batch_size=4, shuffle=False, collate_fn=lambda b: [(len(x), y) for x, y in b]
    ) as loader:
        assert next(iter(loader))[0] == (len(b"sample 0 ") * 5, 0)


def test_wrong_arguments_are_refused(daemon, folder, tmp_path):
    for arguments, message in [
        (dict(memry="1GB"), "did you mean memory"),
        (dict(batchsize=3), "did you mean batch_size"),
        (dict(zzz=1), "known are batch_size, cache_dir, .*policy"),
        (dict(lingr=1), r"unknown argument lingr=1(?!.*linger)"),
        (dict(batch_size=0), "batch_size=0"),
        (dict(shuffle="no"), "shuffle='no'"),
        (dict(rank=0), "rank is given without world_size"),
        (dict(rank=2, world_size=2), "rank 2 of world_size 2"),
        (dict(seed=-1), "seed=-1"),
        (dict(epochs=0), "epochs=0"),
        (dict(timeout=-1), "timeout"),
        (dict(config_file="/nowhere.toml"), "/nowhere.toml"),
    ]:
        with pytest.raises(errors.ConfigError, match=message):
            data.DataLoader(folder, **arguments)
    with pytest.raises(FileNotFoundError, match="nowhere"):
        data.DataLoader(str(tmp_path / "nowhere"))
    data.DataLoader(folder, memory="1GB", cache_dir="x").close()
    assert daemon.requests[-1]["arguments"] == {"memory": "1GB", "cache_dir": os.path.abspath("x")}


@pytest.mark.parametrize(
    "path, reason",
    [
        ("file", "it is not a directory"),
        ("file/below", "a part of the path is not a directory"),
        ("missing/below", "its parent directory .*/missing does not exist"),
    ],
)
def test_an_unusable_cache_dir_is_named_by_its_key(real, folder, tmp_path, path, reason):
    (tmp_path / "file").write_bytes(b"")
    path = tmp_path / path
    with pytest.raises(errors.ConfigError, match=f"cache_dir = .{path}. .argument.: {reason}"):
        data.DataLoader(folder, cache_dir=path, memory="1MB")
    assert not (tmp_path / "missing").exists()
    with data.DataLoader(folder, cache_dir=tmp_path / "new", memory="1MB") as loader:
        next(iter(loader))
    assert (tmp_path / "new").is_dir()
