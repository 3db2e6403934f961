"""Finding, starting and greeting the node's daemon."""

from __future__ import annotations

import logging
import os
import shutil
import socket
import struct
import subprocess
import threading
import time
from typing import Any, Dict, Optional

from . import _protocol as protocol
from ._version import __version__
from .errors import (ConfigError, DaemonDied, DaemonNotFoundError, PermissionError_, ProtocolError,
                     from_answer)

log = logging.getLogger("hdmlp")

#: Seconds within which a daemon must answer.
DEADLINE = 10.0

_CREDENTIALS = struct.Struct("iII")


def find_binary() -> str:
    """The path of the ``hdmlp`` binary: ``HDMLP_BINARY``, else the package's, else the first on ``PATH``.

    Raises:
        DaemonNotFoundError: there is none, or ``HDMLP_BINARY`` names something that cannot be run.
    """
    named = os.environ.get("HDMLP_BINARY")
    if named:
        if not os.access(named, os.X_OK) or os.path.isdir(named):
            raise DaemonNotFoundError(f"HDMLP_BINARY={named} is not a program that can be run")
        return os.path.abspath(named)
    packaged = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin", "hdmlp")
    if os.access(packaged, os.X_OK):
        return packaged
    found = _on_path()
    if found:
        return found
    raise DaemonNotFoundError(
        f"no hdmlp binary: not in HDMLP_BINARY, not at {packaged}, not on PATH; "
        "install the hdmlp wheel, or build one with `make build`")


def _on_path() -> Optional[str]:
    """The first ``hdmlp`` on ``PATH`` that is a binary: the console script only calls back here."""
    for directory in os.environ.get("PATH", os.defpath).split(os.pathsep):
        found = shutil.which("hdmlp", path=directory or os.curdir)
        if not found:
            continue
        try:
            with open(found, "rb") as file:
                if file.read(4) == b"\x7fELF":
                    return os.path.abspath(found)
        except OSError:
            continue
    return None


def address() -> str:
    """The daemon's socket in the abstract namespace: ``HDMLP_SOCKET``, else one per user."""
    return "\0" + (os.environ.get("HDMLP_SOCKET") or f"hdmlp-{os.getuid()}")


def last_words(fd: Optional[int], limit: int = 4096) -> str:
    """The end of the daemon's log, at most ``limit`` bytes and 20 lines; empty if there is none."""
    if fd is None:
        return ""
    try:
        size = os.fstat(fd).st_size
        text = os.pread(fd, limit, max(0, size - limit)).decode("utf-8", "replace")
    except OSError:
        return ""
    return "\n".join([line for line in text.splitlines() if line.strip()][-20:])


def died(what: str, fd: Optional[int]) -> DaemonDied:
    """The error for a daemon that is gone, its last words included."""
    words = last_words(fd)
    return DaemonDied(f"{what}; its last words:\n{words}" if words else f"{what}; it left no words")


class _Starter:
    """One daemon started by this process."""

    def __init__(self) -> None:
        binary = find_binary()
        self.log = os.memfd_create("hdmlp-log")
        try:
            self.process = subprocess.Popen(
                [binary, "serve", "--from-process"], stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL, stderr=self.log, start_new_session=True,
                close_fds=True, cwd="/")
        except OSError as error:
            os.close(self.log)
            raise DaemonNotFoundError(f"cannot run {binary}: {error}") from None
        self.ended: Optional[float] = None
        # Reaps the daemon when it ends, so that it is no zombie.
        threading.Thread(target=self.process.wait, name="hdmlp-reaper", daemon=True).start()
        log.debug("started %s, pid %d", binary, self.process.pid)

    def gone_for(self) -> float:
        """Seconds since the daemon was first seen to have ended; 0 while it runs."""
        if self.process.poll() is None:
            return 0.0
        now = time.monotonic()
        if self.ended is None:
            self.ended = now
        return now - self.ended + 1e-9

    def close(self) -> None:
        os.close(self.log)


class Client:
    """A greeted connection to the daemon.

    Attributes:
        connection: the frames.
        pid: the daemon's process ID.
        version: the daemon's version.
        log: descriptor of the daemon's log, or None.
    """

    def __init__(self, connection: protocol.Connection, welcome: Dict[str, Any], log_fd: Optional[int]):
        self.connection = connection
        self.pid = int(welcome.get("pid", 0))
        self.version = str(welcome.get("version", ""))
        self.log = log_fd

    def close(self) -> None:
        """Closes the connection. Idempotent."""
        self.connection.close()
        fd, self.log = self.log, None
        if fd is not None:
            os.close(fd)

    def __del__(self) -> None:
        try:
            self.close()
        except Exception:
            pass

    def died(self, what: str = "the HDMLP daemon died") -> DaemonDied:
        """The error for the daemon's end, with its last words."""
        return died(f"{what} (pid {self.pid})", self.log)


