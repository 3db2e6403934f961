"""Worker processes of torch's loaders, with the fake daemon."""

import ctypes
import multiprocessing
import os
import random
import signal

import pytest

torch = pytest.importorskip("torch")
numpy = pytest.importorskip("numpy")

import hdmlp.torch as ht
from dropin import NUMBERS
from hdmlp import errors
from numbered import dataset, expected, ids_of, to_tensor


def failing(sample):
    if sample == 13:
        raise LookupError("unlucky")
    return to_tensor(sample)


def suicidal(sample):
    if sample == 13:
        os.kill(os.getpid(), signal.SIGKILL)
    return to_tensor(sample)


def bulky(batch):
    return {
        "text": b"x" * 100_000,
        "ids": [x[1, 0, 0].item() for x, _ in batch],
        "array": numpy.arange(1000),
        "empty": torch.empty(0, 3),
        "bool": torch.ones(3, dtype=torch.bool),
        "half": torch.ones(3, dtype=torch.bfloat16),
        "strided": torch.arange(12).view(3, 4).t(),
    }


@pytest.mark.slow
@pytest.mark.usefixtures("spawns_preloaded")
@pytest.mark.parametrize("workers, context", [(0, None), (1, "fork"), (3, "fork"), (2, "spawn")])
def test_transforms_do_not_depend_on_workers(daemon, folder, workers, context):
    random.seed(5)
    state = random.getstate(), torch.get_rng_state(), numpy.random.get_state()[1].tolist()
    for _ in range(2):  # as torch's loader draws the seed of its workers in each epoch
        torch.empty((), dtype=torch.int64).random_()
    after = torch.get_rng_state()
    torch.set_rng_state(state[1])
    sums = []
    with ht.DataLoader(
        dataset(folder),
        batch_size=4,
        seed=3,
        epochs=2,
        num_workers=workers,
        multiprocessing_context=context,
        shuffle=True,
    ) as loader:
        for epoch in range(2):
            seen = []
            for images, labels in loader:
                seen.append(ids_of(images))
                assert images.shape[1:] == (3, 8, 8)
                assert labels.dtype == torch.int64
                sums.append(images[:, 0, 0, :3].double().sum().item())
                images.mul_(0)
            assert seen == expected(loader, epoch)
    assert random.getstate() == state[0]
    assert torch.equal(torch.get_rng_state(), after)
    assert numpy.random.get_state()[1].tolist() == state[2]
    assert sums == pytest.approx(_reference(daemon, folder))


_sums = {}


def _reference(daemon, folder):
    if "sums" not in _sums:
        with ht.DataLoader(dataset(folder), batch_size=4, seed=3, epochs=2, shuffle=True) as loader:
            _sums["sums"] = [
                x[:, 0, 0, :3].double().sum().item() for _ in range(2) for x, _ in loader
            ]
    return _sums["sums"]


@pytest.mark.parametrize("workers", [0, 2])
def test_kept_results_are_never_overwritten(daemon, folder, workers):
    with ht.DataLoader(
        dataset(folder),
        batch_size=4,
        seed=3,
        num_workers=workers,
        shuffle=True,
        persistent_workers=workers > 0,
    ) as loader:
        kept = []
        for _ in range(3):
            for images, _ in loader:
                kept.append(
                    (images[1:].detach().numpy()[:, 1, 0], images[1:, 1, 0].clone().numpy())
                )
                del kept[:-4]
                del images
                for view, was in kept:
                    assert (view == was).all()
        memory = (
            loader._engine._feeds[0].source._workers[0].segments
            if workers
            else loader._engine._arena._pieces
        )
        assert len(memory) <= 12  # it is used again


def test_results_lie_in_shared_memory(daemon, folder):
    with ht.DataLoader(
        dataset(folder), batch_size=4, seed=3, num_workers=1, shuffle=True
    ) as loader:
        images, _ = next(iter(loader))
        spans = []
        for segment in loader._engine._feeds[0].source._workers[0].segments.values():
            begin = ctypes.addressof(ctypes.c_char.from_buffer(segment.map))
            spans.append((begin, begin + segment.size))
        assert any(a <= images.data_ptr() < b for a, b in spans)


def test_any_batch_can_be_transferred(daemon, folder):
    with ht.DataLoader(
        dataset(folder), batch_size=4, seed=3, num_workers=2, collate_fn=bulky, shuffle=True
    ) as loader:
        for batch, ids in zip(loader, expected(loader)):
            assert batch["ids"] == ids
            assert len(batch["text"]) == 100_000
            assert (batch["array"] == numpy.arange(1000)).all()
            assert batch["empty"].shape == (0, 3)
            assert batch["bool"].all()
            assert batch["half"].dtype == torch.bfloat16
            assert torch.equal(batch["strided"], torch.arange(12).view(3, 4).t())
            batch["array"][0] = 1


