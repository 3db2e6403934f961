"""Ranks of scripts in processes of their own, started by torchrun: those of preloaded.py."""

import json
import os
import socket
import subprocess

import preloaded
from items import PATH


def torchrun(ranks, port, python=preloaded.PYTHON):
    """The command line that starts a script on so many ranks."""
    # Debian's torchrun ends with an error without the flags about redirection.
    return [
        python,
        "-m",
        "torch.distributed.run",
        f"--nproc_per_node={ranks}",
        "--redirects=9:1",
        "--tee=9:1",
        f"--master_port={port}",
    ]


_reserved = []


def free_port():
    """A port where one program can listen.

    Until this process ends, the system gives it to no other socket that asks for any port.
    """
    s = socket.socket()
    # A bound socket that does not listen reserves its port, except for those that name the port
    # and have this option as well, as torch's do.
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    s.bind(("127.0.0.1", 0))
    _reserved.append(s)
    return str(s.getsockname()[1])


def run(*command):
    """Runs a command; returns the lines of JSON with a rank that it printed, and its errors.

    torchrun starts preloaded ranks.
    """
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=240,
        env={
            **os.environ,
            "PYTHONPATH": PATH,
            "OMP_NUM_THREADS": "1",
            "PYTHON_EXEC": preloaded.PYTHON,
        },
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found, at = [], 0
    while (at := done.stdout.find('{"rank"', at)) >= 0:  # two of them may share a line
        value, end = json.JSONDecoder().raw_decode(done.stdout[at:])
        found.append(value)
        at += end
    return found, done.stderr
