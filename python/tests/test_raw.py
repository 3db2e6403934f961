"""Raw batches: their order and lifetime, and restarts."""

import gc
import itertools
import os
import threading
import time

import hdmlp
import pytest
from hdmlp import data, errors
from raw import expected, read, when_waiting
from waiting import until


def test_epochs_come_in_order_and_whole(daemon, folder):
    with data.DataLoader(folder, batch_size=4, epochs=3, seed=7) as loader:
        assert len(loader) == 7
        for epoch in range(3):
            got = [(read(b.samples), list(b.labels)) for b in loader]
            assert [ids for ids, _ in got] == expected(loader, 25, epoch)
            for ids, labels in got:
                assert labels == [0 if i < 10 else 1 if i < 18 else 2 for i in ids]
        for _ in range(2):  # an iterator alone takes no epoch
            iter(loader)
        with pytest.raises(errors.EndError, match="epochs=3"):
            next(iter(loader))
    assert daemon.session.iterates == [(0, 0)]  # the stream ran on across epochs


def test_two_loaders_can_be_used_at_once(daemon, folder):
    a = data.DataLoader(folder, batch_size=4, seed=1)
    b = data.DataLoader(folder, batch_size=5, seed=2)
    for _ in zip(a, b):
        pass
    assert {r["job"] for r in daemon.requests} == {s.key[0] for s in daemon.sessions}
    assert len({r["job"] for r in daemon.requests}) == 2


def test_ranks_get_their_own_batches(daemon, folder):
    got = []
    for rank in range(3):
        with data.DataLoader(
            folder, batch_size=2, seed=3, rank=rank, world_size=3, name="r"
        ) as loader:
            got.append([i for b in loader for i in read(b.samples)])
            assert got[-1] == [i for ids in expected(loader, 25, 0, rank, 3) for i in ids]
    assert sorted(set(itertools.chain.from_iterable(got))) == list(range(25))


def test_a_kept_batch_is_never_overwritten(daemon, folder):
    daemon.slots = 12
    with data.DataLoader(folder, batch_size=4, seed=7) as loader:
        kept = []
        for epoch in range(3):
            for step, batch in enumerate(loader):
                ids = read(batch.samples)
                kept.append((batch.samples[-1][3:], bytes(batch.samples[-1][3:])))
                del kept[:-2]
                for view, was in kept:
                    assert bytes(view) == was
                assert ids == expected(loader, 25, epoch)[step]


def test_numpy_views_keep_the_slot(daemon, folder):
    numpy = pytest.importorskip("numpy")
    daemon.slots = 8
    with data.DataLoader(folder, batch_size=4, seed=7) as loader:
        batches = iter(loader)
        part = numpy.frombuffer(next(batches).samples[0], numpy.uint8)[2:9][1:]
        was = part.tobytes()
        for _ in range(3):  # the fake overwrites each slot that is returned, and uses it again
            next(batches)
            gc.collect()
        assert part.tobytes() == was
        del part
        assert sum(1 for _ in batches) == 3


def test_batches_are_not_copied(daemon, folder):
    numpy = pytest.importorskip("numpy")
    with data.DataLoader(folder, batch_size=4, seed=7) as loader:
        samples = next(iter(loader)).samples
        segment = loader._feeds[0].stream._staging.segments[0]
        base = numpy.frombuffer(segment.map, numpy.uint8).ctypes.data
        for sample in samples:
            address = numpy.frombuffer(sample, numpy.uint8).ctypes.data
            assert base <= address < base + segment.size
            assert sample.readonly


def test_views_outlive_the_loader(daemon, folder):
    loader = data.DataLoader(folder, batch_size=4, seed=7)
    batch = next(iter(loader))
    ids = read(batch.samples)
    loader.close()
    del loader
    gc.collect()
    assert read(batch.samples) == ids


def test_segments_grow_while_batches_are_kept(daemon, folder):
    daemon.slots, daemon.max_segments = 8, 10
    with data.DataLoader(folder, batch_size=4, seed=7) as loader:
        kept = list(loader)
        assert [read(b.samples) for b in kept] == expected(loader, 25, 0)
    assert len(daemon.session.segments) >= 3