@pytest.mark.parametrize("workers", [0, 2])
def test_an_exception_names_the_sample(daemon, folder, workers):
    with ht.DataLoader(
        dataset(folder, failing), batch_size=4, seed=3, num_workers=workers, shuffle=True
    ) as loader:
        batches = iter(loader)
        bad = next(i for i, ids in enumerate(expected(loader)) if 13 in ids)
        for _ in range(bad):
            next(batches)
        with pytest.raises(LookupError, match="unlucky") as caught:
            next(batches)
        assert caught.value.sample == 13
        assert caught.value.path.endswith("bee/003.jpg")
        if workers:
            assert "bee/003.jpg" in str(caught.value.__cause__)
            assert "in failing" in str(caught.value.__cause__)
        for ids in expected(loader)[bad + 1 :]:
            assert ids_of(next(batches)[0]) == ids


def test_a_killed_worker_raises(daemon, folder):
    with (
        ht.DataLoader(
            dataset(folder, suicidal), batch_size=4, seed=3, num_workers=2, shuffle=True
        ) as loader,
        pytest.raises(errors.WorkerDiedError, match="SIGKILL"),
    ):
        list(loader)


@pytest.mark.parametrize("epoch", [1, 4])
def test_a_worker_that_died_between_epochs_raises_once(daemon, folder, epoch):
    """The next batches are made by new ones; also where the first frame cannot be sent to it."""
    with ht.DataLoader(
        dataset(folder),
        batch_size=4,
        seed=3,
        num_workers=2,
        shuffle=True,
        persistent_workers=True,
    ) as loader:
        list(loader)
        process = loader._engine._feeds[0].source._workers[0].process
        process.kill()
        process.join()
        loader.set_epoch(epoch)
        batches = iter(loader)
        seen = []  # what it had made before it died may come first
        with pytest.raises(errors.WorkerDiedError, match="SIGKILL"):
            seen.extend(ids_of(x) for x, _ in batches)
        seen.extend(ids_of(x) for x, _ in batches)
        assert seen == expected(loader, epoch)


def test_a_daemon_that_dies_raises_after_batches_in_workers(daemon, folder):
    daemon.die_at = (0, 4)
    with ht.DataLoader(
        dataset(folder), batch_size=4, seed=3, num_workers=2, shuffle=True
    ) as loader:
        batches = iter(loader)
        for ids in expected(loader)[:4]:
            assert ids_of(next(batches)[0]) == ids
        with pytest.raises(errors.DaemonDiedError, match="on fire"):
            next(batches)
        daemon.die_at = None
        assert [ids_of(x) for x, _ in batches] == expected(loader)[4:]


def test_a_failing_sample_raises_after_batches_in_workers(daemon, folder):
    daemon.fail_at = (0, 3)
    with ht.DataLoader(
        dataset(folder), batch_size=4, seed=3, num_workers=2, shuffle=True
    ) as loader:
        batches = iter(loader)
        for ids in expected(loader)[:3]:
            assert ids_of(next(batches)[0]) == ids
        with pytest.raises(errors.SampleError):
            next(batches)
        daemon.fail_at = None
        assert [ids_of(x) for x, _ in loader] == expected(loader, 1)


def test_an_epoch_with_workers_can_be_broken_off(daemon, folder):
    daemon.slots = 16
    with ht.DataLoader(
        dataset(folder), batch_size=4, seed=3, num_workers=2, shuffle=True
    ) as loader:
        for epoch in range(5):
            for step, (images, _) in enumerate(loader):
                assert ids_of(images) == expected(loader, epoch)[step]
                if step == epoch:
                    break
        assert [ids_of(x) for x, _ in loader] == expected(loader, 5)
        processes = [w.process for w in loader._engine._feeds[0].source._workers]
    assert not any(p.is_alive() for p in processes)


@pytest.mark.slow
def test_slots_of_a_task_in_a_worker_are_returned_after_a_break(daemon, folder):
    daemon.slots = 4  # for one batch
    quick = set()

    def patient(sample):
        if sample not in quick:
            signal.pause()
        return to_tensor(sample)

    with ht.DataLoader(
        dataset(folder, patient),
        batch_size=4,
        seed=3,
        num_workers=1,
        multiprocessing_context="fork",
        shuffle=True,
        timeout=2,
    ) as loader:
        quick.update(expected(loader)[0], expected(loader, 1)[0])
        batches = iter(loader)
        assert ids_of(next(batches)[0]) == expected(loader)[0]
        with pytest.raises(errors.StallTimeoutError):  # the worker has the second batch
            next(batches)
        del batches
        assert ids_of(next(iter(loader))[0]) == expected(loader, 1)[0]


