"""WebDataset's shards. The oracle has webdataset's rules, and reads with Python's tarfile."""

import io
import os
import pickle
import tarfile

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torchvision")

import hdmlp.data as hd
import hdmlp.torch as ht
from hdmlp import errors
from recordfiles import TENSOR, equal, image, shards
from torch.utils.data import DataLoader, Dataset, DistributedSampler, Subset

pytestmark = pytest.mark.usefixtures("real")


def grouped(path):
    """The samples of a shard, by webdataset's rules, in the order of its members."""
    samples = []
    with tarfile.open(path) as archive:
        for member in archive:
            head, dot, suffix = os.path.basename(member.name).partition(".")
            if not member.isfile() or not dot:
                continue
            key = os.path.join(os.path.dirname(member.name), head)
            if not samples or samples[-1]["__key__"] != key:
                samples.append({"__key__": key, "__url__": path})
            samples[-1][suffix.lower()] = archive.extractfile(member).read()
    return samples


class Theirs(Dataset):
    def __init__(self, root):
        self.samples = [s for name in sorted(os.listdir(root)) for s in grouped(f"{root}/{name}")]

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, i):
        from PIL import Image

        sample = self.samples[i]
        picture = Image.open(io.BytesIO(sample["png"])).convert("RGB")
        return TENSOR(picture), int(sample["cls"])


@pytest.fixture
def root(tmp_path):
    shards(tmp_path / "shards")
    return str(tmp_path / "shards")


@pytest.mark.parametrize("urls", ["{000..002}.tar", "*.tar", "{000,001,002}.tar", "00[0-2].tar"])
def test_samples_are_those_of_webdataset(root, urls):
    expected = Theirs(root).samples
    data = ht.WebDataset(f"{root}/{urls}")
    assert (len(data), data.fields) == (23, ("png", "cls", "seg.json"))
    assert data.targets == [i % 4 for i in range(23)]
    assert [data[i] for i in (0, 7, 22)] == [expected[i] for i in (0, 7, 22)]
    with ht.DataLoader(data, 5) as loader:
        seen = []
        for batch in loader:
            for i in range(len(batch["__key__"])):
                one = {name: column[i] for name, column in batch.items()}
                seen.append({k: v if k[0] == "_" else bytes(v) for k, v in one.items()})
    assert seen == expected


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("rank", [0, 1, 2])
def test_the_order_is_that_of_a_distributed_sampler(root, rank, workers):
    """Over three ranks, which three shards of other sizes do not divide by."""
    theirs = Theirs(root)
    ours = ht.WebDataset(f"{root}/*.tar").decode("pil").to_tuple("jpg;png", "cls")
    ours = ours.map_tuple(TENSOR, None)
    samplers = [DistributedSampler(d, 3, rank, seed=1) for d in (theirs, ours)]
    with ht.DataLoader(ours, 3, sampler=samplers[1], num_workers=workers) as loader:
        for epoch in range(2):
            for sampler in samplers:
                sampler.set_epoch(epoch)
            assert equal(list(loader), list(DataLoader(theirs, 3, sampler=samplers[0])))
        assert loader._content.making.recipe is None


def test_an_index_is_kept_until_a_shard_changes(root, tmp_path):
    first = ht.WebDataset(f"{root}/*.tar")
    assert len(os.listdir(tmp_path / "index")) == 1
    os.utime(f"{root}/001.tar", (1, 1))
    second = ht.WebDataset(f"{root}/*.tar")
    assert len(second) == len(first)
    with pytest.raises(errors.MismatchError, match=r"changed|written"):
        ht.DataLoader(first, 4)
    shards(tmp_path / "shards", (4, 4, 4))
    assert len(ht.WebDataset(f"{root}/*.tar")) == 12


def test_parts_and_copies(root):
    data = ht.WebDataset(
        f"{root}/*.tar", fields=("png", "cls"), decode=True, transform={"png": TENSOR}
    )
    clone = pickle.loads(pickle.dumps(data))
    chosen = [i for i, target in enumerate(clone.targets) if target == 2]
    with ht.DataLoader(Subset(clone, chosen), 3) as loader:
        assert equal(list(loader), list(DataLoader(Subset(Theirs(root), chosen), 3)))


