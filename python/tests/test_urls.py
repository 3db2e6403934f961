"""Datasets at URLs, of a server that is asked what it was asked."""

import hashlib
import json
import os
import pickle
import subprocess
import sys
import time

import hdmlp.torch as ht
import preloaded
import pytest
from hdmlp import data, errors
from hdmlp._daemon import connecting
from object_server import BUCKET, ObjectServer
from storedfiles import stored  # noqa: F401

SECRET = "the-secret-of-the-test"


@pytest.fixture
def server(real, stored, monkeypatch):
    with ObjectServer(stored, "-key", "the-id") as running:
        for name, value in running.environment(secret=SECRET).items():
            monkeypatch.setenv(name, value)
        yield running


def items(dataset, **options):
    """Returns all items that a loader gives, in its order."""
    loader = ht.DataLoader(dataset, batch_size=8, collate_fn=list, num_workers=0, **options)
    with loader:
        return [_plain(item) for batch in loader for item in batch]


def _plain(item):
    """Returns an item with bytes, which can be compared."""
    if isinstance(item, memoryview):
        return bytes(item)
    if isinstance(item, (tuple, list)):
        return type(item)(map(_plain, item))
    if isinstance(item, dict):
        return {k: _plain(v) for k, v in item.items() if k != "__url__"}
    return item


class Lengths(ht.FileDataset):
    def __init__(self, paths):
        self.paths = paths

    def __len__(self):
        return len(self.paths)

    def files_of(self, i):
        return self.paths[i]

    def make(self, i, content):
        return hashlib.sha256(content).hexdigest()


NAMES = [f"train/{name}/{i}.jpg" for name in ("ant", "émeu") for i in range(0, 40, 3)]

MADE = {
    "ImageFolder": lambda root: ht.ImageFolder(f"{root}/train", loader=bytes),
    "Folder": lambda root: data.Folder(f"{root}/train/", extensions=[".JPG"]),
    "braces": lambda root: ht.WebDataset(f"{root}/shards/{{000..003}}.tar", ("jpg", "cls")),
    "list": lambda root: ht.WebDataset([f"{root}/shards/{i}.tar" for i in ("002", "000")]),
    "Files": lambda root: ht.Files([f"{root}/{name}" for name in NAMES]),
    "root": lambda root: ht.Files([(n, n) for n in NAMES], range(len(NAMES)), root=root),
    "Records": lambda root: ht.Records(
        [f"{root}/{name}" for name in NAMES],
        {"a": (range(5), [0, 3, 5, 7, 9], [5, 5, 5, 5, 5]), "b": (range(5), [20] * 5, [-2] * 5)},
    ),
    "Mix": lambda root: ht.Mix(
        [
            ht.Files([f"{root}/{name}" for name in NAMES], range(len(NAMES))),
            ht.ImageFolder(f"{root}/train"),
        ],
        epoch_size=60,
    ),
    "mixed shards": lambda root: ht.Mix(
        [
            ht.WebDataset(f"{root}/shards/{{000..001}}.tar", ("jpg", "cls")),
            ht.WebDataset(f"{root}/shards/003.tar", ("jpg", "cls")),
        ],
        epoch_size=20,
    ),
    "FileDataset": lambda root: Lengths([f"{root}/{name}" for name in NAMES]),
}


@pytest.mark.parametrize("made", MADE)
def test_what_a_url_names_is_what_a_directory_has(server, stored, made):
    here, there = MADE[made](stored), MADE[made](f"s3://{BUCKET}")
    assert len(here) == len(there) > 0
    for i in (0, 3, len(here) - 1):
        assert _plain(there[i]) == _plain(here[i])
    again = pickle.loads(pickle.dumps(there))
    assert _plain(again[1]) == _plain(here[1])
    if hasattr(here, "targets") and made not in ("Files", "Records"):
        assert list(there.targets) == list(here.targets)
        assert there.classes == here.classes
    if made == "Folder":
        return
    options = {"shuffle": True, "seed": 3, "epochs": 2}
    assert items(there, **options) == items(here, **options)


