"""Parquet files. The oracle is pyarrow."""

import io
import json
import logging
import os
import random

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torchvision")
pyarrow = pytest.importorskip("pyarrow")

import hdmlp.torch as ht
import pyarrow.parquet as pq
from hdmlp import errors
from hdmlp._records import thrift
from recordfiles import equal, image
from torch.utils.data import DataLoader, DistributedSampler
from torchvision import transforms

pytestmark = pytest.mark.usefixtures("real", "spawns_preloaded")

COUNT = 41
TENSOR = transforms.Compose([transforms.CenterCrop(8), transforms.ToTensor()])
#: As datasets writes images from 5 on.
PLAIN = {"compression": "NONE", "use_dictionary": False}
FEATURES = {"info": {"features": {"image": {"_type": "Image"}, "label": {"_type": "Value"}}}}


def table(count=COUNT, nulls=False):
    """Rows as Hugging Face's: a structure of bytes and path, texts, bytes, numbers and lists."""
    images = [{"bytes": image(i, (10 + i % 5, 9)), "path": f"{i}.png"} for i in range(count)]
    made = pyarrow.table(
        {
            "image": images,
            "label": list(range(count)),
            "text": [None if nulls and i % 3 == 1 else "ä" * (i % 7) for i in range(count)],
            "raw": pyarrow.array([bytes(range(i)) for i in range(count)], pyarrow.binary()),
            "score": [i / 3 for i in range(count)],
            "list": [[i, i + 1] for i in range(count)],
        }
    )
    return made.replace_schema_metadata({"huggingface": json.dumps(FEATURES)})


def rows(path):
    """What pyarrow reads, with images as their bytes."""
    return [{**row, "image": row["image"]["bytes"]} for row in pq.read_table(path).to_pylist()]


RAW = {"image": bytes, "raw": bytes}


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("nulls", [False, True])
@pytest.mark.parametrize("group", [7, 1000])
@pytest.mark.parametrize("page", [1, 1 << 20])
def test_rows_are_pyarrows(tmp_path, version, nulls, group, page):
    path = tmp_path / "a.parquet"
    pq.write_table(
        table(nulls=nulls),
        path,
        data_page_version=version,
        row_group_size=group,
        data_page_size=page,
        write_batch_size=3,
        write_page_index=True,
        **PLAIN,
    )
    data = ht.Parquet(path, loader=RAW)
    assert data.fields == ("image", "text", "raw")
    wanted = rows(path)
    assert [data[i] for i in range(COUNT)] == wanted
    with ht.DataLoader(data, 6) as loader:
        found = list(loader)
    assert equal(found, list(DataLoader(wanted, 6, collate_fn=by_column)))


def by_column(items):
    """Numbers become tensors, and others stay lists."""
    columns = {name: [item[name] for item in items] for name in items[0]}
    columns["list"] = [torch.tensor(own) for own in zip(*columns["list"])]
    for name in ("label", "score"):
        columns[name] = torch.utils.data.default_collate(columns[name])
    return columns


def test_bytes_that_are_decimals(tmp_path):
    """Parquet stores them as bytes as well, which they are not."""
    from decimal import Decimal

    path = tmp_path / "a.parquet"
    numbers = pyarrow.array([Decimal(i) / 4 for i in range(5)], pyarrow.decimal128(9, 2))
    made = pyarrow.table({"raw": [b"a"] * 5, "n": numbers, "json": ["{}"] * 5})
    pq.write_table(made, path, store_decimal_as_integer=False, **PLAIN)
    data = ht.Parquet(path)
    assert data.fields == ("raw", "json")
    assert data[3] == {"raw": b"a", "n": Decimal("0.75"), "json": "{}"}


@pytest.mark.parametrize("context, rank", [(None, 0), (None, 1), ("fork", 0), ("spawn", 1)])
def test_images_are_the_daemons(tmp_path, rank, context):
    """Of several files, in DistributedSampler's order; with workers, a part runs in Python."""
    from PIL import Image

    paths = [tmp_path / "a.parquet", tmp_path / "b.parquet"]
    for path, count in zip(paths, (COUNT, 5)):
        pq.write_table(table(count), path, **PLAIN)
    steps = TENSOR if context is None else transforms.Compose([TENSOR, torch.neg])
    ours = ht.Parquet(paths, columns=["label", "image"], transform={"image": steps})
    theirs = [
        {
            "label": row["label"],
            "image": steps(Image.open(io.BytesIO(row["image"])).convert("RGB")),
        }
        for path in paths
        for row in rows(path)
    ]
    samplers = [DistributedSampler(d, 2, rank, seed=3) for d in (theirs, ours)]
    options = {} if context is None else {"num_workers": 2, "multiprocessing_context": context}
    with ht.DataLoader(ours, 4, sampler=samplers[1], **options) as loader:
        for epoch in range(2):
            for sampler in samplers:
                sampler.set_epoch(epoch)
            assert equal(list(loader), list(DataLoader(theirs, 4, sampler=samplers[0])))
        assert (loader._content.making.recipe is None) == (context is None)