def test_methods_of_webdataset(root):
    data = ht.WebDataset(f"{root}/*.tar")
    renamed = data.decode().rename(label="cls", picture="jpg;png")
    assert list(renamed[0]) == ["__key__", "__url__", "seg.json", "label", "picture"]
    assert renamed[5]["label"] == 1
    mapped = data.decode("torchrgb").map(lambda item: item["png"].shape)
    assert mapped[4] == (3, 9, 14)
    eight = data.decode("rgb8").to_tuple("png cls")
    assert eight[3][0].dtype.name == "uint8"
    assert eight[3][1] == 3
    twice = eight.map_tuple(lambda x: x + 1, None).map_tuple(None, lambda x: -x)
    assert twice[3][1] == -3
    for name in ("shuffle", "batched", "resampled", "nodesplitter", "with_epoch"):
        with pytest.raises(errors.ConfigError, match=f"^{name}: "):
            getattr(data, name)(100)
    with pytest.raises(errors.ConfigError, match=r"^shardshuffle: give shuffle=True"):
        ht.WebDataset(f"{root}/*.tar", shardshuffle=True)
    with pytest.raises(TypeError, match="unexpected keyword argument 'shardshufle'"):
        ht.WebDataset(f"{root}/*.tar", shardshufle=True)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        data.nothing  # noqa: B018
    with pytest.raises(errors.ConfigError, match="allowed: none, or one of pil"):
        data.decode("cuda")


@pytest.mark.parametrize(
    "urls, message",
    [
        ("{root}/{{000..005}}.tar", "003.tar: the file is missing"),
        ("{root}/*.tgz", "no file has such a name"),
        ("{root}/none/*.tar", "no such directory|there is no"),
        ("gs://bucket/{{000..005}}.tar", "HDMLP does not read gs://"),
        ("pipe:cat x.tar", "a command's output"),
        ("{root}/{{000..002.tar", "a {{ has no }}"),
        ("{root}/000.tar::{root}/000.tar", "is given twice; .*: a sampler repeats samples"),
        ("{root}", r"it is a directory: give the names of its shards, such as '.*/\*.tar'"),
        ("{root}/", "it is a directory"),
        ("s3://bucket/train/", "it is a directory"),
        ("${{SHARDS}}/000.tar", "variables are not replaced: use os.path.expandvars"),
        ("{root}/{{0..99999999}}.tar", "stands for more than 1000000 names"),
    ],
)
def test_wrong_urls(root, urls, message):
    with pytest.raises(errors.HDMLPError, match=message.replace("{{", r"\{").replace("}}", r"\}")):
        hd.WebDataset(urls.format(root=root))


def archive(path, members):
    with tarfile.open(path, "w") as file:
        for name, data in members:
            member = tarfile.TarInfo(name)
            member.size = len(data)
            file.addfile(member, io.BytesIO(data))


def test_samples_that_lack_a_field(tmp_path):
    members = [
        ("a.png", image(1)),
        ("a.cls", b"1"),
        ("b.png", image(2)),
        ("c.png", image(3)),
        ("c.cls", b"3"),
    ]
    archive(tmp_path / "x.tar", members)
    path = tmp_path / "x.tar"
    every = hd.WebDataset(path)
    assert sorted(every[1]) == ["__key__", "__url__", "png"]
    with pytest.raises(
        errors.DatasetError, match=r"x.tar, byte \d+, b: the sample has no field cls"
    ):
        hd.WebDataset(path, fields=("png", "cls"))
    skipped = hd.WebDataset(path, fields=("png", "cls"), missing="skip")
    assert [bytes(x[1]) for x in skipped] == [b"1", b"3"]
    kept = ht.WebDataset(path, fields=("png", "cls"), missing=None)
    with ht.DataLoader(kept, 3) as loader:
        assert equal(next(iter(loader))[1], [b"1", None, b"3"])
    with pytest.raises(errors.ConfigError, match="missing='no'"):
        hd.WebDataset(path, missing="no")


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda p: p.write_bytes(b"\x1f\x8b" + bytes(600)), "it is compressed .gzip."),
        (lambda p: p.write_bytes(b""), "the file is empty"),
        (lambda p: p.write_bytes(b"x" * 2000), "x.tar, byte 0"),
        (lambda p: archive(p, [("a", b"1")]), "no members with a dot in their names"),
        (
            lambda p: archive(p, [("a.x", b"1"), ("b.x", b"1"), ("a.y", b"2")]),
            "already at byte 512",
        ),
        (lambda p: archive(p, [("a.x", b"1"), ("a.X", b"1")]), "has the field .x. twice"),
        (lambda p: archive(p, [("../a.x", b"1")]), "leads out of the archive"),
    ],
)
def test_archives_that_are_refused(tmp_path, make, message):
    make(tmp_path / "x.tar")
    with pytest.raises(errors.DatasetError, match=message):
        hd.WebDataset(tmp_path / "x.tar")


def test_the_same_key_in_another_shard_is_another_sample(tmp_path):
    for name in "xy":
        archive(tmp_path / f"{name}.tar", [("a.txt", name.encode())])
    data = hd.WebDataset([tmp_path / "y.tar", tmp_path / "x.tar"])
    assert [(s["__key__"], os.path.basename(s["__url__"]), s["txt"]) for s in data] == [
        ("a", "y.tar", b"y"),
        ("a", "x.tar", b"x"),
    ]