@pytest.mark.slow
def test_slots_of_batches_given_up_are_used_again(daemon, folder):
    with ht.DataLoader(
        dataset(folder),
        batch_size=4,
        seed=3,
        num_workers=2,
        prefetch_factor=3,
        shuffle=True,
        persistent_workers=True,
    ) as loader:
        for _ in range(12):
            next(iter(loader))
            pool = loader._engine._feeds[0].source
            while any(task.stale for worker in pool._workers for task in worker.tasks.values()):
                pool._turn(50)
        assert all(len(worker.segments) <= 12 for worker in pool._workers)


@pytest.mark.slow
def test_an_interrupt_of_a_wait_for_a_worker_loses_no_batch(daemon, folder):
    context = multiprocessing.get_context("fork")
    waiting, go_on = context.Event(), context.Event()

    def interrupting(sample):
        if not go_on.is_set():
            waiting.wait()
            os.kill(os.getppid(), signal.SIGINT)
            go_on.wait()
        return to_tensor(sample)

    with ht.DataLoader(
        dataset(folder, interrupting),
        batch_size=4,
        seed=3,
        num_workers=1,
        multiprocessing_context=context,
        shuffle=True,
    ) as loader:
        batches = iter(loader)
        pool = loader._engine._feeds[0].source
        turn = pool._turn

        def turn_and_tell(milliseconds):
            if milliseconds:
                waiting.set()
            turn(milliseconds)

        pool._turn = turn_and_tell
        with pytest.raises(KeyboardInterrupt):
            next(batches)
        go_on.set()
        assert ids_of(next(batches)[0]) == expected(loader)[0]


def test_worker_init_fn_runs_in_each_worker(daemon, folder, tmp_path):
    def init(number):
        (tmp_path / str(number)).write_text("")

    def bad(number):
        raise ValueError("no")

    with ht.DataLoader(
        dataset(folder), batch_size=4, num_workers=2, worker_init_fn=init, shuffle=True
    ) as loader:
        list(loader)
    assert (tmp_path / "0").exists()
    assert (tmp_path / "1").exists()
    with (
        ht.DataLoader(
            dataset(folder), batch_size=4, num_workers=2, worker_init_fn=bad, shuffle=True
        ) as loader,
        pytest.raises(ValueError, match="no"),
    ):
        list(loader)


def test_arguments_for_workers_that_are_not_started_are_named(folder, caplog):
    data = ht.ImageFolder(folder)
    arguments = {"prefetch_factor": 4, "persistent_workers": True, "worker_init_fn": print}
    with ht.DataLoader(data, 4, **arguments) as loader:
        assert len(list(loader)) == 7
    assert (
        "prefetch_factor=4, persistent_workers=True, worker_init_fn=<built-in function print>: no "
        "effect"
    ) in caplog.text
    caplog.clear()
    with ht.DataLoader(data, 4, worker_init_fn=print) as loader:
        assert len(list(loader)) == 7
    assert "worker_init_fn=<built-in function print>: no effect" in caplog.text
    caplog.clear()
    with ht.DataLoader(data, 4, num_workers=1, **arguments) as loader:
        assert loader.prefetch_factor == 4
    assert "no effect" not in caplog.text


@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize(
    "make",
    [
        lambda data, **options: ht.DataLoader(data, 4, shuffle=True, seed=1, **options),
        lambda data, **options: ht.DataLoader(data, 4, shuffle=True, **options),
        lambda data, **options: ht.DataLoader(NUMBERS, 4, shuffle=True, **options),
    ],
    ids=["served", "drawn", "in Python"],
)
def test_workers_end_with_their_epoch(real, folder, make, persistent):
    """As torch's do, and with them what they hold: a validation loader's are not there in the
    meantime."""
    data = ht.ImageFolder(folder, loader=len)
    with make(data, num_workers=2, persistent_workers=persistent) as loader:
        for _ in range(2):
            batches = iter(loader)
            kept = [next(batches)]
            assert len(multiprocessing.active_children()) == 2
            kept += batches
            assert len(multiprocessing.active_children()) == (2 if persistent else 0)
            assert len(kept) == len(loader)
    assert not multiprocessing.active_children()
