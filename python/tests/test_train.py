"""End to end, with the real daemon: a training script receives what torch's loader would give
it."""

import multiprocessing
import os
import signal
import subprocess
import sys
import threading

import pytest

torch = pytest.importorskip("torch")
torchvision = pytest.importorskip("torchvision")
numpy = pytest.importorskip("numpy")
Image = pytest.importorskip("PIL.Image")

import hdmlp
import hdmlp.torch as ht
from hdmlp import Job, errors
from reference import batches as reference
from reference import read
from torch.utils.data import DistributedSampler
from waiting import LIMIT, until_ended

pytestmark = pytest.mark.usefixtures("real")

SIZES = {"ant": 31, "bee": 20, "cat": 16}  # 67: no multiple of anything


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    root = tmp_path_factory.mktemp("images")
    rng = numpy.random.RandomState(0)
    for name, count in SIZES.items():
        (root / name / "more").mkdir(parents=True)
        for i in range(count):
            pixels = rng.randint(0, 255, (12, 10, 3), dtype=numpy.uint8)
            Image.fromarray(pixels).save(
                root / name / ("more" if i % 5 == 4 else ".") / f"{i:04d}.png"
            )
    return str(root)


def _rank(queue, root, batch, epochs, seed, drop_last, rank, world, name):
    try:
        with ht.DataLoader(
            ht.ImageFolder(root),
            batch,
            epochs=epochs,
            seed=seed,
            drop_last=drop_last,
            rank=rank,
            world_size=world,
            name=name,
            verify=True,
            shuffle=True,
        ) as loader:
            out = []
            for _ in range(epochs):
                out.append(
                    [([bytes(x) for x in samples], labels.tolist()) for samples, labels in loader]
                )
                assert len(out[-1]) == len(loader)
        queue.put((rank, out))
    except BaseException as error:
        queue.put((rank, repr(error)))
        raise


@pytest.mark.parametrize(
    "world, batch, drop_last",
    [(1, 8, False), (1, 8, True), (2, 5, False), (2, 5, True), (4, 3, False), (4, 3, True)],
)
def test_batches_are_those_of_torch(images, world, batch, drop_last):
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    name = f"{world}-{drop_last}"
    ranks = [
        context.Process(
            target=_rank, args=(queue, images, batch, 3, 11, drop_last, rank, world, name)
        )
        for rank in range(world)
    ]
    for process in ranks:
        process.start()
    got = dict(queue.get(timeout=200) for _ in ranks)
    for process in ranks:
        process.join()
    for rank in range(world):
        assert got[rank] == reference(images, batch, 3, 11, drop_last, rank, world)


@pytest.mark.parametrize("workers", [0, 2])
def test_transforms_get_pil_images(images, workers):
    transform = torchvision.transforms.ToTensor()
    expected = reference(images, 8, 2, 3, False, 0, 1, transform)
    with ht.DataLoader(
        ht.ImageFolder(images, transform), 8, epochs=2, seed=3, num_workers=workers, shuffle=True
    ) as loader:
        for epoch in range(2):
            got = list(loader)
            assert len(got) == len(expected[epoch])
            for (x, y), (u, v) in zip(got, expected[epoch]):
                assert torch.equal(x, u)
                assert torch.equal(y, v)


def test_a_distributed_samplers_arguments_are_adopted(images):
    data = ht.ImageFolder(images)
    for tail, last in ((False, True), (True, False)):
        sampler = DistributedSampler(data, 3, 1, seed=4, drop_last=tail)
        with ht.DataLoader(data, 4, sampler=sampler, drop_last=last) as loader:
            plain = torchvision.datasets.ImageFolder(images, loader=read)
            reference_sampler = DistributedSampler(plain, 3, 1, seed=4, drop_last=tail)
            theirs = torch.utils.data.DataLoader(
                plain, 4, sampler=reference_sampler, drop_last=last, collate_fn=list
            )
            for epoch in (0, 1, 5):
                sampler.set_epoch(epoch)
                reference_sampler.set_epoch(epoch)
                assert [[bytes(x) for x in samples] for samples, _ in loader] == [
                    [x for x, _ in b] for b in theirs
                ]


