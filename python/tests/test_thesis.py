"""The thesis's interface as it is printed: 4.2.1, 4.2.2, 4.4 and listing 4.7."""

import ctypes
import os

import pytest

numpy = pytest.importorskip("numpy")
Image = pytest.importorskip("PIL.Image")

from hdmlp import Job, errors
from hdmlp import transforms as T
from hdmlp.lib import transforms as printed
from waiting import until

pytestmark = pytest.mark.usefixtures("real")

LISTING = """b_c = 10000
b_fs = 2000
distributed_threads = 2
checkpoint = true
checkpoint_path = "{index}"
storage_classes: (
  {{ capacity: 64 # [MB]
     threads: 2
     bandwidth: ( {{ threads = 1; bw = 16550; }}, {{ threads = 2; bw = 21164; }} ); }},
  {{ capacity: 32 # [MB]
     backend: "memory"
     threads: 2
     bandwidth: ( {{ threads = 1; bw = 16550; }} ); }},
  {{ capacity: 16
     backend: "filesystem"
     backend_options: {{ path = "{cache}"; }}
     threads: 2
     bandwidth: ( {{ threads = 1; bw = 192; }} ); }}
);
pfs_bandwidth: ( {{ processes: 1; bw: 66; }}, {{ processes: 2; bw: 86; }} );
"""


@pytest.fixture
def images(tmp_path):
    root = tmp_path / "images"
    for number in range(10):
        path = root / ("ant" if number < 6 else "bee") / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        pixels = numpy.full((12, 16, 3), 10 * number, "uint8")
        Image.fromarray(pixels).save(path)
    return str(root)


LIST = [printed.ImgDecode(), printed.Resize(8, 6), printed.CenterCrop(6, 4), printed.ToTensor()]


def test_edges_are_width_and_height():
    assert printed.Resize(8, 6).describe() == T.Resize((6, 8)).describe()
    assert printed.CenterCrop(6, 4).describe() == T.CenterCrop((4, 6)).describe()
    with pytest.raises(TypeError):
        printed.Resize(8)
    for cls, w, h, what in (
        (printed.Resize, 0, 4, "Resize: w=0: must be 1 or more"),
        (printed.Resize, 4.5, 4, "Resize: w=4.5: must be a whole number"),
        (printed.CenterCrop, 4, -1, "CenterCrop: h=-1: must be 1 or more"),
    ):
        with pytest.raises(errors.ConfigError, match=what):
            cls(w, h)


def test_messages_have_the_names_of_a_jobs_arguments(images):
    with pytest.raises(errors.ConfigError, match=r"transforms=ToTensor\(\): must be a list"):
        Job(images, 4, 1, transforms=T.ToTensor())
    with pytest.raises(errors.ConfigError, match=r"drop_last_batch nothing .* drop_last_batch out"):
        Job(images, 40, 1, drop_last_batch=True).setup()


def test_get_returns_batches_where_there_are_transforms(images):
    with Job(images, 4, 2, transforms=LIST, seed=1, buffer_p=True) as job:
        assert job.buffer_p is None
        seen = []
        for _ in range(2 * 3):
            labels, batch = job.get()
            assert batch.shape == (len(labels), 3, 4, 6)
            assert batch.flags.writeable
            data = numpy.ctypeslib.as_array(
                ctypes.cast(job.buffer_p, ctypes.POINTER(ctypes.c_float)), batch.shape
            )
            assert numpy.array_equal(data, batch)
            assert numpy.shares_memory(data, batch)
            seen += [(x.flat[0].round(4), label) for x, label in zip(batch, labels)]
        want = [
            (numpy.float32(10 * i / 255).round(4), "ant" if i < 6 else "bee") for i in range(10)
        ]
        assert sorted(seen) == sorted(want * 2)
        with pytest.raises(errors.EndError):
            job.get()


def test_get_returns_samples_without_transforms(images):
    with Job(images, 4, 1, seed=1, buffer_p=True) as job:
        for _ in range(10):
            label, view = job.get()
            assert label in ("ant", "bee")
            assert ctypes.string_at(job.buffer_p, len(view)) == bytes(view)


def test_get_stays_without_buffer_p(images):
    with Job(images, 4, 1, transforms=LIST, seed=1) as job:
        label, view = job.get()
        assert label in ("ant", "bee")
        assert len(view) == 3 * 4 * 6 * 4
        assert job.buffer_p is None


def test_no_library_is_loaded(images):
    with pytest.raises(errors.ConfigError, match="there is no library to load; leave it out"):
        Job(images, 4, 1, lib_path="/usr/lib/libhdmlp.so")


def test_listing_4_7_is_carried_out(images, tmp_path, monkeypatch, caplog):
    for name in ("HDMLP_MEMORY", "HDMLP_INDEX_DIR"):  # variables override a file
        monkeypatch.delenv(name)
    config, cache = tmp_path / "hdmlp.cfg", tmp_path / "cache"
    config.write_text(LISTING.format(index=tmp_path / "index of listing", cache=cache))
    with Job(images, 4, 2, transforms=LIST, seed=1, config_path=str(config)) as job:
        for _ in range(20):
            job.get()
        assert os.listdir(tmp_path / "index of listing")
    assert "line 3: distributed_threads has no effect" in caplog.text
    assert until(lambda: cache.is_dir())
    config.write_text("b_c = 1\nstorage_clases = ()\n")
    with (
        pytest.raises(errors.ConfigError) as caught,
        Job(images, 4, 1, config_path=str(config)) as job,
    ):
        job.get()
    assert f'storage_clases = "( ... )" ({config}, line 2): unknown key; did you mean' in str(
        caught.value
    )