def test_slots_freed_by_another_thread_wake_the_stream(daemon, folder):
    daemon.slots = 4
    with data.DataLoader(folder, batch_size=4, seed=7) as loader:
        batches = iter(loader)
        box = [next(batches)]
        when_waiting(daemon, box.clear)
        next(batches)
        assert not box, "the stream had a free slot while the batch was held"


def test_an_epoch_can_be_broken_off(daemon, folder):
    with data.DataLoader(folder, batch_size=4, seed=7) as loader:
        for epoch in range(4):
            for step, batch in enumerate(loader):
                assert read(batch.samples) == expected(loader, 25, epoch)[step]
                if step == epoch:
                    break
        batch = None
    del batch


def test_simultaneous_iterators_have_an_epoch_each(daemon, folder):
    """The first batch determines which; an abandoned iterator makes way for the next."""
    with data.DataLoader(folder, batch_size=4, seed=7) as loader:
        for epochs in ((0, 1), (2, 3)):
            pairs = [(read(a.samples), read(b.samples)) for a, b in zip(loader, loader)]
            assert [list(ids) for ids in zip(*pairs)] == [
                expected(loader, 25, epoch) for epoch in epochs
            ]
        late, first = iter(loader), iter(loader)
        assert read(next(first).samples) == expected(loader, 25, 4)[0]
        assert read(next(late).samples) == expected(loader, 25, 5)[0]
        assert read(next(first).samples) == expected(loader, 25, 4)[1]
        assert loader.state_dict()["epoch"] == 5
        del first
        assert read(next(iter(loader)).samples) == expected(loader, 25, 6)[0]
        assert [read(b.samples) for b in late] == expected(loader, 25, 5)[1:]
        assert next(late, None) is None
        assert len(late) == 0
    assert len({s.key[0] for s in daemon.sessions}) == 2  # jobs


def test_set_epoch_sets_the_next_epoch(daemon, folder):
    with data.DataLoader(folder, batch_size=4, seed=7) as loader:
        for epoch in (0, 1, 1, 5, 2):
            loader.set_epoch(epoch)
            loader.set_epoch(epoch)
            assert [read(b.samples) for b in loader] == expected(loader, 25, epoch)
        assert [read(b.samples) for b in loader] == expected(loader, 25, 3)
    assert daemon.session.iterates == [(0, 0), (1, 0), (5, 0), (2, 0)]


def test_a_state_resumes_the_stream(daemon, folder):
    with data.DataLoader(folder, batch_size=4, seed=7) as loader:
        assert loader.state_dict()["step"] == 0
        list(loader)
        batches = iter(loader)
        for _ in range(3):
            next(batches)
        state = loader.state_dict()
        assert (state["epoch"], state["step"]) == (1, 3)
        rest = [read(b.samples) for b in batches]
        assert (loader.state_dict()["epoch"], loader.state_dict()["step"]) == (2, 0)
    with data.DataLoader(folder, batch_size=4, seed=7) as loader:
        loader.load_state_dict(state)
        assert loader.state_dict() == state
        loader.set_epoch(1)
        assert [read(b.samples) for b in loader] == rest
        assert [read(b.samples) for b in loader] == expected(loader, 25, 2)
    with data.DataLoader(folder, batch_size=2, seed=7, rank=1, world_size=2) as loader:
        loader.load_state_dict(state)
        assert [read(b.samples) for b in loader] == expected(loader, 25, 1, 1, 2)[3:]
    with data.DataLoader(folder, batch_size=5, seed=7) as loader:
        with pytest.raises(errors.MismatchError, match=r"5.*4"):
            loader.load_state_dict(state)
    with data.DataLoader(folder, batch_size=4, seed=8) as loader:
        with pytest.raises(errors.MismatchError, match="make the loader with seed=7"):
            loader.load_state_dict(state)


def test_acks_count_what_was_yielded(daemon, folder):
    with data.DataLoader(folder, batch_size=4, seed=7, verify=True) as loader:
        for batch in loader:
            del batch
        assert loader.stats.batches == 7
        assert loader.stats.samples == 25
        assert [a[1:3] for a in daemon.session.acks] == [(0, step) for step in range(7)]
        daemon.lie = 1
        with pytest.raises(errors.AuditError):
            list(loader)