def test_the_order_and_forms_of_rows(tmp_path):
    path = tmp_path / "a.parquet"
    pq.write_table(table(), path, **PLAIN)
    data = ht.Parquet(path)
    assert list(data[0]) == ["image", "label", "text", "raw", "score", "list"]
    assert data[3]["image"].mode == "RGB"
    assert data[3]["text"] == "äää"
    assert data[3]["raw"] == bytes(range(3))
    joint = ht.Parquet(path, columns=["label", "raw"], transforms=lambda row: row["label"] * 2)
    with ht.DataLoader(joint, 4) as loader:
        assert torch.cat(list(loader)).tolist() == list(range(0, 2 * COUNT, 2))


def test_resuming(tmp_path):
    path = tmp_path / "a.parquet"
    pq.write_table(table(), path, **PLAIN)

    def loader():
        data = ht.Parquet(path, columns=["label", "text"])
        return ht.DataLoader(data, 4, shuffle=True, seed=2)

    with loader() as whole:
        wanted = list(whole)
    with loader() as first:
        iterator = iter(first)
        found = [next(iterator) for _ in range(3)]
        state = first.state_dict()
    with loader() as second:
        second.load_state_dict(state)
        assert equal(found + list(second), wanted)


@pytest.mark.parametrize(
    "options, why",
    [
        ({"compression": "snappy", "use_dictionary": False}, "image: it is compressed"),
        ({"compression": "NONE"}, "image: it has a dictionary"),
    ],
)
@pytest.mark.parametrize("workers", [0, 2])
def test_pyarrow_reads_the_others(tmp_path, caplog, options, why, workers):
    path = tmp_path / "a.parquet"
    pq.write_table(table(nulls=True), path, row_group_size=6, **options)
    with caplog.at_level(logging.WARNING, "hdmlp"):
        data = ht.Parquet(path, loader={"image": bytes}, transforms=dict)
    assert [r.getMessage() for r in caplog.records if why in r.getMessage()]
    assert [data[i] for i in range(COUNT)] == rows(path)
    with ht.DataLoader(data, 6, num_workers=workers, collate_fn=list) as loader:
        assert [row for batch in loader for row in batch] == rows(path)
    pictures = ht.Parquet(path, columns=["image"], transform={"image": TENSOR})
    assert pictures[2]["image"].shape == (3, 8, 8)


def test_compressed_texts_are_read_once(tmp_path, caplog):
    path = tmp_path / "a.parquet"
    texts = {"text": "snappy", "image.bytes": "NONE", "raw": "NONE"}
    pq.write_table(table(), path, compression=texts, use_dictionary=False)
    with caplog.at_level(logging.WARNING, "hdmlp"):
        data = ht.Parquet(path, loader=RAW)
    assert "Parquet: text, list: read by pyarrow" in caplog.text
    assert data.fields == ("image", "raw")
    assert [data[i] for i in range(COUNT)] == rows(path)


def refused(match, *args, **options):
    with pytest.raises(errors.ConfigError, match=match):
        ht.Parquet(*args, **options)


