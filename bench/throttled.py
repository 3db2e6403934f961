"""A folder behind a throttled mount, from Python: starts bench/throttle and asks for its
counters."""

import json
import os
import shutil
import socket
import subprocess
import tempfile
from typing import Any, Optional

_ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

#: The server; `make throttle` builds it.
BINARY = os.path.join(_ROOT, "build", "bin", "throttle")


class Unavailable(Exception):
    """There can be no throttled mount on this machine; the message says why."""


class Throttled:
    """A context in which ``path`` shows a folder, read-only and with the given speed.

    With ``cpus``, only these processors serve it: of a source elsewhere, a job's have no work. The
    server then stays in the normal scheduling class: in the real-time class on one processor, its
    own threads keep each other from running.

    Attributes:
        path: where the folder is shown.
        priority: the scheduling class that the server reached.

    Raises:
        Unavailable: on entering, if it cannot be mounted.
    """

    def __init__(
        self,
        folder: str,
        bandwidth: int,
        latency: float = 0.0,
        *flags: str,
        cpus: Optional[set[int]] = None,
    ) -> None:
        self._folder, self._cpus = folder, cpus
        flags += ("--normal-priority",) if cpus else ()
        self._flags = [f"--bandwidth={int(bandwidth)}", f"--latency={latency * 1e3:.6f}ms", *flags]
        self._directory = ""
        self._server: Optional[subprocess.Popen] = None
        self._control: Any = None
        self.path = ""
        self.priority = ""

    def __enter__(self) -> "Throttled":
        if not os.path.exists(BINARY):
            raise Unavailable(f"{BINARY} is missing: run `make throttle`")
        self._directory = tempfile.mkdtemp(prefix="hdmlp-throttled-")
        self.path = os.path.join(self._directory, "source")
        os.mkdir(self.path)
        control = os.path.join(self._directory, "stats")
        self._server = subprocess.Popen(
            [
                BINARY,
                f"--source={self._folder}",
                f"--mount={self.path}",
                f"--stats-socket={control}",
                *self._flags,
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=self._pin,
        )
        if not self._server.stdout.readline().startswith("mounted "):
            reason = self._server.communicate()[1].strip()
            self.__exit__(None, None, None)
            raise Unavailable(reason or "the server ended without a word")
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(control)
        self._control = connection.makefile("rw", encoding="utf-8")
        connection.close()  # the file keeps it open
        self.priority = self.counters()["priority"]
        return self

    def _pin(self) -> None:
        if self._cpus:
            os.sched_setaffinity(0, self._cpus)

    def __exit__(self, *exc: object) -> None:
        if self._control is not None:
            self._control.close()
            self._control = None
        if self._server is not None:
            self._server.terminate()
            try:
                self._server.communicate(timeout=10)
            except subprocess.TimeoutExpired:
                self._server.kill()
                self._server.communicate()
            self._server = None
        if self._directory and not os.path.ismount(self.path):
            shutil.rmtree(self._directory, ignore_errors=True)

    def counters(self) -> dict[str, Any]:
        """Opens, reads and bytes so far; the server's CPU time; its settings."""
        return self._ask("counters")

    def set(self, **settings: object) -> dict[str, Any]:
        """Changes bandwidth, latency, fail_rate, fail_seed, fail, fail_names, stale, hang or
        hang_names, written as on the command line."""
        return self._ask(
            "set " + " ".join(f"{key.replace('_', '-')}={value}" for key, value in settings.items())
        )

    def _ask(self, request: str) -> dict[str, Any]:
        self._control.write(request + "\n")
        self._control.flush()
        answer = json.loads(self._control.readline())
        if "error" in answer:
            raise ValueError(answer["error"])
        return answer