def test_the_dataset_has_torchvisions_attributes(images):
    ours, theirs = ht.ImageFolder(images), torchvision.datasets.ImageFolder(images)
    assert ours.classes == theirs.classes
    assert ours.class_to_idx == theirs.class_to_idx
    assert ours.samples == theirs.samples
    assert ours.targets == theirs.targets
    assert len(ours) == len(theirs)
    assert (numpy.asarray(ours[40][0]) == numpy.asarray(theirs[40][0])).all()
    assert ours[40][1] == theirs[40][1]


def test_an_epoch_resumes_with_another_world_size(images):
    def batches(loader):
        return [[bytes(x) for x in samples] for samples, _ in loader]

    with ht.DataLoader(ht.ImageFolder(images), 6, seed=2, shuffle=True) as loader:
        whole = [batches(loader) for _ in range(2)]
        it = iter(loader)
        next(it), next(it)
        loader.set_epoch(1)
        it = iter(loader)
        for _ in range(3):
            next(it)
        state = loader.state_dict()
    with ht.DataLoader(ht.ImageFolder(images), 6, seed=2, shuffle=True) as loader:
        loader.load_state_dict(state)
        assert batches(loader) == whole[1][3:]
    with ht.DataLoader(
        ht.ImageFolder(images), 3, seed=2, rank=0, world_size=2, shuffle=True
    ) as loader:
        loader.load_state_dict(state)
        assert batches(loader)[0] == whole[1][3][0::2]


def test_all_batches_can_be_kept(images):
    with ht.DataLoader(ht.ImageFolder(images), 4, shuffle=False, staging_buffer="64KiB") as loader:
        kept = [loader_epoch for _ in range(5) for loader_epoch in loader]
        files = [read(path) for path, _ in loader.dataset.samples]
        ids = [i for _ in range(5) for i in range(len(files))]
        assert [bytes(x) for samples, _ in kept for x in samples] == [files[i] for i in ids]


def test_training_continues_after_the_daemon_was_killed(images):
    loader = ht.DataLoader(ht.ImageFolder(images), 4, seed=1, shuffle=True)
    batches = iter(loader)
    first = [bytes(x) for x in next(batches)[0]]
    del batches
    pid = loader._engine._feeds[0].stream.daemon.pid
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(errors.DaemonDiedError):
        for _ in range(10_000):
            for _ in loader:
                pass
    loader.set_epoch(0)
    assert [bytes(x) for x in next(iter(loader))[0]] == first
    assert loader._engine._feeds[0].stream.daemon.pid != pid
    loader.close()