def test_objects_of_a_web_server_are_read_without_keys(server, stored, monkeypatch):
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    for made in ("braces", "Files", "FileDataset"):
        assert items(MADE[made](server.plain)) == items(MADE[made](stored))
    with pytest.raises(errors.DatasetError, match="a web server cannot be listed"):
        len(ht.ImageFolder(f"{server.plain}/train"))


def test_each_byte_leaves_the_server_once(server, stored):
    sizes = {name: os.path.getsize(os.path.join(stored, name)) for name in _below(stored, "train")}
    with ht.DataLoader(
        ht.ImageFolder(f"s3://{BUCKET}/train", loader=bytes), 8, shuffle=True, epochs=3
    ) as loader:
        for _ in range(3):
            assert sum(len(labels) for _, labels in loader) == 120
    counts = server.counts()
    assert counts["objects"].keys() == sizes.keys()
    # Requests that are slow are made twice, at most every 20th of 120.
    assert 0 <= counts["bytes"] - sum(sizes.values()) <= 6 * max(sizes.values())
    assert counts["heads"] == 0  # a listing has all that is needed


def _below(root, name):
    for directory, _, files in os.walk(os.path.join(root, name)):
        for file in files:
            yield os.path.relpath(os.path.join(directory, file), root)


def test_the_index_of_shards_is_kept(server, stored):
    before = MADE["braces"](f"s3://{BUCKET}")
    assert items(before)
    counted = server.counts()
    after = MADE["braces"](f"s3://{BUCKET}")
    assert len(after) == len(before) == 120
    assert server.counts()["gets"] == counted["gets"]  # nothing of the shards is read again
    with open(os.path.join(stored, "shards", "003.tar"), "ab") as shard:
        shard.write(b"\0" * 10240)  # a version of its own
    assert len(MADE["braces"](f"s3://{BUCKET}")) == 120
    assert server.counts()["gets"] > counted["gets"]


def test_an_index_is_made_once_for_all_nodes(server, stored, tmp_path, monkeypatch, caplog):
    shards, path = f"s3://{BUCKET}/shards/{{000..003}}.tar", str(tmp_path / "shards.index")
    options = ["--option", "fields=jpg,cls", "--option", "missing=raise", "--index", path]
    command = [connecting.find_binary(), "dataset", shards, *options]
    subprocess.run(command, check=True, capture_output=True)
    with open(path, "rb") as file, open(os.path.join(stored, "shards", "index"), "wb") as copy:
        copy.write(file.read())
    want = items(MADE["braces"](stored))
    for node, index in enumerate((path, f"s3://{BUCKET}/shards/index")):
        monkeypatch.setenv("HDMLP_INDEX_DIR", str(tmp_path / f"node{node}"))
        before = server.counts()
        dataset = ht.WebDataset(shards, ("jpg", "cls"), index=index)
        read = server.counts()["gets"] - before["gets"]
        assert len(dataset) == 120
        assert read <= 2 * node  # the index itself
        assert items(dataset) == want
    with pytest.raises(errors.DatasetError, match="--option fields=cls --option missing=raise"):
        ht.WebDataset(shards, ("cls",), index=path)
    with pytest.raises(errors.DatasetError, match="no such file"):
        ht.WebDataset(shards, ("jpg", "cls"), index=path + "s")
    with open(os.path.join(stored, "shards", "003.tar"), "ab") as shard:
        shard.write(b"\0" * 10240)
    monkeypatch.setenv("HDMLP_INDEX_DIR", str(tmp_path / "another"))
    assert items(ht.WebDataset(shards, ("jpg", "cls"), index=path)) == want
    assert "is of other versions of the shards" in caplog.text


#: Gives keys that last for some seconds. The store takes them for a minute longer: under load this
#: process, or a request, may take long.
PROCESS = """
import json, sys, time
lasts = float(sys.argv[1])
with open(sys.argv[2], "a") as log:
    log.write("asked\\n")
end = int(time.time() + lasts)
when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(end))
print(json.dumps({"Version": 1, "AccessKeyId": "the-id", "SecretAccessKey": sys.argv[3],
                  "SessionToken": f"until={end + 60}", "Expiration": when}))
"""


