"""Keyword arguments that are configuration keys, and what else goes with a request."""

from __future__ import annotations

import difflib
import inspect
import operator
import os
from collections.abc import Iterable
from typing import Any

from .errors import ConfigError

#: The configuration keys of a job, as ``hdmlp config`` lists them. The daemon checks the values.
KEYS = (
    "memory",
    "cache_dir",
    "cache_size",
    "disk_reserve",
    "staging_buffer",
    "prefetch_batches",
    "source_threads",
    "cache_threads",
    "transform_threads",
    "decode_memory",
    "source_timeout",
    "on_error",
    "policy",
    "index_dir",
    "port",
    "interface",
    "start_timeout",
    "tls",
    "tls_cert",
    "tls_key",
    "tls_ca",
    "linger",
    "metrics",
    "log_level",
)

_PATHS = ("cache_dir", "index_dir", "tls_cert", "tls_key", "tls_ca")


def configuration(keywords: dict[str, Any], others: Iterable[str] = ()) -> dict[str, Any]:
    """Returns the configuration keys among a loader's keyword arguments, as JSON values.

    Args:
        keywords: What was given beyond the named parameters. None means that a key is not given.
        others: The named parameters, for the message.

    Raises:
        ConfigError: A keyword is neither; the message names the nearest that exists.
    """
    arguments = {}
    for key, value in keywords.items():
        if key not in KEYS:
            known = [*others, *KEYS]
            near = difflib.get_close_matches(key, known, n=1, cutoff=0.5)
            hint = (
                f"; did you mean {near[0]}?" if near else f"; known are {', '.join(sorted(known))}"
            )
            raise ConfigError(f"unknown argument {key}={value!r}{hint}")
        if value is None:
            continue
        if isinstance(value, os.PathLike):
            value = os.fspath(value)
        if key in _PATHS and isinstance(value, str) and value:
            value = os.path.abspath(os.path.expanduser(value))
        if not isinstance(value, (str, int, float, bool)):
            raise ConfigError(
                f"{key}={value!r}: must be text or a number, not {type(value).__name__}"
            )
        arguments[key] = value
    return arguments


def settings(arguments: dict[str, Any], config_file: str | None) -> dict[str, Any]:
    """Returns the part of a request that has the configuration.

    Args:
        arguments: Configuration keys, as :func:`configuration` returns them.
        config_file: A TOML file; None means ``HDMLP_CONFIG``, if it is set.

    Returns:
        ``arguments``, ``environment`` and ``config_file``.

    Raises:
        ConfigError: There is no such file.
    """
    environment = {k: v for k, v in os.environ.items() if k.startswith("HDMLP_")}
    config_file = config_file or environment.get("HDMLP_CONFIG") or ""
    if config_file:
        config_file = os.path.abspath(os.path.expanduser(config_file))
        if not os.path.isfile(config_file):
            raise ConfigError(
                f"config_file={config_file!r}: "
                + (
                    "not a regular file; the configuration is a TOML file of at most 1 MiB"
                    if os.path.exists(config_file)
                    else "there is no such file"
                )
            )
    return {"arguments": arguments, "environment": environment, "config_file": config_file}


def parameters(cls: type) -> list[str]:
    """Returns the names of the parameters with which a class is called, without ``**keys``."""
    return [p for p in inspect.signature(cls).parameters if p != "keys"]


def whole_number(name: str, value: Any, least: int) -> int:
    """Returns ``value`` as an int.

    Args:
        name: The argument's name, for the message.
        value: Its value.
        least: The smallest value that is allowed.

    Raises:
        ConfigError: It is no whole number, or below ``least``.
    """
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise ConfigError(f"{name}={value!r}: must be a whole number")
    number = operator.index(value)
    if number < least:
        raise ConfigError(f"{name}={number}: must be {least} or more")
    return number
