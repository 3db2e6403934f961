"""Where the daemon listens, and for whom."""

from __future__ import annotations

import os
import pwd
import stat

from ..errors import AccessDeniedError, ConfigError

#: The most bytes that the kernel accepts as a path or an abstract name.
_LONGEST_NAME = 107


def address() -> str:
    """Returns where the daemon listens: a path, or an abstract name, which begins with a NUL.

    The rule is that of docs/FORMATS.md, which internal/daemon/socket follows as well.

    Raises:
        ConfigError: HDMLP_SOCKET or XDG_RUNTIME_DIR give no valid address of a socket.
    """
    key, name = "HDMLP_SOCKET", os.environ.get("HDMLP_SOCKET", "")
    if name.endswith("/"):
        raise ConfigError(
            f"HDMLP_SOCKET={name}: a directory, not a socket; give the path of a socket in it"
        )
    if "/" in name and not name.startswith("/"):
        raise ConfigError(
            f"HDMLP_SOCKET={name}: a relative path, which means another file in other processes; "
            "give an absolute path, or a name without a slash"
        )
    if name != "@":
        name = name.removeprefix("@")  # with which messages write a name
    if not name:
        key, directory = "XDG_RUNTIME_DIR", os.environ.get("XDG_RUNTIME_DIR", "").rstrip("/")
        name = f"{directory}/hdmlp/daemon.sock" if _private(directory) else f"hdmlp-{os.geteuid()}"
    size = len(os.fsencode(name))
    if size > _LONGEST_NAME:
        raise ConfigError(
            f"{key}: the socket {name} has {size} bytes, sockets have at most {_LONGEST_NAME}; "
            "set HDMLP_SOCKET to a shorter path or name"
        )
    return name if name.startswith("/") else "\0" + name


def _private(directory: str) -> bool:
    """Reports whether it is a directory of this user alone, which may write to it."""
    try:
        info = os.stat(directory)
    except OSError:
        return False
    return (
        directory.startswith("/")
        and stat.S_ISDIR(info.st_mode)
        and info.st_uid == os.geteuid()
        and stat.S_IMODE(info.st_mode) & 0o777 == 0o700
        and os.access(directory, os.W_OK)
    )


def shown(where: str) -> str:
    """Returns an address as messages and commands show it."""
    return where.replace("\0", "@", 1)


def user_name(uid: int) -> str:
    """Returns a user as messages show it."""
    try:
        return f"{pwd.getpwuid(uid).pw_name} ({uid})"
    except KeyError:
        return str(uid)


def foreign(where: str, uid: int) -> AccessDeniedError:
    """Returns the error for a socket of another user."""
    return AccessDeniedError(
        f"the socket {shown(where)} belongs to user {user_name(uid)}, not to "
        f"{user_name(os.geteuid())}; set XDG_RUNTIME_DIR to a directory of your own (mode 0700), "
        "or HDMLP_SOCKET to another path or name"
    )