class TestTorch:
    @pytest.fixture(autouse=True)
    def _torch(self):
        pytest.importorskip("torchvision")

    def test_the_loader_works_with_both(self, images):
        import hdmlp.torch as ht
        import torch

        batches = []
        for whole in (False, True):
            with Job(images, 4, 1, transforms=LIST, seed=1, buffer_p=whole) as job:
                dataset = ht.HDMLPImageFolder(images, job)
                batches.append([(x.clone(), y) for x, y in ht.HDMLPDataLoader(dataset)])
        for (x, y), (u, v) in zip(*batches):
            assert torch.equal(x, u)
            assert torch.equal(y, v)

    def test_a_job_has_no_worker_processes(self, images):
        """Each would deliver all samples of the job."""
        import hdmlp.torch as ht
        from torch.utils.data import ConcatDataset, DataLoader, Dataset, Subset

        class Wrapped(Dataset):
            def __init__(self, inner):
                self.inner = inner

            def __len__(self):
                return len(self.inner)

            def __getitem__(self, i):
                return self.inner[i]

        what = "num_workers=0, or use HDMLPDataLoader"
        with Job(images, 4, 3, transforms=LIST, seed=1) as job:
            dataset = ht.HDMLPImageFolder(images, job)
            for cls, made in (
                (DataLoader, dataset),
                (DataLoader, Subset(dataset, range(4))),
                (DataLoader, Wrapped(dataset)),
                (ht.DataLoader, Wrapped(dataset)),
            ):
                with pytest.raises(Exception, match=what):
                    list(cls(made, batch_size=4, num_workers=1))
            for made in (dataset, Subset(dataset, range(4)), ConcatDataset([dataset])):
                with pytest.raises(errors.ConfigError, match="num_workers=2: HDMLPImageFolder"):
                    ht.DataLoader(made, batch_size=4, num_workers=2)
            for cls, keys in ((DataLoader, {"num_workers": 0}), (ht.DataLoader, {})):
                batches = list(cls(dataset, batch_size=4, **keys))
                assert sum(len(labels) for _, labels in batches) == 10

    def test_datasetfolder_has_a_loader(self, tmp_path):
        import hdmlp.torch as ht

        for name in ("a", "b"):
            (tmp_path / "data" / name).mkdir(parents=True)
            for i in range(3):
                (tmp_path / "data" / name / f"{i}.bin").write_bytes(bytes([i]) * (i + 1))
        root = str(tmp_path / "data")
        with Job(root, 2, 1, extensions=[".bin"], seed=1) as job:
            dataset = ht.HDMLPDatasetFolder(root, job, len, lambda n: 10 * n)
            got = [
                (x, y)
                for xs, ys in ht.HDMLPDataLoader(dataset)
                for x, y in zip(xs.tolist(), ys.tolist())
            ]
        assert sorted(got) == [(10 * n, label) for n in (1, 2, 3) for label in (0, 1)]
        job = Job(root, 2, 1, transforms=[T.ToTensor()], extensions=[".bin"])
        with pytest.raises(errors.ConfigError, match="loader: the job has transforms"):
            ht.HDMLPDatasetFolder(root, job, len)

    def test_imagenet_names_its_classes(self, images, tmp_path):
        import hdmlp.torch as ht
        import torch

        root = str(tmp_path / "imagenet")
        os.makedirs(root)
        os.rename(images, os.path.join(root, "val"))
        names = {"ant": ("ant", "emmet"), "bee": ("bee",), "cat": ("cat",)}

        def made(job):
            return ht.HDMLPImageNet(root, job, "val", [T.Resize((6, 8)), T.ToTensor()])

        job = Job(os.path.join(root, "val"), 4, 1, seed=1)
        with pytest.raises(errors.ConfigError, match=r"meta\.bin: there is no such file, which"):
            made(job)
        torch.save((names, []), os.path.join(root, "meta.bin"))
        dataset = made(job)
        assert dataset.classes == [("ant", "emmet"), ("bee",)]
        assert dataset.class_to_idx == {"ant": 0, "emmet": 0, "bee": 1}
        assert dataset.wnids == ["ant", "bee"]
        assert dataset.wnid_to_idx == {"ant": 0, "bee": 1}
        labels = [y for _, ys in ht.HDMLPDataLoader(dataset) for y in ys.tolist()]
        job.destroy()
        assert sorted(labels) == [0] * 6 + [1] * 4
        with pytest.raises(errors.ConfigError, match="split='test'"):
            ht.HDMLPImageNet(root, job, "test")
        torch.save(({"ant": ("ant",)}, []), os.path.join(root, "meta.bin"))
        with pytest.raises(errors.ConfigError, match=r"bee: meta\.bin in .* has no class"):
            made(job)
        with open(os.path.join(root, "meta.bin"), "wb") as file:
            file.write(b"no")
        with pytest.raises(errors.ConfigError, match="not the metadata"):
            made(job)
