"""Which bytes a sample has: real processes, compared with an oracle that lists and hashes the files
itself.

Datasets here look alike: names, sizes and times of their files are the same, and their bytes are
not.
"""

import hashlib
import json
import os
import shutil
import subprocess
import sys

import pytest
from hdmlp import errors
from hdmlp._daemon import connecting
from hdmlp.data import DataLoader, Folder
from identities import (
    FILES,
    SIZE,
    THEN,
    Rank,
    container,
    hashes,
    lasting,  # noqa: F401
    make,
    needs_root,
    normalise,
    read,
    short,  # noqa: F401
    write,
)

pytestmark = pytest.mark.slow


@needs_root
@pytest.mark.parametrize("stay", [False, True])
def test_containers_that_share_a_socket_read_their_own_files(lasting, tmp_path, stay):
    (tmp_path / "data").mkdir()
    seen = {}
    for name in ("one", "two"):
        make(tmp_path / name, name)
    ranks = []
    for name in ("one", "two", "one"):
        rank = Rank(tmp_path / "data", container([(tmp_path / name, tmp_path / "data")]), stay=stay)
        seen = rank.says()
        assert seen.get("hashes") == hashes(tmp_path / name), (name, seen)
        ranks.append(rank)
        if not stay:
            rank.end()
            ranks.pop()
    for rank in ranks:
        rank.end()


