"""Workers between the daemon and the loader: what they hold is returned, and broken ones are
replaced."""

import os
import threading

import pytest

torch = pytest.importorskip("torch")


import hdmlp.torch as ht
from hdmlp._lib import protocol
from hdmlp._workers import child
from hdmlp._workers.handle import Handle
from hdmlp._workers.pool import Pool
from hdmlp._workers.results import BUFFER, RESULT_HEAD
from hdmlp.errors import ClosedError, SampleError, StallTimeoutError
from numbered import dataset, decode, expected, ids_of
from peer import PAGE, Peer, descriptors
from played import Played
from waiting import until


def broken(sample):
    raise LookupError(f"sample {sample}")


def pool_of(loader):
    return loader._engine._feeds[0].source


def test_slots_of_failing_batches_are_returned(daemon, folder):
    """More samples fail than there are slots."""
    daemon.slots = 24
    with ht.DataLoader(
        dataset(folder, broken), batch_size=4, seed=3, num_workers=2, shuffle=True, timeout=60
    ) as loader:
        for _ in range(3):
            batches = iter(loader)
            for _ in range(7):
                with pytest.raises(LookupError):
                    next(batches)


@pytest.mark.parametrize("workers", [0, 2])
def test_an_error_after_discarded_batches_is_discarded(daemon, folder, workers):
    """It does not keep the abandoned iterator alive, whose job the next one takes over."""
    data, read = (
        (dataset(folder), ids_of)
        if workers
        else (ht.ImageFolder(folder), lambda views: [decode(view) for view in views])
    )
    daemon.fail_at = (0, 3)
    with ht.DataLoader(
        data,
        batch_size=4,
        seed=3,
        num_workers=workers,
        shuffle=True,
        persistent_workers=workers > 0,
    ) as loader:
        batches = iter(loader)
        assert read(next(batches)[0]) == expected(loader)[0]
        source = pool_of(loader)
        while source._error is None:
            source._turn(50) if workers else source._make_the_rest()
        daemon.fail_at = None
        del batches
        loader.set_epoch(4)
        assert [read(images) for images, _ in loader] == expected(loader, 4)
        assert len(loader._engine._feeds) == 1


def test_interrupted_workers_are_replaced(daemon, folder):
    with ht.DataLoader(
        dataset(folder), batch_size=4, seed=3, num_workers=1, shuffle=True
    ) as loader:
        batches = iter(loader)
        assert ids_of(next(batches)[0]) == expected(loader)[0]
        was, processes = pool_of(loader), [worker.process for worker in pool_of(loader)._workers]
        was._busy = True  # as an exception in the middle of a section leaves it
        assert [ids_of(images) for images, _ in batches] == expected(loader)[1:]
        assert pool_of(loader) is not was
        assert not any(process.is_alive() for process in processes)


@pytest.mark.parametrize("at", [0, 1])
def test_workers_whose_start_was_interrupted_are_replaced(daemon, folder, monkeypatch, at):
    """Before one of two has been given the segments where samples lie."""
    send, sent = Handle.send_segment, []

    def interrupted(worker, *segment):
        sent.append(worker.number)
        if worker.number == at and sent.count(at) == 1:
            raise KeyboardInterrupt
        send(worker, *segment)

    with ht.DataLoader(
        dataset(folder), batch_size=4, seed=3, num_workers=2, shuffle=True
    ) as loader:
        list(loader)
        batches = iter(loader)
        monkeypatch.setattr(Handle, "send_segment", interrupted)
        with pytest.raises(KeyboardInterrupt):
            next(batches)
        assert [ids_of(images) for images, _ in batches] == expected(loader, 1)


def identity(items):
    return items


class Plenty(torch.utils.data.Dataset):
    """Many numbers, read many at a time."""

    def __len__(self):
        return 400_000

    def __getitems__(self, indices):
        return [sum(indices)]


def test_tasks_may_be_larger_than_a_sockets_buffer():
    """Each batch's 100,000 indices are sent to the worker in pieces."""
    with ht.DataLoader(Plenty(), 100_000, num_workers=1, collate_fn=identity, timeout=60) as loader:
        sums = [batch[0] for batch in loader]
    assert sums == [sum(range(n, n + 100_000)) for n in range(0, 400_000, 100_000)]


def test_segments_dropped_by_the_daemon_are_closed(tmp_path):
    pool = Pool(None, 1, 1, None)
    peer = Peer(str(tmp_path), pool.on_segment, pool.on_drop)
    pool.attach(peer.stream)

    def ours():
        """The number of descriptors of each segment beside the test's own."""
        assert peer.stream.poll() is None
        return [descriptors(name) - 1 for name in peer.names.values()]

    for number in range(3):
        peer.segment(number, 100)
    assert ours() == [1, 1, 1]
    peer.say(protocol.DROP, protocol.U32.pack(0))
    peer.say(protocol.DROP, protocol.U32.pack(2))
    assert ours() == [0, 1, 0]
    pool.close()
    assert descriptors(peer.names[1]) == 1
    peer.close()


def played(tmp_path):
    """A pool of one worker that the test controls, in front of a stream: worker, pool, peer."""
    context = Played()
    pool = Pool(None, 1, 2, context)
    peer = Peer(str(tmp_path), pool.on_segment, pool.on_drop)
    pool.attach(peer.stream)
    return context, pool, peer


