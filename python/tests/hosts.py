"""Several hosts on one machine, for launchers: each has a name, and a stand-in for ssh connects
them."""

import os
import re
import shlex
import signal
import subprocess
import uuid

import preloaded
from nodes import slow_source
from waiting import until

_HERE = os.path.dirname(os.path.abspath(__file__))

# What ssh does, among the hosts: the command is a shell's, and its environment is empty. Options
# come before the host.
_SSH = """#!/bin/sh
while [ "${1#-}" != "$1" ]; do shift; done
host=$1; shift
exec %(binary)s dev exec "${host#node}" --run %(run)s -- env -i %(environment)s unshare --uts -- \\
    sh -c 'hostname "$0" && eval "$*"' "$host" "$@"
"""


class Hosts:
    """The hosts node0, node1 and so on: network namespaces of a `hdmlp dev cluster`, which end with
    it.

    Attributes:
        ssh: a program that is used as ssh is.
        bin: a directory that stands first in PATH on all hosts.
        directory: for files of this run.

    Raises:
        OSError: this machine, or this user, cannot have them.
    """

    def __init__(self, binary, directory, count=2, names=()):
        self.directory = str(directory)
        self.bin = os.path.join(self.directory, "bin")
        os.makedirs(self.bin)
        self.program("python", f'exec {shlex.quote(preloaded.PYTHON)} "$@"')
        self.program("preloaded", f'exec {shlex.quote(preloaded.PYTHON)} "$@"')
        run = f"hosts-{uuid.uuid4().hex[:12]}"
        known = os.path.join(self.directory, "hosts")
        open(known, "w").close()
        self._cluster = subprocess.Popen(
            [
                binary,
                "dev",
                "cluster",
                "-n",
                str(count),
                "--run",
                run,
                "--mount",
                f"{known}:/etc/hosts",
                "--",
                "sleep",
                "infinity",
            ],
            stderr=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            text=True,
        )
        said = self._cluster.stderr.readline()  # hdmlp: run NAME: 2 nodes, 10.1.2.1 to 10.1.2.2
        address = re.search(r"\d nodes?, (\S+)", said)
        if address is None:
            said += self._cluster.stderr.read()
            self._cluster.wait()
            raise OSError(said.strip())
        network = address[1].rpartition(".")[0]
        with open(known, "w") as file:  # in place: the hosts have this very file
            file.write("127.0.0.1 localhost\n")
            for number in range(count):
                file.write(
                    f"{network}.{number + 1} node{number} "
                    f"{' '.join(name.format(number) for name in names)}\n"
                )
        home = os.path.join(self.directory, "home")
        os.makedirs(home)
        environment = {
            "HOME": home,
            "USER": "root",
            "PATH": f"{self.bin}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "PYTHONPATH": os.path.dirname(_HERE),
            "PYTHONDONTWRITEBYTECODE": "1",
            "OMP_NUM_THREADS": "1",
            "PRELOADED_PYTHON": os.environ["PRELOADED_PYTHON"],
            "HDMLP_LINGER": "0s",
            "HDMLP_MEMORY": "64MiB",
            "HDMLP_INDEX_DIR": os.path.join(self.directory, "index"),
            "HDMLP_CONFIG": slow_source(self.directory),
        }
        self.ssh = self.program(
            "ssh",
            _SSH.split("\n", 1)[1]
            % {
                "binary": shlex.quote(binary),
                "run": run,
                "environment": " ".join(
                    shlex.quote(f"{key}={value}") for key, value in environment.items()
                ),
            },
        )

    def program(self, name, script):
        """Puts a shell script into ``bin`` and returns its path."""
        path = os.path.join(self.bin, name)
        with open(path, "w") as file:
            file.write(f"#!/bin/sh\n{script}\n")
        os.chmod(path, 0o755)
        return path

    def start(self, node, command, environment=None, **options):
        """Starts a command on a host.

        Args:
            node: the host's number.
            command: a list, or a line for its shell.
            environment: what it is to have beside the hosts' own.
        """
        line = command if isinstance(command, str) else shlex.join(command)
        for key, value in (environment or {}).items():
            line = f"export {key}={shlex.quote(value)}; {line}"
        return subprocess.Popen(
            [self.ssh, f"node{node}", line],
            stdin=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
            **options,
        )

    def run(self, node, command, environment=None, cwd=None):
        """Runs a command on a host and returns its exit status and output."""
        process = self.start(
            node, command, environment, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        return self.end(process)

    @staticmethod
    def end(process):
        """Waits for a process and returns its exit status and output. If the test's limit ends the
        wait, the process is killed and its output printed."""
        try:
            out, _ = process.communicate()
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            print(f"not ended: {process.args}\n{process.communicate()[0]}")
            raise
        return process.returncode, out

    def wait_for(self, node, command, words, environment=None):
        """Repeats a command until it prints these words: without a limit but the test's."""
        printed = ""

        def prints():
            nonlocal printed
            _, printed = self.run(node, command, environment)
            return printed.strip() == words

        try:
            until(prints, command, None, 0.05)
        except BaseException:
            print(f"{command} printed {printed!r}")
            raise

    def close(self):
        """Ends the hosts and all processes on them."""
        self._cluster.terminate()
        self._cluster.communicate()
