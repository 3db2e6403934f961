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
from collections.abc import Iterator, Sequence
from typing import Any

from . import _memory, _oom
from . import _protocol as protocol
from ._address import address, foreign, shown
from ._version import __version__
from ._view import View
from .errors import (
    AccessDeniedError,
    ConfigError,
    DaemonDiedError,
    DaemonNotFoundError,
    LimitError,
    ProtocolError,
    VersionError,
    from_answer,
)

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
        "install the hdmlp wheel, or build one with `make build`"
    )


def _on_path() -> str | None:
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


def last_words(fd: int | None, limit: int = 4096) -> str:
    """The end of the daemon's log, at most ``limit`` bytes and 20 lines; empty if there is none."""
    if fd is None:
        return ""
    try:
        size = os.fstat(fd).st_size
        text = os.pread(fd, limit, max(0, size - limit)).decode("utf-8", "replace")
    except OSError:
        return ""
    return "\n".join([line for line in text.splitlines() if line.strip()][-20:])


def died(what: str, fd: int | None) -> DaemonDiedError:
    """The error for a daemon that is gone, its last words included."""
    words = last_words(fd)
    return DaemonDiedError(
        f"{what}; its last words:\n{words}" if words else f"{what}; it left no words"
    )


#: Daemons that this process, the first of the pair, started, by process ID: how they ended is known to it, and to no fork of it.
_children: dict[tuple[int, int], subprocess.Popen] = {}


class _Starter:
    """One daemon started by this process."""

    def __init__(self) -> None:
        binary = find_binary()
        _memory.check_file_size(_memory.LEAST_FILE_SIZE, "the daemon")
        try:
            self.log = _memory.create("hdmlp-log")
        except (OSError, LimitError) as error:
            log.warning(
                "no file for the daemon's log can be made, which leaves no last words if it dies: %s",
                error,
            )
            self.log = os.open(os.devnull, os.O_RDWR)
        self.log = _memory.above_standard(self.log)
        try:
            self.process = subprocess.Popen(
                [binary, "serve", "--from-process"],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=self.log,
                start_new_session=True,
                close_fds=True,
                cwd="/",
            )
        except OSError as error:
            os.close(self.log)
            raise DaemonNotFoundError(f"cannot run {binary}: {error}") from None
        _children[os.getpid(), self.process.pid] = self.process
        self.ended: float | None = None
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

    def __init__(
        self,
        connection: protocol.Connection,
        welcome: dict[str, Any],
        log_fd: int | None,
        peer: int = 0,
    ):
        self.connection = connection
        self.pid = int(welcome.get("pid", 0))
        self.version = str(welcome.get("version", ""))
        self.log = log_fd
        self._peer = peer  # its process ID in our namespace; 0: it has none there
        self._watch = _oom.Watch(peer)

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

    def died(self, what: str = "the HDMLP daemon died") -> DaemonDiedError:
        """The error for the daemon's end, with its last words."""
        reason = self._watch.reason(self._status())
        if reason:
            return died(
                f"the kernel's OOM killer ended the HDMLP daemon (pid {self.pid}) {reason}",
                self.log,
            )
        return died(f"{what} (pid {self.pid})", self.log)

    def _status(self) -> int | None:
        """How the daemon ended, if this process started it. Its socket is closed a moment before it can be waited for."""
        child = _children.get((os.getpid(), self._peer))
        if child is None:
            return None
        try:
            return child.wait(timeout=1.0)
        except subprocess.TimeoutExpired:
            return None


def connect() -> Client:
    """Connects to the user's daemon on this node, starting it if there is none.

    Raises:
        ConfigError: it does not start because of what it is configured with, by variables or file.
        DaemonDiedError: it does not start or does not answer within 10 seconds.
        DaemonNotFoundError: there is no binary to start.
        AccessDeniedError: the socket belongs to another user.
        LimitError: RLIMIT_FSIZE is too low for a daemon.
        VersionError: it is of another version than this package.
    """
    deadline = time.monotonic() + DEADLINE
    started: _Starter | None = None
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
                if code == 0 and attempts >= 3:
                    raise DaemonDiedError(
                        f"no daemon answers at {shown(address())}, and none can be started, because another process holds that socket: "
                        "a daemon that hangs, or another user's process; set HDMLP_SOCKET to another path or name"
                    )
                if code != 0:
                    raise died(
                        f"the HDMLP daemon ended at its start with status {code}", started.log
                    )
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


