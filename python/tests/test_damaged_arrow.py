"""Arrow files whose offsets lie: pyarrow maps them unread, and reading there kills the process.

pyarrow's own validation is the oracle of what is damaged, and ``datasets`` of what is not.
"""

import os
import random
import struct

import pytest

torch = pytest.importorskip("torch")
datasets = pytest.importorskip("datasets")
pytest.importorskip("torchvision")
pyarrow = pytest.importorskip("pyarrow")

import hdmlp.torch as ht
from hdmlp import errors
from recordfiles import image

datasets.disable_progress_bars()
pytestmark = pytest.mark.usefixtures("real")

COUNT = 9
#: A feature, its values, and the offsets of these in the file.
COLUMNS = {
    "raw": (datasets.Value("binary"), [b"raw"] * COUNT, "<10i", 3),
    "large": (datasets.Value("large_binary"), [b"large"] * COUNT, "<10q", 5),
    "image": (
        datasets.Image(decode=False),
        [{"bytes": b"a picture", "path": None}] * COUNT,
        "<10i",
        9,
    ),
    "text": (datasets.Value("string"), ["a text!"] * COUNT, "<10i", 7),
    "numbers": (datasets.List(datasets.Value("int16")), [[1] * 11] * COUNT, "<10i", 11),
    "texts": (datasets.List(datasets.Value("string")), [["a"] * 13] * COUNT, "<10i", 13),
    "deep": ({"q": datasets.Value("large_string")}, [{"q": "x" * 17}] * COUNT, "<10q", 17),
}


def saved(root):
    features = datasets.Features({name: column[0] for name, column in COLUMNS.items()})
    values = {name: column[1] for name, column in COLUMNS.items()}
    datasets.Dataset.from_dict(values, features=features).save_to_disk(str(root))
    return root / "data-00000-of-00001.arrow"


def damage(path, name, row, value):
    """Has the offset of a row be another one."""
    _, _, form, step = COLUMNS[name]
    offsets = [step * i for i in range(COUNT + 1)]
    whole = path.read_bytes()
    assert whole.count(struct.pack(form, *offsets)) == 1
    offsets[row] = value
    packed = struct.pack(form, *[step * i for i in range(COUNT + 1)])
    path.write_bytes(whole.replace(packed, struct.pack(form, *offsets)))


@pytest.mark.parametrize("name", COLUMNS)
@pytest.mark.parametrize("value", [1 << 30, 1 << 20, 500, -5, -(1 << 31), 1])
def test_offsets_that_lie(tmp_path, name, value):
    path = saved(tmp_path / "d")
    damage(path, name, 4, value)
    with pytest.raises(errors.DatasetError) as caught:
        ht.HFDataset(datasets.load_from_disk(str(tmp_path / "d")))
    assert f"column {name!r}, row 3 of the table: the file {path} is damaged" in str(caught.value)
    assert "copy it once more" in str(caught.value)


@pytest.mark.parametrize("name", COLUMNS)
def test_damage_outside_of_what_is_selected(tmp_path, name):
    """Rows before it are right, and are delivered."""
    path = saved(tmp_path / "d")
    wanted = datasets.load_from_disk(str(tmp_path / "d"), keep_in_memory=True)
    damage(path, name, 8, 1 << 30)
    data = ht.HFDataset(datasets.load_from_disk(str(tmp_path / "d")).select(range(6)))
    assert [data[i] for i in range(6)] == [wanted[i] for i in range(6)]


def test_rows_that_are_none(tmp_path):
    """Of a selection whose file of indices is damaged."""
    saved(tmp_path / "d")
    path = tmp_path / "indices.arrow"
    chosen = [3, 1, 4, 1, 5]
    data = datasets.load_from_disk(str(tmp_path / "d"))
    selected = data.select(chosen, indices_cache_file_name=str(path))
    assert len(ht.HFDataset(selected)) == 5
    whole = path.read_bytes()
    packed = struct.pack("<5Q", *chosen)
    assert whole.count(packed) == 1
    with open(path, "r+b") as file:  # in place, as the file is mapped
        file.seek(whole.index(packed) + 16)
        file.write(struct.pack("<Q", 1 << 40))
    with pytest.raises(errors.DatasetError, match=r"row 2: the file .*indices\.arrow .* of 9"):
        ht.HFDataset(selected)


@pytest.mark.parametrize("kind", [None, "numpy"])
def test_texts_that_are_not_utf8(tmp_path, kind):
    """They are not all looked at: a row that has one is an error when it is read."""
    path = saved(tmp_path / "d")
    whole = path.read_bytes()
    at = whole.index(b"a text!" * COUNT) + 2 * 7
    path.write_bytes(whole[:at] + b"\xff" + whole[at + 1 :])
    loaded = datasets.load_from_disk(str(tmp_path / "d")).with_format(kind)
    data = ht.HFDataset(loaded.select_columns(["raw", "text"]))
    assert data[1]["text"] == "a text!"
    with pytest.raises(errors.SampleError, match=r"'text', row 2 of the table: the file .*UTF|utf"):
        data[2]
    with (
        ht.DataLoader(data, 4, num_workers=0) as loader,
        pytest.raises(errors.SampleError, match="'text', row 2 of the table: the file"),
    ):
        list(loader)


