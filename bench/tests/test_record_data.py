"""The data and the contenders of the comparison of records."""

import json
import os
import sys
import tarfile
import urllib.request

import pytest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))

import make_dataset
import record_data
import record_loaders
import records
import run
from object_server import BINARY, BUCKET, ObjectServer
from throttled import Unavailable

pytestmark = pytest.mark.slow


@pytest.fixture
def photos(tmp_path):
    folder = str(tmp_path / "photos")
    make_dataset.make("photos", folder, 12, 20_000)
    return folder


def test_shards_have_the_photos_in_their_order(tmp_path, photos):
    made = record_data.tar_shards(str(tmp_path / "tar"), photos, 3)
    assert made["samples"] == 12
    found = []
    for number in range(3):
        with tarfile.open(tmp_path / "tar" / f"{number:06d}.tar") as archive:
            members = [(m.name, archive.extractfile(m).read()) for m in archive]
        found += zip(members[::2], members[1::2])
    for (path, label), ((jpg, data), (cls, text)) in zip(record_data.photos(photos), found):
        with open(path, "rb") as file:
            assert data == file.read()
        assert jpg[:-4] == cls[:-4]
        assert int(text) == label
    assert len(found) == 12
    assert record_data.tar_shards(str(tmp_path / "tar"), photos, 3) == made


def test_pages_that_are_read_alone_are_counted(tmp_path):
    made = record_data.many_members(str(tmp_path / "members"), 2, 5, 20_000)
    assert made["members"] == 20
    assert record_data.read_pages(str(tmp_path / "members"), 5)["asked"] == 2 * 5 * 4096


def test_chunks_of_litdata_have_all_photos(tmp_path, photos):
    try:
        made = record_data.litdata_chunks(str(tmp_path / "chunks"), photos, 100_000)
    except Unavailable as error:
        pytest.skip(str(error))
    with open(tmp_path / "chunks" / "index.json", encoding="utf-8") as file:
        chunks = json.load(file)["chunks"]
    assert sum(chunk["chunk_size"] for chunk in chunks) == 12
    assert len(chunks) > 1
    assert made["bytes"] > sum(os.path.getsize(name) for name, _ in record_data.photos(photos))


@pytest.mark.parametrize("asked, key", [("", "class0/a b"), ("&encoding-type=url", "class0%2Fa+b")])
def test_names_in_a_listing_are_encoded_if_that_is_asked(tmp_path, asked, key):
    """As S3 does it: s3torchconnector asks for plain names, boto3 for encoded ones."""
    if not os.path.exists(BINARY):
        pytest.skip("`make objects` builds the server")
    (tmp_path / "class0").mkdir()
    (tmp_path / "class0" / "a b").write_bytes(b"1")
    with ObjectServer(str(tmp_path)) as store:
        with urllib.request.urlopen(f"{store.url}/{BUCKET}?list-type=2{asked}") as answer:
            listing = answer.read().decode()
    assert f"<Key>{key}</Key>" in listing
    assert ("<EncodingType>url</EncodingType>" in listing) == bool(asked)


def test_masks_and_items_of_own_datasets(tmp_path, photos):
    pytest.importorskip("torchvision")
    record_data.masks(str(tmp_path / "masks"), photos)
    spec = {"path": photos, "masks": str(tmp_path / "masks")}
    image, levels, number = record_loaders.own_pairs(spec)[3]
    assert tuple(image.shape) == (3, 224, 224)
    assert tuple(levels.shape) == (375, 500)
    assert number == 3
    assert len(record_loaders.own_photos(spec)) == 12


def test_contenders_are_known():
    for scenario in run.find("records", quick=True):
        for contender in scenario.contenders:
            kind = contender["contender"]
            assert kind == "framework" or kind in record_loaders.CONTENDERS
            table = record_loaders.OURS if kind == "records" else record_loaders.OWN
            assert contender.get("source", "files") in table
    assert {s.key for s in run.find("records/pairs", quick=False)} == {records.Pairs.key}
    assert json.dumps(records.Volumes.contenders)