@pytest.mark.slow
def test_keys_that_expire_in_a_run_are_replaced(server, stored, tmp_path, monkeypatch):
    script, log, profile = tmp_path / "process.py", tmp_path / "asked", tmp_path / "config"
    script.write_text(PROCESS)
    profile.write_text(f"[default]\ncredential_process = {sys.executable} {script} 3 {log} x\n")
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(profile))
    dataset = ht.ImageFolder(f"s3://{BUCKET}/train", loader=bytes)
    want = items(ht.ImageFolder(f"{stored}/train", loader=bytes))
    with ht.DataLoader(dataset, 8, collate_fn=list, num_workers=0, memory="1KiB") as loader:
        while len(log.read_text().splitlines()) < 4:
            got = []
            for batch in loader:
                got += [_plain(item) for item in batch]
                time.sleep(0.05)
            assert got == want[:120]
    assert server.counts()["refused"] == 0


def test_a_server_that_is_down_is_waited_for(server, stored):
    want = items(ht.ImageFolder(f"{stored}/train", loader=bytes), shuffle=True, seed=1)
    dataset = ht.ImageFolder(f"s3://{BUCKET}/train", loader=bytes)
    got = []
    with ht.DataLoader(
        dataset, 8, shuffle=True, seed=1, collate_fn=list, num_workers=0, prefetch_batches=2
    ) as loader:
        for step, batch in enumerate(loader):
            if step == 1:
                server.down(3)
            got += [_plain(item) for item in batch]
    assert got == want


@pytest.mark.parametrize("made", ["ImageFolder", "braces", "Files"])
def test_a_server_that_is_down_is_waited_for_while_a_dataset_is_opened(server, stored, made):
    want = items(MADE[made](stored))
    server.down(3)
    assert items(MADE[made](f"s3://{BUCKET}")) == want


def test_an_object_that_is_overwritten_is_named(server, stored):
    dataset = ht.Files([f"s3://{BUCKET}/train/bee/{i}.jpg" for i in range(40)])
    server.hold("train/bee/39.jpg")  # which may be read ahead
    with ht.DataLoader(dataset, 1, num_workers=0, prefetch_batches=1) as loader:
        with open(os.path.join(stored, "train", "bee", "39.jpg"), "r+b") as file:
            file.write(b"other")
        server.release("train/bee/39.jpg")
        with pytest.raises(errors.SampleError, match=rf"s3://{BUCKET}/train/bee/39.jpg.*changed"):
            for _ in loader:
                pass


def test_errors_say_what_to_do_and_no_secret(server, monkeypatch, capfd):
    def refused(pattern, kind, path=f"s3://{BUCKET}/train"):
        with pytest.raises(kind, match=pattern) as caught:
            len(ht.ImageFolder(path))
        assert SECRET not in str(caught.value)

    refused("no such bucket", errors.DatasetError, "s3://nothing/train")
    refused("CLASS/NAME", errors.DatasetError, f"s3://{BUCKET}/nothing")
    refused("does not read gs://.*S3 interface", errors.DatasetNotFoundError, "gs://bucket/x")
    refused("names no bucket", errors.DatasetNotFoundError, "s3://")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "another")
    refused("does not know this access key", errors.DatasetError)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "the-id")
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://me:{SECRET}@host")
    refused("endpoint names a user", errors.DatasetError)
    monkeypatch.delenv("AWS_ENDPOINT_URL")
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    refused("no keys to sign requests with.*AWS_PROFILE", errors.AccessDeniedError)
    assert SECRET not in "".join(capfd.readouterr())


JOIN = """
import sys
import hdmlp.torch as ht
try:
    print(len(ht.ImageFolder(sys.argv[1])))
except Exception as error:
    print(type(error).__name__, error)
"""


