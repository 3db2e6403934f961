"""`hdmlp.pack`: datasets become shards that Python's tarfile reads as their items were."""

import io
import json
import os
import subprocess
import sys

import hdmlp
import pytest
import shards
from hdmlp import data as plain
from hdmlp.errors import ConfigError
from test_pack import contents, folder_of, kill, pack, packed


def found(directory):
    return shards.read(packed(directory))


def files_of(tmp_path, count=9):
    """Pairs of files, whose contents are their names, several times."""
    pairs = []
    for i in range(count):
        pair = tmp_path / "files" / f"{i:02d}.jpg", tmp_path / "files" / f"{i:02d}_m.png"
        for path in pair:
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(path.name.encode() * (i + 1))
        pairs.append(tuple(map(str, pair)))
    return pairs


def test_files_keep_their_extensions_and_labels(tmp_path):
    pairs = files_of(tmp_path)
    images = [image for image, _ in pairs]
    labels = ["cat", "dog", "ant"] * 3
    written = hdmlp.pack(plain.Files(images, labels), tmp_path / "out")
    assert written == [str(path) for path in packed(tmp_path / "out")]
    assert found(tmp_path / "out") == [
        (
            f"{i:02d}",
            {"jpg": b"%02d.jpg" % i * (i + 1), "cls": b"%d" % ["ant", "cat", "dog"].index(label)},
        )
        for i, label in enumerate(labels)
    ]
    assert json.loads((tmp_path / "out" / "classes.json").read_text()) == ["ant", "cat", "dog"]


def test_tuples_and_dicts_of_files_become_several_fields(tmp_path):
    pairs = files_of(tmp_path)
    hdmlp.pack(plain.Files(pairs, [0.5] * 9), tmp_path / "tuples")
    dicts = [{"Image": image, "mask": mask} for image, mask in pairs]
    hdmlp.pack(plain.Files(dicts), tmp_path / "dicts")
    for directory, names in (("tuples", ("jpg", "png")), ("dicts", ("image.jpg", "mask.png"))):
        samples = found(tmp_path / directory)
        assert len(samples) == 9
        for (key, fields), pair in zip(samples, pairs):
            assert key == os.path.basename(pair[0])[:-4]
            for name, path in zip(names, pair):
                with open(path, "rb") as file:
                    assert fields[name] == file.read()
    assert found(tmp_path / "tuples")[0][1]["label.json"] == b"0.5"


def test_the_same_extension_twice_needs_names(tmp_path):
    masks = [(mask, mask) for _, mask in files_of(tmp_path)]
    dataset = plain.Files(masks)
    with pytest.raises(
        ConfigError, match="record 0: its fields would be called png, png: give each a"
    ):
        hdmlp.pack(dataset, tmp_path / "out")
    hdmlp.pack(dataset, tmp_path / "named", fields=("png", "seg.png"))
    assert list(found(tmp_path / "named")[0][1]) == ["png", "seg.png"]


def test_records_are_packed_with_their_values(tmp_path):
    (tmp_path / "all").write_bytes(b"aabbbcccc")
    dataset = plain.Records(
        [str(tmp_path / "all")],
        {"bin": ([0, 0, 0], [0, 2, 5], [2, 3, 4])},
        {"caption": ["one", "zwei \u00fc", "3"], "box": [[1, 2], [], [3]]},
        keys=["x/1.a", "x/1.b", "../\n3"],
    )
    hdmlp.pack(dataset, tmp_path / "out")
    assert found(tmp_path / "out") == [
        ("x/1_a", {"bin": b"aa", "caption.txt": b"one", "box.json": b"[1, 2]"}),
        ("x/1_b", {"bin": b"bbb", "caption.txt": "zwei \u00fc".encode(), "box.json": b"[]"}),
        ("%0a3", {"bin": b"cccc", "caption.txt": b"3", "box.json": b"[3]"}),
    ]


