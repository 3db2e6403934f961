"""Checks of the directory and the suffixes that a dataset is given."""

from __future__ import annotations

import errno
import os
import re
import stat

from .._daemon.view import advice, call_with_timeout
from .._lib.arguments import check_path, is_url
from ..errors import ConfigError, DatasetNotFoundError

#: The schemes of URLs that HDMLP reads.
URLS = ("s3", "https", "http")
#: Seconds for which a dataset waits for a directory that does not answer.
_LOOK = 2.0


def located(root: str) -> str:
    """Returns the absolute path of a dataset's directory, or its URL.

    Args:
        root: As the user gave it.

    Raises:
        DatasetNotFoundError: It is no directory, or a URL that HDMLP does not read.
    """
    if not root:
        raise DatasetNotFoundError(
            "root='': an empty path names no directory; give '.' for the current one"
        )
    if "\0" in root:
        raise DatasetNotFoundError(f"root={root!r}: a path cannot have a null character")
    if is_url(root):
        check_url(root)
        return root.removesuffix("/")
    path = os.path.expanduser(root)
    if not os.path.isabs(path):
        try:
            path = os.path.join(os.getcwd(), path)
        except FileNotFoundError:
            raise DatasetNotFoundError(
                f"{root}: a relative path, and the current directory was deleted; give an "
                "absolute one"
            ) from None
    # After a symbolic link, only the system can find where ".." leads.
    path = os.path.realpath(path) if ".." in path.split(os.sep) else os.path.abspath(path)
    try:
        missing = call_with_timeout(path, lambda: _missing(path), timeout=_LOOK)
    except OSError:  # the file system does not answer; a loader waits for it and says so
        missing = None
    if missing is not None:
        raise DatasetNotFoundError(f"{root}: {advice(missing)}")
    return path


def check_url(url: str) -> None:
    """Checks that HDMLP reads what a URL names. Messages do not show what may be a password.

    Raises:
        DatasetNotFoundError: It does not.
    """
    scheme, _, rest = url.partition("://")
    host, _, below = rest.partition("/")
    if "@" in host:
        raise DatasetNotFoundError(
            f"{scheme}://{host.rpartition('@')[2]}/...: the URL names a user, and would be written "
            "to logs: give it without; keys come from the environment of the process"
        )
    if scheme in ("http", "https") and re.search("[?#]", rest):
        raise DatasetNotFoundError(
            f"{scheme}://{re.split('[?#]', rest)[0]}: the URL has a query or a fragment, and would "
            "be written to logs: give the path alone; s3:// URLs are signed with keys that the "
            "environment has"
        )
    if not rest.strip("/"):
        raise DatasetNotFoundError(f"{url}: names no bucket or server")
    if scheme in URLS:
        for part in below.removesuffix("/").split("/") if below else ():
            if part in ("", ".", ".."):
                raise DatasetNotFoundError(
                    f"{url}: it has the part {part!r} between slashes: HDMLP reads objects whose "
                    "names have no part that is empty, a dot or two dots"
                )
        return
    hint = "mount what it names, for example with rclone mount, and give the directory"
    if scheme in ("gs", "gcs"):
        hint = (
            "Google Cloud Storage is read by its S3 interface: give s3://BUCKET, and set "
            "AWS_ENDPOINT_URL=https://storage.googleapis.com and an HMAC key"
        )
    elif scheme.lower() in URLS:
        hint = f"write {scheme.lower()}://"
    elif url.startswith("file://"):
        hint = "give the path without file://"
    kinds = ", ".join(f"{known}://" for known in URLS)
    raise DatasetNotFoundError(f"{url}: HDMLP does not read {scheme}:// (it reads {kinds}); {hint}")


def _missing(path: str) -> int | None:
    """Returns why there is no directory at a path, as an errno; None: there is, or may be."""
    try:
        return None if stat.S_ISDIR(os.stat(path).st_mode) else errno.ENOTDIR
    except FileNotFoundError:
        return errno.ENOENT
    except NotADirectoryError:
        return errno.ENOTDIR


def path_of(root: str | os.PathLike[str]) -> str:
    """Returns the argument ``root`` as text.

    Raises:
        ConfigError: It is no path.
    """
    check_path("root", root)
    return os.fsdecode(root)


def suffixes(extensions: object) -> tuple[str, ...] | None:
    """Returns the argument ``extensions`` as a tuple; None: the defaults.

    Raises:
        ConfigError: It is no list of strings.
    """
    if extensions is None:
        return None
    if isinstance(extensions, str):
        extensions = [extensions]
    if not isinstance(extensions, (list, tuple, set, frozenset)) or not all(
        isinstance(suffix, str) and suffix for suffix in extensions
    ):
        raise ConfigError(f"extensions={extensions!r}: must be a list of suffixes such as '.jpg'")
    if not extensions:
        raise ConfigError(
            f"extensions={extensions!r}: no file would be a sample; give suffixes such as '.jpg', "
            "or leave it out for those of images"
        )
    return tuple(sorted(extensions) if isinstance(extensions, (set, frozenset)) else extensions)
