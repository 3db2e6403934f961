"""Files without bytes, and parts of files: an error that names them, or ``on_error``; never pixels
of another sample."""

import io
import json
import tarfile

import pytest

torch = pytest.importorskip("torch")
transforms = pytest.importorskip("torchvision.transforms")
Image = pytest.importorskip("PIL.Image")

import hdmlp.torch as ht
from hdmlp import errors

try:
    from torchvision.transforms import v2
except ImportError:  # before torchvision 0.15
    v2 = None

pytestmark = [
    pytest.mark.usefixtures("real"),
    pytest.mark.skipif(not hasattr(v2, "ToImage"), reason="before torchvision 0.16"),
]

COUNT, EMPTY = 6, 3
LIST = transforms.Compose([transforms.Resize((20, 20)), transforms.ToTensor()])
JOINT = [v2.Resize((20, 20)), v2.ToImage()] if hasattr(v2, "ToImage") else []


def png(level, mode="RGB"):
    data = io.BytesIO()
    Image.new(mode, (30, 30), (level,) * 3 if mode == "RGB" else level % 5).save(data, "PNG")
    return data.getvalue()


@pytest.fixture
def paths(tmp_path):
    """Images and masks, of which one has no bytes."""
    made = []
    for i in range(COUNT):
        pair = tmp_path / f"{i}.png", tmp_path / f"{i}_mask.png"
        pair[0].write_bytes(b"" if i == EMPTY else png(10 + 40 * i))
        pair[1].write_bytes(png(i, "L"))
        made.append(tuple(map(str, pair)))
    return made


def shard(paths, tmp_path):
    with tarfile.open(tmp_path / "s.tar", "w") as archive:
        for i, pair in enumerate(paths):
            archive.add(pair[0], f"{i}.png")
            member = tarfile.TarInfo(f"{i}.cls")
            member.size = 1
            archive.addfile(member, io.BytesIO(str(i).encode()))
    return str(tmp_path / "s.tar")


def made(kind, paths, tmp_path):
    images, labels = [path for path, _ in paths], list(range(COUNT))
    if kind == "files":
        return ht.Files(images, labels, transform=LIST)
    if kind == "pairs":
        twice = [(path, path) for path in images]
        return ht.Files(twice, labels, transform={"0": LIST, "1": LIST})
    if kind == "shards":
        return (
            ht.WebDataset(shard(paths, tmp_path))
            .decode("pil")
            .to_tuple("png", "cls")
            .map_tuple(LIST, None)
        )
    kinds = {"0": "image", "1": "mask"}
    turned = [v2.RandomRotation(3)] if kind == "joint, in Python" else []
    if kind == "an empty mask":
        paths = [pair[::-1] if i == EMPTY else pair for i, pair in enumerate(paths)]
    return ht.Files(paths, labels, kinds=kinds, transform=[*turned, *JOINT])


KINDS = ["files", "pairs", "shards", "joint", "joint, in Python", "an empty mask"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_without_bytes_is_an_error(paths, tmp_path, kind):
    dataset = made(kind, paths, tmp_path)
    with ht.DataLoader(dataset, 2, shuffle=True, seed=1, staging_buffer="1MB") as loader:
        with pytest.raises(errors.SampleError) as caught:
            for _ in range(2):
                for _ in loader:
                    pass
    assert caught.value.sample == EMPTY


@pytest.mark.parametrize("kind", KINDS)
def test_it_is_left_out_where_that_is_asked_for(paths, tmp_path, kind):
    dataset = made(kind, paths, tmp_path)
    found = []
    with ht.DataLoader(dataset, COUNT, shuffle=True, seed=1, on_error="skip") as loader:
        for _ in range(3):
            found += [batch[-1].tolist() for batch in loader]
    assert [sorted(labels) for labels in found] == [[i for i in range(COUNT) if i != EMPTY]] * 3


def test_suffixes_may_be_one_text(paths, tmp_path):
    (tmp_path / "notes.json").write_text(json.dumps({}))
    (tmp_path / "n").write_text("")
    for suffixes in (".png", ".PNG", [".png"], (".Png",)):
        assert len(ht.Files(tmp_path, suffixes=suffixes)) == 2 * COUNT
    with pytest.raises(errors.ConfigError, match="must be a list such as"):
        ht.Files(tmp_path, suffixes=[3])
    assert torch.is_tensor(ht.Files(tmp_path, suffixes=".png", transform=LIST)[0])