def test_shards_are_packed_as_they_are(real, tmp_path):
    samples = shards.make(tmp_path / "shards", (30, 40))
    pattern = str(tmp_path / "shards" / "*.tar")
    hdmlp.pack(plain.WebDataset(pattern), tmp_path / "out", shard_size=20_000)
    assert len(packed(tmp_path / "out")) > 2
    assert found(tmp_path / "out") == samples
    hdmlp.pack(plain.WebDataset(pattern, fields=("bin",)), tmp_path / "some")
    assert found(tmp_path / "some") == [(key, {"bin": f["bin"]}) for key, f in samples]


def test_the_command_writes_the_same_members(real, tmp_path):
    """A folder packed by the command, and its files by the function."""
    data = folder_of(tmp_path / "data", 40)
    pack(data, tmp_path / "command")
    paths = sorted(str(path) for path in data.glob("*/*.jpg"))
    labels = [os.path.basename(os.path.dirname(path)) for path in paths]
    hdmlp.pack(plain.Files(paths, labels), tmp_path / "function")
    assert found(tmp_path / "command") == found(tmp_path / "function")
    (one,), (two,) = packed(tmp_path / "command"), packed(tmp_path / "function")
    assert one.stat().st_size == two.stat().st_size


class Own:
    """A dataset of dicts, tuples or bytes."""

    def __init__(self, items, stops=None):
        self.items, self.stops = items, stops

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        if i == self.stops:
            raise KeyboardInterrupt
        return self.items[i]


def test_items_of_own_datasets_are_fields(tmp_path):
    items = [
        {"__key__": "a/1.x", "jpg": b"1", "cls": 7, "txt": "t\u00e9", "json": {"n": [1]}},
        {"__key__": "a/2", "jpg": memoryview(b"2"), "cls": None, "txt": "", "json": 3},
    ]
    hdmlp.pack(Own(items), tmp_path / "dicts")
    assert found(tmp_path / "dicts") == [
        ("a/1_x", {"jpg": b"1", "cls": b"7", "txt": "t\u00e9".encode(), "json": b'{"n": [1]}'}),
        ("a/2", {"jpg": b"2", "txt": b"", "json": b"3"}),
    ]
    hdmlp.pack(Own([(b"a", 1), (b"b", 2)]), tmp_path / "tuples", fields=("bin", "cls"))
    assert found(tmp_path / "tuples") == [
        ("000000000", {"bin": b"a", "cls": b"1"}),
        ("000000001", {"bin": b"b", "cls": b"2"}),
    ]
    hdmlp.pack(Own([b"a"]), tmp_path / "one", fields=("bin",))
    assert found(tmp_path / "one") == [("000000000", {"bin": b"a"})]


def test_a_key_that_is_there_twice_in_a_shard_stays_two_samples(tmp_path):
    hdmlp.pack(Own([{"__key__": "k", "bin": b"%d" % i} for i in range(3)]), tmp_path / "out")
    assert found(tmp_path / "out") == [
        ("k", {"bin": b"0"}),
        ("k-1", {"bin": b"1"}),
        ("k-2", {"bin": b"2"}),
    ]


def test_subsets_give_the_order(tmp_path):
    torch = pytest.importorskip("torch.utils.data")
    dataset = plain.Files([image for image, _ in files_of(tmp_path)])
    part = torch.Subset(torch.Subset(dataset, [8, 1, 5, 2]), [3, 0, 1])
    hdmlp.pack(part, tmp_path / "out")
    assert [key for key, _ in found(tmp_path / "out")] == ["02", "08", "01"]


