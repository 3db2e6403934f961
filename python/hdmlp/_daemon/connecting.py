"""Connecting to the node's daemon, and what is asked of it without a stream."""

from __future__ import annotations

import logging
import os
import socket
import struct
import time
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from typing import Any

from .._lib import memory, protocol
from .._lib.version import __version__
from ..errors import (
    AccessDeniedError,
    ConfigError,
    DaemonDiedError,
    DaemonNotFoundError,
    ProtocolError,
    VersionError,
    from_answer,
)
from . import oom
from .address import address, foreign, shown
from .binary import find_binary, version_of
from .starting import Starter, died, exit_status, last_words
from .view import View

__all__ = ["Client", "call", "check", "connect", "find_binary", "last_words", "request"]

log = logging.getLogger("hdmlp")

#: Seconds within which a daemon must answer.
DEADLINE = 10.0

_CREDENTIALS = struct.Struct("iII")


class Client:
    """A connection to the daemon, after the handshake.

    Args:
        connection: The frames; the client owns it.
        welcome: The WELCOME object.
        log_fd: Descriptor of the daemon's log, which the client owns, or None.
        peer: The daemon's process ID in this process's namespace; 0 if it has none there.

    Attributes:
        connection: The frames.
        pid: The daemon's process ID.
        peer: The same in this process's namespace; 0 if it has none there.
        version: The daemon's version.
        log: Descriptor of the daemon's log, or None.
        end: What :meth:`died` has said; None if it was not called.
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
        self.peer = peer
        self._watch = oom.Watch(peer)
        self.end: str | None = None

    def close(self) -> None:
        """Closes the connection. Idempotent."""
        self.connection.close()
        fd, self.log = self.log, None
        if fd is not None:
            os.close(fd)

    def __del__(self) -> None:
        try:  # noqa: SIM105 - when Python ends, contextlib may be gone before
            self.close()
        except Exception:
            pass

    def died(self, then: str = "") -> DaemonDiedError:
        """Returns the error for the daemon's end, with the end of its log.

        Args:
            then: What to do to continue with a new daemon.
        """
        reason = self._watch.reason(exit_status(self.peer))
        if reason:
            what = f"the kernel's OOM killer ended the HDMLP daemon (pid {self.pid}) {reason}"
        else:
            what = f"the HDMLP daemon (pid {self.pid}) died or was stopped: to continue with a "
            what += "new one, " + (then or "try again")
        self.end = str(died(what, self.log))
        return DaemonDiedError(self.end)


def connect() -> Client:
    """Connects to the user's daemon on this node, starting it if there is none.

    Raises:
        ConfigError: The daemon does not start because of its configuration, in variables or file.
        DaemonDiedError: The daemon does not start, or does not answer within 10 seconds.
        DaemonNotFoundError: There is no binary to start.
        AccessDeniedError: The socket belongs to another user.
        LimitError: RLIMIT_FSIZE is too low for a daemon.
        VersionError: The daemon is of another version than this package.
    """
    deadline = time.monotonic() + DEADLINE
    started: Starter | None = None
    attempts = 0
    pause = 0.001
    try:
        while True:
            client = _try_connect(deadline)
            if client is not None:
                return client
            if started is None:
                started = Starter()
                attempts += 1
            elif _given_up(started):
                _check_exit(started, attempts)
                started.close()
                started = Starter()
                attempts += 1
            if time.monotonic() > deadline:
                raise died(f"the HDMLP daemon did not answer within {DEADLINE:.0f} s", started.log)
            time.sleep(pause)
            pause = min(pause * 2, 0.05)
    finally:
        if started is not None:
            started.close()


def _given_up(started: Starter) -> bool:
    """Reports whether a daemon has ended, and no other one has taken its place."""
    ended = started.ended_for()
    return ended > 0.5 or (ended > 0.1 and started.process.returncode == 0)


def _check_exit(started: Starter, attempts: int) -> None:
    """Raises what a daemon that ended at its start ended of.

    Does not raise if another attempt may succeed: a daemon that finds another one on its way out
    ends with status 0.
    """
    status = started.process.returncode
    words = last_words(started.log)
    if status == 2 and words:  # wrong input
        raise ConfigError(words.removeprefix("hdmlp: "))
    if status != 0:
        raise died(f"the HDMLP daemon ended at its start with status {status}", started.log)
    if attempts >= 3:
        raise DaemonDiedError(
            f"no daemon answers at {shown(address())}, and none can be started because another "
            "process holds that socket: a daemon that hangs, or another user's process; "
            "set HDMLP_SOCKET to another path or name"
        )


def _try_connect(deadline: float) -> Client | None:
    """Connects to a daemon that runs; returns None if there is none, or it does not answer."""
    where = address()
    sock = _connected_socket(where, deadline)
    if sock is None:
        return None
    try:
        pid = _check_owner(sock, where)
    except BaseException:
        sock.close()
        raise
    connection = protocol.Connection(sock)
    try:
        frame = _greet(connection, deadline)
    except protocol.Disconnected:
        frame = None
    except ProtocolError as error:
        connection.close()
        raise ProtocolError(
            f"the process that listens at {shown(where)} (pid {pid}) is not an HDMLP daemon: "
            f"{error}; set HDMLP_SOCKET to another path or name"
        ) from None
    except BaseException:
        connection.close()
        raise
    if frame is None:
        connection.close()
        return None
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


def _connected_socket(where: str, deadline: float) -> socket.socket | None:
    """Returns a socket that is connected to the daemon's; None if no process listens there."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    if sock.fileno() <= 2:
        sock = socket.socket(fileno=memory.above_standard(sock.detach()))
    try:
        sock.settimeout(max(0.01, deadline - time.monotonic()))
        sock.connect(where)
    except (ConnectionError, FileNotFoundError, socket.timeout, BlockingIOError):
        sock.close()
        return None
    except OSError as error:
        sock.close()
        raise _cannot_connect(where, error) from None
    except BaseException:
        sock.close()
        raise
    return sock


