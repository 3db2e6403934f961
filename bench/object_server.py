"""The files of a folder as the objects of a bucket, from Python: starts bench/objects."""

from __future__ import annotations

import json
import os
import subprocess
import urllib.parse
import urllib.request
from typing import Any

_ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

#: The server; `make objects` builds it.
BINARY = os.path.join(_ROOT, "build", "bin", "objects")
BUCKET = "data"


class ObjectServer:
    """A context in which a folder's files are the objects of the bucket ``data``.

    Args:
        folder: The folder.
        *flags: Those of bench/objects.

    Attributes:
        url: The server's URL, an endpoint of S3.
        plain: The URL below which the objects are served without keys.
    """

    def __init__(self, folder: str, *flags: str) -> None:
        self._command = [BINARY, "-root", folder, "-bucket", BUCKET, *flags]
        self._server: subprocess.Popen[str] | None = None
        self.url = ""

    def __enter__(self) -> ObjectServer:
        self._server = subprocess.Popen(self._command, stdout=subprocess.PIPE, text=True)
        assert self._server.stdout is not None
        self.url = self._server.stdout.readline().strip()
        self.plain = self.url + "/-/plain"
        if not self.url:
            raise RuntimeError(f"{BINARY} does not start")
        return self

    def __exit__(self, *_: object) -> None:
        assert self._server is not None
        assert self._server.stdout is not None
        self._server.terminate()
        self._server.wait()
        self._server.stdout.close()

    def counts(self) -> dict[str, Any]:
        """Returns what the server was asked and has sent; see bench/objects."""
        with urllib.request.urlopen(self.url + "/-/counts") as answer:
            found: dict[str, Any] = json.load(answer)
            return found

    def counters(self) -> dict[str, int]:
        """Returns requests, bytes of objects, and the server's processor time, as a mount does."""
        counts = self.counts()
        assert self._server is not None
        with open(f"/proc/{self._server.pid}/stat") as file:
            fields = file.read().rpartition(")")[2].split()
        ticks = int(fields[11]) + int(fields[12])
        nanoseconds = ticks * 1_000_000_000 // os.sysconf("SC_CLK_TCK")
        gets: int = counts["gets"]
        return {"opens": gets, "reads": gets, "bytes": counts["bytes"], "cpu_ns": nanoseconds}

    def down(self, seconds: float) -> None:
        """Has the server answer nothing for some time."""
        self._post("down", **{"for": f"{seconds}s"})

    def hold(self, name: str) -> None:
        """Has the server send nothing of an object until it is released."""
        self._post("hold", object=name)

    def release(self, name: str) -> None:
        """Ends a hold."""
        self._post("release", object=name)

    def _post(self, what: str, **query: str) -> None:
        url = f"{self.url}/-/{what}?{urllib.parse.urlencode(query)}"
        urllib.request.urlopen(urllib.request.Request(url, method="POST")).close()

    def environment(self, key: str = "the-id", secret: str = "the-secret") -> dict[str, str]:
        """Returns variables by which a process reaches the server."""
        return {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": key,
            "AWS_SECRET_ACCESS_KEY": secret,
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_CONFIG_FILE": "/nonexistent",
            "AWS_SHARED_CREDENTIALS_FILE": "/nonexistent",
        }