@pytest.mark.parametrize("made", [False, True])
def test_a_discarded_batch_returns_its_slots(tmp_path, made):
    """In the daemon's buffer and in the worker's, whether it was made before or is made after."""
    context, pool, peer = played(tmp_path)
    pool.seek(0)
    peer.batch(1, 0, [(0, 0, 10)], [5])
    pool.start()
    assert [kind for kind, _ in context.heard()] == [child.CANCEL, child.TASK]
    result = RESULT_HEAD.pack(1, 1, 0) + BUFFER.pack(3, 0, 0, 100) + b"pickled"
    if made:
        context.connection.send(protocol.encode(child.RESULT, result))
        pool.start()
    pool.seek(50)
    assert [kind for kind, _ in context.heard()] == [child.CANCEL]
    if not made:
        context.connection.send(protocol.encode(child.RESULT, result))
    peer.batch(2, 50, [(0, 0, 10)], [6])
    pool.start()
    assert [frame[0] for frame in context.heard()] == [child.FREE, child.TASK]
    peer.stream.return_slots()
    assert peer.heard()[-1] == ("ACK", 2, protocol.NO_BATCH, 0, [5])
    pool.close(), peer.close(), context.connection.close()


def test_what_is_begun_with_a_workers_batch_is_yielded_in_its_place(tmp_path):
    """Its slots are then no longer the pool's to return."""
    context, pool, peer = played(tmp_path)
    pool.seek(0)
    for position in (0, 1):
        peer.batch(1, position, [(0, 0, 10)], [5 + position])
    pool.start()
    started = []
    pool.begin(2, started.append)
    assert started == []  # no result has come
    results = [RESULT_HEAD.pack(n, 1, 0) + BUFFER.pack(n, 0, 0, 100) + b"pickled" for n in (1, 2)]
    for result in results:
        context.connection.send(protocol.encode(child.RESULT, result))
    until(lambda: pool.start() or all(task.result for task, _ in pool._order), "both results")
    pool.begin(1, lambda content: started.append(content) or "begun")
    assert started == [(pool._workers[0], results[0])]
    assert pool.next().content == "begun"
    pool.begin(1, lambda content: "begun")
    context.heard()
    pool.seek(50)
    peer.batch(2, 50, [(0, 0, 10)], [6])
    pool.start()
    assert [frame[0] for frame in context.heard()] == [child.CANCEL, child.TASK]  # no FREE
    pool.close(), peer.close(), context.connection.close()


def test_renewing_workers_returns_the_daemons_slots(tmp_path):
    """Those that a worker held when it was ended, after a loop was left by break."""
    context, pool, peer = played(tmp_path)
    pool.seek(0)
    for position in (0, 1):
        peer.batch(1, position, [(0, 0, 10)], [5 + position])
    pool.start()
    pool.renew(None)
    context.connection.close()
    peer.stream.return_slots()
    assert peer.heard()[-1] == ("ACK", 1, protocol.NO_BATCH, 0, [5, 6])
    pool.close(), peer.close()


def test_a_wait_for_the_daemon_is_told_to_it_and_returns_slots(tmp_path):
    context, pool, peer = played(tmp_path)
    pool.seek(0)
    peer.stream.free(protocol.U32.pack(7))
    with pytest.raises(StallTimeoutError):
        pool.next(timeout=1e-9)
    assert peer.heard() == [
        ("ITERATE", 1, 0, 0),
        ("ACK", 1, protocol.NO_BATCH, 0, [7]),
        ("WAIT", 1),
    ]
    pool.close(), peer.close(), context.connection.close()


def test_workers_that_end_with_their_epoch_get_no_batch_of_the_next(tmp_path):
    context, pool, peer = played(tmp_path)
    pool.renew(1)
    pool.seek(0)
    for position in range(2):  # it may have both at once
        peer.batch(1, position, [(0, 0, 10)], [position])
    pool.start()
    assert [kind for kind, _ in context.heard()].count(child.TASK) == 1
    pool.close(), peer.close(), context.connection.close()


def test_batches_of_workers_after_another_ranks_stop_are_not_yielded(tmp_path):
    context, pool, peer = played(tmp_path)
    fd = peer.segment(0, 4096, protocol.WRITABLE | protocol.RETURNS)
    pool.seek(0)
    for position in range(2):
        peer.batch(1, position, [(0, 0, 10)], [position])
    pool.start()
    for task in (1, 2):
        result = RESULT_HEAD.pack(task, 0, 0) + b"pickled"
        context.connection.send(protocol.encode(child.RESULT, result))
    pool.next()
    stop = protocol.U64.pack(2)  # the batches from the second on
    os.pwrite(fd, stop, 4096 + PAGE - len(stop))
    peer.fail(1, "rank 1 stopped")
    with pytest.raises(SampleError, match="rank 1 stopped"):
        pool.next()
    pool.close(), peer.close(), context.connection.close()


def test_a_pool_that_another_thread_closes_says_so(tmp_path, monkeypatch):
    """While it takes a batch from the daemon, for which there is then no worker."""
    context, pool, peer = played(tmp_path)
    pool.seek(0)
    peer.batch(1, 0, [(0, 0, 10)], [5])
    poll = peer.stream.poll

    def closed_meanwhile():
        taken = poll()
        closing = threading.Thread(target=pool.close)
        closing.start()
        closing.join()
        return taken

    monkeypatch.setattr(peer.stream, "poll", closed_meanwhile)
    with pytest.raises(ClosedError, match="the loader is closed"):
        pool.start()
    peer.close(), context.connection.close()
