"""The source: a folder behind a FUSE mount (bench/throttle) that can fail, hang, be slow, or die,
and whose samples can change."""

from __future__ import annotations

import contextlib
import json
import os
import random
import socket
import subprocess
from pathlib import Path
from typing import Any

from machine import umount, until
from oracle import Listing

#: The server; `make throttle` builds it.
BINARY = Path(__file__).resolve().parents[2] / "build" / "bin" / "throttle"


class Origin:
    """A context in which ``mount`` shows ``folder``.

    Attributes:
        listing: the samples, with their digests, before anything has happened to them.
    """

    def __init__(self, folder: Path, mount: Path, bandwidth: int) -> None:
        self.folder, self.mount = folder, mount
        self.listing = Listing(folder)
        self._bandwidth = bandwidth
        self._control = mount.with_name(mount.name + ".control")
        self._settings: dict[str, Any] = {}
        self._server: subprocess.Popen[bytes] | None = None
        self._kept: set[int] = set()

    def __enter__(self) -> Origin:
        self.mount.mkdir()
        self._keeping(self.folder / "class" / "sample").parent.mkdir()
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()
        umount(self.mount, lazy=True)
        self._control.unlink(missing_ok=True)

    def start(self) -> None:
        """Mounts the source, with the settings that it last had."""
        self._control.unlink(missing_ok=True)
        self._server = subprocess.Popen(
            [
                BINARY,
                "--normal-priority",
                f"--source={self.folder}",
                f"--mount={self.mount}",
                f"--stats-socket={self._control}",
                f"--bandwidth={self._bandwidth}",
                "--attr-timeout=0s",
            ],
            start_new_session=True,  # Ctrl-C is not for it
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        until(self._listens, 10, "the mount of the source")
        if self._settings:
            self._set()

    def _listens(self) -> bool:
        """Reports whether the server can be asked. Its socket is there a moment before."""
        with contextlib.closing(socket.socket(socket.AF_UNIX)) as control:
            return control.connect_ex(os.fspath(self._control)) == 0

    def stop(self) -> None:
        """Kills the server: the mount stays, and all that is done there fails with ENOTCONN."""
        if self._server:
            self._server.kill()
            self._server.wait()
            self._server = None

    def again(self) -> None:
        """Mounts the source again."""
        umount(self.mount, lazy=True)
        self.start()

    def set(self, **settings: object) -> None:
        """Changes settings of the server: latency, fail_rate, fail, hang."""
        self._settings.update(settings)
        if self._server:
            self._set()

    def _set(self) -> None:
        line = " ".join(f"{k.replace('_', '-')}={v}" for k, v in self._settings.items())
        with contextlib.closing(socket.socket(socket.AF_UNIX)) as control:
            control.connect(os.fspath(self._control))
            control.sendall(f"set {line}\n".encode())
            answer = json.loads(control.makefile().readline())
        if "error" in answer:
            raise ValueError(answer["error"])

    def renew(self, how: str, seed: int) -> None:
        """Gives all samples other bytes of equal sizes: they are ``replaced`` by other files, or
        ``rewritten`` in place, with the times that they had."""
        r = random.Random(seed)
        for path in map(Path, self.listing.paths):
            was = path.stat()
            data = r.randbytes(was.st_size)
            if how == "replaced":
                self._appear(path, data)
            else:
                with open(path, "r+b") as file:
                    file.write(data)
                os.utime(path, ns=(was.st_atime_ns, was.st_mtime_ns))
        self.listing = Listing(self.folder)

    def name(self, sample: int) -> str:
        """The sample's path below the source."""
        return os.path.relpath(self.listing.paths[sample], self.folder)

    def harm(self, sample: int, how: str) -> None:
        """Does something to a sample's file: ``rewritten``, ``cut off`` or ``removed``. Readers see
        the old file or the new one, nothing between them."""
        path = Path(self.listing.paths[sample])
        kept = self._keeping(path)
        if kept.exists():
            return  # something was done to it before
        os.rename(path, kept)
        self._kept.add(sample)
        data = kept.read_bytes()
        if how == "rewritten":
            self._appear(path, data[::-1])
        elif how == "cut off":
            self._appear(path, data[: len(data) // 2])

    def mend(self) -> None:
        """Puts back the files that were harmed, with their times."""
        for sample in self._kept:
            path = Path(self.listing.paths[sample])
            os.replace(self._keeping(path), path)
        self._kept.clear()

    def _keeping(self, path: Path) -> Path:
        return self.folder.with_name("kept") / f"{path.parent.name}-{path.name}"

    def _appear(self, path: Path, data: bytes) -> None:
        fresh = self._keeping(path).with_suffix(".new")
        fresh.write_bytes(data)
        os.rename(fresh, path)