def _cannot_connect(where: str, error: OSError) -> Exception:
    text = f"connect to {shown(where)}: {error.strerror}; set HDMLP_SOCKET to another path or name"
    if not isinstance(error, PermissionError):
        return ConfigError(text)
    try:
        owner = os.lstat(where).st_uid
    except (OSError, ValueError):  # its directory belongs to another user
        owner = os.geteuid()
    return AccessDeniedError(text) if owner == os.geteuid() else foreign(where, owner)


def _check_owner(sock: socket.socket, where: str) -> int:
    """Returns the process ID at the other end of the socket.

    Raises:
        AccessDeniedError: The process belongs to another user.
    """
    peer = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, uid, _ = _CREDENTIALS.unpack(peer)
    if uid != os.geteuid():
        raise foreign(where, uid)
    return int(pid)


def _greet(connection: protocol.Connection, deadline: float) -> protocol.Frame | None:
    """Sends HELLO; returns the answer, or None if none comes in time."""
    hello = {"protocol": protocol.PROTOCOL, "version": __version__, "pid": os.getpid()}
    connection.send(protocol.encode_json(protocol.HELLO, hello))
    while True:
        frame = connection.frame()
        if frame is not None:
            return frame
        if not connection.fill():
            left = deadline - time.monotonic()
            if left <= 0 or not connection.wait(left):
                return None


def _other_version(client: Client) -> VersionError:
    try:
        binary = find_binary()
        starts = version_of(binary)
    except DaemonNotFoundError:  # another process has started the daemon
        binary = starts = ""
    if starts in (__version__, ""):
        advice = (
            "stop the daemon with `hdmlp stop`, and the next process starts one of its own "
            "version, or set HDMLP_SOCKET to another path or name to run a second daemon"
        )
    else:
        named = "HDMLP_BINARY" if os.environ.get("HDMLP_BINARY") else "the one found"
        advice = (
            f"the binary that this process starts as the daemon, {binary} ({named}), is hdmlp "
            f"{starts}; install the package and the binary of one version, with `pip install "
            "--force-reinstall hdmlp` or `make build`, and leave HDMLP_BINARY unset"
        )
    return VersionError(
        f"the daemon (pid {client.pid}) is hdmlp {client.version}, and this process "
        f"(pid {os.getpid()}) is hdmlp {__version__}: both must have the same version; {advice}",
        {"daemon": client.version, "process": __version__, "pid": client.pid},
    )


