"""Files with input/output errors, as from a bad sector: the files are at fault, not the source, as
long as others can be read."""

import json
import os
import random
import subprocess
import time

import pytest

torch = pytest.importorskip("torch")

import hdmlp.torch as ht
from hdmlp import errors
from hdmlp._daemon import connecting
from throttled import Throttled, Unavailable
from torch.utils.data import DistributedSampler

pytestmark = [pytest.mark.usefixtures("real"), pytest.mark.slow, pytest.mark.ci]
FILES, BATCH, EPOCHS = 200, 10, 2


@pytest.fixture
def mount(tmp_path):
    """200 files behind a mount that can be made to fail, and their bytes by ID."""
    rng = random.Random(3)
    (tmp_path / "data" / "a").mkdir(parents=True)
    content = [rng.randbytes(rng.randint(1, 20_000)) for _ in range(FILES)]
    for i, data in enumerate(content):
        (tmp_path / "data" / "a" / f"{i:03d}.jpg").write_bytes(data)
    try:
        with Throttled(str(tmp_path / "data"), 0, 0.0, "--attr-timeout=0s") as shown:
            shown.content = content
            yield shown
    except Unavailable as error:
        pytest.skip(str(error))


def loaders(mount, policy, **options):
    return [
        ht.DataLoader(
            ht.ImageFolder(mount.path),
            BATCH,
            seed=4,
            epochs=EPOCHS,
            on_error=policy,
            rank=rank,
            world_size=2,
            name="bad",
            **options,
            shuffle=True,
        )
        for rank in range(2)
    ]


def expected(epoch, rank):
    """The IDs of every batch, by torch's own sampler."""
    sampler = DistributedSampler(range(FILES), 2, rank, shuffle=True, seed=4)
    sampler.set_epoch(epoch)
    ids = list(sampler)
    return [ids[at : at + BATCH] for at in range(0, len(ids), BATCH)]


@pytest.mark.parametrize("policy", ["skip", "substitute"])
@pytest.mark.parametrize(
    "pattern, bad, options",
    [
        ("077.jpg", {77}, {}),
        ("?[0-4]7.jpg", {100 * a + 10 * b + 7 for a in range(2) for b in range(5)}, {}),
        (
            "?[0-4]7.jpg",
            {100 * a + 10 * b + 7 for a in range(2) for b in range(5)},
            {"source_threads": 1, "memory": "0"},
        ),
    ],
    ids=["one", "ten", "ten and one thread"],
)
def test_bad_files_are_left_out(mount, policy, pattern, bad, options):
    """The stream continues without them within seconds, identically on both ranks and in both
    epochs."""
    mount.set(fail=pattern)
    ranks = loaders(mount, policy, **options)
    for epoch in range(EPOCHS):
        want = [expected(epoch, rank) for rank in range(2)]
        steps = 0
        for step, batches in enumerate(zip(*ranks)):
            for rank, (samples, _) in enumerate(batches):
                ids = want[rank][step]
                ids = (
                    [i for i in ids if i not in bad]
                    if policy == "skip"
                    else [i + (i in bad) for i in ids]
                )
                assert [bytes(sample) for sample in samples] == [mount.content[i] for i in ids]
            steps += 1
        assert steps == len(want[0])
    faults = ranks[0].report()["faults"]
    assert {fault["sample"] for fault in faults} == bad
    assert {fault["policy"] for fault in faults} == {policy}
    assert all(
        "while other samples could be read" in fault["reason"]
        and "input/output error" in fault["reason"]
        for fault in faults
    ), faults
    for loader in ranks:
        loader.close()


@pytest.mark.parametrize("which", ["fail", "fail_names"], ids=["reads", "status"])
@pytest.mark.parametrize("stale", [False, True], ids=["EIO", "ESTALE"])
@pytest.mark.parametrize("when", ["before", "during"])
def test_stale_files_are_as_others_that_are_bad(mount, which, stale, when):
    """Whether a read or the status of a file fails, and before or after the dataset is listed: it
    alone is left out."""
    fault, bad = {"stale": str(stale).lower(), which: "1[057]7.jpg"}, {107, 157, 177}
    if when == "before":
        mount.set(**fault)
    with ht.DataLoader(
        ht.ImageFolder(mount.path), BATCH, on_error="skip", memory="0", prefetch_batches=1
    ) as loader:
        if when == "during":
            next(iter(loader))
            mount.set(**fault)
        for _ in range(EPOCHS):
            got = [bytes(sample) for samples, _ in loader for sample in samples]
            assert got == [data for i, data in enumerate(mount.content) if i not in bad]
        faults = loader.report()["faults"]
        assert {fault["sample"] for fault in faults} == bad
        reason = "stale" if stale else "input/output error"
        assert all(reason in fault["reason"] for fault in faults)


def test_a_bad_file_raises_without_waiting_for_the_timeout(mount):
    mount.set(fail="077.jpg")
    [loader, other] = loaders(mount, "raise")
    with pytest.raises(errors.SampleError, match="input/output error") as caught:
        for _ in zip(loader, other):
            pass
    assert caught.value.sample == 77
    assert caught.value.path.endswith("/a/077.jpg")
    assert (
        "while other samples could be read, so the fault is the file's and not the source's: "
        "restore the file" in str(caught.value)
    )
    loader.close()
    other.close()


def test_a_failing_source_raises_after_source_timeout(mount):
    """If no file can be read, the source is at fault: no file is left out."""
    [loader, other] = loaders(mount, "skip", source_timeout="4s", prefetch_batches=1, memory="0")
    next(zip(loader, other))
    mount.set(fail="*.jpg")
    begun = time.monotonic()
    with pytest.raises(
        errors.SampleError, match=r"the source did not answer: tried .* then given up"
    ) as caught:
        for _ in range(EPOCHS):
            for _ in zip(loader, other):
                pass
    assert time.monotonic() - begun > 3.5
    assert "input/output error" in str(caught.value)
    assert loader.report()["faults"] == []
    loader.close()
    other.close()


def version(root, index):
    """The dataset's version, or what is said if it has none."""
    seen = subprocess.run(
        [connecting.find_binary(), "dataset", "--json", "--index-dir", str(index), str(root)],
        capture_output=True,
        text=True,
    )
    return seen.stderr if seen.returncode else json.loads(seen.stdout)["fingerprint"]


def test_read_errors_do_not_change_the_datasets_version(mount, tmp_path):
    """The version depends on the contents of 64 files, of which some reads fail."""
    want = version(tmp_path / "data", tmp_path / "files")
    for seed in range(5):
        mount.set(**{"fail-rate": 0.2, "fail-seed": seed})
        assert version(mount.path, tmp_path / f"index{seed}") == want


@pytest.mark.parametrize("rate", [0.7, 1.0])
def test_a_failing_source_has_no_version(mount, tmp_path, rate):
    """Unless an index has the files, which are as they were."""
    files = sorted((tmp_path / "data" / "a").iterdir())
    first = version(mount.path, tmp_path / "index")
    mount.set(**{"fail-rate": rate, "fail-seed": 1})
    assert version(mount.path, tmp_path / "index") == first
    assert "did not answer" in version(mount.path, tmp_path / "none")
    for file in files:
        times = file.stat()
        file.write_bytes(bytes(times.st_size))
        os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert "did not answer" in version(mount.path, tmp_path / "index")
    mount.set(**{"fail-rate": 0})
    assert version(mount.path, tmp_path / "index") == version(tmp_path / "data", tmp_path / "files")
