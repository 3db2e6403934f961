"""webdataset's methods: decode, to_tuple, rename, map, map_tuple. The oracle is their definition.

What they yield was compared with webdataset 1.0.2 on the same shards.
"""

import gzip
import io
import os

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torchvision")

import hdmlp.torch as ht
import numpy
from hdmlp import errors
from recordfiles import image
from test_webdataset import archive

pytestmark = pytest.mark.usefixtures("real")


def of(tmp_path, *members):
    archive(tmp_path / "x.tar", members)
    return ht.WebDataset(tmp_path / "x.tar")


def both(data, **options):
    """The items, by index and from a loader, which must be equal."""
    items = [data[i] for i in range(len(data))]
    with ht.DataLoader(data, 2, collate_fn=list, num_workers=0, **options) as loader:
        assert [item for batch in loader for item in batch] == items
    return items


@pytest.mark.parametrize(
    "value, message",
    [
        (None, ""),
        (b"", "invalid literal"),
        (b"cat", "invalid literal"),
        (b"3.0", "invalid literal"),
        ("٣".encode(), "invalid literal"),
        (b"0" * 70 + b"5", ""),
    ],
)
def test_a_class_is_its_number_whatever_other_samples_have(tmp_path, value, message):
    """As ``decode`` reads it, and not the number of the text among all texts."""
    other = [] if value is None else [("b.cls", value)]
    data = of(tmp_path, ("a.cls", b"7"), ("a.txt", b"x"), *other, ("b.txt", b"y"), ("c.cls", b"9"))
    decoded = data.decode()
    assert [decoded[0]["cls"], decoded[2]["cls"]] == [7, 9]
    if message:
        with pytest.raises(Exception, match=f"field cls: ValueError: {message}"):
            decoded[1]
    else:
        assert decoded[1].get("cls") == (5 if value else None)
        assert [item.get("cls") for item in both(decoded)] == [7, 5 if value else None, 9]


def test_targets_are_what_the_fields_say(tmp_path):
    assert of(tmp_path, ("a.cls", b"7"), ("b.txt", b"y"), ("c.cls", b"9")).targets == [7, None, 9]
    texts = of(tmp_path, ("a.cls", b"dog"), ("b.txt", b"y"), ("c.cls", b"10"), ("d.cls", b""))
    assert texts.targets == ["dog", None, "10", ""]
    with pytest.raises(AttributeError, match="its cls has 65 bytes, and targets at most 64"):
        of(tmp_path, ("a.cls", b"0" * 65)).targets  # noqa: B018
    with pytest.raises(AttributeError, match="the samples have no field 'cls'"):
        of(tmp_path, ("a.txt", b"7")).targets  # noqa: B018


def test_map_tuple_leaves_the_members_that_it_has_no_function_for(tmp_path):
    data = of(tmp_path, ("a.cls", b"7"), ("a.txt", b"x"), ("a.id", b"5")).decode()
    tuples = data.map(lambda item: (item["cls"], item["txt"], item["id"]))
    assert both(tuples.map_tuple(lambda n: n + 1)) == [(8, "x", 5)]
    assert both(tuples.map_tuple(None, str.upper, None, None)) == [(7, "X", 5)]
    with pytest.raises(TypeError, match="the item is no tuple, but a dict"):
        data.map_tuple(str)[0]

    def identity(n):  # webdataset's own one is left out
        return n + 100

    assert both(data.to_tuple("cls", "txt").map_tuple(identity)) == [(107, "x")]


def test_map_must_return_something(tmp_path):
    data = of(tmp_path, ("a.cls", b"7")).map(lambda item: None)
    with pytest.raises(errors.ConfigError, match="for which webdataset leaves the sample out"):
        data[0]


def test_rename(tmp_path):
    data = of(tmp_path, ("a.txt", b"x"), ("a.id", b"5"), ("a.cls", b"7"))
    assert sorted(data.rename(y="txt;id")[0]) == ["__key__", "__url__", "cls", "y"]
    assert data.rename(y=["none", "id"], keep=False)[0] == {"y": b"5"}
    assert data.rename(txt="cls", cls="txt")[0]["txt"] == b"7"


def test_decode_must_come_before_what_changes_items(tmp_path):
    data = of(tmp_path, ("a.txt", b"1"))
    for changed in (data.rename(json="txt"), data.map(dict), data.map_tuple(str)):
        with pytest.raises(errors.ConfigError, match=r"^decode: .* call it before them"):
            changed.decode()


