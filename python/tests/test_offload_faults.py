"""Images that cannot be decoded, and lists that cannot be carried out: the errors, and that
everything else continues."""

import io
import re
import struct
import zlib

import pytest

torch = pytest.importorskip("torch")
torchvision = pytest.importorskip("torchvision")
numpy = pytest.importorskip("numpy")
Image = pytest.importorskip("PIL.Image")

import hdmlp.torch as ht
from hdmlp import data, errors
from hdmlp import transforms as T
from reference import decoded, jpegs, picture

V = torchvision.transforms
pytestmark = pytest.mark.usefixtures("real")

TENSOR = [T.Resize((16, 16)), T.ToTensor()]


def saved(kind, frames=1, **options):
    rng = numpy.random.default_rng(len(kind))
    images = [picture(rng, 50, 40) for _ in range(frames)]
    file = io.BytesIO()
    images[0].save(
        file,
        kind,
        **(dict(save_all=True, append_images=images[1:]) if frames > 1 else {}),
        **options,
    )
    return file.getvalue()


def png(width, height):
    """A PNG's header, and no pixels."""

    def chunk(name, body):
        return (
            struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))
        )

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(b""))
        + chunk(b"IEND", b"")
    )


JPEG = saved("JPEG")
HUFFMAN = JPEG.index(b"\xff\xc4") + 5  # where the first table's numbers of codes are
BAD = {  # name: file, reason
    "corrupt": (
        JPEG[:HUFFMAN] + b"\xff" * 16 + JPEG[HUFFMAN + 16 :],
        "corrupt image: Bogus Huffman table definition",
    ),
    "truncated": (JPEG[: len(JPEG) // 2], "truncated image"),
    "header only": (JPEG[:200], "truncated image"),
    "empty": (b"", "empty"),
    "text": (b"this is no image\n", "cannot identify image file"),
    "bomb": (png(60000, 60000), "too many pixels.*60000 x 60000"),
    "zero-sized": (png(0, 10), "0 x 10|corrupt image"),
    "GIF": (saved("GIF", 3)[:30], "cannot be decoded and transformed in Python"),
    "WebP": (saved("WEBP", 3)[:60], "cannot be decoded and transformed in Python"),
    "PNG": (saved("PNG")[:-60], "truncated image|corrupt image"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_image_is_reported(tmp_path, name):
    content, reason = BAD[name]
    (tmp_path / "data" / "a").mkdir(parents=True)
    for file, what in (
        ("0.jpg", JPEG),
        ("1.jpg", content),
        ("2.jpg", saved("PNG")),
        ("3.png", JPEG),
        ("4.jpeg", saved("WEBP")),
    ):
        (tmp_path / "data" / "a" / file).write_bytes(what)
    dataset = ht.ImageFolder(str(tmp_path / "data"), TENSOR)
    assert len(dataset) == 5
    with ht.DataLoader(dataset, 1, shuffle=False) as loader:
        batches = iter(loader)
        pid = loader._engine._feeds[0].stream.daemon.pid
        next(batches)
        with pytest.raises(errors.SampleError, match=reason) as caught:
            next(batches)
        error = caught.value
        assert (error.kind, error.sample, error.path) == ("sample", 1, dataset.samples[1][0])
        assert "sample 1" in str(error)
        assert error.path in str(error)
        [fault] = loader.report()["faults"]
        assert fault["sample"] == 1
        assert fault["path"] == error.path
        assert fault["policy"] == "raise"
        assert re.search(reason, fault["reason"])
        # While the first loader is open, as a daemon ends some time after its last process.
        with ht.DataLoader(dataset, 5, shuffle=False, on_error="skip") as skipping:
            [[images, labels]] = list(skipping)
            assert skipping._engine._feeds[0].stream.daemon.pid == pid
        want = [
            V.ToTensor()(decoded(dataset.samples[i][0]).resize((16, 16), Image.BILINEAR))
            for i in (0, 2, 3, 4)
        ]
        assert torch.equal(images, torch.stack(want))
        assert labels.tolist() == [0] * 4


@pytest.fixture(scope="module")
def spoilt(tmp_path_factory):
    """A folder with bad images among good ones: its path, and the bad ones' IDs."""
    root = tmp_path_factory.mktemp("spoilt") / "data"
    jpegs(root, {"a": 12, "b": 11})
    for i, (content, _) in enumerate(BAD.values()):
        (root / "ab"[i % 2] / f"000{i}+.jpg").write_bytes(content)
    bad = [
        i
        for i, (path, _) in enumerate(torchvision.datasets.ImageFolder(str(root)).samples)
        if "+" in path
    ]
    assert len(bad) == len(BAD)
    return str(root), bad


@pytest.mark.parametrize("policy", ["skip", "substitute"])
@pytest.mark.parametrize("workers", [0, 2])
def test_bad_images_are_left_out_with_and_without_workers(spoilt, policy, workers):
    root, bad = spoilt
    samples = torchvision.datasets.ImageFolder(root).samples
    tensors = {
        i: V.ToTensor()(decoded(path).resize((16, 16), Image.BILINEAR))
        for i, (path, _) in enumerate(samples)
        if i not in bad
    }

    def instead(i):
        while policy == "substitute" and i in bad:
            i = (i + 1) % len(samples)
        return [] if i in bad else [i]

    dataset = ht.ImageFolder(root, [*TENSOR, *([torch.clone] if workers else [])])
    loaders = [
        ht.DataLoader(
            dataset,
            4,
            seed=2,
            epochs=3,
            on_error=policy,
            rank=rank,
            world_size=2,
            name=policy,
            num_workers=workers,
            verify=True,
            shuffle=True,
        )
        for rank in (0, 1)
    ]
    asked = dict.fromkeys(bad, 0)
    for epoch in range(3):
        for step, got in enumerate(zip(*loaders)):
            for loader, (images, labels) in zip(loaders, got):
                ids = loader.explain(epoch, step).ids
                for i in set(ids) & set(bad):
                    asked[i] += 1
                ids = [j for i in ids for j in instead(i)]
                assert labels.tolist() == [samples[i][1] for i in ids]
                assert len(images) == len(ids)
                assert all(torch.equal(x, tensors[i]) for x, i in zip(images, ids))
    faults = loaders[0].report()["faults"]
    assert {f["sample"]: f["path"] for f in faults} == {i: samples[i][0] for i in bad}
    assert {f["policy"] for f in faults} == {policy}
    assert all(f["count"] >= asked[f["sample"]] >= 2 for f in faults)
    for loader in loaders:
        loader.close()


def test_batches_of_bad_images_only_are_skipped(tmp_path):
    (tmp_path / "data" / "a").mkdir(parents=True)
    for i in range(6):
        (tmp_path / "data" / "a" / f"{i}.jpg").write_bytes(b"nothing" if i in (1, 2) else JPEG)
    root = str(tmp_path / "data")
    for transforms, workers in ((TENSOR, 0), ([*TENSOR, abs], 0), ([*TENSOR, abs], 1)):
        with ht.DataLoader(
            ht.ImageFolder(root, transforms), 1, shuffle=False, on_error="skip", num_workers=workers
        ) as loader:
            assert [(len(images), labels.tolist()) for images, labels in loader] == [
                (1, [0]),
                (0, []),
                (0, []),
                *[(1, [0])] * 3,
            ]
    with data.DataLoader(root, 1, shuffle=False, on_error="skip", transforms=TENSOR) as loader:
        assert [x.shape for x, _ in loader][:2] == [(1, 3, 16, 16), (0, 3, 16, 16)]
    with ht.DataLoader(
        ht.ImageFolder(root, TENSOR), 1, shuffle=False, on_error="substitute"
    ) as loader:
        assert [images.shape for images, _ in loader] == [(1, 3, 16, 16)] * 6
    (tmp_path / "none" / "a").mkdir(parents=True)
    for i in range(6):
        (tmp_path / "none" / "a" / f"{i}.jpg").write_bytes(b"not one left")
    with (
        ht.DataLoader(
            ht.ImageFolder(str(tmp_path / "none"), TENSOR), 1, shuffle=False, on_error="substitute"
        ) as loader,
        pytest.raises(errors.SampleError, match="no readable sample is left"),
    ):
        list(loader)


@pytest.mark.parametrize(
    "transforms",
    [[T.RandomResizedCrop(8), T.ToTensor()], [T.RandomCrop(8), T.ToTensor()]],
    ids=repr,
)
def test_a_bad_image_is_bad_in_every_epoch(tmp_path, transforms):
    """Even if a crop needs only the intact part of the image."""
    (tmp_path / "data" / "a").mkdir(parents=True)
    for name, content in (
        ("0", JPEG),
        ("1", BAD["truncated"][0]),
        ("2", BAD["PNG"][0]),
        ("3", saved("WEBP", lossless=True)[:-40]),
    ):
        (tmp_path / "data" / "a" / f"{name}.jpg").write_bytes(content)
    for seed in range(10):
        with ht.DataLoader(
            ht.ImageFolder(str(tmp_path / "data"), transforms),
            4,
            seed=seed,
            on_error="skip",
            shuffle=True,
        ) as loader:
            assert [len(images) for _ in range(2) for images, _ in loader] == [1, 1]


# Lists that cannot be carried out.


class Said(T.Transform):
    """A transform with the description that a faulty program might send."""

    def __init__(self, **said):
        self.said = said

    def describe(self):
        return self.said


@pytest.mark.parametrize(
    "transforms, words",
    [
        ([T.Resize(20), T.ToTensor()], ["no fixed size", "Resize", "CenterCrop"]),
        ([T.ToTensor()], ["no fixed size", "RandomResizedCrop"]),
        ([T.Pad(2)], ["no fixed size"]),
        (
            [T.CenterCrop(4), Said(name="Resize", size=0)],
            ["transforms[1] Resize", "size", "0", "1"],
        ),
        (
            [Said(name="Resize", size=[4, 4], colour=3)],
            ["transforms[0] Resize", "colour", "interpolation"],
        ),
        ([Said(name="CentreCrop", size=3)], ["transforms[0]", "CentreCrop", "CenterCrop"]),
        ([T.CenterCrop(4), T.ToTensor(), T.ToTensor()], ["transforms[2] ToTensor"]),
        ([T.ToTensor(), T.CenterCrop(4)], ["transforms[1] CenterCrop", "before ToTensor"]),
        ([T.CenterCrop(4), T.Normalize(0.5, 1)], ["transforms[1] Normalize"]),
        ([T.Resize((40000, 40000))], ["transforms[0] Resize", "MiB"]),
    ],
    ids=repr,
)
def test_transforms_that_cannot_be_carried_out_are_refused(spoilt, transforms, words):
    root, _ = spoilt
    for make in (
        lambda: ht.DataLoader(ht.ImageFolder(root, transforms), 4, shuffle=True),
        lambda: data.DataLoader(root, 4, transforms=transforms),
    ):
        with pytest.raises(errors.ConfigError) as caught:
            make()
        assert all(word in str(caught.value) for word in words), str(caught.value)


def test_ranks_with_different_transforms_are_refused(spoilt):
    root, _ = spoilt
    with ht.DataLoader(
        ht.ImageFolder(root, TENSOR), 4, seed=1, rank=0, world_size=2, name="d", shuffle=True
    ):
        for transforms in ([T.Resize((16, 17)), T.ToTensor()], None):
            with pytest.raises(errors.MismatchError) as caught:
                ht.DataLoader(
                    ht.ImageFolder(root, transforms),
                    4,
                    seed=1,
                    rank=1,
                    world_size=2,
                    name="d",
                    shuffle=True,
                )
            assert caught.value.key == "transforms"
            assert "Resize" in caught.value.theirs


# The report.


@pytest.mark.parametrize("threads", [1, 0])
def test_the_report_has_the_time_of_each_transform(tmp_path, threads):
    root = jpegs(tmp_path / "data", {"a": 30, "b": 34}, edges=(200, 300))
    transforms = [T.RandomResizedCrop(32), T.ToTensor(), T.Normalize(0.5, 0.5)]
    with ht.DataLoader(
        ht.ImageFolder(root, transforms),
        8,
        seed=1,
        epochs=2,
        transform_threads=threads,
        policy="naive",
        shuffle=True,
    ) as loader:
        for _ in range(2):
            for _ in loader:  # each is waited for: nothing is staged ahead
                pass
        report = loader.report()
    took = {t["name"]: t["seconds"] for t in report["preprocessing"]["transforms"]}
    assert list(took) == ["ImgDecode", "RandomResizedCrop", "ToTensor", "Normalize"]
    assert took["ImgDecode"] > 0
    assert took["RandomResizedCrop"] > 0
    assert took["ToTensor"] > 0
    assert report["preprocessing"]["samples"] == 128
    changes = report["preprocessing"].get("thread_changes")
    if threads:
        assert report["preprocessing"]["threads"] == threads
        assert changes is None
    else:
        assert changes[0]["seconds"] == 0
        assert changes[0]["to"] >= 1
    in_epochs = [epoch["transformed"] for epoch in report["epochs"]]
    assert sum(did["samples"] for did in in_epochs) == 128
    assert sum(did["seconds"] for did in in_epochs) == pytest.approx(sum(took.values()))
    reads = [place for epoch in report["epochs"] for place in epoch["reads"].values()]
    assert sum(r["samples"] for r in reads) == 128
    assert sum(r["bytes"] for r in reads) == 2 * report["bytes"]
    assert report["source"]["bytes"] == 2 * report["bytes"]
    causes = {cause for epoch in report["epochs"] for cause in epoch["stall"]}
    assert causes <= {"source", "handover", "consumer", *(f"transform {name}" for name in took)}
    assert "transform ImgDecode" in causes
