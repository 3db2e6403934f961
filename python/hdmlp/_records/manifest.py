"""Lists of records as the daemon takes them: docs/FORMATS.md, "Manifests"."""

from __future__ import annotations

import array
import itertools
import json
import os
import re
import urllib.parse
from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from .._lib import memory
from .._lib.arguments import is_url
from ..errors import ConfigError
from .directory import check_url
from .runs import Ranges

_MAGIC = b"HDMLPM\x01\n"
#: The length of a range that ends with its file.
TO_END = -2
#: The most records that a dataset can have.
_MOST = 2**31 - 1


class Located(NamedTuple):
    """The files of a list, below the directory that they have in common.

    Attributes:
        root: The directory, an absolute path.
        names: The files' paths below it, each once.
        numbers: For each path that was given, which file it leads to.
    """

    root: str
    names: list[str]
    numbers: Sequence[int]


def made_absolute(path: str, base: str) -> str:
    """Returns a path as an absolute one, without ``.``, ``..`` and double slashes.

    Args:
        path: Absolute, or relative to ``base``.
        base: An absolute path.

    Raises:
        ConfigError: It cannot be the path of a file.
    """
    if not path or "\0" in path:
        raise ConfigError(f"{path!r} is not the path of a file")
    if "://" in path and is_url(path):
        return _checked_url(path)
    if "://" in base and is_url(base):
        if path[0] == "/":
            raise ConfigError(f"{path!r} is a path of this machine, and others are URLs")
        return _checked_url(f"{base}/{quoted(path, base)}")
    path = path if path[0] == "/" else f"{base}/{path}"
    if "/../" in path or path.endswith("/.."):
        # After a symbolic link, only the system finds where ".." leads.
        head, tail = os.path.split(path)
        return os.path.join(os.path.realpath(head), tail)
    if "//" in path or "/./" in path or path.endswith(("/", "/.")):
        return "/" + os.path.normpath(path).lstrip("/")
    return path


def quoted(path: str, base: str) -> str:
    """Returns a relative path as a part of the URL below ``base``: it is a name, and not quoted."""
    if base.startswith("s3://"):
        return path
    return re.sub("[%?#]", lambda found: urllib.parse.quote(found[0]), path)


def objects_at(root: str, names: Sequence[str]) -> Sequence[str]:
    """Returns what the objects below a root are called: parts of a web server's URL are quoted."""
    if not root.startswith(("http://", "https://")):
        return names
    return [urllib.parse.unquote(name, errors="surrogateescape") for name in names]


def _checked_url(url: str) -> str:
    """Returns the URL of an object, without slashes at its end.

    Raises:
        ConfigError: It cannot be one.
    """
    check_url(url)
    rest = url.partition("://")[2]
    if "/" not in rest or any(part in ("", ".", "..") for part in rest.split("/")):
        raise ConfigError(f"{url!r} is not the URL of an object, such as s3://bucket/name")
    return url


def current_directory() -> str:
    """Returns the current directory.

    Raises:
        ConfigError: It was deleted.
    """
    try:
        return os.getcwd()
    except FileNotFoundError:
        raise ConfigError(
            "the paths of files are relative, and the current directory was deleted; give "
            "absolute ones"
        ) from None


def located(paths: Sequence[str], root: str | None) -> Located:
    """Returns the files at these paths, below a directory that all of them are in.

    Args:
        paths: Absolute, or relative to ``root``.
        root: A directory, or a URL; None: the current directory.

    Raises:
        ConfigError: A path cannot be one of a file, or there is no current directory.
    """
    if root is None:
        base = current_directory()
    elif is_url(root):
        check_url(root)
        base = root.removesuffix("/")
    else:
        base = os.path.abspath(root)
    absolute: dict[str, int] = {}
    numbers = array.array("i")
    for path in paths:
        path = made_absolute(path, base)
        numbers.append(absolute.setdefault(path, len(absolute)))
    if not absolute:
        return Located(base, [], numbers)
    return below_root(list(absolute), numbers)


