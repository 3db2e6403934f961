"""The torch loaders against the fake daemon: raw, transforms, workers."""

import ctypes
import gc
import multiprocessing
import os
import pickle
import random
import signal
import time

import pytest

torch = pytest.importorskip("torch")
numpy = pytest.importorskip("numpy")

import hdmlp.torch as ht
from fakedaemon import rank_ids
from hdmlp import Job, errors
from hdmlp.torch import _thesis


def decode(data):
    """The sample's ID, which its bytes say."""
    return int(bytes(data).split()[1])


def to_tensor(sample):
    x = torch.full((3, 8, 8), float(sample))
    x[0, 0, 0] = torch.rand(())
    x[0, 0, 1] = random.random()
    x[0, 0, 2] = numpy.random.rand()
    return x


def failing(sample):
    if sample == 13:
        raise LookupError("unlucky")
    return to_tensor(sample)


def suicidal(sample):
    if sample == 13:
        os.kill(os.getpid(), signal.SIGKILL)
    return to_tensor(sample)


def slow(sample):
    time.sleep(0.3)
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


def expected(loader, epoch=0, rank=0, world=1):
    return rank_ids(25, getattr(loader, "_engine", loader)._spec, epoch, rank, world)


def dataset(folder, transform=to_tensor):
    return ht.ImageFolder(folder, transform, loader=decode)


def ids_of(images):
    return images[:, 1, 0, 0].int().tolist()


def test_raw(daemon, folder):
    with ht.DataLoader(ht.ImageFolder(folder), batch_size=4, seed=3, shuffle=True) as loader:
        for (samples, labels), ids in zip(loader, expected(loader)):
            assert [decode(s) for s in samples] == ids
            assert labels.dtype == torch.int64 and labels.shape == (len(ids),)
            assert labels.tolist() == [0 if i < 10 else 1 if i < 18 else 2 for i in ids]
            labels += 1


@pytest.mark.filterwarnings("ignore:The given NumPy array is not writable")
def test_raw_tensors_keep_the_slot(daemon, folder):
    daemon.slots = 8
    with ht.DataLoader(ht.ImageFolder(folder), batch_size=4, seed=3, shuffle=True) as loader:
        batches = iter(loader)
        samples, _ = next(batches)
        part = torch.frombuffer(bytearray(samples[0]), dtype=torch.uint8)
        view = torch.from_numpy(numpy.frombuffer(samples[0], numpy.uint8)).detach()[3:].numpy()[1:]
        del samples
        for _ in range(3):
            next(batches)
            gc.collect()
        assert view.tobytes() == part[4:].numpy().tobytes()


@pytest.mark.slow
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
                assert images.shape[1:] == (3, 8, 8) and labels.dtype == torch.int64
                sums.append(images[:, 0, 0, :3].double().sum().item())
                images.mul_(0)
            assert seen == expected(loader, epoch)
    assert random.getstate() == state[0] and torch.equal(torch.get_rng_state(), after)
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
        dataset(folder), batch_size=4, seed=3, num_workers=workers, shuffle=True
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


def test_any_batch_comes_through(daemon, folder):
    with ht.DataLoader(
        dataset(folder), batch_size=4, seed=3, num_workers=2, collate_fn=bulky, shuffle=True
    ) as loader:
        for batch, ids in zip(loader, expected(loader)):
            assert batch["ids"] == ids and len(batch["text"]) == 100_000
            assert (batch["array"] == numpy.arange(1000)).all() and batch["empty"].shape == (0, 3)
            assert batch["bool"].all() and batch["half"].dtype == torch.bfloat16
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
        assert caught.value.sample == 13 and caught.value.path.endswith("bee/003.jpg")
        if workers:
            assert "bee/003.jpg" in str(caught.value.__cause__) and "in failing" in str(
                caught.value.__cause__
            )
        for ids in expected(loader)[bad + 1 :]:
            assert ids_of(next(batches)[0]) == ids


def test_a_killed_worker_is_told_at_once(daemon, folder):
    with ht.DataLoader(
        dataset(folder, suicidal), batch_size=4, seed=3, num_workers=2, shuffle=True
    ) as loader:
        with pytest.raises(errors.WorkerDiedError, match="SIGKILL"):
            list(loader)


def test_the_daemon_dies_behind_workers(daemon, folder):
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


def test_a_sample_that_fails_behind_workers(daemon, folder):
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


def test_break_with_workers(daemon, folder):
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
            time.sleep(60)
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
        dataset(folder), batch_size=4, seed=3, num_workers=2, prefetch_factor=3, shuffle=True
    ) as loader:
        for _ in range(12):
            next(iter(loader))
            time.sleep(0.02)
        assert all(len(w.segments) <= 12 for w in loader._engine._feeds[0].source._workers)


