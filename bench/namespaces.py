"""Several nodes on this machine, each a network namespace with a link of its own, from Python: runs
`hdmlp dev cluster`."""

import json
import os
import secrets
import subprocess
import sys
from typing import Any, Optional

from throttled import Unavailable

_ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

#: The program; `make build` makes it.
BINARY = os.path.join(_ROOT, "python", "hdmlp", "bin", "hdmlp")

#: What every node runs: prints the launcher's variables, and waits for the end of the benchmark.
_HOLD = (
    "import json, os, sys; print(json.dumps(dict(os.environ)), flush=True); "
    "os.execlp('tail', 'tail', '--pid', sys.argv[1], '-f', '/dev/null')"
)


class Nodes:
    """A context in which this machine has several nodes, with one rank each.

    Args:
        count: how many.
        rate: of each node's link, each way, as `hdmlp dev cluster` takes it: "1gbit", "unlimited".

    Raises:
        Unavailable: on entering, if this machine or this user cannot have such nodes.
    """

    def __init__(self, count: int, rate: str = "unlimited") -> None:
        self.count, self.rate = count, rate
        self._name = f"bench-{os.getpid()}-{secrets.token_hex(4)}"
        self._process: Optional[subprocess.Popen] = None
        self._variables: dict[int, dict[str, str]] = {}

    def __enter__(self) -> "Nodes":
        if not os.path.exists(BINARY):
            raise Unavailable(f"{BINARY} is missing: run `make build`")
        if os.geteuid() != 0:
            raise Unavailable("network namespaces need root")
        self._process = subprocess.Popen(
            [
                BINARY,
                "dev",
                "cluster",
                "-n",
                str(self.count),
                "--rate",
                self.rate,
                "--run",
                self._name,
                "--",
                sys.executable,
                "-c",
                _HOLD,
                str(os.getpid()),
            ],
            env={key: value for key, value in os.environ.items() if not key.startswith("HDMLP_")},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        while len(self._variables) < self.count:
            line = self._process.stdout.readline()
            if not line:
                reason = self._process.communicate()[1].strip()
                self.__exit__(None, None, None)
                raise Unavailable(reason or "hdmlp dev cluster ended without a word")
            variables = json.loads(line.split("] ", 1)[1])
            self._variables[int(variables["GROUP_RANK"])] = variables
        return self

    def __exit__(self, *exc: Any) -> None:
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.communicate(timeout=20)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.communicate()
            self._process = None

    def environment(self, node: int) -> dict[str, str]:
        """The variables that the launcher sets for the node's rank."""
        return {
            key: value
            for key, value in self._variables[node].items()
            if os.environ.get(key) != value
        }

    def command(self, node: int) -> list[str]:
        """What a command that is to run on the node starts with."""
        return [BINARY, "dev", "exec", str(node), "--run", self._name, "--"]
