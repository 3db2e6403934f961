"""Datasets in versitygw, an object store that others have written: where its binary is on PATH."""

import hashlib
import hmac
import json
import os
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request

import hdmlp.torch as ht
import pytest
from hdmlp import errors
from hdmlp._daemon import connecting
from storedfiles import stored  # noqa: F401
from waiting import until

BINARY = shutil.which("versitygw")
ID, SECRET = "the-id-of-the-test", "the-secret-of-the-test"

pytestmark = pytest.mark.skipif(BINARY is None, reason="versitygw is not on PATH")


@pytest.fixture
def gateway(real, stored, tmp_path, monkeypatch):
    """Serves the folder's parts as buckets; returns their directory."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    # Names of buckets are theirs, and metadata lies beside them: not every file system has
    # attributes.
    beside = tmp_path / "sidecar"
    beside.mkdir()
    running = subprocess.Popen(
        [BINARY, "--port", f"127.0.0.1:{port}", "posix", "--sidecar", str(beside), stored],
        env={**os.environ, "ROOT_ACCESS_KEY": ID, "ROOT_SECRET_KEY": SECRET},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    for name, value in {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "AWS_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": ID,
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_CONFIG_FILE": "/nonexistent",
        "AWS_SHARED_CREDENTIALS_FILE": "/nonexistent",
    }.items():
        monkeypatch.setenv(name, value)
    until(lambda: running.poll() is not None or answers(port), "versitygw answers")
    assert running.poll() is None, "versitygw does not start"
    yield stored
    running.terminate()
    running.wait()


def answers(port):
    try:
        urllib.request.urlopen(f"http://127.0.0.1:{port}/").close()
    except urllib.error.HTTPError:
        return True
    except OSError:
        return False
    return True


def items(dataset, **options):
    with ht.DataLoader(dataset, 8, collate_fn=list, num_workers=0, **options) as loader:
        return [plain(item) for batch in loader for item in batch]


def plain(item):
    if isinstance(item, tuple):
        return tuple(map(plain, item))
    return bytes(item) if isinstance(item, memoryview) else item


def test_a_listing_and_its_objects(gateway):
    there, here = (ht.ImageFolder(at, loader=bytes) for at in ("s3://train", f"{gateway}/train"))
    assert there.classes == here.classes
    assert list(there.targets) == list(here.targets)
    for options in ({}, {"shuffle": True, "seed": 3}):
        assert items(there, **options) == items(here, **options)


def test_shards(gateway):
    there, here = (
        ht.WebDataset(f"{at}/{{000..003}}.tar", ("jpg", "cls"))
        for at in ("s3://shards", f"{gateway}/shards")
    )
    assert items(there, shuffle=True, seed=1) == items(here, shuffle=True, seed=1)


def test_keys_that_are_wrong(gateway, monkeypatch):
    for name, value, why in (
        ("AWS_SECRET_ACCESS_KEY", "wrong", "secret key is not that of the access key"),
        ("AWS_ACCESS_KEY_ID", "nobody", "No user exists with the provided access key"),
    ):
        with monkeypatch.context() as changed:
            changed.setenv(name, value)
            with pytest.raises(errors.DatasetError, match=why) as caught:
                len(ht.ImageFolder("s3://train"))
        assert SECRET not in str(caught.value)
        assert "missing" not in str(caught.value)
    with pytest.raises(errors.DatasetError, match="no such bucket"):
        len(ht.ImageFolder("s3://nothing"))


def test_an_object_that_is_overwritten_is_named(gateway):
    """By the store itself, so that it has an ETag of its own."""
    dataset = ht.Files([f"s3://train/bee/{i}.jpg" for i in range(40)])
    with ht.DataLoader(dataset, 1, num_workers=0, prefetch_batches=1, memory="1KiB") as loader:
        put("train", "bee/39.jpg", b"other")
        with pytest.raises(errors.SampleError, match=r"s3://train/bee/39.jpg"):
            for _ in loader:
                pass
    put("train", "bee/39.jpg", b"again")
    assert items(ht.Files(["s3://train/bee/39.jpg"])) == [b"again"]


def put(bucket, key, data):
    """Puts an object by a request that is signed as Amazon describes it (version 4)."""
    endpoint = os.environ["AWS_ENDPOINT_URL"]
    now = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    hashed = hashlib.sha256(data).hexdigest()
    headers = {
        "host": endpoint.removeprefix("http://"),
        "x-amz-content-sha256": hashed,
        "x-amz-date": now,
    }
    listed = ";".join(headers)
    lines = [f"{name}:{value}" for name, value in headers.items()]
    canonical = "\n".join(["PUT", f"/{bucket}/{key}", "", *lines, "", listed, hashed])
    scope = f"{now[:8]}/us-east-1/s3/aws4_request"
    digest = hashlib.sha256(canonical.encode()).hexdigest()
    text = "\n".join(["AWS4-HMAC-SHA256", now, scope, digest])
    signature = f"AWS4{SECRET}".encode()
    for part in (*scope.split("/"), text):
        signature = hmac.new(signature, part.encode(), "sha256").digest()
    headers["Authorization"] = (
        f"AWS4-HMAC-SHA256 Credential={ID}/{scope}, SignedHeaders={listed}, "
        f"Signature={signature.hex()}"
    )
    request = urllib.request.Request(
        f"{endpoint}/{bucket}/{key}", data=data, headers=headers, method="PUT"
    )
    urllib.request.urlopen(request).close()


def test_the_command_shows_what_it_was_asked_for(gateway):
    command = [connecting.find_binary(), "dataset", "s3://shards/{000..003}.tar", "--json"]
    shown = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    assert (shown["samples"], shown["requests"]["heads"]) == (120, 4)