def connect() -> Client:
    """Connects to the user's daemon on this node, starting it if there is none.

    Raises:
        ConfigError: it does not start because of what it is configured with, by variables or file.
        DaemonDied: it does not start or does not answer within 10 seconds.
        DaemonNotFoundError: there is no binary to start.
        PermissionError_: the socket belongs to another user.
        VersionError: it speaks another version of the protocol.
    """
    deadline = time.monotonic() + DEADLINE
    started: Optional[_Starter] = None
    attempts = 0
    pause = 0.001
    try:
        while True:
            client = _try_connect(deadline)
            if client is not None:
                return client
            gone = started.gone_for() if started else 0.0
            code = started.process.returncode if started else None
            if started is None:
                started = _Starter()
                attempts += 1
            elif gone > 0.5 or (gone > 0.1 and code == 0):
                # It ended and nobody else took its place. One that lost to a daemon
                # on its way out says so with 0 and may be tried again.
                words = last_words(started.log)
                if code == 2 and words:  # wrong input
                    raise ConfigError(words.removeprefix("hdmlp: "))
                if code != 0 or attempts >= 3:
                    raise died(f"the HDMLP daemon ended at its start with status {code}", started.log)
                started.close()
                started = _Starter()
                attempts += 1
            if time.monotonic() > deadline:
                raise died(f"the HDMLP daemon did not answer within {DEADLINE:.0f} s", started.log)
            time.sleep(pause)
            pause = min(pause * 2, 0.05)
    finally:
        if started is not None:
            started.close()


def _try_connect(deadline: float) -> Optional[Client]:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        try:
            sock.settimeout(max(0.01, deadline - time.monotonic()))
            sock.connect(address())
        except (ConnectionError, FileNotFoundError, socket.timeout, BlockingIOError):
            sock.close()
            return None
        peer = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        uid = _CREDENTIALS.unpack(peer)[1]
        if uid != os.getuid():
            raise PermissionError_(
                f"the socket {address()[1:]!r} belongs to user {uid}, not to {os.getuid()}; "
                "set HDMLP_SOCKET to another name")
    except BaseException:
        sock.close()
        raise
    connection = protocol.Connection(sock)
    try:
        connection.send(protocol.encode_json(protocol.HELLO, {
            "protocol": protocol.PROTOCOL, "version": __version__, "pid": os.getpid()}))
        while True:
            frame = connection.frame()
            if frame is not None:
                break
            if not connection.fill():
                left = deadline - time.monotonic()
                if left <= 0 or not connection.wait(left):
                    connection.close()
                    return None
    except protocol.Disconnected:
        connection.close()
        return None
    except BaseException:
        connection.close()
        raise
    kind, payload, fd = frame
    if kind == protocol.WELCOME:
        return Client(connection, protocol.decode_json(payload), fd)
    connection.close()
    if kind == protocol.ERROR:
        raise from_answer(protocol.decode_json(payload))
    raise ProtocolError(f"the daemon answered HELLO with a frame of type {kind}")


def request(client: Client, frame: bytes, answers, progress=None) -> Dict[str, Any]:
    """Sends ``frame`` and waits for one of the types ``answers``; for a connection without a stream.

    Returns:
        the answer's JSON object.

    Raises:
        HDMLPError: what the daemon answered, or :class:`DaemonDied`.
    """
    connection = client.connection
    try:
        connection.send(frame)
        while True:
            got = connection.frame()
            if got is None:
                if not connection.fill():
                    connection.wait(None)
                continue
            kind, payload, fd = got
            if fd is not None:
                os.close(fd)
            if kind in answers:
                return protocol.decode_json(payload)
            if kind == protocol.ERROR:
                raise from_answer(protocol.decode_json(payload))
            if kind == protocol.PROGRESS and progress is not None:
                progress(protocol.decode_json(payload))
    except protocol.Disconnected:
        raise client.died() from None
    finally:
        if progress is not None:
            progress(None)


def call(method: str, params: Dict[str, Any], progress=None) -> Any:
    """One call on a connection of its own.

    Args:
        method: a method of docs/FORMATS.md.
        params: its parameters.
        progress: called with every PROGRESS object, and with None at the end.

    Returns:
        the call's result.
    """
    client = connect()
    try:
        frame = protocol.encode_json(protocol.CALL, {"id": 1, "method": method, "params": params})
        answer = request(client, frame, (protocol.REPLY,), progress)
    finally:
        client.close()
    if answer.get("error"):
        raise from_answer(answer["error"])
    return answer.get("result")