def test_what_is_refused(tmp_path):
    path, other = tmp_path / "a.parquet", tmp_path / "b.parquet"
    pq.write_table(table(), path, **PLAIN)
    pq.write_table(table().drop_columns(["score"]), other, **PLAIN)
    refused("there is no 'x'; there are image, label", path, columns=["x"])
    refused("need at least one", path, columns=[])
    refused(r"b\.parquet: it has no column 'score', which .*a\.parquet has", [path, other])
    refused(r"a\.parquet: it has a column 'score', which .*b\.parquet has not", [other, path])
    refused("columns: 'text' is given twice", path, columns=["text", "raw", "text"])
    refused("must be a list of names, such as", path, columns="text")
    double = pyarrow.table([[b"a"], [b"b"]], names=["raw", "raw"])
    pq.write_table(double, other, **PLAIN)
    refused(r"b\.parquet: it has two columns of the name 'raw'", other)
    refused("no such file", tmp_path / "c.parquet")
    refused("not at URLs", "s3://bucket/a.parquet")
    pq.write_table(table(0), other, **PLAIN)
    refused("there are no rows", other)
    nulls = pyarrow.table({"raw": [b"a", None]})
    pq.write_table(nulls, other, **PLAIN)
    refused(f"{other}: row 1 is null in raw", other)
    three = pyarrow.table({"raw": [b"a", b"b", b"c"]})
    pq.write_table(three, path, **PLAIN)
    refused(f"{other}: row 1 is null in raw", [path, other])
    pq.write_table(table(), path, **PLAIN)
    pq.write_table(nulls, other, compression="snappy", use_dictionary=False)
    assert ht.Parquet(other)[1] == {"raw": None}
    other.write_bytes(b"PAR1 and no more")
    refused("no Parquet file, or was cut off", other)
    other.write_bytes(b"PAR1aaaa\x08\x00\x00\x00PARE")
    refused("it is encrypted", other)
    data = ht.Parquet(path)
    pq.write_table(table(5), path, **PLAIN)
    with pytest.raises(errors.MismatchError, match="was written since this Parquet"):
        list(ht.DataLoader(data, 4))
    pq.write_table(table(), path, compression="snappy")
    data = ht.Parquet(path, columns=["label"])
    pq.write_table(table(5), path, **PLAIN)
    with pytest.raises(errors.MismatchError, match="was written since this Parquet"):
        data[0]
    os.truncate(path, 400)
    refused("no Parquet file", path)


def test_files_that_differ_in_what_rows_do_not_show(tmp_path):
    """Order of columns, nullability, compression and widths of offsets, as pyarrow's dataset."""
    import pyarrow.dataset

    paths = [tmp_path / f"{name}.parquet" for name in "abcd"]
    names = ["image", "label", "text", "raw", "list"]
    tables = [table(count).select(names) for count in (5, 3, 4, 2)]
    tables[1] = tables[1].select(names[::-1])
    whole = [pyarrow.field(f.name, f.type, nullable=False) for f in tables[2].schema]
    tables[2] = tables[2].cast(pyarrow.schema(whole))
    large = tables[3]["text"].cast(pyarrow.large_string())
    tables[3] = tables[3].set_column(2, "text", large)
    for number, (path, own) in enumerate(zip(paths, tables)):
        options = {"compression": {"text": "zstd"}} if number == 1 else {}
        pq.write_table(own, path, **{**PLAIN, **options})
    for columns in (names, ["raw", "label"], ["text", "image"], ["label", "list"]):
        data = ht.Parquet(paths, columns=columns, loader={n: RAW[n] for n in RAW if n in columns})
        read = pyarrow.dataset.dataset(list(map(str, paths)), schema=tables[0].schema)
        wanted = read.to_table(columns=columns).to_pylist()
        if "image" in columns:
            wanted = [{**row, "image": row["image"]["bytes"]} for row in wanted]
        assert [data[i] for i in range(len(data))] == wanted
        with ht.DataLoader(data, 4, collate_fn=list) as loader:
            assert [row for batch in loader for row in batch] == wanted


@pytest.mark.parametrize(
    "one, other, match",
    [
        (b"a", "a", "'x' is texts, and that of .*a.parquet bytes"),
        (b"a", 1, "'x' is int64, and that of .*a.parquet bytes"),
        ([1], 1, "'x' is int64, and that of .*a.parquet nested"),
        ([1], ["a"], "'x' is list<element: string>, and that of .*a.parquet list<element: int64>"),
        ({"bytes": b"a", "path": "a"}, b"a", "'x' is bytes, and that of .* bytes, path: texts"),
        (pyarrow.scalar(1, pyarrow.int8()), pyarrow.scalar(1, pyarrow.int16()), "int16.* int8"),
    ],
)
@pytest.mark.parametrize("more", [{}, {"raw": [b"a"]}])
def test_files_of_other_types(tmp_path, one, other, match, more):
    """With and without a column that is read in place."""
    paths = [tmp_path / "a.parquet", tmp_path / "b.parquet"]
    for path, value in zip(paths, (one, other)):
        column = pyarrow.array([value], getattr(value, "type", None))
        pq.write_table(pyarrow.table({"x": column, **more}), path, **PLAIN)
    refused(rf"b\.parquet: its column .*{match}", paths)


