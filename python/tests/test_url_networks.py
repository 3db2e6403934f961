"""How datasets at URLs are reached: proxies of the client's environment, and servers that drip."""

import os
import re
import subprocess

import hdmlp.torch as ht
import preloaded
import proxies
import pytest
from hdmlp import errors
from hdmlp._daemon import connecting
from object_server import BUCKET, ObjectServer
from storedfiles import stored  # noqa: F401

#: A host that does not exist.
HOST = "store.invalid"


@pytest.fixture
def server(real, stored, tmp_path, monkeypatch):
    for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)
    with ObjectServer(stored) as running:
        for name, value in running.environment().items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("HDMLP_INDEX_DIR", str(tmp_path / "index"))
        yield running


def samples(dataset):
    with ht.DataLoader(dataset, 8, collate_fn=list, num_workers=0, shuffle=True) as loader:
        return sum(len(batch) for batch in loader)


def test_proxies_are_those_of_the_client(server, monkeypatch):
    """Of each client, while the daemon runs, which has none or others."""
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")  # nothing is there
    direct = server.url
    assert len(ht.ImageFolder(f"s3://{BUCKET}/train")) == 120  # of this machine: no proxy is used
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{HOST}")
    with proxies.Proxy(direct) as proxy:
        monkeypatch.setenv("HTTP_PROXY", proxy.url)
        assert samples(ht.WebDataset(f"s3://{BUCKET}/shards/{{000..003}}.tar")) == 120
        assert {asked.split()[1] for asked in proxy.asked} == {f"http://{HOST}"}
        asked = len(proxy.asked)
        for without in (HOST, f"example.org,.{HOST.partition('.')[2]}", "*"):
            monkeypatch.setenv("NO_PROXY", without)
            with pytest.raises(errors.HDMLPError, match=re.escape(HOST)):
                len(ht.ImageFolder(f"s3://{BUCKET}/train"))
        assert len(proxy.asked) == asked


def test_tunnels_through_a_proxy(server, tmp_path, monkeypatch):
    both = proxies.certificate(str(tmp_path), HOST)
    if both is None:
        pytest.skip("openssl is not on PATH")
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"https://{HOST}")
    with proxies.Proxy(server.url, both) as proxy:
        monkeypatch.setenv("HTTPS_PROXY", proxy.url)
        with pytest.raises(errors.DatasetError, match="AWS_CA_BUNDLE"):
            len(ht.ImageFolder(f"s3://{BUCKET}/train"))
        monkeypatch.setenv("AWS_CA_BUNDLE", str(tmp_path / "crt.pem"))
        assert samples(ht.ImageFolder(f"s3://{BUCKET}/train", loader=bytes)) == 120
        assert set(proxy.asked) == {f"CONNECT {HOST}:443"}


def test_dots_in_the_name_of_a_bucket(stored, real, monkeypatch):
    with ObjectServer(stored, "-bucket", "my.data.set") as running:
        for name, value in running.environment().items():
            monkeypatch.setenv(name, value)
        for host in ("127.0.0.1", "localhost"):
            monkeypatch.setenv("AWS_ENDPOINT_URL", running.url.replace("127.0.0.1", host))
            assert samples(ht.ImageFolder("s3://my.data.set/train", loader=bytes)) == 120


def test_a_server_that_drips_is_not_waited_for_without_an_end(server, stored, monkeypatch):
    monkeypatch.setenv("HDMLP_SOURCE_TIMEOUT", "2s")
    shards = f"s3://{BUCKET}/shards/{{000..003}}.tar"
    dataset = ht.WebDataset(shards)
    with ObjectServer(stored, "-drip", "1s") as dripping:
        monkeypatch.setenv("AWS_ENDPOINT_URL", dripping.url)
        with pytest.raises(errors.SampleError, match="more than source_timeout"):
            samples(dataset)
        monkeypatch.setenv("HDMLP_INDEX_DIR", os.path.join(stored, "another"))
        with pytest.raises(errors.DatasetError, match="has taken more than 2s"):
            ht.WebDataset(shards)


LOGGED = """
import sys
import hdmlp.torch as ht

print(len(ht.WebDataset(sys.argv[1])))
"""


def test_logs_of_every_level_have_no_keys(server):
    socket = f"hdmlp-{os.urandom(6).hex()}"
    environment = {
        **os.environ,
        "AWS_SECRET_ACCESS_KEY": "a-secret-of-the-test",
        "AWS_SESSION_TOKEN": "a-token-of-the-test",
        "HDMLP_SOCKET": socket,
    }
    daemon = subprocess.Popen(
        [connecting.find_binary(), "serve"],
        env={
            **os.environ,
            "HDMLP_SOCKET": socket,
            "HDMLP_LOG_LEVEL": "debug",
            "HDMLP_LINGER": "10m",
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    said = ""
    for bucket, code in ((BUCKET, 0), ("nothing", 1)):
        done = subprocess.run(
            [preloaded.PYTHON, "-c", LOGGED, f"s3://{bucket}/shards/{{000..003}}.tar"],
            env=environment,
            capture_output=True,
            text=True,
        )
        assert done.returncode == code, done.stderr
        said += done.stdout + done.stderr
    daemon.terminate()
    said += daemon.communicate()[0]
    assert "daemon starts" in said
    assert "of-the-test" not in said
