"""`hdmlp pack`: shards that Python's tarfile and the package's own dataset read as they were."""

import json
import os
import signal
import subprocess

import pytest
import shards
from hdmlp._daemon import connecting
from waiting import until

pytestmark = pytest.mark.slow


def start(*args):
    return subprocess.Popen(
        [connecting.find_binary(), "pack", *map(str, args)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def pack(*args):
    process = start(*args)
    out, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    return out


def contents(directory):
    return {entry.name: entry.read_bytes() for entry in sorted(directory.iterdir())}


def packed(directory):
    return sorted(directory.glob("*.tar"))


def kill(process, journal, lines):
    """Kills a process when the journal has so many lines, or the process has ended."""

    def there():
        return journal.exists() and journal.read_bytes().count(b"\n") >= lines

    until(lambda: there() or process.poll() is not None, f"{lines} lines of the journal")
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()


def folder_of(path, count=200):
    for i in range(count):
        file = path / ("ant", "bee")[i % 2] / f"{i:04d}.jpg"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b"%04d" % i * (500 + i))
    return path


@pytest.fixture(autouse=True)
def index(monkeypatch, tmp_path):
    monkeypatch.setenv("HDMLP_INDEX_DIR", str(tmp_path / "index"))


def test_a_folder_becomes_shards_with_the_numbers_of_its_classes(real, tmp_path):
    torch = pytest.importorskip("hdmlp.torch")
    datasets = pytest.importorskip("torchvision.datasets")
    data = folder_of(tmp_path / "data")
    pack(data, tmp_path / "out", "--shard-size", "64KiB", "--shards", "train-%03d.tar")
    reference = datasets.ImageFolder(str(data))
    found = shards.read(packed(tmp_path / "out"))
    assert len(found) == len(reference.samples)
    for (key, fields), (path, label) in zip(found, reference.samples):
        assert path == str(data / f"{key}.jpg")
        image = (data / f"{key}.jpg").read_bytes()
        assert fields == {"jpg": image, "cls": b"%d" % label}
    assert json.loads((tmp_path / "out" / "classes.json").read_text()) == reference.classes
    dataset = torch.WebDataset(str(tmp_path / "out" / "*.tar"), fields=("jpg", "cls"))
    assert dataset.targets == reference.targets
    assert [bytes(image) for image, _ in dataset] == [fields["jpg"] for _, fields in found]


def test_shards_become_the_same_samples(real, tmp_path):
    torch = pytest.importorskip("hdmlp.torch")
    samples = shards.make(tmp_path / "shards", (30, 40))
    pack(tmp_path / "shards" / "{000..001}.tar", tmp_path / "out", "--shard-size", "16KiB")
    assert len(packed(tmp_path / "out")) > 2
    assert shards.read(packed(tmp_path / "out")) == samples
    before = torch.WebDataset(str(tmp_path / "shards" / "*.tar"))
    after = torch.WebDataset(str(tmp_path / "out" / "*.tar"))
    assert before.fields == after.fields
    for one, two in zip(before, after):
        one.pop("__url__"), two.pop("__url__")
        assert one == two


def test_the_order_is_that_in_which_a_job_needs_its_samples(real, tmp_path):
    torch = pytest.importorskip("hdmlp.torch")
    samples = shards.make(tmp_path / "shards", (30, 40))
    dataset = torch.WebDataset(str(tmp_path / "shards" / "*.tar"))
    loader = torch.DataLoader(dataset, 8, shuffle=True, seed=3)
    (tmp_path / "state").write_text(json.dumps(loader.state_dict()))
    keys = [key for batch in loader for key in batch["__key__"]]
    loader.close()
    pack(tmp_path / "shards", tmp_path / "out", "--like", tmp_path / "state")
    found = shards.read(packed(tmp_path / "out"))
    assert [key for key, _ in found] == keys
    assert sorted(found) == samples


def test_a_killed_command_goes_on_with_the_same_bytes(tmp_path):
    data = folder_of(tmp_path / "data")
    args = (data, tmp_path / "whole", "--shard-size", "16KiB")
    pack(*args)
    out = tmp_path / "out"
    journal = out / ".hdmlp-pack"
    for lines in (1, 4, 9, 30):
        kill(start(data, out, "--shard-size", "16KiB"), journal, lines)
        for file in packed(out):
            assert file.read_bytes() == (tmp_path / "whole" / file.name).read_bytes()
    assert "of which an earlier run wrote" in pack(data, out, "--shard-size", "16KiB")
    assert contents(out) == contents(tmp_path / "whole")
