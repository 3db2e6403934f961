"""TFRecord files of tf.train.Examples, which protobuf's own library encodes here."""

import functools
import gzip
import os
import random

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torchvision")
protobuf = pytest.importorskip("google.protobuf")

import hdmlp.torch as ht
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from hdmlp import errors
from hdmlp._records import tfrecord
from recordfiles import equal, image
from torch.utils.data import DataLoader, DistributedSampler
from torchvision import transforms

pytestmark = pytest.mark.usefixtures("real", "spawns_preloaded")

COUNT = 13
TENSOR = transforms.Compose([transforms.CenterCrop(8), transforms.ToTensor()])


@functools.cache
def messages():
    """tensorflow's Example, as its .proto files define it."""
    file = descriptor_pb2.FileDescriptorProto(name="e.proto", package="t", syntax="proto3")
    field = descriptor_pb2.FieldDescriptorProto

    def message(name, *fields, of=None):
        made = (file.message_type if of is None else of).add(name=name)
        for number, (label, label_name, kind, type_name) in enumerate(fields, 1):
            made.field.add(
                name=label_name, number=number, label=label, type=kind, type_name=type_name
            )
        return made

    many, one = field.LABEL_REPEATED, field.LABEL_OPTIONAL
    message("BytesList", (many, "value", field.TYPE_BYTES, None))
    message("FloatList", (many, "value", field.TYPE_FLOAT, None))
    message("Int64List", (many, "value", field.TYPE_INT64, None))
    lists = [("bytes_list", "BytesList"), ("float_list", "FloatList"), ("int64_list", "Int64List")]
    kinds = message("Feature", *((one, n, field.TYPE_MESSAGE, f".t.{t}") for n, t in lists))
    kinds.oneof_decl.add(name="kind")
    for own in kinds.field:
        own.oneof_index = 0
    entry = (one, "key", field.TYPE_STRING, None), (one, "value", field.TYPE_MESSAGE, ".t.Feature")
    of = message("Features", (many, "feature", field.TYPE_MESSAGE, ".t.Features.FeatureEntry"))
    message("FeatureEntry", *entry, of=of.nested_type).options.map_entry = True
    message("Example", (one, "features", field.TYPE_MESSAGE, ".t.Features"))
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("t.Example"))


def example(**values):
    made = messages()()
    for name, value in values.items():
        feature = made.features.feature[name]
        listed = value if isinstance(value, list) else [value]
        kind = {bytes: "bytes_list", float: "float_list", int: "int64_list"}[type(listed[0])]
        getattr(feature, kind).value.extend(listed)
    return made.SerializeToString()


def framed(*records):
    out = b""
    for data in records:
        head = len(data).to_bytes(8, "little")
        for part in (head, data):
            out += part + tfrecord.masked(part).to_bytes(4, "little")
    return out


def rows(begin=0, count=COUNT):
    return [
        {"image": image(i), "label": i - 3, "score": i / 4, "raw": bytes(i)}
        for i in range(begin, begin + count)
    ]


def test_the_checksum_is_tensorflows():
    """Of RFC 3720's test vectors, masked."""
    for data, crc in ((bytes(32), 0x8A9136AA), (b"\xff" * 32, 0x62A8AB43), (b"", 0)):
        assert tfrecord.masked(data) == ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


@pytest.mark.parametrize("context, rank", [(None, 0), (None, 1), ("fork", 0), ("spawn", 1)])
def test_records_come_as_from_torch(tmp_path, rank, context):
    from io import BytesIO

    from PIL import Image

    paths = [tmp_path / "a", tmp_path / "b"]
    for path, begin in zip(paths, (0, COUNT)):
        path.write_bytes(framed(*(example(**row) for row in rows(begin))))
    data = ht.TFRecord(paths, "label", "raw", "image", "score")
    both = rows(0, 2 * COUNT)
    assert [data[i] for i in range(2 * COUNT)] == [
        {name: row[name] for name in ("label", "raw", "image", "score")} for row in both
    ]
    steps = TENSOR if context is None else transforms.Compose([TENSOR, torch.neg])
    ours = ht.TFRecord(paths, "image", "label", transform={"image": steps})
    theirs = [
        {"image": steps(Image.open(BytesIO(row["image"]))), "label": row["label"]} for row in both
    ]
    samplers = [DistributedSampler(d, 2, rank, seed=3) for d in (theirs, ours)]
    options = {} if context is None else {"num_workers": 2, "multiprocessing_context": context}
    with ht.DataLoader(ours, 4, sampler=samplers[1], **options) as loader:
        assert equal(list(loader), list(DataLoader(theirs, 4, sampler=samplers[0])))
        assert (loader._content.making.recipe is None) == (context is None)


def refused(match, *args, **options):
    with pytest.raises(errors.ConfigError, match=match):
        ht.TFRecord(*args, **options)


