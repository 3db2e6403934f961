"""Keyword arguments that are configuration keys, and what else goes with a request."""

from __future__ import annotations

import difflib
import inspect
import math
import numbers
import operator
import os
import re
from collections.abc import Iterable, Mapping
from typing import Any

from ..errors import ConfigError

#: The configuration keys of a job, as ``hdmlp config`` lists them, which are arguments of loaders.
#: The daemon checks the values.
KEYS = (
    "memory",
    "cache_dir",
    "cache_size",
    "disk_reserve",
    "staging_buffer",
    "prefetch_batches",
    "source_threads",
    "cache_threads",
    "cache_trust",
    "forms",
    "transform_threads",
    "decode_memory",
    "source_timeout",
    "on_error",
    "policy",
    "index_dir",
    "port",
    "interface",
    "start_timeout",
    "preload_timeout",
    "tls",
    "tls_cert",
    "tls_key",
    "tls_ca",
    "share",
    "share_members",
    "share_join",
)

#: The keys of the daemon, which reads them when it starts. It refuses them as arguments, and says
#: where they can be set.
DAEMON_KEYS = ("linger", "metrics", "log_level")

_PATHS = ("cache_dir", "index_dir", "tls_cert", "tls_key", "tls_ca")


def configuration(keywords: dict[str, object], others: Iterable[str] = ()) -> dict[str, object]:
    """Returns the configuration keys among a loader's keyword arguments, as JSON values.

    Args:
        keywords: What was given beyond the named parameters. None means that a key is not given.
        others: The named parameters, for the message.

    Raises:
        ConfigError: A keyword is neither; the message names the nearest that exists.
    """
    arguments: dict[str, object] = {}
    for key, value in keywords.items():
        if key not in KEYS and key not in DAEMON_KEYS:
            known = [*others, *KEYS]
            near = difflib.get_close_matches(key, known, n=1, cutoff=0.5)
            hint = (
                f"; did you mean {near[0]}?" if near else f"; known are {', '.join(sorted(known))}"
            )
            if key == "shard":  # of hdmlp.torch's loader alone
                hint = (
                    ": the ranks of a launcher, or rank= and world_size=, always share the epochs "
                    "of this loader; leave it out"
                )
            raise ConfigError(f"unknown argument {key}={value!r}{hint}")
        if value is None:
            continue
        if isinstance(value, os.PathLike):
            value = os.fspath(value)
        if key in _PATHS and isinstance(value, str) and value and not is_url(value):
            value = os.path.abspath(os.path.expanduser(value))
        if type(value).__module__ == "numpy" and isinstance(value, numbers.Real):
            value = int(value) if isinstance(value, numbers.Integral) else float(value)
        if not isinstance(value, (str, int, float, bool)):
            raise ConfigError(
                f"{key}={value!r}: must be text or a number, not {type(value).__name__}"
            )
        if isinstance(value, float) and not math.isfinite(value):
            raise ConfigError(f"{key}={value!r}: must be a finite number")
        if key == "share":
            check_text(key, value)
        if isinstance(value, str):
            try:
                value.encode()
            except UnicodeEncodeError:
                raise ConfigError(
                    f"{key}={value!r}: not valid Unicode text: it has half of a surrogate pair"
                ) from None
        arguments[key] = value
    return arguments


def by_position(what: str, given: Any) -> Any:
    """Returns an argument with an entry per record, which is indexed by position.

    A pandas Series is indexed by its labels, which are others once its rows were filtered or
    shuffled: its array is returned.

    Raises:
        ConfigError: It is of a type that has no order, or no entries.
    """
    unordered = isinstance(given, (str, bytes, Mapping, set, frozenset))
    entries = hasattr(given, "__iter__") or hasattr(given, "__getitem__")
    if unordered or not entries or getattr(given, "ndim", 1) == 0:
        raise ConfigError(
            f"{what} is of type {type(given).__name__}: give a list or an array, with an entry per "
            "record, in their order"
        )
    return given.to_numpy() if hasattr(given, "iloc") else given


def is_url(path: str) -> bool:
    """Reports whether a path names something by its scheme, such as ``s3://bucket/key``."""
    return "://" in path and re.match(r"[A-Za-z][A-Za-z0-9+.-]*://", path) is not None


