"""Which bytes a sample has after its source was mounted again."""

import os
import subprocess

import pytest
from identities import Rank, hashes, make, needs_root, read

pytestmark = pytest.mark.slow

THROTTLE = os.path.join(
    os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))),
    "build",
    "bin",
    "throttle",
)


class Mount:
    """A FUSE file system that shows a directory, in the mount namespace of a process."""

    def __init__(self, source, where, pid=None):
        self.enter = [] if pid is None else ["nsenter", "-t", str(pid), "-m"]
        self.where = str(where)
        self.server = subprocess.Popen(
            [
                *self.enter,
                THROTTLE,
                f"--source={source}",
                f"--mount={where}",
                "--bandwidth=1000000000",
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        if not self.server.stdout.readline().startswith("mounted "):
            pytest.skip(self.server.communicate()[1])

    def die(self):
        """Ends as a crashed server does: open files are disconnected."""
        self.server.kill()
        self.server.communicate()
        subprocess.run([*self.enter, "umount", "-l", self.where], check=True)

    def close(self):
        self.server.terminate()
        self.server.communicate()


@needs_root
@pytest.mark.parametrize("where", ["the daemon's", "a container's"])
@pytest.mark.parametrize("what", ["the same", "another dataset"])
def test_a_loader_continues_on_a_remounted_source(real, monkeypatch, tmp_path, where, what):
    """After a crash of its server, if the dataset is the same."""
    if not os.path.exists(THROTTLE):
        pytest.skip("run `make throttle`")
    monkeypatch.setenv("HDMLP_LINGER", "5s")
    monkeypatch.setenv("HDMLP_SOURCE_TIMEOUT", "8s")
    data, other, point = tmp_path / "data", tmp_path / "other", tmp_path / "mnt"
    make(data, "one")
    make(other, "two")
    point.mkdir()
    keeper = None
    prefix = ()
    if where == "a container's":
        make(tmp_path / "elsewhere", "three")
        assert read(tmp_path / "elsewhere")["hashes"]  # the daemon runs outside
        keeper = subprocess.Popen(
            ["unshare", "-m", "--propagation", "private", "sh", "-c", "echo; exec sleep 100"],
            stdout=subprocess.PIPE,
        )
        keeper.stdout.readline()
        prefix = ("nsenter", "-t", str(keeper.pid), "-m")
    pid = keeper.pid if keeper else None
    mount = Mount(data, point, pid)
    try:
        rank = Rank(
            point,
            prefix,
            epochs=3,
            step=True,
            memory="0B",
            prefetch_batches=1,
            staging_buffer="64KiB",
        )
        said = rank.says()
        assert said.get("hashes") == hashes(data), said
        mount.die()
        mount = Mount(data if what == "the same" else other, point, pid)
        rank.go_on()
        said = rank.says()
        if what == "the same":
            assert said.get("hashes") == hashes(data), said
            rank.go_on()
            assert rank.says().get("hashes") == hashes(data)
        else:
            assert said.get("error") == "SampleError", said
            assert "another dataset is mounted" in said["text"], said
            assert str(point) in said["text"], said
        rank.end()
    finally:
        mount.close()
        if keeper:
            keeper.kill()
            keeper.wait()