def readable(path):
    """Reports whether HDMLP opens the file; what it has of rows is then within the file."""
    try:
        data = ht.Parquet(path, columns=["raw", "text"], loader={"raw": bytes})
    except errors.ConfigError:
        return False
    size = os.path.getsize(path)
    if isinstance(data, torch.utils.data.Dataset) and hasattr(data, "_ranges"):
        for own in data._ranges:
            assert all(at >= 0 and at + n <= size for at, n in zip(own.offsets, own.lengths))
    return True


@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_damaged_files(tmp_path, version):
    """Whatever a byte of the footer or of a page is: an error, or ranges of the file."""
    path = tmp_path / "a.parquet"
    small = table(9, nulls=True).select(["raw", "text"])
    pq.write_table(small, path, data_page_version=version, row_group_size=5, **PLAIN)
    whole = path.read_bytes()
    generator = random.Random(4)
    opened = 0
    for at in range(len(whole)):
        value = generator.choice([0, 0x7F, 0x80, 0xFF, whole[at] ^ 1, whole[at] ^ 0x10])
        path.write_bytes(whole[:at] + bytes([value]) + whole[at + 1 :])
        opened += readable(path)
    assert 0 < opened < len(whole)
    for end in range(0, len(whole) - 1, 11):
        path.write_bytes(whole[:end])
        assert not readable(path)
    for _ in range(300):
        noise = generator.randbytes(generator.randrange(200))
        path.write_bytes(b"PAR1" + noise + len(noise).to_bytes(4, "little") + b"PAR1")
        readable(path)


def rows_or_error(path):
    try:
        data = ht.Parquet(path)
        return [data[i] for i in range(len(data))]
    except (errors.ConfigError, errors.SampleError) as error:
        return error


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"use_dictionary": False, "compression": {"raw": "NONE", "text": "snappy"}},
        {"use_dictionary": False, "compression": "NONE", "write_page_checksum": True},
    ],
)
def test_any_byte(tmp_path, options):
    """Whatever a byte is: rows as pyarrow's, or an error of HDMLP's that names the file."""
    path = tmp_path / "a.parquet"
    small = table(9, nulls=True).select(["raw", "text", "label", "list"])
    pq.write_table(small, path, row_group_size=5, **options)
    whole, generator = path.read_bytes(), random.Random(6)
    right = refused = 0
    for turn in range(150):
        at = generator.randrange(len(whole))
        value = generator.choice([0, 0x7F, 0x80, 0xFF, whole[at] ^ 1 << generator.randrange(8)])
        damaged = whole[:at] + (b"" if turn % 8 == 0 else bytes([value]) + whole[at + 1 :])
        path.write_bytes(damaged)
        found = rows_or_error(path)
        if isinstance(found, errors.HDMLPError):
            assert str(path) in str(found)
            refused += 1
            continue
        try:
            wanted = pq.read_table(path).to_pylist()
        except (OSError, pyarrow.ArrowException, UnicodeDecodeError):
            continue  # of what HDMLP does not read, as statistics
        assert found == wanted
        right += 1
    assert right > 20
    assert refused > 20


def test_structures_that_lie():
    """Memory and depth are bounded by the bytes."""
    for data, kind in {
        b"\x1c" * 100: thrift.Damaged,
        b"\x19" + b"\xf9" * 100: (thrift.Damaged, thrift.Cut),
        b"\x19\xfc\xff\xff\xff\xff\x0f": thrift.Cut,
        b"\x18\xff\xff\xff\xff\xff\xff\x01a": thrift.Cut,
        b"\x16" + b"\xff" * 11: thrift.Damaged,
        b"\x1b\x01": thrift.Damaged,
        b"": thrift.Cut,
    }.items():
        with pytest.raises(kind):
            thrift.struct(data)


def test_texts_that_are_not_utf8(tmp_path):
    """Of texts that lie in the file as they are: as of any sample that cannot be decoded."""
    path = tmp_path / "a.parquet"
    texts = [f"text {i}" for i in range(8)]
    pq.write_table(pyarrow.table({"text": texts}), path, write_statistics=False, **PLAIN)
    whole = path.read_bytes()
    assert whole.count(b"text 5") == 1
    path.write_bytes(whole.replace(b"text 5", b"text \xff"))
    data = ht.Parquet(path)
    match = rf"5 \({path}\b.*field text: UnicodeDecodeError"
    with pytest.raises(errors.SampleError, match=match):
        data[5]
    with ht.DataLoader(data, 4) as loader, pytest.raises(errors.SampleError, match=match):
        list(loader)
    with ht.DataLoader(data, 4, on_error="skip") as loader:
        found = [row for batch in loader for row in batch["text"]]
    assert found == texts[:5] + texts[6:]