@needs_root
def test_links_resolve_as_the_process_sees_them(lasting, tmp_path):
    """Absolute and relative links, of files and of directories."""
    for name in ("one", "two"):
        make(tmp_path / name, name)
    (tmp_path / "store").mkdir()
    linked = tmp_path / "linked"
    (linked / "b").mkdir(parents=True)
    (linked / "a").symlink_to(tmp_path / "store" / "a")
    (linked / "c").symlink_to("../store/b")
    for i in range(1, FILES, 2):
        (linked / "b" / f"{i:03d}.jpg").symlink_to(tmp_path / "store" / "b" / f"{i:03d}.jpg")
    for name in ("one", "two", "one"):
        said = read(linked, container([(tmp_path / name, tmp_path / "store")]))
        a, b = hashes(tmp_path / name)[: FILES // 2], hashes(tmp_path / name)[FILES // 2 :]
        assert said.get("hashes") == a + b + b, (name, said)


@needs_root
def test_a_process_with_another_root_reads_its_own_files(lasting, tmp_path):
    """It shares the socket with a daemon outside its root directory (chroot)."""
    make(tmp_path / "one", "one")
    jail = tmp_path / "jail"
    inner = jail / str(tmp_path / "one").lstrip("/")
    make(inner, "two")
    assert read(tmp_path / "one").get("hashes") == hashes(tmp_path / "one")
    tops = [
        name
        for name in os.listdir("/")
        if name not in ("tmp", "mnt")
        and not os.path.islink(f"/{name}")
        and os.path.isdir(f"/{name}")
    ]
    tops += [
        path.lstrip("/")
        for path in (sys.prefix, os.path.abspath(f"{__file__}/../../.."))
        if path.split("/")[1] in ("tmp", "mnt")
    ]
    script = "".join(
        f"mkdir -p {jail}/{name} && mount --rbind /{name} {jail}/{name} && " for name in tops
    )
    links = "".join(
        f"ln -sfn {os.readlink('/' + name)} {jail}/{name}; "
        for name in os.listdir("/")
        if os.path.islink(f"/{name}")
    )
    said = read(
        tmp_path / "one",
        (
            "unshare",
            "-m",
            "--propagation",
            "private",
            "sh",
            "-c",
            links + script + f'exec chroot {jail} "$@"',
            "sh",
        ),
    )
    assert said.get("hashes") == hashes(inner), said


def test_a_cache_directory_distinguishes_datasets_that_look_alike(short, tmp_path):
    one, two = make(tmp_path / "one", "one"), make(tmp_path / "two", "two")
    cache = dict(cache_dir=str(tmp_path / "cache"), memory="0B", cache_size="10MB", epochs=2)
    assert read(one, **cache)["hashes"] == hashes(one)
    assert read(two, **cache)["hashes"] == hashes(two)
    assert read(one, **cache)["hashes"] == hashes(one)


def test_memory_caches_distinguish_datasets_that_look_alike(lasting, tmp_path):
    one, two = make(tmp_path / "one", "one"), make(tmp_path / "two", "two")
    for root in (one, two, one):
        assert read(root, epochs=2)["hashes"] == hashes(root)


def test_a_replaced_dataset_is_noticed(lasting, tmp_path):
    """The directory is replaced between jobs, and while a job has it open."""
    data = tmp_path / "data"
    make(data, "one")
    first = Rank(data, stay=True)
    assert first.says()["hashes"] == hashes(data)
    data.rename(tmp_path / "old")
    make(data, "two")
    assert read(data)["hashes"] == hashes(data)
    shutil.rmtree(data)
    make(data, "three", FILES + 10)
    assert read(data)["hashes"] == hashes(data)
    first.end()


def test_a_dataset_that_grew_while_open_is_noticed(lasting, tmp_path):
    data = tmp_path / "data"
    make(data, "one")
    first = Rank(data, epochs=2, step=True)
    before = hashes(data)
    assert first.says()["hashes"] == before
    for i in range(FILES, FILES + 12):
        write(data / "a" / f"{i:03d}.jpg", f"new {i}")
    assert read(data)["hashes"] == hashes(data)
    first.go_on()
    assert first.says()["hashes"] == before
    first.end()


@pytest.mark.parametrize("times", ["kept", "new"])
@pytest.mark.parametrize("which", [[0], [7, 30], range(FILES)])
@pytest.mark.parametrize("cache", ["file", "memory"])
def test_files_rewritten_in_place_are_noticed(real, monkeypatch, tmp_path, times, which, cache):
    """The files keep their length. A new job gives the new bytes or names the changed file, and the
    job after it gives the new bytes."""
    monkeypatch.setenv("HDMLP_LINGER", "20s" if cache == "memory" else "0s")
    data = tmp_path / "data"
    make(data, "one", FILES if len(which) > 2 else 400)
    options = (
        dict(cache_dir=str(tmp_path / "cache"), memory="0B", cache_size="10MB")
        if cache == "file"
        else {}
    )
    assert read(data, epochs=2, **options)["hashes"] == hashes(data)
    paths = sorted(data.glob("*/*.jpg"))
    for i in which:
        with open(paths[i], "r+b") as file:
            file.write(hashlib.shake_256(f"new {i}".encode()).digest(SIZE))
    if times == "kept":
        normalise(data)
    said = read(data, epochs=2, **options)
    if "error" in said:
        assert said["error"] == "SampleError", said
        assert "changed" in said["text"], said
        assert any(str(paths[i]) in said["text"] for i in which), said
        said = read(data, epochs=2, **options)
    assert said.get("hashes") == hashes(data), said


def test_replaced_files_are_noticed(short, tmp_path):
    """Other files are renamed over them, with the same size and times."""
    data = tmp_path / "data"
    make(data, "one", 400)
    options = dict(cache_dir=str(tmp_path / "cache"), memory="0B", cache_size="10MB", epochs=2)
    assert read(data, **options)["hashes"] == hashes(data)
    for path in sorted(data.glob("*/*.jpg"))[3:300:50]:
        write(data / "new", f"new {path}")
        os.utime(data / "new", ns=(THEN * 10**9,) * 2)
        os.replace(data / "new", path)
    normalise(data)
    assert read(data, **options).get("hashes") == hashes(data)


def test_verify_finds_different_bytes(short, tmp_path):
    """A copy of a dataset differs in one file that the version does not cover; `hdmlp cache check`
    finds it too."""
    data, cache = tmp_path / "data", tmp_path / "cache"
    make(data, "one", 600)
    options = dict(cache_dir=str(cache), memory="0B", cache_size="10MB", cache_trust="version")
    assert read(data, epochs=2, **options)["hashes"] == hashes(data)
    other = tmp_path / "other"
    shutil.copytree(data, other)
    normalise(other)
    covered = read(other, epochs=1, verify=True, **options)
    assert covered.get("hashes") == hashes(other), covered
    for path in sorted(
        other.glob("*/*.jpg")
    ):  # one that the version does not cover: the version stays
        before = path.read_bytes()
        path.write_bytes(b"other" + before[5:])
        normalise(other)
        said = read(other, verify=True, **options)
        if said.get("error") == "AuditError":
            assert str(path) in said["text"], said
            assert "cache check" in said["text"], said
            break
        assert said.get("hashes") == hashes(other), said
    else:
        pytest.fail("no file was found out")


def altered(data, other):
    """Makes a copy of a dataset with the same version, in which some files have other bytes."""
    shutil.copytree(data, other)
    normalise(other)
    version, changed = Folder(data)._facts["fingerprint"], 0
    for path in sorted(other.glob("*/*.jpg"))[::7]:
        before = path.read_bytes()
        path.write_bytes(before[:1000] + b"new" + before[1003:])
        normalise(other)
        if Folder(other)._facts["fingerprint"] == version:
            changed += 1
        else:  # the version covers it
            path.write_bytes(before)
            normalise(other)
    assert changed > 20


@pytest.mark.parametrize("cache", ["file", "memory"])
def test_copies_of_another_datasets_files_are_not_used(real, monkeypatch, tmp_path, cache):
    """A copy of a dataset with the same version, in which some files have other bytes."""
    monkeypatch.setenv("HDMLP_LINGER", "20s" if cache == "memory" else "0s")
    data, other = tmp_path / "data", tmp_path / "other"
    options = {}
    if cache == "file":
        options = dict(cache_dir=str(tmp_path / "cache"), memory="0B", cache_size="10MB")
    make(data, "one", 300)
    assert read(data, epochs=2, **options)["hashes"] == hashes(data)
    altered(data, other)
    assert read(other, epochs=2, **options)["hashes"] == hashes(other)
    assert read(data, epochs=2, **options)["hashes"] == hashes(data)


@pytest.mark.parametrize("cache", ["file", "memory"])
@pytest.mark.parametrize("options", [{}, {"cache_trust": "version"}])
def test_copies_that_are_open_at_the_same_time(lasting, tmp_path, cache, options):
    """Each has its own bytes, also those that the other has cached before, and reads them once."""
    data, other = tmp_path / "data", tmp_path / "other"
    if cache == "file":
        where = dict(cache_dir=str(tmp_path / "cache"), memory="0B", cache_size="10MB")
        options = {**options, **where}
    make(data, "one", 300)
    altered(data, other)
    roots, loaders = (data, other), []
    try:
        for root in roots:
            loaders.append(DataLoader(str(root), 10, shuffle=False, epochs=4, **options))
        for _ in range(4):
            for root, loader in zip(roots, loaders):
                got = [hashlib.sha256(x).hexdigest() for batch in loader for x in batch[0]]
                assert got == hashes(root)
        for loader in loaders:
            epochs = loader.report()["epochs"]
            # without what was read because the copy would have come late
            read = sum(e["source"]["samples"] - e["direct"]["samples"] for e in epochs)
            assert read <= 300
    finally:
        for loader in loaders:
            loader.close()


@pytest.mark.parametrize("trust", ["instance", "version"])
def test_which_copies_a_dataset_at_another_path_has(short, tmp_path, trust):
    """Those of its own files, wherever they are now; by the version, those of equal datasets."""
    cache = dict(cache_dir=str(tmp_path / "cache"), memory="0B", cache_size="10MB")
    cache["cache_trust"] = trust
    data, copied, moved = (tmp_path / name for name in ("data", "copied", "moved"))
    make(data, "one", 100)
    shutil.copytree(data, copied)
    normalise(copied)

    def reads(root):
        with DataLoader(str(root), 10, shuffle=False, epochs=2, **cache) as loader:
            got = [hashlib.sha256(x).hexdigest() for _ in range(2) for b in loader for x in b[0]]
            assert got == hashes(root) * 2
            epochs = loader.report()["epochs"]
            # without what was read because the copy would have come late
            return sum(e["source"]["samples"] - e["direct"]["samples"] for e in epochs)

    assert reads(data) >= 100
    data.rename(moved)
    assert reads(moved) == 0
    assert (reads(copied) > 0) == (trust == "instance")


def test_a_dataset_object_is_of_one_version(short, tmp_path, monkeypatch):
    """What it reported and what its loader delivers are of one version; a new object is of the new
    version."""
    monkeypatch.setenv("HDMLP_SOCKET", f"hdmlp-object-{os.getpid()}")
    data = tmp_path / "data"
    make(data, "one")
    told, untold = Folder(str(data)), Folder(str(data))
    count = len(told)
    write(sorted(data.glob("*/*.jpg"))[-1].with_name("zz.jpg"), "more")
    with pytest.raises(
        errors.MismatchError, match=r"changed after this object had returned .*: make a new Folder"
    ):
        DataLoader(told, 4, seed=1)
    with pytest.raises(errors.MismatchError, match="changed after this object"):
        _ = told.samples
    with DataLoader(untold, 4, epochs=1, seed=1) as loader:
        assert (
            sum(len(samples) for samples, _ in loader)
            == count + 1
            == len(untold)
            == len(Folder(str(data)).samples)
        )


def test_rescan_renews_the_index_in_an_index_directory(short, tmp_path, monkeypatch):
    data = tmp_path / "data"
    make(data, "one")
    environment = {"HDMLP_INDEX_DIR": str(tmp_path / "elsewhere")}
    assert read(data, environment=environment)["hashes"] == hashes(data)
    make(data, "two")
    done = subprocess.run(
        [connecting.find_binary(), "dataset", str(data), "--rescan"],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done
    assert str(tmp_path / "elsewhere") in done.stdout, done
    assert not (data / ".hdmlp-index").exists()
    assert read(data, environment=environment)["hashes"] == hashes(data)


def test_simulate_uses_the_index_of_the_run(short, tmp_path, monkeypatch):
    """It leaves no index in the dataset."""
    data = tmp_path / "data"
    make(data, "one")
    monkeypatch.setenv("HDMLP_INDEX_DIR", str(tmp_path / "elsewhere"))
    with DataLoader(str(data), batch_size=4, epochs=1) as loader:
        assert sum(len(batch.samples) for batch in loader) == FILES
        (tmp_path / "report.json").write_text(json.dumps(loader.report()))
    done = subprocess.run(
        [connecting.find_binary(), "simulate", "--from-run", str(tmp_path / "report.json")],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done
    assert str(data) in done.stdout, done
    assert "mean size" not in done.stdout, done
    assert not (data / ".hdmlp-index").exists()


def test_ranks_with_different_datasets_are_refused(lasting, tmp_path):
    if os.getuid() != 0:
        pytest.skip("needs root for mount namespaces")
    (tmp_path / "data").mkdir()
    for name in ("one", "two", "three"):
        make(tmp_path / name, name)

    def place(rank):
        return {
            "RANK": str(rank),
            "WORLD_SIZE": "2",
            "LOCAL_RANK": str(rank),
            "LOCAL_WORLD_SIZE": "2",
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": "29500",
        }

    first = Rank(
        tmp_path / "data",
        container([(tmp_path / "one", tmp_path / "data")]),
        place(0),
        stay=True,
        seed=1,
    )
    first.says()
    said = read(
        tmp_path / "data", container([(tmp_path / "two", tmp_path / "data")]), place(1), seed=1
    )
    assert said.get("error") == "MismatchError", said
    assert str(tmp_path / "data") in said["text"], said
    said = read(
        tmp_path / "data", container([(tmp_path / "one", tmp_path / "data")]), place(1), seed=1
    )
    assert len(said.get("hashes", [])) == FILES // 2, said
    first.end()