def _try_connect(deadline: float) -> Client | None:
    where = address()
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    if sock.fileno() <= 2:
        sock = socket.socket(fileno=_memory.above_standard(sock.detach()))
    try:
        try:
            sock.settimeout(max(0.01, deadline - time.monotonic()))
            sock.connect(where)
        except (ConnectionError, FileNotFoundError, socket.timeout, BlockingIOError):
            sock.close()
            return None
        except PermissionError as error:
            try:
                owner = os.lstat(where).st_uid
            except (OSError, ValueError):  # its directory is another's
                owner = os.geteuid()
            if owner != os.geteuid():
                raise foreign(where, owner) from None
            raise AccessDeniedError(
                f"connect to {shown(where)}: {error.strerror}; set HDMLP_SOCKET to another path or name"
            ) from None
        except OSError as error:
            raise ConfigError(
                f"connect to {shown(where)}: {error.strerror}; set HDMLP_SOCKET to another path or name"
            ) from None
        peer = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        pid, uid, _ = _CREDENTIALS.unpack(peer)
        if uid != os.geteuid():
            raise foreign(where, uid)
    except BaseException:
        sock.close()
        raise
    connection = protocol.Connection(sock)
    try:
        connection.send(
            protocol.encode_json(
                protocol.HELLO,
                {"protocol": protocol.PROTOCOL, "version": __version__, "pid": os.getpid()},
            )
        )
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
    except ProtocolError as error:
        connection.close()
        raise ProtocolError(
            f"what answers at {shown(where)} is no HDMLP daemon (pid {pid}): {error}; set HDMLP_SOCKET to another path or name"
        ) from None
    except BaseException:
        connection.close()
        raise
    kind, payload, fd = frame
    if kind == protocol.WELCOME:
        client = Client(connection, protocol.decode_json(payload), fd, pid)
        if client.version != __version__:
            client.close()
            raise _other_version(client)
        return client
    connection.close()
    if kind == protocol.ERROR:
        raise from_answer(protocol.decode_json(payload))
    raise ProtocolError(f"the daemon answered HELLO with a frame of type {kind}")


def _other_version(client: Client) -> VersionError:
    return VersionError(
        f"the daemon (pid {client.pid}) is hdmlp {client.version}, and this process (pid {os.getpid()}) is hdmlp {__version__}: both must be "
        "of one version; end the daemon with `hdmlp stop`, or set HDMLP_SOCKET to another path or name, for a second daemon",
        {"daemon": client.version, "process": __version__, "pid": client.pid},
    )


def request(client: Client, frame: bytes, answers, progress=None, fds=()) -> dict[str, Any]:
    """Sends ``frame``, with ``fds``, and waits for one of the types ``answers``; for a connection without a stream.

    Returns:
        the answer's JSON object.

    Raises:
        HDMLPError: what the daemon answered, or :class:`DaemonDiedError`.
    """
    connection = client.connection
    try:
        if fds:
            connection.send_fds(frame, fds)
        else:
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


def check(params: dict[str, Any]) -> dict[str, Any]:
    """What the daemon says of a job's configuration and transforms: ``on_error``, the policy that holds.

    Args:
        params: those of the method ``check`` of docs/FORMATS.md.

    Raises:
        HDMLPError: it refuses them.
    """
    client = connect()
    try:
        answer = request(
            client,
            protocol.encode_json(protocol.CALL, {"id": 1, "method": "check", "params": params}),
            (protocol.REPLY,),
        )
        if answer.get("error"):
            raise from_answer(answer["error"])
        return answer.get("result") or {}
    finally:
        client.close()


def call(calls: Sequence[tuple[str, dict[str, Any]]], progress=None) -> Iterator[Any]:
    """Calls about a dataset, one after another on a connection of their own, so that all see one version of it.

    Args:
        calls: each a method of docs/FORMATS.md about a dataset, and its parameters, which name the dataset.
        progress: called with every PROGRESS object, and with None at the end of each call.

    Yields:
        each call's result, before the next one is made.
    """
    client = connect()
    try:
        for number, (method, params) in enumerate(calls, 1):
            with View(params["path"]) as view:
                params = {**params, "view": True}
                frame = protocol.encode_json(
                    protocol.CALL, {"id": number, "method": method, "params": params}
                )
                answer = request(client, frame, (protocol.REPLY,), progress, view.fds)
            if answer.get("error"):
                raise from_answer(answer["error"])
            yield answer.get("result")
    finally:
        client.close()