def test_what_is_no_bytes_is_refused_with_what_to_do(tmp_path):
    images = pytest.importorskip("PIL.Image")
    for items, options, says in (
        ([{"jpg": images.new("RGB", (2, 2))}], {}, "'jpg' is a PIL.Image.Image, and shards hold"),
        ([{"cls": 1.5}], {}, "'cls' is a builtins.float, and shards hold bytes"),
        ([{"json": io.BytesIO()}], {}, "'json': Object of type BytesIO is not JSON"),
        ([b"x"], {}, r"item 0 has 1 values: give their names, such as fields=\('jpg',\)"),
        ([(b"x", 1)], {"fields": ("bin",)}, "item 0 has 2 values"),
        ([{"bin": b"x"}], {"fields": ("jpg",)}, r"item 0 has no 'jpg'; it has \['bin'\]"),
        ([{"jpg;png": b"x"}], {}, "the field 'jpg;png' cannot be called so in a shard"),
        ([{"__key__": "x"}], {}, "item 0 has no fields"),
        ([], {}, "the dataset is empty"),
        ([b"x"], {"fields": ("bin",), "shard_size": 0}, "shard_size=0: must be at least 1"),
        ([b"x"], {"fields": ("bin",), "shards": "x.tar"}, "must be a file's name with one number"),
        ([b"x"], {"fields": ("b/n",)}, "the field 'b/n' cannot be called so"),
    ):
        with pytest.raises(ConfigError, match=says):
            hdmlp.pack(Own(items), tmp_path / "out", **options)
    with pytest.raises(ConfigError, match="generator has no length: give a map-style dataset"):
        hdmlp.pack((x for x in ()), tmp_path / "out")
    assert not (tmp_path / "out").exists() or not packed(tmp_path / "out")


def test_nothing_else_is_overwritten(tmp_path):
    dataset, out = Own([{"bin": b"1" * 100} for _ in range(9)]), tmp_path / "out"
    out.mkdir()
    (out / "mine").write_bytes(b"mine")
    with pytest.raises(ConfigError, match="the directory is not empty"):
        hdmlp.pack(dataset, out)
    assert contents(out) == {"mine": b"mine"}
    (out / "mine").unlink()
    hdmlp.pack(dataset, out, shard_size=5000)
    with pytest.raises(ConfigError, match="the shards of another dataset, or of the same one with"):
        hdmlp.pack(dataset, out, shard_size=6000)
    before = contents(out)
    assert hdmlp.pack(dataset, out, shard_size=5000) == [str(path) for path in packed(out)]
    assert contents(out) == before
    (out / "000001.tar").write_bytes(b"mine")
    with pytest.raises(
        ConfigError, match=r"000001\.tar was removed or changed since it was written"
    ):
        hdmlp.pack(dataset, out, shard_size=5000)
    assert (out / "000001.tar").read_bytes() == b"mine"


def test_a_shard_that_another_program_wrote_is_named(tmp_path):
    dataset, out = Own([{"bin": b"1" * 100} for _ in range(9)], stops=5), tmp_path / "out"
    with pytest.raises(KeyboardInterrupt):
        hdmlp.pack(dataset, out, shard_size=4000)
    (out / "000002.tar").write_bytes(b"mine")
    dataset.stops = None
    with pytest.raises(ConfigError, match=r"000002\.tar is there already"):
        hdmlp.pack(dataset, out, shard_size=4000)
    assert (out / "000002.tar").read_bytes() == b"mine"


SCRIPT = """
import sys, hdmlp
class Own:
    def __len__(self): return 60
    def __getitem__(self, i): return {"bin": b"%04d" % i * (300 + i), "cls": i % 3}
hdmlp.pack(Own(), sys.argv[1], shard_size=8000)
"""


def script(out):
    return subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(out)], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


@pytest.mark.slow
def test_a_killed_call_goes_on_with_the_same_bytes(tmp_path):
    assert script(tmp_path / "whole").wait(60) == 0
    whole, out = contents(tmp_path / "whole"), tmp_path / "out"
    for lines in (1, 4, 9):
        kill(script(out), out / ".hdmlp-pack", lines)
        assert all(file.read_bytes() == whole[file.name] for file in packed(out))
    process = script(out)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    assert contents(out) == whole


def test_an_item_that_changed_since_is_noticed(tmp_path):
    items = [{"bin": b"1" * 3000} for _ in range(9)]
    hdmlp.pack(Own(items), tmp_path / "out", shard_size=6000)
    journal = tmp_path / "out" / ".hdmlp-pack"
    lines = journal.read_bytes().splitlines(True)
    journal.write_bytes(b"".join(lines[:4]))
    for path in packed(tmp_path / "out")[3:]:
        path.unlink()
    items[2] = {"bin": b"2" * 3000}
    with pytest.raises(ConfigError, match="item 2 is not the one that an earlier run packed"):
        hdmlp.pack(Own(items), tmp_path / "out", shard_size=6000)