def test_the_daemon_has_no_keys_of_its_own(server, monkeypatch):
    url = f"s3://{BUCKET}/train"
    for name in ("HTTPS_PROXY", "https_proxy", "all_proxy"):
        monkeypatch.setenv(name, f"http://me:{SECRET}@127.0.0.1:9")
    with ht.DataLoader(ht.ImageFolder(url), 8) as loader:
        next(iter(loader))

        def other(**environment):
            command = [preloaded.PYTHON, "-c", JOIN, url]
            return subprocess.run(
                command, env={**os.environ, **environment}, capture_output=True, text=True
            ).stdout.strip()

        assert other() == "120"  # the daemon has it open
        assert "does not know this access key" in other(AWS_ACCESS_KEY_ID="another")
        assert "no keys to sign" in other(AWS_ACCESS_KEY_ID="", AWS_SECRET_ACCESS_KEY="")
        daemons = [int(p) for p in os.listdir("/proc") if p.isdigit() and _is_daemon(p)]
        assert daemons
        for pid in daemons:
            for name in ("cmdline", "environ"):
                with open(f"/proc/{pid}/{name}", "rb") as file:
                    assert SECRET.encode() not in file.read()


def _is_daemon(pid):
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            command = file.read()
        with open(f"/proc/{pid}/environ", "rb") as file:
            return b"serve" in command and os.environ["HDMLP_SOCKET"].encode() in file.read()
    except OSError:
        return False


def test_credentials_are_shown_without_secrets(server):
    shown = subprocess.run(
        [sys.executable, "-m", "hdmlp", "credentials", f"s3://{BUCKET}/x"],
        capture_output=True,
        text=True,
    )
    assert shown.returncode == 0
    assert "...e-id" in shown.stdout
    assert SECRET not in shown.stdout
    given = subprocess.run(
        [sys.executable, "-m", "hdmlp", "credentials", "--json", f"s3://{BUCKET}/x"],
        capture_output=True,
        text=True,
    )
    assert json.loads(given.stdout)["keys"]["secret"] == SECRET


def test_arguments_that_a_url_cannot_have(server):
    url = f"s3://{BUCKET}/train"
    for options in ({"allow_empty": True}, {"is_valid_file": bool}):
        with pytest.raises(errors.ConfigError, match="the daemon lists what a URL names"):
            ht.ImageFolder(url, **options)
    with pytest.raises(errors.ConfigError, match="a URL is not listed"):
        ht.Files(url)
    with pytest.raises(errors.ConfigError, match="a dataset is in one"):
        ht.Files([f"{url}/a.jpg", "/etc/passwd"])
    with pytest.raises(errors.ConfigError, match="a dataset is in one"):
        ht.Files(["s3://a/b.jpg", "s3://b/b.jpg"])
    with pytest.raises(errors.ConfigError, match="not the URL of an object"):
        ht.Files([f"{url}/a.jpg/"])
    with pytest.raises(errors.ConfigError, match="a table is a file of this machine"):
        ht.Files.from_csv(f"{url}/a.csv")
    with pytest.raises(errors.ConfigError, match="derive the dataset from"):
        ht.DataLoader([1, 2], files=lambda i: f"{url}/a.jpg")


OPENED = {
    "ImageFolder": ht.ImageFolder,
    "WebDataset": lambda url: ht.WebDataset(f"{url}/a.tar"),
    "Files": lambda url: ht.Files([f"{url}/a.jpg"]),
    "root": lambda url: ht.Files(["a.jpg"], root=url),
    "LMDB": ht.LMDB,
    "index": lambda url: ht.WebDataset(f"s3://{BUCKET}/a.tar", index=f"{url}/index"),
}


@pytest.mark.parametrize("opened", OPENED)
def test_urls_that_lead_elsewhere_or_have_a_password(server, caplog, opened):
    for url in ("//train", "/train//", "/a//b", "/train/.."):
        with pytest.raises(errors.HDMLPError, match=r"it has the part '(\.\.)?' between slashes"):
            OPENED[opened](f"s3://{BUCKET}{url}")
    for url in (
        f"https://me:{SECRET}@host/a",
        f"s3://me:{SECRET}@{BUCKET}/a",
        f"gs://me:{SECRET}@{BUCKET}/a",
    ):
        with pytest.raises(errors.HDMLPError, match="names a user") as caught:
            OPENED[opened](url)
        assert SECRET not in str(caught.value) + caplog.text
    with pytest.raises(errors.HDMLPError, match="has a query") as caught:
        OPENED[opened](f"https://host/a?X-Amz-Signature={SECRET}")
    assert SECRET not in str(caught.value) + caplog.text