def test_to_tuple_of_what_was_renamed(tmp_path):
    """As webdataset's own scripts do; the daemon goes on with what it decodes."""
    members = [("a.png", image(1)), ("a.cls", b"7"), ("b.jpg", image(2)), ("b.cls", b"8")]
    data = of(tmp_path, *members).decode("rgb8").rename(image="png;jpg", n="cls")
    tuples = data.to_tuple("image", "n")
    assert tuples.fields == ("png;jpg", "cls")
    assert [(x.shape, n) for x, n in map(tuples.__getitem__, (0, 1))] == [
        ((9, 10, 3), 7),
        ((9, 10, 3), 8),
    ]
    assert both(data.to_tuple("n").map_tuple(str)) == [("7",), ("8",)]
    assert both(data.rename(m="n").to_tuple("m")) == [(7,), (8,)]
    assert both(data.rename(n="none;n").to_tuple("n")) == [(7,), (8,)]
    for gone in ("cls", "png"):
        with pytest.raises(errors.ConfigError, match=f"rename leaves no field '{gone}'"):
            data.to_tuple(gone)
    with pytest.raises(errors.ConfigError, match="rename leaves no field 'n'"):
        data.rename(n="n", keep=False).rename(m="n", keep=False).to_tuple("n")
    with pytest.raises(errors.DatasetError, match="the sample has none of the fields none"):
        data.rename(n="none").to_tuple("n")
    with pytest.raises(errors.ConfigError, match="call it once"):
        tuples.to_tuple("n")


def test_to_tuple_of_what_map_makes(tmp_path):
    data = of(tmp_path, ("a.cls", b"7"), ("b.cls", b"8")).decode()
    mapped = data.map(lambda item: {**item, "twice": 2 * item["cls"]})
    assert both(mapped.to_tuple("none;twice", "__key__")) == [(14, "a"), (16, "b")]
    assert both(mapped.rename(n="cls").to_tuple("n").map_tuple(str)) == [("7",), ("8",)]
    with pytest.raises(ValueError, match=r"to_tuple: no field 'none' in \['__key__'"):
        mapped.to_tuple("none")[0]
    with pytest.raises(TypeError, match="to_tuple: the item is no dict, but a list"):
        data.map(list).to_tuple("cls")[0]
    with pytest.raises(errors.ConfigError, match="call it once"):
        mapped.to_tuple("cls").to_tuple("cls")


def npz():
    file = io.BytesIO()
    numpy.savez(file, a=numpy.arange(3))
    return file.getvalue()


def test_what_decode_decodes(tmp_path):
    item = of(
        tmp_path,
        ("a.npz", npz()),
        ("a.json.gz", gzip.compress(b'{"x": 1}')),
        ("a.cls.gz", gzip.compress(b"3")),
        ("a.bin", b"raw"),
        ("a.jfif", image(1)),
        ("a.png.gz", gzip.compress(image(2))),
        ("a.gz", gzip.compress(b"y")),
        ("a.jpc", image(1)),
    ).decode("pil")[0]
    assert (item["gz"], item["jpc"].mode) == (b"y", "RGB")
    assert item["npz"]["a"].tolist() == [0, 1, 2]
    assert (item["json.gz"], item["cls.gz"], item["bin"]) == ({"x": 1}, 3, b"raw")
    assert item["jfif"].mode == item["png.gz"].mode == "RGB"
    plain = of(tmp_path, ("a.png.gz", gzip.compress(image(2)))).decode()[0]
    assert plain["png.gz"] == image(2)


@pytest.mark.parametrize("suffix", ["mp", "msg", "cbor", "ten", "tb", "pth", "pkl"])
def test_what_decode_cannot_decode_is_refused(tmp_path, suffix):
    with pytest.raises(errors.ConfigError, match=f"decode: {suffix} is "):
        of(tmp_path, (f"a.{suffix}", b"x")).decode()


def test_alternatives_that_are_decoded_in_different_ways_are_refused(tmp_path):
    data = of(tmp_path, ("a.txt", b"1"), ("b.cls", b"2"))
    with pytest.raises(errors.ConfigError, match="txt and cls of 'txt;cls' are decoded in diff"):
        data.decode().to_tuple("txt;cls")
    with pytest.raises(errors.ConfigError, match=r"'txt;cls' has alternatives .*\(txt, cls\)"):
        data.to_tuple("txt;cls").decode()
    pictures = of(tmp_path, ("a.png", image(1)), ("b.jpg", image(2))).decode("rgb8")
    assert pictures.to_tuple("jpg;png")[1][0].dtype.name == "uint8"


def test_methods_work_wherever_the_process_has_gone(tmp_path, monkeypatch):
    archive(tmp_path / "x.tar", [("a.txt", b"1"), ("a.cls", b"2")])
    monkeypatch.chdir(tmp_path)
    data = ht.WebDataset("x.tar")
    (tmp_path / "other").mkdir()
    archive(tmp_path / "other" / "x.tar", [("a.txt", b"wrong"), ("a.cls", b"3")])
    os.chdir(tmp_path / "other")
    tuples = data.to_tuple("txt")
    assert both(tuples) == [(b"1",)]
    assert tuples.key(0).endswith("x.tar")


def test_a_dict_that_map_makes_has_the_key(tmp_path):
    """webdataset gives it to each dict that a function makes of a dict."""
    data = of(tmp_path, ("a.txt", b"x"), ("b.txt", b"y"))
    made = data.map(lambda item: {"n": len(item)})
    assert both(made) == [{"n": 3, "__key__": "a"}, {"n": 3, "__key__": "b"}]
    assert both(data.map(lambda item: {"__key__": "own"})) == [{"__key__": "a"}, {"__key__": "b"}]
    assert both(data.map(lambda item: [item["__key__"]]).map(dict.fromkeys)) == [
        {"a": None},
        {"b": None},
    ]


