"""Modes of torch and PIL which the program sets: batches are as torch's loader would make them."""

import io
import time

import pytest

torch = pytest.importorskip("torch")
V = pytest.importorskip("torchvision.transforms")
numpy = pytest.importorskip("numpy")
Image = pytest.importorskip("PIL.Image")
ImageFile = pytest.importorskip("PIL.ImageFile")

import hdmlp.torch as ht
import hdmlp.transforms as T
from hdmlp import errors
from torch.utils.data import DataLoader

pytestmark = pytest.mark.usefixtures("real")


@pytest.fixture
def pictures(tmp_path):
    """Twelve JPEGs in two classes."""
    random = numpy.random.default_rng(1)
    for name in ("a", "b"):
        (tmp_path / "pictures" / name).mkdir(parents=True)
        for i in range(6):
            pixels = random.integers(0, 255, (20, 30, 3), dtype=numpy.uint8)
            Image.fromarray(pixels).save(tmp_path / "pictures" / name / f"{i}.jpg")
    return tmp_path / "pictures"


SMALL = V.Compose([V.Resize((8, 8)), V.ToTensor()])


@pytest.mark.parametrize("transform", [SMALL, None])
@pytest.mark.parametrize("arguments", [{}, {"shuffle": True}, {"shuffle": True, "seed": 1}])
def test_batches_after_inference_mode_can_be_trained_with(pictures, arguments, transform):
    data = ht.ImageFolder(pictures, transform)
    with ht.DataLoader(data, 2, **arguments) as loader:
        batches = iter(loader)
        next(batches)
        time.sleep(0.3)  # several are ready
        with torch.inference_mode():
            next(batches)
        following = [*batches, *loader]
    assert len(following) == 10
    assert not any(labels.is_inference() for _, labels in following)
    if transform is not None:
        weight = torch.ones(1, requires_grad=True)
        sum((images * weight).sum() for images, _ in following).backward()


@pytest.fixture
def double():
    was = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(was)


@pytest.mark.parametrize("workers", [0, 1])
def test_the_default_type_applies(pictures, double, workers, caplog):
    data = ht.ImageFolder(pictures, V.Compose([*SMALL.transforms, V.Normalize((0.5,), (0.5,))]))
    want = next(iter(DataLoader(data, 4)))
    caplog.clear()
    with ht.DataLoader(data, 4, num_workers=workers) as loader:
        got = next(iter(loader))
        assert got[0].dtype is torch.float64
        assert torch.equal(got[0], want[0])
        assert "ToTensor() runs in Python" in caplog.text
        assert "torch's default type is torch.float64" in caplog.text
        torch.set_default_dtype(torch.float32)  # applies from the next epoch on
        assert next(iter(loader))[0].dtype is torch.float32


@pytest.fixture
def truncated(pictures, monkeypatch):
    """One file ends too early, and PIL is set to accept that."""
    path = pictures / "a" / "3.jpg"
    path.write_bytes(path.read_bytes()[:-200])
    with pytest.raises(OSError, match="truncated"):
        Image.open(io.BytesIO(path.read_bytes())).convert("RGB")
    monkeypatch.setattr(ImageFile, "LOAD_TRUNCATED_IMAGES", True)
    return pictures


@pytest.mark.parametrize("workers", [0, 1])
def test_truncated_files_are_decoded_if_pil_is_told_to(truncated, workers, caplog):
    data = ht.ImageFolder(truncated, SMALL)
    want = list(DataLoader(data, 4))
    caplog.clear()
    with ht.DataLoader(data, 4, num_workers=workers) as loader:
        got = list(loader)
    assert all(torch.equal(x[0], y[0]) for x, y in zip(got, want))
    assert "Python: PIL.ImageFile.LOAD_TRUNCATED_IMAGES is True" in caplog.text


def test_truncated_files_stay_errors_with_our_transforms(truncated, caplog):
    data = ht.ImageFolder(truncated, [T.Resize((8, 8)), T.ToTensor()])
    with (
        ht.DataLoader(data, 12) as loader,
        pytest.raises(errors.SampleError, match=r"3\.jpg"),
    ):
        next(iter(loader))
    assert "with transforms of hdmlp.transforms the daemon decodes images" in caplog.text