def test_stall_is_measured(daemon, folder):
    with data.DataLoader(folder, batch_size=4, seed=7) as loader:
        daemon.gate.clear()
        batches = iter(loader)
        # The gate opens 0.2 s after the loader began to wait.
        when_waiting(daemon, lambda: threading.Timer(0.2, daemon.gate.set).start())
        begin = time.monotonic()
        next(batches)
        took = time.monotonic() - begin
        assert loader.stats.waits == 1
        assert 0.1 < loader.stats.stall <= took
        until(lambda: daemon.session.acks, "the batch is acknowledged")
        assert daemon.session.waits == 1
        assert 1e8 < daemon.session.acks[0][3] <= took * 1e9


def test_a_folder_has_classes_and_samples(daemon, folder):
    dataset = data.Folder(folder)
    assert len(dataset) == 25
    assert dataset.classes == ["ant", "bee", "cat"]
    assert dataset.class_to_idx == {"ant": 0, "bee": 1, "cat": 2}
    assert dataset.targets == [0] * 10 + [1] * 8 + [2] * 7
    assert dataset.samples[11] == (os.path.join(folder, "bee", "001.jpg"), 1) == dataset.imgs[11]
    assert dataset[11][0].startswith(b"sample 11 ")
    assert dataset[-1][1] == 2


def test_paths_are_below_the_home_directory(daemon, folder, monkeypatch):
    """As torchvision's, which Python's own functions can open."""
    monkeypatch.setenv("HOME", os.path.dirname(folder))
    dataset = data.Folder(os.path.join("~", os.path.basename(folder)))
    assert dataset.root == folder
    assert dataset.samples == data.Folder(folder).samples
    assert dataset[11][0].startswith(b"sample 11 ")


def test_explain_and_report_ask_the_daemon(daemon, folder):
    with data.DataLoader(folder, batch_size=4, seed=7) as loader:
        batches = iter(loader)
        next(batches)
        explained = loader.explain(1, 2)
        assert explained.ids == expected(loader, 25, 1)[2]
        assert len(explained.paths) == 4
        assert str(loader.report()) == "all is well"
        assert loader.report()["epochs"] == 1
        assert len(list(batches)) == 6


def test_closed_loaders_leave_no_descriptors(daemon, folder):
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        loader = data.DataLoader(folder, batch_size=4, seed=7)
        list(loader)
        del loader
    gc.collect()
    # The fake's own ends of what it still has.
    until(lambda: len(os.listdir("/proc/self/fd")) <= before + 6 and not daemon.jobs)
    assert len(os.listdir("/proc/self/fd")) <= before + 6
    assert not daemon.jobs


def test_progress_is_shown_on_terminals_if_it_takes_long(monkeypatch):
    import io

    from hdmlp._lib.progress import Progress

    class Terminal(io.StringIO):
        def isatty(self):
            return True

    for stream, shown in ((Terminal(), True), (io.StringIO(), False)):
        progress = Progress(stream)
        progress({"what": "scanning", "done": 1, "total": 0})
        assert stream.getvalue() == ""
        monkeypatch.setattr(progress, "_since", progress._since - 2)
        progress({"what": "scanning", "done": 12000, "total": 0})
        progress(None)
        assert ("scanning: 12,000" in stream.getvalue()) == shown
        progress({"what": "waiting for node 1 of 2", "done": 0, "total": 0})
        progress(None)
        assert ("hdmlp: waiting for node 1 of 2\r" in stream.getvalue()) == shown


def test_warnings_while_something_is_prepared_are_logged(caplog):
    import io

    from hdmlp._lib.progress import Progress

    progress = Progress(io.StringIO())
    progress({"what": "a node does not know the secret", "done": 0, "total": 0, "warning": True})
    assert [(r.levelname, r.message) for r in caplog.records] == [
        ("WARNING", "a node does not know the secret")
    ]


def test_the_version_has_three_parts():
    assert hdmlp.__version__.count(".") == 2