@pytest.mark.parametrize("command", ["dataset", "credentials", "probe"])
def test_commands_show_no_password_of_a_url(server, command):
    for url in (f"https://me:{SECRET}@host/a.tar", f"s3://me:{SECRET}@{BUCKET}/a.tar"):
        done = subprocess.run(
            [connecting.find_binary(), command, url], capture_output=True, text=True
        )
        assert done.returncode == 2
        assert "names a user" in done.stderr
        assert SECRET not in done.stdout + done.stderr


def test_the_command_shows_no_index_of_a_listing(server):
    command = [connecting.find_binary(), "dataset", f"s3://{BUCKET}/train"]
    shown = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert "120 samples in 3 classes" in shown
    assert "not written" not in shown


def test_urls_of_a_web_server_are_quoted_and_names_are_not(server, stored):
    odd = "a %41+é#?.jpg"
    for folder in ("o dd", "%20"):
        os.mkdir(os.path.join(stored, folder))
        with open(os.path.join(stored, folder, odd), "w") as file:
            file.write(folder)
    quoted = "a%20%2541+%C3%A9%23%3F.jpg"
    urls = [f"{server.plain}/o%20dd/{quoted}", f"{server.plain}/%2520/{quoted}"]
    assert items(ht.Files(urls)) == [b"o dd", b"%20"]
    assert items(ht.Files(urls[1:])) == [b"%20"]
    assert items(ht.Files([f"o dd/{odd}", f"%20/{odd}"], root=server.plain)) == [b"o dd", b"%20"]
    assert items(ht.Files([odd], root=f"{server.plain}/%2520")) == [b"%20"]
    assert ht.Files(urls)[1] == b"%20"
    hashed = [hashlib.sha256(text).hexdigest() for text in (b"o dd", b"%20")]
    assert items(Lengths(urls)) == hashed
    os.rename(os.path.join(stored, "shards", "000.tar"), os.path.join(stored, "o dd", "%0.tar"))
    shard, index = f"{server.plain}/o%20dd/%250.tar", os.path.join(stored, "o dd", "an index")
    assert len(ht.WebDataset(shard)) == 30
    command = [connecting.find_binary(), "dataset", shard, "--index", index]
    subprocess.run(command, check=True, capture_output=True)
    assert len(ht.WebDataset(shard, index=f"{server.plain}/o%20dd/an%20index")) == 30


def test_what_a_credential_process_writes_is_not_shown(server, tmp_path, monkeypatch):
    profile = tmp_path / "config"
    written = f'echo {SECRET} >&2; echo \'{{"Version": 1, "SecretAccessKey": "{SECRET}",\''
    script = tmp_path / "process"
    script.write_text(f"#!/bin/sh\n{written}\n")
    script.chmod(0o755)
    profile.write_text(f"[default]\ncredential_process = {script}\n")
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(profile))
    with pytest.raises(errors.AccessDeniedError, match=r"^dataset s3://.*credential_process") as e:
        len(ht.ImageFolder(f"s3://{BUCKET}/train"))
    assert SECRET not in str(e.value)


def test_a_listing_that_was_replaced_has_its_own_order(server, stored):
    there, here = (ht.ImageFolder(f"{at}/train", loader=bytes) for at in (f"s3://{BUCKET}", stored))
    for dataset in (there, here):
        dataset.samples = dataset.imgs = dataset.samples[::-3]
    assert [there[i] for i in (0, 5)] == [here[i] for i in (0, 5)]
    assert items(there) == items(here)


def test_it_is_the_same_after_a_fork(server):
    dataset = ht.ImageFolder(f"s3://{BUCKET}/train", loader=bytes)
    want = dataset[3]
    pid = os.fork()
    if pid == 0:
        os._exit(0 if dataset[3] == want else 1)
    assert os.waitpid(pid, 0)[1] == 0
    assert dataset[4] != want