def below_root(absolute: Sequence[str], numbers: Sequence[int]) -> Located:
    """Returns files at absolute paths, each given once, below what they have in common."""
    directories = {path[: path.rindex("/")] for path in absolute}
    if any("://" in directory and is_url(directory) for directory in directories):
        common = common_url(directories)
        return Located(common, [path[len(common) + 1 :] for path in absolute], numbers)
    common = os.path.commonpath([directory or "/" for directory in directories])
    cut = len(common) + (common != "/")
    return Located(common, [path[cut:] for path in absolute], numbers)


def common_url(urls: Collection[str]) -> str:
    """Returns what URLs have in common, up to a slash.

    Raises:
        ConfigError: They are in several buckets or on several servers.
    """
    first = next(iter(urls))
    scheme = first.partition("://")[0]
    if not all(url.startswith(f"{scheme}://") for url in urls):
        raise ConfigError(f"{first!r} and other paths are in different places: a dataset is in one")
    common = os.path.commonpath(["/" + url.partition("://")[2] for url in urls])
    if common == "/":
        raise ConfigError(
            f"{first!r} and other URLs are in different buckets or on different servers: a dataset "
            "is in one"
        )
    return f"{scheme}:/{common}"


def encoded(
    names: Sequence[str],
    fields: Sequence[str],
    ranges: Sequence[Ranges],
    keys: Iterable[str] | None = None,
) -> bytes:
    """Returns a manifest.

    Args:
        names: The files' paths below the dataset's root.
        fields: The names of the fields.
        ranges: Where each field is.
        keys: The records' keys. Default: None, they have none.
    """
    samples = len(ranges[0].objects)
    if samples > _MOST:
        raise ConfigError(f"{samples} records; a dataset can have at most {_MOST}")
    runs = [r.runs for r in ranges]
    whole = all(r.offsets is None for r in ranges)
    name_ends, texts = _texts(names)
    key_ends, key_texts = (array.array("Q"), b"") if keys is None else _texts(keys)
    header = {
        "samples": samples,
        "objects": len(names),
        "names": len(texts),
        "fields": list(fields),
        "whole": whole,
        "keys": -1 if keys is None else len(key_texts),
    }
    rows: list[bytes] = [name_ends.tobytes(), texts]
    if all(own is not None for own in runs):
        header["runs"] = [len(own or ()) for own in runs]
        rows += [
            array.array("q", itertools.chain.from_iterable(own or ())).tobytes() for own in runs
        ]
    else:
        rows += _listed(ranges, samples, whole)
    if keys is not None:
        rows += [key_ends.tobytes(), key_texts]
    head = json.dumps(header).encode()
    out = bytearray(_MAGIC + len(head).to_bytes(4, "little") + head)
    for row in rows:
        out += bytes(-len(out) % 8) + row
    return bytes(out)


def _listed(ranges: Sequence[Ranges], samples: int, whole: bool) -> list[bytes]:
    """Returns the rows of ranges that are listed one by one."""
    rows = [b"".join(_numbers("i", r.objects) for r in ranges)]
    if not whole:
        zeros, ends = array.array("q", [0]) * samples, array.array("q", [TO_END]) * samples
        for columns, otherwise in (
            ([r.offsets for r in ranges], zeros),
            ([r.lengths for r in ranges], ends),
        ):
            rows.append(b"".join(_numbers("q", otherwise if c is None else c) for c in columns))
    return rows


def _numbers(kind: str, numbers: Sequence[int]) -> bytes:
    made = numbers if isinstance(numbers, array.array) else array.array(kind, numbers)
    return made.tobytes()


def _texts(texts: Iterable[str]) -> tuple[array.array[int], bytes]:
    """Returns where each of the texts ends, and all of them one after another."""
    ends, parts, end = array.array("Q"), [], 0
    for text in texts:
        part = os.fsencode(text)
        end += len(part)
        ends.append(end)
        parts.append(part)
    return ends, b"".join(parts)


def descriptor(manifest: bytes) -> int:
    """Returns the descriptor of memory that holds a manifest; the caller closes it."""
    return memory.listed(manifest)