def request(
    client: Client,
    frame: bytes,
    answers: Container[int],
    progress: Callable[[dict[str, object] | None], None] | None = None,
    fds: Sequence[int] = (),
) -> dict[str, Any]:
    """Sends a frame on a connection without a stream, and waits for the answer.

    Args:
        client: The connection.
        frame: The frame.
        answers: Types of frames that are an answer.
        progress: Called with every PROGRESS object, and with None at the end.
        fds: Descriptors that go with the frame.

    Returns:
        The answer's JSON object.

    Raises:
        HDMLPError: The daemon's answer is an error, or :class:`DaemonDiedError`.
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


def check(params: dict[str, object]) -> dict[str, Any]:
    """Has the daemon check a job's configuration and transforms.

    Args:
        params: Those of the method ``check`` of docs/FORMATS.md.

    Returns:
        ``on_error``, the policy in force.

    Raises:
        HDMLPError: The daemon refuses them.
    """
    client = connect()
    try:
        frame = protocol.encode_json(protocol.CALL, {"id": 1, "method": "check", "params": params})
        answer = request(client, frame, (protocol.REPLY,))
        if answer.get("error"):
            raise from_answer(answer["error"])
        return answer.get("result") or {}
    finally:
        client.close()


class Calls:
    """Calls about datasets, on one connection, so that all see one version of each.

    Args:
        progress: Called with every PROGRESS object, and with None at the end of each call.

    Raises:
        HDMLPError: There is no connection; see :func:`connect`.
    """

    def __init__(self, progress: Callable[[dict[str, object] | None], None] | None = None):
        self._client = connect()
        self._progress = progress
        self._made = 0

    def call(
        self,
        method: str,
        params: Mapping[str, Any],
        manifest: bytes | int | None = None,
        *more: int,
    ) -> Any:
        """Returns the result of a method of docs/FORMATS.md.

        Args:
            method: Its name.
            params: Its parameters, which name the dataset.
            manifest: The dataset's records, or a descriptor of them, which stays the caller's.
                Default: None, the daemon finds them.
            *more: Descriptors that the method takes besides.

        Raises:
            HDMLPError: The daemon's answer is an error, or it died.
        """
        self._made += 1
        own = memory.listed(manifest) if isinstance(manifest, bytes) else None
        try:
            with View(params["path"]) as view:
                listed = own if isinstance(manifest, bytes) else manifest
                params = {**params, "view": True, "manifest": listed is not None}
                frame = protocol.encode_json(
                    protocol.CALL, {"id": self._made, "method": method, "params": params}
                )
                fds = (*view.fds, *(() if listed is None else (listed,)), *more)
                answer = request(self._client, frame, (protocol.REPLY,), self._progress, fds)
        finally:
            if own is not None:
                os.close(own)
        if answer.get("error"):
            raise from_answer(answer["error"])
        return answer.get("result")

    def close(self) -> None:
        """Closes the connection. Idempotent."""
        self._client.close()


def call(
    calls: Sequence[tuple[str, Mapping[str, Any]]],
    progress: Callable[[dict[str, object] | None], None] | None = None,
    manifest: int | None = None,
) -> Iterator[Any]:
    """Calls methods about a dataset, on one connection, so that all see one version of it.

    Args:
        calls: For each call a method of docs/FORMATS.md, and its parameters, which name the
            dataset.
        progress: Called with every PROGRESS object, and with None at the end of each call.
        manifest: A descriptor of the dataset's records, which stays the caller's. Default: None,
            the daemon finds them.

    Yields:
        Each call's result, before the next call is made.
    """
    made = Calls(progress)
    try:
        for method, params in calls:
            yield made.call(method, params, manifest)
    finally:
        made.close()
