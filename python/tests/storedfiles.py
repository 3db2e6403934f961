"""A folder that is served as objects."""

import glob
import io
import tarfile

import pytest


@pytest.fixture
def stored(tmp_path):
    """A folder of 3 classes with 40 files each, and 4 shards with the same as pairs."""
    root = tmp_path / "stored"
    number = 0
    for name in ("ant", "bee", "émeu"):
        (root / "train" / name).mkdir(parents=True)
        for i in range(40):
            text = f"{name} {i} ".encode() * (20 + i)
            (root / "train" / name / f"{i}.jpg").write_bytes(text)
            number += 1
    (root / "shards").mkdir()
    files = sorted(glob.glob(str(root / "train" / "*" / "*.jpg")))
    for s in range(4):
        with tarfile.open(root / "shards" / f"{s:03d}.tar", "w") as shard:
            for i, path in enumerate(files[30 * s : 30 * s + 30]):
                with open(path, "rb") as file:
                    image = file.read()
                for suffix, content in (("jpg", image), ("cls", str(i % 7).encode())):
                    member = tarfile.TarInfo(f"{s}-{i:03d}.{suffix}")
                    member.size = len(content)
                    shard.addfile(member, io.BytesIO(content))
    return str(root)
