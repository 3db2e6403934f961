"""The torch loaders with the fake daemon: raw samples, samplers, datasets, the thesis's
interface."""

import gc
import multiprocessing
import pickle

import pytest

torch = pytest.importorskip("torch")
numpy = pytest.importorskip("numpy")

import hdmlp.torch as ht
from hdmlp import Job, errors
from numbered import dataset, decode, expected, ids_of, to_tensor


def test_raw_batches_have_samples_and_labels(daemon, folder):
    with ht.DataLoader(ht.ImageFolder(folder), batch_size=4, seed=3, shuffle=True) as loader:
        for (samples, labels), ids in zip(loader, expected(loader)):
            assert [decode(s) for s in samples] == ids
            assert labels.dtype == torch.int64
            assert labels.shape == (len(ids),)
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


def test_a_distributed_sampler_sets_the_stream(daemon, folder):
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
@pytest.mark.usefixtures("spawns_preloaded")
def test_a_loader_can_be_passed_to_a_spawned_process(daemon, folder):
    loader = ht.DataLoader(dataset(folder), batch_size=4, seed=3, shuffle=True)
    copy = pickle.loads(pickle.dumps(loader))
    assert [ids_of(x) for x, _ in copy] == expected(loader)
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    process = context.Process(target=_in_child, args=(loader, queue))
    process.start()
    assert queue.get(timeout=200) == expected(loader)
    process.join()


def test_image_folder_loads_transforms_and_pickles(daemon, folder, tmp_path):
    data = ht.ImageFolder(
        folder, transforms=[lambda x: x + 1, float], loader=decode, target_transform=str
    )
    assert data[11] == (12.0, "1")
    assert len(data) == 25
    assert pickle.loads(pickle.dumps(dataset(folder)))[3][0][1, 0, 0] == 3
    with pytest.raises(errors.ConfigError, match="is_valid_file contradicts extensions"):
        ht.ImageFolder(folder, is_valid_file=str, extensions=[".bin"])
    with pytest.raises(FileNotFoundError):
        ht.ImageFolder(str(tmp_path / "nothing"))


def test_listing_4_6_of_the_thesis_runs(daemon, folder):
    job = Job(folder, 4, 2, "uniform", False, seed=5)
    data = ht.HDMLPImageFolder(folder, job, None)
    data.loader, data.transform = decode, to_tensor
    loader = ht.HDMLPDataLoader(data)
    assert len(loader) == 7
    assert len(data) == 25
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


def test_a_jobs_loader_leaves_the_samples_of_get_as_they_are(daemon, folder):
    job = Job(folder, 4, 2, seed=5)
    data = ht.HDMLPImageFolder(folder, job, to_tensor)
    data.loader = decode
    batches = iter(ht.HDMLPDataLoader(data))
    next(batches)
    assert decode(job.get()[1]) == expected(job._loader, 1)[0][0]
    assert ids_of(next(batches)[0]) == expected(job._loader, 0)[1]
    job.destroy()


def test_job_get_gives_samples_in_order(daemon, folder):
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


def test_a_timeout_set_on_the_loader_applies(daemon, folder):
    with ht.DataLoader(ht.ImageFolder(folder), batch_size=5, timeout=30) as loader:
        list(loader)
        daemon.gate.clear()
        loader.timeout = 0.01
        with pytest.raises(errors.StallTimeoutError, match=r"timeout=0\.01 "):
            list(loader)
        daemon.gate.set()