@pytest.mark.slow
def test_interrupt_with_workers(daemon, folder):
    with ht.DataLoader(
        dataset(folder, slow), batch_size=4, seed=3, num_workers=1, shuffle=True
    ) as loader:
        signal.signal(signal.SIGALRM, lambda *_: (_ for _ in ()).throw(KeyboardInterrupt()))
        signal.setitimer(signal.ITIMER_REAL, 0.3)
        batches = iter(loader)
        with pytest.raises(KeyboardInterrupt):
            next(batches)
        assert ids_of(next(batches)[0]) == expected(loader)[0]


def test_worker_init(daemon, folder, tmp_path):
    def init(number):
        (tmp_path / str(number)).write_text("")

    def bad(number):
        raise ValueError("no")

    with ht.DataLoader(
        dataset(folder), batch_size=4, num_workers=2, worker_init_fn=init, shuffle=True
    ) as loader:
        list(loader)
    assert (tmp_path / "0").exists() and (tmp_path / "1").exists()
    with ht.DataLoader(
        dataset(folder), batch_size=4, num_workers=2, worker_init_fn=bad, shuffle=True
    ) as loader:
        with pytest.raises(ValueError, match="no"):
            list(loader)


def test_samplers(daemon, folder):
    from torch.utils.data import DistributedSampler, SequentialSampler

    data = ht.ImageFolder(folder)
    sampler = DistributedSampler(data, num_replicas=2, rank=1, seed=9, drop_last=True)
    with ht.DataLoader(data, batch_size=4, sampler=sampler) as loader:
        assert daemon.requests[-1]["stream"] == {
            "seed": 9,
            "epochs": 0,
            "global_batch": 8,
            "drop_last": False,
            "shuffle": "torch",
            "scheme": "strided",
            "tail": "drop",
        }
        assert (loader.rank, loader.world_size) == (1, 2)
        sampler.set_epoch(3)
        assert [[decode(s) for s in x] for x, _ in loader] == expected(loader, 3, 1, 2)
        assert [[decode(s) for s in x] for x, _ in loader] == expected(
            loader, 3, 1, 2
        )  # as in torch, until set_epoch is called
    with ht.DataLoader(data, batch_size=4, sampler=SequentialSampler(data)) as loader:
        assert loader._engine._spec["shuffle"] == "none"


def _in_child(loader, queue):
    queue.put([ids_of(x) for x, _ in loader])


@pytest.mark.slow
def test_a_loader_goes_to_a_spawned_process(daemon, folder):
    loader = ht.DataLoader(dataset(folder), batch_size=4, seed=3, shuffle=True)
    copy = pickle.loads(pickle.dumps(loader))
    assert [ids_of(x) for x, _ in copy] == expected(loader)
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    process = context.Process(target=_in_child, args=(loader, queue))
    process.start()
    assert queue.get(timeout=30) == expected(loader)
    process.join()


def test_image_folder(daemon, folder, tmp_path):
    data = ht.ImageFolder(
        folder, transforms=[lambda x: x + 1, float], loader=decode, target_transform=str
    )
    assert data[11] == (12.0, "1") and len(data) == 25
    assert pickle.loads(pickle.dumps(dataset(folder)))[3][0][1, 0, 0] == 3
    with pytest.raises(errors.ConfigError, match="is_valid_file"):
        ht.ImageFolder(folder, is_valid_file=str)
    with pytest.raises(FileNotFoundError):
        ht.ImageFolder(str(tmp_path / "nothing"))


def test_listing_4_6(daemon, folder):
    job = Job(folder, 4, 2, "uniform", False, seed=5)
    data = ht.HDMLPImageFolder(folder, job, None)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_thesis, "pil_loader", decode)
        data.transform = to_tensor
        loader = ht.HDMLPDataLoader(data)
        assert len(loader) == 7 and len(data) == 25
        for epoch in range(2):
            assert [ids_of(x) for x, _ in loader] == expected(job._loader, epoch)
    assert (job.get_node_id(), job.get_no_nodes()) == (0, 1)
    assert set(job.get_metrics()) == {
        "stall_time",
        "augmentation_time",
        "read_times",
        "read_locations",
    }
    job.destroy()


def test_job_get(daemon, folder):
    job = Job(folder, 4, 2, "uniform", True, seed=5)
    job.setup()
    stream = daemon.requests[-1]["stream"]
    assert (stream["scheme"], stream["tail"], stream["shuffle"]) == ("uniform", "keep", "feistel")
    got = [job.get() for _ in range(48)]
    ids = [i for epoch in range(2) for batch in expected(job._loader, epoch) for i in batch]
    assert [decode(data) for _, data in got] == ids
    assert [label for label, _ in got] == [
        "ant" if i < 10 else "bee" if i < 18 else "cat" for i in ids
    ]
    with pytest.raises(errors.EndError):
        job.get()
    job.destroy()
    with pytest.raises(errors.ClosedError):
        job.get()