def test_decode_of_some_fields_only(tmp_path):
    data = of(tmp_path, ("a.cls", b"7"), ("a.json", b"[]"), ("a.png", image(1)))
    for only in ("cls png", ["cls", "png", "none"]):
        item = data.decode("rgb8", only=only)[0]
        assert (item["cls"], item["json"], item["png"].shape) == (7, b"[]", (9, 10, 3))
    assert both(data.decode(only="cls").decode(only="json").to_tuple("cls", "json")) == [(7, [])]
    with pytest.raises(errors.ConfigError, match="has some of the alternatives of 'png;jpg'"):
        data.to_tuple("png;jpg").decode("pil", only="png")


def test_fields_that_webdataset_leaves_as_bytes(tmp_path):
    data = of(tmp_path, ("a.class", b"dog"), ("a.count", b"7"), ("a.html", b"<p>"))
    assert data.decode()[0]["class"] == b"dog"
    assert both(data.decode().to_tuple("class", "count", "html")) == [(b"dog", b"7", b"<p>")]


def test_a_field_that_rename_does_not_find(tmp_path):
    data = of(tmp_path, ("a.txt", b"x"))
    with pytest.raises(ValueError, match=r"rename: no field 'foo;bar' in \['__key__'"):
        data.rename(x="foo;bar")[0]
    with pytest.raises(errors.ConfigError, match="rename: x=7: must be the name of a field"):
        data.rename(x=7)


#: webdataset 1.0.2's arguments that ask for nothing.
NOTHING = {
    "mode": None,
    "resampled": False,
    "repeat": False,
    "shardshuffle": False,
    "cache_size": 0,
    "cache_dir": None,
    "detshuffle": False,
    "nodesplitter": None,
    "workersplitter": None,
    "select_files": None,
    "rename_files": None,
    "empty_check": False,
    "verbose": False,
    "seed": None,
}


def test_arguments_of_webdataset(tmp_path):
    archive(tmp_path / "x.tar", [("a.txt", b"x")])
    assert len(ht.WebDataset(tmp_path / "x.tar", **NOTHING)) == 1
    for name in (*NOTHING, "handler", "url_to_name"):
        with pytest.raises(errors.ConfigError, match=f"^{name}: (give|leave|use|iterate) "):
            ht.WebDataset(tmp_path / "x.tar", **{name: 7})


@pytest.mark.parametrize(
    "name",
    [
        *("batched", "compose", "append", "extract_keys", "listed", "lmdb_cached", "log_keys"),
        *("map_dict", "mcached", "rename_keys", "repeat", "resampled", "rsample", "select"),
        *("shuffle", "slice", "unbatched", "unlisted", "with_epoch", "with_length", "xdecode"),
    ],
)
def test_other_methods_of_webdataset_name_their_counterpart(tmp_path, name):
    with pytest.raises(errors.ConfigError, match=f"^{name}: (give|leave|use|iterate) "):
        getattr(of(tmp_path, ("a.txt", b"x")), name)(10)


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda data: data.decode(handler=print), "decode: handler: give on_error="),
        (lambda data: data.decode(pre=[print]), "decode: pre: give loader="),
        (lambda data: data.decode(partial=True), "decode: partial: leave it out"),
        (lambda data: data.to_tuple("x", missing_is_error=False), "to_tuple: missing_is_error"),
        (lambda data: data.rename(handler=print, x="txt"), "rename: handler: give on_error="),
        (lambda data: data.map(print, handler=print), "map: handler: give on_error="),
        (lambda data: data.map_tuple(print, handler=print), "map_tuple: handler: give on_error="),
        (lambda data: data.to_tuple(), "fields: the list is empty"),
    ],
)
def test_arguments_of_methods_of_webdataset(tmp_path, call, message):
    with pytest.raises(errors.ConfigError, match=message):
        call(of(tmp_path, ("a.txt", b"x")))
    with pytest.raises(TypeError, match="unexpected keyword argument 'handlers'"):
        of(tmp_path, ("a.txt", b"x")).map(print, handlers=print)


@pytest.mark.parametrize("fields", [(), [], print, 5, [1], b"txt", {"txt": 1}])
def test_fields_that_are_no_list_of_names(tmp_path, fields):
    archive(tmp_path / "x.tar", [("a.txt", b"x")])
    with pytest.raises(errors.ConfigError, match=r"^fields"):
        ht.WebDataset(tmp_path / "x.tar", fields)


@pytest.mark.parametrize("urls", [5, [5], {"datasets": []}, [None]])
def test_urls_that_are_no_paths(urls):
    with pytest.raises(errors.ConfigError, match=r"^urls=.*must be a path"):
        ht.WebDataset(urls)