def settings(
    arguments: dict[str, object], config_file: str | None, name: str = "config_file"
) -> dict[str, object]:
    """Returns the part of a request that has the configuration.

    Args:
        arguments: Configuration keys, as :func:`configuration` returns them.
        config_file: A TOML file; None means ``HDMLP_CONFIG``, if it is set.
        name: What the user's argument is called, for the message.

    Returns:
        ``arguments``, ``environment`` and ``config_file``.

    Raises:
        ConfigError: There is no such file.
    """
    environment = {k: v for k, v in os.environ.items() if k.startswith("HDMLP_")}
    if config_file is not None:
        check_path(name, config_file)
    source = name if config_file else "HDMLP_CONFIG"
    config_file = os.fsdecode(config_file or environment.get("HDMLP_CONFIG") or "")
    if config_file:
        config_file = os.path.abspath(os.path.expanduser(config_file))
        if not os.path.isfile(config_file):
            raise ConfigError(
                f"{source}={config_file!r}: "
                + (
                    "not a regular file; the configuration is a file of at most 1 MiB"
                    if os.path.exists(config_file)
                    else "there is no such file; correct the path, or leave it out"
                )
            )
    return {"arguments": arguments, "environment": environment, "config_file": config_file}


def parameters(cls: type) -> list[str]:
    """Returns the names of the parameters with which a class is called, without ``**keys``."""
    return [p for p in inspect.signature(cls).parameters if p != "keys"]


def check_functions(**arguments: object) -> None:
    """Checks arguments that are functions, or None.

    Raises:
        ConfigError: One is something else.
    """
    for name, value in arguments.items():
        if value is not None and not callable(value):
            raise ConfigError(f"{name}={value!r}: must be callable, or None")


def check_text(name: str, value: object) -> None:
    """Checks an argument that is text, or None.

    Raises:
        ConfigError: It is something else.
    """
    if value is not None and not isinstance(value, str):
        raise ConfigError(f"{name}={value!r}: must be text, not {type(value).__name__}")


def check_path(name: str, value: object, allowed: str = "a path") -> None:
    """Checks an argument that is a path.

    Args:
        name: The argument's name, for the message.
        value: Its value.
        allowed: What it may be, for the message.

    Raises:
        ConfigError: It is something else.
    """
    if not isinstance(value, (str, bytes, os.PathLike)):
        raise ConfigError(
            f"{name}={value!r}: must be {allowed} (str or os.PathLike), not {type(value).__name__}"
        )


def check_timeout(value: Any) -> None:
    """Checks the argument ``timeout``.

    Raises:
        ConfigError: It is no number of seconds, or negative.
    """
    number = isinstance(value, numbers.Real) and not isinstance(value, bool)
    if not number or not value >= 0:
        raise ConfigError(f"timeout={value!r}: must be 0 or more seconds; 0 means no limit")


def seed_of(seed: object) -> int | None:
    """Returns the argument ``seed``, which may be None, as an int.

    Raises:
        ConfigError: It is no whole number in [0, 2^64).
    """
    if seed is None:
        return None
    number = whole_number("seed", seed, 0)
    if number >> 64:
        raise ConfigError(f"seed={seed}: must be below 2^64")
    return number


def switch(name: str, value: object) -> bool:
    """Returns an argument that is True or False; 1 and 0, and numpy's bools, are these as well.

    Raises:
        ConfigError: It is something else, such as the text ``"no"``, which Python takes for True.
    """
    numpys = type(value).__module__ == "numpy" and type(value).__name__ in ("bool", "bool_")
    if not numpys and (not isinstance(value, numbers.Integral) or value not in (0, 1)):
        raise ConfigError(f"{name}={value!r}: must be True or False")
    return bool(value)


def whole_number(name: str, value: object, least: int, most: int | None = None) -> int:
    """Returns ``value`` as an int.

    Args:
        name: The argument's name, for the message.
        value: Its value.
        least: The smallest value that is allowed.
        most: The largest; None: there is none.

    Raises:
        ConfigError: It is no whole number, below ``least``, or above ``most``.
    """
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise ConfigError(f"{name}={value!r}: must be a whole number")
    number = operator.index(value)
    if number < least:
        raise ConfigError(f"{name}={number}: must be {least} or more")
    if most is not None and number > most:
        raise ConfigError(f"{name}={number}: must be {most} or less")
    return number
