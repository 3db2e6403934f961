"""The thesis's interface with transforms that the daemon applies."""

import ctypes

import pytest

torch = pytest.importorskip("torch")
torchvision = pytest.importorskip("torchvision")
numpy = pytest.importorskip("numpy")
Image = pytest.importorskip("PIL.Image")

import hdmlp.torch as ht
from hdmlp import Job, errors
from hdmlp import transforms as T
from offloaded import REFERENCE, TENSOR, darker, folder  # noqa: F401
from reference import batches
from torchvision import transforms as V

pytestmark = pytest.mark.usefixtures("real")


def by_label(loader, epochs=1):
    return [
        sorted(
            (y, x.numpy().tobytes())
            for images, labels in loader
            for x, y in zip(images, labels.tolist())
        )
        for _ in range(epochs)
    ]


def test_listing_4_6_of_the_thesis_runs(folder):
    [want] = by_label(batches(folder, 4, 1, 3, False, 0, 1, REFERENCE)[0])
    for given, images in ((TENSOR, None), (None, TENSOR), (None, REFERENCE), (TENSOR, TENSOR)):
        job = Job(folder, 4, 2, "uniform", False, transforms=given, seed=3)
        dataset = ht.HDMLPImageFolder(folder, job, images)
        loader = ht.HDMLPDataLoader(dataset)
        assert len(dataset) == 21
        assert len(loader) == 6
        assert by_label(loader, 2) == [want] * 2
        assert [t.describe() for t in job.get_transforms()] == [t.describe() for t in TENSOR]
        assert job.get_metrics()["read_locations"]
        job.destroy()


def test_a_jobs_batches_are_where_the_daemon_wrote_them(folder):
    job = Job(folder, 4, 3, seed=3)
    dataset = ht.HDMLPImageFolder(folder, job, [T.Resize((20, 16))], target_transform=str)
    for images, labels in ht.HDMLPDataLoader(dataset):  # where the daemon wrote them
        assert images.shape[1:] == (20, 16, 3)
        assert images.dtype == torch.uint8
        assert set(labels) <= {"0", "1", "2"}
        assert any(
            s.writable and begin <= images.data_ptr() < begin + s.size
            for s, begin in (
                (s, ctypes.addressof(ctypes.c_char.from_buffer(s.map)))
                for s in job._loader._feeds[0].stream._staging.segments.values()
                if s.writable
            )
        )
    for pairs in ht.HDMLPDataLoader(dataset, collate_fn=list):
        assert all(isinstance(image, Image.Image) and image.size == (16, 20) for image, _ in pairs)
    job.destroy()
    job = Job(folder, 4, 1, seed=3)
    dataset = ht.HDMLPImageFolder(folder, job, [*TENSOR, darker])
    assert all(
        images.max() <= 0.5 and images.shape[1:] == (3, 20, 16)
        for images, _ in ht.HDMLPDataLoader(dataset)
    )
    job.destroy()


def test_a_job_gives_its_samples_one_by_one(folder):
    with Job(folder, 4, 1, transforms=TENSOR, seed=3) as job:
        assert job.output.shape == (3, 20, 16)
        assert job.output.type == "float32"
        label, view = job.get()
        assert label in ("ant", "bee", "cat")
        assert torch.frombuffer(view, dtype=torch.float32).shape == (960,)
    with Job(folder, 4, 1, transforms=TENSOR, seed=3) as job:
        dataset = ht.HDMLPImageFolder(folder, job, darker)  # after the job's own
        halves = [dataset[i] for i in range(21)]
        assert all(x.shape == (3, 20, 16) and x.max() <= 0.5 for x, _ in halves)
        with pytest.raises(errors.EndError):
            dataset[21]


def test_a_job_has_one_list_of_transforms(folder):
    with Job(folder, 4, 1, transforms=TENSOR) as job:
        with pytest.raises(errors.ConfigError, match="data_transforms: the job has transforms of"):
            ht.HDMLPImageFolder(folder, job, [T.Resize((3, 3)), T.ToTensor()])
    with Job(folder, 4, 1) as job, pytest.raises(errors.ConfigError, match="set up already"):
        ht.HDMLPImageFolder(folder, job, TENSOR)


@pytest.mark.parametrize("first", [V.ToTensor(), V.PILToTensor()])
def test_what_follows_a_jobs_transforms_takes_tensors(folder, first):
    """The error is one when it is made, and not that of a batch."""
    with Job(folder, 4, 1, transforms=TENSOR) as job:
        with pytest.raises(errors.ConfigError, match="takes an image, and the job's transforms"):
            ht.HDMLPImageFolder(folder, job, first)
        with pytest.raises(errors.ConfigError, match="takes an image, and the job's transforms"):
            ht.HDMLPImageFolder(folder, job, V.Compose([first, V.Normalize(0.5, 0.5)]))


def test_it_is_said_where_transforms_after_the_jobs_run(folder, caplog):
    with Job(folder, 4, 1, transforms=TENSOR, seed=3) as job:
        dataset = ht.HDMLPImageFolder(folder, job, V.Normalize(0.5, 0.5))
        found = [images for images, _ in ht.HDMLPDataLoader(dataset)]
    with Job(folder, 4, 1, transforms=TENSOR, seed=3) as job:
        plain = [
            images.clone() for images, _ in ht.HDMLPDataLoader(ht.HDMLPImageFolder(folder, job))
        ]
    assert all(torch.equal(a, (b - 0.5) / 0.5) for a, b in zip(found, plain))
    said = [r.message for r in caplog.records if "Python" in r.message]
    assert len(said) == 1
    assert said[0].startswith("data_transforms run in Python, on the tensors that the job's")
