"""The secret that the nodes of a job share: where it comes from."""

from __future__ import annotations

import contextlib
import datetime
import os
import secrets
import stat
import sys
from collections.abc import Mapping

from ..errors import ConfigError
from .launchers import LAUNCHERS
from .place import Place

#: The least bytes of a secret.
MIN_SECRET = 16


def secret(place: Place, environ: Mapping[str, str], within: float | None = None) -> str:
    """Returns what only the job's nodes know; docs/OPERATIONS.md says how safe each source is.

    The sources are, in this order: HDMLP_SECRET, the file HDMLP_SECRET_FILE, torch's store, the
    launcher, the user's own ``~/.hdmlp/secret``, which is created if it does not exist.

    Args:
        place: This process's place.
        environ: The environment.
        within: Seconds that rank 0 may take to put it into torch's store; None means the store's
            own limit.

    Raises:
        ConfigError: The secret is too short, or cannot be read, exchanged or created.
    """
    given = environ.get("HDMLP_SECRET")
    if given:
        return _long_enough(given, "HDMLP_SECRET")
    path = environ.get("HDMLP_SECRET_FILE")
    if path:
        return _read(path, "HDMLP_SECRET_FILE")
    shared = _from_store(place, environ, within)
    if shared:
        return shared
    for launcher in LAUNCHERS:
        found = launcher.secret(environ)
        if found is not None:
            return found
    return _users_own(environ)


def _long_enough(value: str, source: str) -> str:
    value = value.strip()
    if len(value.encode()) < MIN_SECRET:
        raise ConfigError(
            f"{source} has {len(value.encode())} bytes, but a secret needs at least "
            f"{MIN_SECRET}: generate one with 'openssl rand -hex 32'"
        )
    return value


def _read(path: str, source: str) -> str:
    try:
        # O_NONBLOCK, because opening a FIFO would wait.
        with open(
            path, encoding="utf-8", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)
        ) as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise ConfigError(f"{source}={path}: not a regular file; give a file")
            if status.st_uid not in (os.getuid(), 0):
                raise ConfigError(
                    f"{source}={path}: the file belongs to user {status.st_uid}, who could replace "
                    f"the secret: chown {os.getuid()} {path}, or give another file"
                )
            if status.st_mode & 0o077:
                raise ConfigError(
                    f"{source}={path}: other users may read or write the file (mode "
                    f"{status.st_mode & 0o777:04o}): chmod 600 {path}, and replace the secret in it"
                )
            return _long_enough(file.read(4096), f"{source}={path}")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not UTF-8 text"
        raise ConfigError(
            f"{source}={path}: {reason}; give a file that this user can read, with the secret in it"
        ) from None


def _from_store(place: Place, environ: Mapping[str, str], within: float | None) -> str | None:
    """Returns the secret in torch's store, where rank 0 puts it.

    Any process that reaches the store can read it.
    """
    torch = sys.modules.get("torch")
    distributed = getattr(torch, "distributed", None)
    if distributed is None or not distributed.is_available():
        return None
    try:
        if distributed.is_initialized():
            store = distributed.distributed_c10d._get_default_store()
        elif environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
            store = distributed.TCPStore(
                environ["MASTER_ADDR"],
                int(environ["MASTER_PORT"]),
                place.world_size,
                False,
                timeout=datetime.timedelta(seconds=60),
            )
        else:
            return None
        key = f"hdmlp/secret/{environ.get('TORCHELASTIC_RESTART_COUNT', '0')}"
        if place.rank == 0:
            # compare_set keeps the first secret, so every loader of the job gets the same. Unlike
            # set, it does not wake processes that wait for the key.
            kept = bytes(store.compare_set(key, "", secrets.token_hex(32))).decode()
            store.set(key, kept)
            return kept
        if within is not None:
            store.wait([key], datetime.timedelta(seconds=within))
        return bytes(store.get(key)).decode()
    except (RuntimeError, KeyError, ValueError, AttributeError) as error:
        raise ConfigError(
            "the nodes' secret could not be exchanged through torch.distributed's store "
            f"({error}): set HDMLP_SECRET on all nodes"
        ) from None


def _users_own(environ: Mapping[str, str]) -> str:
    """Returns the secret in the user's home directory, created if it does not exist."""
    home = environ.get("HOME") or os.path.expanduser("~")
    directory = os.path.join(home, ".hdmlp")
    path = os.path.join(directory, "secret")
    if not os.path.exists(path):
        draft = f"{path}.{secrets.token_hex(8)}"
        try:
            os.makedirs(directory, mode=0o700, exist_ok=True)
            descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            try:
                os.write(descriptor, secrets.token_hex(32).encode() + b"\n")
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
            try:
                # The first process's secret counts, and is seen whole or not at all.
                with contextlib.suppress(FileExistsError):
                    os.link(draft, path)
            finally:
                os.unlink(draft)
        except OSError as error:
            raise ConfigError(
                f"the nodes of the job need a secret in common, and none could be kept in {path} "
                f"({error}): set HDMLP_SECRET, or HDMLP_SECRET_FILE in a shared directory"
            ) from None
    return _read(path, "the user's secret")
