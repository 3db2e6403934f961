"""`hdmlp cache`: real daemons fill cache directories, and commands inspect them.

What a copy should be is taken from the files themselves, and from where the test damaged them.
"""

import json
import os
import pty
import re
import shutil
import signal
import subprocess
import tarfile

import owndata
import pytest
import recordfiles
import shards
from hdmlp._daemon import connecting
from identities import Rank, hashes, make, normalise, read
from waiting import until

pytestmark = pytest.mark.slow

FILES = 300
SIZE = 3000


def command(*args, **options):
    return subprocess.run(
        [connecting.find_binary(), "cache", *map(str, args)],
        capture_output=True,
        text=True,
        timeout=60,
        **options,
    )


def check(*args):
    done = command("check", *args, "--json")
    return done.returncode, json.loads(done.stdout), done.stderr


@pytest.fixture
def short(real, monkeypatch):
    """A daemon per job: the directory is free after the job."""
    monkeypatch.setenv("HDMLP_LINGER", "0s")


def free(cache):
    """Waits until no process uses the directory."""
    until(
        lambda: not json.loads(command("ls", cache, "--json").stdout)[0]["in_use"],
        "the daemon releases the cache directory",
    )


@pytest.fixture
def filled(short, tmp_path):
    """A dataset, and a cache directory that holds all of it."""
    data, cache = tmp_path / "data", tmp_path / "cache"
    make(data, "one", FILES)
    options = dict(cache_dir=str(cache), memory="0B", cache_size="10MB")
    assert read(data, epochs=2, **options)["hashes"] == hashes(data)
    free(cache)
    return data, cache, options


def store_of(cache):
    (store,) = [entry for entry in cache.iterdir() if re.fullmatch("[0-9a-f]{32}", entry.name)]
    return store


def damage(path, at):
    with open(path, "r+b") as file:
        file.seek(at)
        byte = file.read(1)
        file.seek(at)
        file.write(bytes([byte[0] ^ 0xFF]))


def samples(data):
    """All files, in the order of their IDs."""
    return sorted(data.glob("*/*.jpg"))


def copy_at(data, store, offset):
    """The file whose copy is at this offset of the store's data."""
    copies = (store / "data").read_bytes()
    start = offset // SIZE * SIZE
    (path,) = [path for path in samples(data) if path.read_bytes() == copies[start : start + SIZE]]
    return path


def test_an_intact_cache_has_no_findings(filled):
    data, cache, _ = filled
    status, (said,), _ = check(cache)
    assert status == 0, said
    assert said["same"] == said["held"] == said["samples"] == FILES, said
    assert said["findings"] == [], said
    assert said["dataset"] == str(data)
    assert said["version"] == store_of(cache).name
    done = command("check", cache)
    assert done.returncode == 0, done
    assert f"compared {FILES} of {FILES} samples" in done.stdout, done
    assert not done.stderr, done


def test_damaged_copies_and_changed_files_are_found(filled):
    """One copy is damaged, and one file is changed with the same size and times: exactly these are
    found."""
    data, cache, options = filled
    store = store_of(cache)
    offset = 17 * SIZE + 5
    corrupt = copy_at(data, store, offset)
    damage(store / "data", offset)
    for changed in samples(data)[40:]:  # one whose contents the dataset's version does not cover
        if changed == corrupt:
            continue
        before = changed.stat()
        damage(changed, 100)
        os.utime(changed, ns=(before.st_atime_ns, before.st_mtime_ns))
        status, views, errors = check(cache)
        if status == 1:
            break
        assert status == 2, (status, views, errors)
        assert not views, (status, views, errors)
        assert store.name in errors, (
            status,
            views,
            errors,
        )  # of another version now
        damage(changed, 100)
        os.utime(changed, ns=(before.st_atime_ns, before.st_mtime_ns))
    else:
        pytest.fail("no file was found")
    (said,) = views
    assert (
        said["same"],
        said["corrupt"],
        said["differ"],
        said["source_changed_or_unreadable"],
    ) == (FILES - 2, 1, 1, 0), said
    found = {finding["what"]: finding for finding in said["findings"]}
    assert found["corrupt"]["path"] == str(corrupt), said
    assert found["differs"]["path"] == str(changed), said
    assert samples(data)[found["differs"]["sample"]] == changed
    assert samples(data)[found["corrupt"]["sample"]] == corrupt
    assert found["differs"]["copy_digest"] != found["differs"]["other_digest"]
    text = command("check", cache)
    assert text.returncode == 1, text
    assert str(corrupt) in text.stdout, text
    assert str(changed) in text.stdout, text
    assert "--fix" in text.stdout, text
    assert f"2 of {FILES} cached samples" in text.stderr, text

    status, (said,), _ = check(cache, "--fix")
    assert status == 1, said
    assert said["dropped"] == 2, said
    status, (said,), _ = check(cache)
    assert status == 0, said
    assert said["same"] == said["held"] == FILES - 2, said
    assert read(data, **options).get("hashes") == hashes(data)
    free(cache)
    status, (said,), _ = check(cache)
    assert status == 0, said
    assert said["held"] == FILES, said