def validated(path):
    """Reports whether pyarrow reads the file, and finds what its offsets say within it."""
    try:
        with pyarrow.memory_map(str(path)) as file:
            pyarrow.ipc.open_stream(file).read_all().validate(full=True)
    except (pyarrow.ArrowException, OSError):
        return False
    return True


def test_any_byte(tmp_path):
    """Whatever a byte is: an error of HDMLP's or of datasets', or the rows that it reads."""
    path = saved(tmp_path / "d")
    whole, generator = path.read_bytes(), random.Random(5)
    right = refused = 0
    for _ in range(250):
        at = generator.randrange(len(whole))
        value = generator.choice([0, 1, 0x7F, 0x80, 0xFF, whole[at] ^ 1 << generator.randrange(8)])
        path.write_bytes(whole[:at] + bytes([value]) + whole[at + 1 :])
        try:
            loaded = datasets.load_from_disk(str(tmp_path / "d"))
        except Exception:  # of datasets or pyarrow, before HDMLP has anything
            continue
        try:
            data = ht.HFDataset(loaded)
            found = [data[i] for i in range(len(data))]
        except errors.HDMLPError:
            assert not validated(path)
            refused += 1
            continue
        assert found == [loaded[i] for i in range(len(loaded))]
        right += 1
    assert right > 20
    assert refused > 20


IMAGES = datasets.Features(
    {"image": datasets.Image(), "label": datasets.ClassLabel(names=["no", "yes"])}
)

#: The lengths of the structure and of its first field, each with how many nulls it has.
NODES = struct.pack("<4q", 4, 0, 4, 0)


def images(root):
    """Saves rows whose column of images is a structure; returns the only file."""
    made = {"image": [{"bytes": image(i), "path": None} for i in range(4)], "label": [0, 1, 1, 0]}
    datasets.Dataset.from_dict(made, features=IMAGES).save_to_disk(str(root))
    return root / "data-00000-of-00001.arrow"


def plain(row):
    return {**row, "image": (row["image"].mode, row["image"].tobytes())}


def outcome(root):
    """Returns an exit code: 0: rows as of datasets, or its error; 1: an error with the file."""
    try:
        loaded = datasets.load_from_disk(str(root))
    except Exception:  # of datasets or pyarrow, before HDMLP has anything
        return 0
    try:
        data = ht.HFDataset(loaded)
        found = [plain(data[i]) for i in range(len(data))]
    except errors.HDMLPError as error:
        return 1 if f"{root}/data-00000-of-00001.arrow" in str(error) else 2
    return 0 if found == [plain(loaded[i]) for i in range(len(loaded))] else 3


def test_structures_whose_fields_lie(tmp_path):
    """Of lengths that lie, pyarrow aborts the process: each byte has a process of its own."""
    path = images(tmp_path / "d")
    whole, found = path.read_bytes(), []
    begin = whole.index(NODES)
    numbers = range(begin - 160, begin + 64, 8)  # where buffers lie, and how long arrays are
    for at in (byte for number in numbers for byte in (number, number + 7)):
        path.write_bytes(whole[:at] + b"\xff" + whole[at + 1 :])
        pid = os.fork()
        if not pid:
            code = 4
            try:
                code = outcome(tmp_path / "d")
            finally:
                os._exit(code)
        status = os.waitpid(pid, 0)[1]
        assert os.WIFEXITED(status), (at, status)
        found.append(os.WEXITSTATUS(status))
        assert found[-1] < 2, at
    assert found.count(1) > 5


@pytest.mark.parametrize("length", [-1, -(1 << 56), 0, 3])
def test_fields_that_are_shorter(tmp_path, length):
    path = images(tmp_path / "d")
    whole = path.read_bytes()
    at = whole.index(NODES)
    path.write_bytes(whole[: at + 16] + struct.pack("<q", length) + whole[at + 24 :])
    with pytest.raises(errors.DatasetError, match=rf"'image', row 0 .* the file {path} is damaged"):
        ht.HFDataset(datasets.load_from_disk(str(tmp_path / "d")))


def test_offsets_whose_buffer_has_more_bytes(tmp_path):
    """Its size is no multiple of theirs; what they say is right."""
    path = images(tmp_path / "d")
    wanted = [plain(row) for row in datasets.load_from_disk(str(tmp_path / "d"))]
    whole = path.read_bytes()
    where = struct.pack("<3q", 0, 20, 24)  # five offsets, and after them the next buffer
    assert whole.count(where) == 1
    path.write_bytes(whole.replace(where, struct.pack("<3q", 0, 21, 24)))
    data = ht.HFDataset(datasets.load_from_disk(str(tmp_path / "d")))
    assert [plain(data[i]) for i in range(4)] == wanted