def test_what_is_refused(tmp_path):
    path = tmp_path / "a"
    whole = framed(*(example(**row) for row in rows()))
    path.write_bytes(whole)
    refused("give the features", path)
    refused("no feature 'x'; it has image, label, raw", path, "x")
    refused("label: these features are numbers.*name a feature of bytes as well", path, "label")
    refused("names: 'label' is given twice", path, "label", "image", "label")
    refused("no such file", tmp_path / "b", "image")
    refused("not at URLs", "s3://bucket/a", "image")
    for content, match in {
        gzip.compress(whole): "it is compressed",
        b"": "there are no records",
        whole[:-1]: "is cut off",
        whole + b"abc": "no record begins at byte",
        framed(b"\x12\x00"): "no tf.train.Example with features",
        framed(b""): "no tf.train.Example with features",
        framed(example(image=[b"a", b"b"])): "2 values of the feature 'image'",
        framed(example(image=b"a"), example(image=3)): "of integers, and others of bytes",
    }.items():
        path.write_bytes(content)
        refused(match, path, "image")
    path.write_bytes(framed(example(image=b"a", label=[1, 2])))
    refused("2 values of the feature 'label'", path, "image", "label")
    path.write_bytes(whole)
    data = ht.TFRecord(path, "image")
    os.truncate(path, 100)
    with pytest.raises(errors.MismatchError, match="was written since this TFRecord was made"):
        ht.DataLoader(data, 4)


def test_damaged_records(tmp_path):
    """Whatever a byte is: an error, or ranges of the file."""
    path = tmp_path / "a"
    whole = framed(example(raw=b"abc", label=7), example(raw=b"de", label=-1))
    generator = random.Random(3)
    opened = 0
    for at in range(len(whole)):
        for _ in range(4):
            path.write_bytes(whole[:at] + generator.randbytes(1) + whole[at + 1 :])
            try:
                data = ht.TFRecord(path, "raw", "label")
            except errors.ConfigError:
                continue
            own = data._ranges[0]
            assert all(b >= 0 and b + n <= len(whole) for b, n in zip(own.offsets, own.lengths))
            opened += 1
    assert 0 < opened < 4 * len(whole)


def by_protobuf(data):
    """The item that protobuf's own library makes of a record; None: it has not one value of each.

    It also raises its own error.
    """
    features, item = messages().FromString(data).features.feature, {}
    for name in ("raw", "label", "score"):
        kind = features[name].WhichOneof("kind")
        values = () if kind is None else getattr(features[name], kind).value
        if len(values) != 1:
            return None
        item[name] = values[0]
    return item if any(isinstance(value, bytes) for value in item.values()) else None


def mine(path, data):
    path.write_bytes(framed(data))
    try:
        return ht.TFRecord(path, "raw", "label", "score")[0]
    except errors.ConfigError:
        return None


def test_fields_that_are_unknown_or_there_twice(tmp_path):
    """Protobuf skips the first, joins lists of the second, and takes the last of others."""
    whole = example(raw=b"abc", label=7, score=0.5)
    other = example(raw=b"de", label=8)
    entry = example(label=7)[2:]
    key, seven = entry[2:9], entry[9:]
    twice = key + seven + seven
    for data in (
        b"\x48\x05" + whole + b"\x7a\x02qq\x3dabcd\x39abcdefgh",
        whole + other,
        other + whole,
        whole + b"\x0a" + bytes([len(twice) + 2]) + b"\x0a" + bytes([len(twice)]) + twice,
        whole + b"\x0a" + bytes([len(entry)]) + b"\x0a" + bytes([len(entry) - 2]) + seven + key,
        whole + b"\x0a\x04\x0a\x02\x0a\x00",
    ):
        assert mine(tmp_path / "a", data) == by_protobuf(data)


def test_any_byte_of_an_example(tmp_path):
    """Whatever a byte is: the item that protobuf's own library gives, or an error."""
    from google.protobuf.message import DecodeError

    whole = example(raw=b"abc", label=-3, score=0.25)
    generator = random.Random(5)
    same = refusals = 0
    for at in range(len(whole)):
        for value in (0, 0x7F, 0xFF, *(whole[at] ^ 1 << bit for bit in range(8))):
            data = whole[:at] + bytes([value]) + whole[at + 1 :]
            if generator.random() < 0.1:
                data = whole[:at] + whole[at + 1 :]
            try:
                wanted = by_protobuf(data)
            except DecodeError:
                wanted = None
            found = mine(tmp_path / "a", data)
            assert found is None or found == wanted
            same, refusals = same + (found is not None), refusals + (found is None)
            if wanted is not None and found is None:
                assert any(byte & 7 in (3, 4) for byte in data)  # a group, of proto2
    assert same > 100
    assert refusals > 100