def test_a_differing_copy_of_the_dataset_is_found(filled, tmp_path):
    """The copy has the same version, and one file differs."""
    data, cache, _ = filled
    other = tmp_path / "other"
    shutil.copytree(data, other)
    for path in samples(other)[50:]:
        damage(path, 9)
        normalise(other)
        status, views, errors = check(cache, "--dataset", other)
        if status == 1:
            assert [finding["path"] for finding in views[0]["findings"]] == [str(path)], views
            break
        assert status == 2, errors
        assert "another version" in errors, errors
        damage(path, 9)
        normalise(other)
    else:
        pytest.fail("no file was found")
    assert check(cache)[0] == 0


def test_a_changed_dataset_is_not_compared_and_both_versions_are_named(filled):
    data, cache, _ = filled
    old = store_of(cache).name
    (data / "a" / "new.jpg").write_bytes(b"new")
    done = command("check", cache)
    assert done.returncode == 2, done
    assert not done.stdout, done
    assert old in done.stderr, done
    shown = json.loads(
        subprocess.run(
            [connecting.find_binary(), "dataset", str(data), "--json"],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
    )
    assert shown["fingerprint"] in done.stderr, done
    assert shown["fingerprint"] != old, done
    assert command("check", cache, "--fix").returncode == 2
    assert json.loads(command("ls", cache, "--json").stdout)[0]["stores"][0]["held"] == FILES
    shutil.rmtree(data)
    done = command("check", cache)
    assert done.returncode == 2, done
    assert str(data) in done.stderr, done


def test_stores_are_listed_and_removed(filled, tmp_path):
    data, cache, options = filled
    two = make(tmp_path / "two", "two", 20)
    assert read(two, **options)["hashes"] == hashes(two)
    free(cache)
    listed = command("ls", cache)
    assert listed.returncode == 0, listed
    assert str(data) in listed.stdout, listed
    assert two in listed.stdout, listed
    assert "2 stores" in listed.stdout, listed
    assert f"{FILES} of {FILES}" in listed.stdout, listed
    assert "20 of 20" in listed.stdout, listed
    assert "in use" not in listed.stdout, listed
    assert command("ls", env={**os.environ, "HDMLP_CACHE_DIR": str(cache)}).stdout == listed.stdout
    (view,) = json.loads(command("ls", cache, "--json").stdout)
    stores = {store["description"]["path"]: store for store in view["stores"]}
    assert set(stores) == {str(data), two}
    assert stores[two]["bytes"] == 20 * SIZE
    assert view["bytes"] == (FILES + 20) * SIZE
    assert stores[two]["description"]["kind"] == "folder"
    assert ".jpg" in stores[two]["description"]["extensions"]

    done = command("rm", cache, stdin=subprocess.DEVNULL)
    assert done.returncode == 2, done
    assert all(store["version"] in done.stderr for store in view["stores"]), done
    done = command("rm", cache, "--all", stdin=subprocess.DEVNULL)
    assert done.returncode == 2, done
    assert "--yes" in done.stderr, done
    assert command("ls", cache).stdout == listed.stdout
    done = command("rm", cache, "--store", stores[two]["version"][:10], "--yes")
    assert done.returncode == 0, done
    assert "removed 1 store" in done.stdout, done
    (store,) = json.loads(command("ls", cache, "--json").stdout)[0]["stores"]
    assert store["description"]["path"] == str(data)
    assert read(data, **options)["hashes"] == hashes(data)
    free(cache)
    assert command("rm", cache, "--all", "--yes").returncode == 0
    assert list(cache.iterdir()) == []
    assert command("ls", cache).returncode == 2
    assert read(data, **options)["hashes"] == hashes(data)


@pytest.mark.parametrize("answer", ["n", "y", "interrupt"])
def test_removal_asks_on_a_terminal(filled, answer):
    _, cache, _ = filled
    master, slave = pty.openpty()
    process = subprocess.Popen(
        [connecting.find_binary(), "cache", "rm", str(cache), "--all"],
        stdin=slave,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    asked = ""
    while not asked.endswith("[y/N] "):
        character = process.stderr.read(1)
        assert character, asked
        asked += character
    assert str(cache) in asked
    if answer == "interrupt":
        process.send_signal(signal.SIGINT)
    else:
        os.write(master, f"{answer}\n".encode())
    out, errors = process.communicate(timeout=20)
    os.close(master)
    os.close(slave)
    assert process.returncode == {"n": 1, "y": 0, "interrupt": 130}[answer], (out, errors)
    assert (list(cache.iterdir()) == []) == (answer == "y")


def test_a_directory_that_is_no_cache_is_refused(socket_name, tmp_path):
    foreign = tmp_path / "foreign"
    (foreign / ("0" * 32)).mkdir(parents=True)
    (foreign / ("0" * 32) / "data").write_bytes(b"precious")
    empty = tmp_path / "empty"
    empty.mkdir()
    for directory in (foreign, empty, tmp_path / "missing"):
        for args in (
            ["ls"],
            ["check"],
            ["check", "--fix"],
            ["rm", "--all", "--yes"],
            ["rm", "--store", "0", "--yes"],
        ):
            done = command(args[0], directory, *args[1:])
            assert done.returncode == 2, done
            assert str(directory) in done.stderr, done
            assert not done.stdout, done
    assert (foreign / ("0" * 32) / "data").read_bytes() == b"precious"
    assert os.listdir(empty) == []
    assert not (tmp_path / "missing").exists()


@pytest.mark.skipif(os.getuid() != 0, reason="needs root to give files away")
def test_a_directory_of_another_user_is_refused(filled):
    _, cache, _ = filled
    os.chown(cache, 1001, -1)
    for args in (["ls"], ["check"], ["rm", "--all", "--yes"]):
        done = command(args[0], cache, *args[1:])
        assert done.returncode == 2, done
        assert "user 1001" in done.stderr, done
    assert store_of(cache).is_dir()


def test_a_directory_that_a_daemon_uses_is_refused(real, monkeypatch, tmp_path):
    monkeypatch.setenv("HDMLP_LINGER", "20s")
    data, cache = tmp_path / "data", tmp_path / "cache"
    make(data, "one", FILES)
    rank = Rank(data, stay=True, epochs=2, cache_dir=str(cache), memory="0B", cache_size="10MB")
    assert rank.says()["hashes"] == hashes(data)
    pid = json.loads(
        subprocess.run(
            [connecting.find_binary(), "stats", "--json"],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
    )["pid"]
    listed = command("ls", cache)
    assert listed.returncode == 0, listed
    assert f"in use by process {pid}" in listed.stdout, listed
    assert str(data) in listed.stdout, listed
    for args in (["check"], ["check", "--fix"], ["rm", "--all", "--yes"]):
        done = command(args[0], cache, *args[1:])
        assert done.returncode == 2, done
        assert f"process {pid}" in done.stderr, done
        assert "hdmlp stop" in done.stderr, done
        assert not done.stdout, done
    rank.end()
    # By force, as the daemon may not have noticed yet that the rank has gone.
    subprocess.run([connecting.find_binary(), "stop", "--force"], check=True)
    free(cache)
    assert check(cache)[0] == 0


def test_check_compares_copies_of_shards(short, tmp_path):
    """The store's description has which shards they were made of, and by which options."""
    torch = pytest.importorskip("hdmlp.torch")
    samples = shards.make(tmp_path / "shards")
    cache = tmp_path / "cache"
    dataset = torch.WebDataset(str(tmp_path / "shards" / "{000..002}.tar"), fields=("bin", "cls"))
    loader = torch.DataLoader(dataset, 4, cache_dir=str(cache), memory="0B", cache_size="10MB")
    assert sum(len(batch[0]) for batch in loader) == len(samples)
    loader.close()
    free(cache)
    status, (found,), errors = check(cache)
    assert (status, found["held"], found["same"]) == (0, len(samples), len(samples)), errors
    damage(store_of(cache) / "data", 10)
    status, (found,), _ = check(cache)
    assert (status, found["corrupt"]) == (1, 1)
    shard, _, member = found["findings"][0]["path"].partition(", ")
    assert os.path.dirname(shard) == str(tmp_path / "shards")
    with tarfile.open(shard) as archive:
        assert member.partition(",")[0] in archive.getnames()


def listed(torch, kind, directory):
    """A dataset whose samples a process lists, and how many there are."""
    paths = [p for p in recordfiles.write(directory / "files") if p]
    if kind == "Files":
        return torch.Files([{"image": a, "json": c} for a, _, c in paths]), {}, len(paths)
    if kind == "Records":
        ends = list(range(10, 210, 10))
        (directory / "blob").write_bytes(bytes(range(200)))
        starts = [end - 10 for end in ends]
        ranges = {"bin": ([0] * len(ends), starts, [10] * len(ends))}
        return torch.Records([str(directory / "blob")], ranges), {}, len(ends)
    dataset = owndata.Bytes(owndata.write(directory / "own"))
    return dataset, {"files": dataset.files}, len(dataset)


@pytest.mark.parametrize("kind", ["Files", "Records", "files="])
def test_check_compares_copies_of_lists(short, tmp_path, kind):
    """The store keeps the list that the process gave."""
    torch = pytest.importorskip("hdmlp.torch")
    cache = tmp_path / "cache"
    (tmp_path / "data").mkdir()
    dataset, options, count = listed(torch, kind, tmp_path / "data")
    loader = torch.DataLoader(
        dataset, 4, cache_dir=str(cache), memory="0B", cache_size="10MB", collate_fn=list, **options
    )
    for _ in loader:
        pass
    loader.close()
    free(cache)
    status, (found,), errors = check(cache)
    assert (status, found["held"], found["same"]) == (0, count, count), errors
    damage(store_of(cache) / "data", 3)
    status, (found,), _ = check(cache, "--fix")
    assert (status, found["corrupt"], found["dropped"]) == (1, 1, 1)
    assert str(tmp_path / "data") in found["findings"][0]["path"]
    status, (found,), errors = check(cache)
    assert (status, found["held"], found["same"]) == (0, count - 1, count - 1), errors
    assert command("rm", cache, "--all", "--yes").returncode == 0
    assert list(cache.iterdir()) == []


def test_check_says_that_a_store_has_no_list(short, tmp_path):
    """As those of older versions."""
    torch = pytest.importorskip("hdmlp.torch")
    cache = tmp_path / "cache"
    dataset, _, _ = listed(torch, "Files", tmp_path)
    loader = torch.DataLoader(dataset, 4, cache_dir=str(cache), memory="0B", cache_size="10MB")
    for _ in loader:
        pass
    loader.close()
    free(cache)
    kept = (store_of(cache) / "list").read_bytes()
    (store_of(cache) / "list").write_bytes(kept[:-1])
    status, found, errors = check(cache)
    assert (status, found) == (2, [])
    assert "the list of records: it has" in errors
    (store_of(cache) / "list").unlink()
    status, found, errors = check(cache)
    assert (status, found) == (2, [])
    assert "did not keep the list; verify=True of a loader compares each copy" in errors