def test_errors_are_raised_when_the_loader_is_made(images, tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(errors.DatasetError):
        ht.DataLoader(ht.ImageFolder(str(tmp_path / "empty")), shuffle=True)
    with pytest.raises(errors.ConfigError, match="memory"):
        ht.DataLoader(ht.ImageFolder(images), memory="much", shuffle=True)
    with pytest.raises(errors.ConfigError, match="policy"):
        ht.DataLoader(ht.ImageFolder(images), policy="best", shuffle=True)


@pytest.mark.slow
def test_ranks_with_different_arguments_are_refused(images):
    a = ht.DataLoader(
        ht.ImageFolder(images), 4, seed=1, rank=0, world_size=2, name="d", shuffle=True
    )
    with pytest.raises(errors.MismatchError, match="seed"):
        ht.DataLoader(
            ht.ImageFolder(images), 4, seed=2, rank=1, world_size=2, name="d", shuffle=True
        )
    with pytest.raises(errors.BusyError):
        ht.DataLoader(
            ht.ImageFolder(images), 4, seed=1, rank=0, world_size=2, name="d", shuffle=True
        )
    a.close()


def test_a_file_that_was_removed_is_named(images, tmp_path):
    root = tmp_path / "data"
    for name in ("a", "b"):
        (root / name).mkdir(parents=True)
        for i in range(8):
            (root / name / f"{i}.jpg").write_bytes(b"x" * 100)
    data = ht.ImageFolder(str(root))
    assert len(data) == 16
    with ht.DataLoader(data, 4, shuffle=False, memory="1B") as loader:
        (root / "b" / "3.jpg").unlink()
        with pytest.raises(errors.SampleError) as caught:
            list(loader)
        assert caught.value.sample == 11
        assert caught.value.path.endswith("b/3.jpg")
    with pytest.raises(errors.MismatchError, match="make a new ImageFolder"):
        ht.DataLoader(data, 4, shuffle=False)
    with ht.DataLoader(ht.ImageFolder(str(root)), 4, shuffle=False) as loader:
        assert loader.samples == 15


def test_listing_4_6_of_the_thesis_runs(images):
    data_dir, batch_size, num_epochs, drop_last_batch = images, 8, 2, False
    data_transforms = torchvision.transforms.Compose([torchvision.transforms.ToTensor()])
    job = Job(data_dir, batch_size, num_epochs, "uniform", drop_last_batch)
    dataset = ht.HDMLPImageFolder(data_dir, job, data_transforms)
    dataloader = ht.HDMLPDataLoader(dataset)
    for _ in range(num_epochs):
        labels = []
        for images_, y in dataloader:
            assert images_.shape[1:] == (3, 12, 10)
            labels += y.tolist()
        assert sorted(labels) == [0] * 31 + [1] * 20 + [2] * 16
    metrics = job.get_metrics()
    assert sum(metrics["read_locations"].values()) == 2 * 67
    job.destroy()


SCRIPT = """
import sys
import hdmlp.torch as ht
loader = ht.DataLoader(ht.ImageFolder(sys.argv[1]), 4, seed=1, num_workers=int(sys.argv[2]),
                       raw=None if sys.argv[2] == "0" else False, collate_fn=len, shuffle=True)
for epoch in range(10**9):
    for batch in loader:
        if epoch == 3:
            sys.stderr.write("running\\n")
            sys.stderr.flush()
"""


@pytest.mark.slow
@pytest.mark.parametrize("workers", ["0", "2"])
def test_an_interrupt_ends_a_script(images, workers):
    path = os.path.dirname(os.path.dirname(hdmlp.__file__))
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, images, workers],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
    )
    assert process.stderr.readline() == "running\n"
    drain = threading.Thread(target=lambda: tail.append(process.stderr.read()))
    tail = []
    drain.start()
    process.send_signal(signal.SIGINT)
    process.wait(timeout=LIMIT)
    drain.join()
    assert "KeyboardInterrupt" in tail[0]
    assert process.stdout.read() == ""


@pytest.mark.slow
def test_the_daemon_ends_after_the_last_process(images):
    with ht.DataLoader(ht.ImageFolder(images), 4, seed=1, shuffle=True) as loader:
        next(iter(loader))
        pid = loader._engine._feeds[0].stream.daemon.pid
    until_ended(pid)


@pytest.mark.slow
def test_a_killed_script_leaves_nothing(images):
    path = os.path.dirname(os.path.dirname(hdmlp.__file__))
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, images, "2"],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
    )
    assert process.stderr.readline() == "running\n"
    workers = _children(process.pid)
    assert len(workers) >= 2
    process.kill()
    process.wait()
    for pid in workers:
        until_ended(pid)  # the daemon too, a second after its last process


def _children(parent):
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/stat") as file:
                if int(file.read().rsplit(")", 1)[1].split()[1]) == parent:
                    found.append(int(pid))
        except OSError:
            pass
    return found
