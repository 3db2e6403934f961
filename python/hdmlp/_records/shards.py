"""Writes tar shards by WebDataset's rules, one after another, and goes on where it was stopped.

A shard is written to a hidden file, synced, read back and compared by its digest. Then it gets a
line in the journal, and its name. docs/FORMATS.md, "The journal of packed shards".
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import re
import tarfile
from collections.abc import Sequence
from typing import Any, NamedTuple

from ..errors import ConfigError, HDMLPError

#: The journal's name in the directory of the shards, as that of ``hdmlp pack``.
JOURNAL = ".hdmlp-pack"
#: What the names of classes are in: a JSON list, in the order of their numbers.
CLASSES = "classes.json"
#: The format of the journal; 1 is that of the command.
_FORMAT = 2
_PATTERN = re.compile(r"[^%/]*%(0[1-9])?d[^%/]*\.tar")
_FIELD = re.compile(r"[a-z0-9_+-]+(\.[a-z0-9_+-]+)*")
_END = bytes(1024)
#: How often a sample's number is appended to its key, until no earlier one of its shard has it.
_AGAIN = 4
_BLOCK = 512
_PIECE = 1 << 20


class Fields(NamedTuple):
    """A sample as it is packed.

    Attributes:
        key: What it is called.
        fields: The names and contents of its fields.
    """

    key: str
    fields: Sequence[tuple[str, bytes]]


def clean_key(key: str) -> str:
    """Returns a key as tar files and WebDataset's rules allow it, as ``hdmlp pack`` does."""
    parts = [part for part in key.split("/") if part not in ("", ".", "..")]
    if not parts:
        return "_"
    parts[-1] = parts[-1].replace(".", "_")
    data = os.fsencode("/".join(parts))
    text = data.decode("utf-8", "backslashreplace").replace("\\x", "%")
    return re.sub(r"[\x00-\x1f]", lambda found: f"%{ord(found[0]):02x}", text)


def check_field(name: str) -> str:
    """Returns the name of a field, if it is one in a shard.

    Raises:
        ConfigError: It is not.
    """
    if not _FIELD.fullmatch(name):
        raise ConfigError(
            f"the field {name!r} cannot be called so in a shard: give names of a-z, 0-9, _ and "
            "dots, such as 'jpg', with fields="
        )
    return name


def encoded(sample: Fields) -> bytes:
    """Returns the members of a sample: regular files of mode 0644, user 0 and time 0."""
    parts = []
    for name, data in sample.fields:
        info = tarfile.TarInfo(f"{sample.key}.{name}")
        info.size = len(data)
        parts += [info.tobuf(tarfile.PAX_FORMAT), data, bytes(-len(data) % _BLOCK)]
    return b"".join(parts)


class Writer:
    """Writes shards to a directory, which nothing else must be in.

    Args:
        out: The directory; it is made if it is missing, but not its parent.
        pattern: The shards' names, with a number such as ``%06d``.
        size: The bytes that a shard of several samples does not exceed.
        what: All that decides which bytes are written, as JSON has it.

    Attributes:
        first: The sample that is to be added first: those before it are in shards of an earlier
            run.

    Raises:
        ConfigError: The directory has other files, or the shards of something else.
    """

    def __init__(self, out: str, pattern: str, size: int, what: dict[str, object]):
        if not _PATTERN.fullmatch(pattern):
            raise ConfigError(
                f"shards={pattern!r}: must be a file's name with one number, such as '%06d.tar'"
            )
        self._out, self._pattern, self._size = out, pattern, size
        text = json.dumps([what, pattern, size], sort_keys=True)
        self._head = {"format": _FORMAT, "layout": hashlib.blake2b(text.encode()).hexdigest()[:32]}
        self._done: list[dict[str, Any]] = []
        self._part: Any = None
        self._keys: set[str] = set()
        self._written, self._digest = 0, hashlib.blake2b(digest_size=16)
        self._open()
        try:
            self._adopt()
        except BaseException:
            self.close()
            raise
        self.first = self._done[-1]["end"] if self._done else 0
        self._next = self.first

    def _open(self) -> None:
        try:
            with contextlib.suppress(FileExistsError):
                os.mkdir(self._out)
            names = os.listdir(self._out)
        except OSError as error:
            raise ConfigError(f"out={self._out!r}: {error.strerror}") from error
        if names and JOURNAL not in names:
            raise ConfigError(
                f"out={self._out!r}: the directory is not empty, and no shards of an earlier run "
                "are in it: give another directory, or an empty one"
            )
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        self._journal = os.fdopen(os.open(self._path(JOURNAL), flags, 0o666), "r+b", buffering=0)
        try:
            fcntl.flock(self._journal, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._journal.close()
            raise ConfigError(
                f"out={self._out!r}: another process writes shards there: wait until it has ended"
            ) from None

    def _path(self, name: str) -> str:
        return os.path.join(self._out, name)

    def _hidden(self, name: str) -> str:
        return self._path(f".{name}.part")

    def _adopt(self) -> None:
        """Reads the journal; a line that was cut off is as if it were not there."""
        data = self._journal.read()
        whole = data[: data.rfind(b"\n") + 1]
        self._journal.truncate(len(whole))
        self._journal.seek(len(whole))
        if not whole:
            self._note(self._head)
            return
        try:
            head, *lines = map(json.loads, whole.splitlines())
            listed = [(line["name"], line["size"], line["blake2b"], line["end"]) for line in lines]
        except (ValueError, KeyError, TypeError):
            raise ConfigError(
                f"{self._path(JOURNAL)} is damaged, or of the command: remove the directory, or "
                "give another one"
            ) from None
        if head != self._head:
            raise ConfigError(
                f"out={self._out!r}: it has the shards of another dataset, or of the same one with "
                "other arguments: give the same ones to go on, or another directory"
            )
        for line, (name, size, digest, _) in zip(lines, listed):
            if os.path.lexists(self._hidden(name)):
                self._check(name, digest)
                self._name(name)
            path = self._path(name)
            if not os.path.isfile(path) or os.path.getsize(path) != size:
                raise ConfigError(
                    f"{path} was removed or changed since it was written: remove the directory, or "
                    "give another one"
                )
            self._done.append(line)

    def _note(self, line: dict[str, object]) -> None:
        self._journal.write(json.dumps(line, separators=(",", ":")).encode() + b"\n")
        os.fsync(self._journal.fileno())
        self._sync()

    def _sync(self) -> None:
        directory = os.open(self._out, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)

    def ends_with(self, sample: Fields, number: int) -> bool:
        """Reports whether the last sample of an earlier run, of this number, is this one."""
        path = self._path(self._done[-1]["name"])
        for again in range(_AGAIN):
            want = encoded(sample._replace(key=sample.key + f"-{number}" * again)) + _END
            with open(path, "rb") as file:
                file.seek(max(os.path.getsize(path) - len(want), 0))
                if file.read() == want:
                    return True
        return False

    def beside(self, name: str, data: bytes) -> None:
        """Writes a small file beside the shards.

        Raises:
            ConfigError: There is another one of this name.
        """
        try:
            with open(self._path(name), "rb") as file:
                if file.read() == data:
                    return
            raise self._taken(name)
        except FileNotFoundError:
            pass
        with self._create(name) as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        self._name(name)

    def _taken(self, name: str) -> ConfigError:
        return ConfigError(
            f"{self._path(name)} is there already, and was not written by this run: remove it, or "
            "give another directory"
        )

    def _create(self, name: str) -> Any:
        with contextlib.suppress(FileNotFoundError):
            os.remove(self._hidden(name))
        return open(self._hidden(name), "xb")

    def _name(self, name: str) -> None:
        """Gives a hidden file its name, unless there is a file of that name."""
        hidden, path = self._hidden(name), self._path(name)
        try:
            os.link(hidden, path)
        except FileExistsError:
            raise self._taken(name) from None
        except OSError as error:
            if error.errno not in (errno.EPERM, errno.ENOTSUP, errno.EMLINK):
                raise
            if os.path.lexists(path):
                raise self._taken(name) from None
            os.rename(hidden, path)  # on a file system without links
        else:
            os.remove(hidden)
        self._sync()

    def add(self, sample: Fields) -> None:
        """Adds the next sample."""
        data = encoded(sample)
        if self._part is not None and self._written + len(data) + len(_END) > self._size:
            self._finish()
        if self._part is None:
            name = self._pattern % len(self._done)
            if os.path.lexists(self._path(name)):
                raise self._taken(name)
            self._part, self._written, self._keys = self._create(name), 0, set()
            self._digest = hashlib.blake2b(digest_size=16)
        while sample.key in self._keys:
            sample = sample._replace(key=f"{sample.key}-{self._next}")
            data = encoded(sample)
        self._keys.add(sample.key)
        self._append(data)
        self._next += 1

    def _append(self, data: bytes) -> None:
        self._part.write(data)
        self._digest.update(data)
        self._written += len(data)

    def _finish(self) -> None:
        name = self._pattern % len(self._done)
        self._append(_END)
        self._part.flush()
        os.fsync(self._part.fileno())
        os.posix_fadvise(self._part.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        self._part.close()
        self._part = None
        digest = self._digest.hexdigest()
        self._check(name, digest)
        line = {"name": name, "size": self._written, "blake2b": digest, "end": self._next}
        self._note(line)
        self._name(name)
        self._done.append(line)

    def _check(self, name: str, digest: str) -> None:
        """Reads a hidden file back, and compares its digest."""
        found = hashlib.blake2b(digest_size=16)
        with open(self._hidden(name), "rb") as file:
            while piece := file.read(_PIECE):
                found.update(piece)
        if found.hexdigest() != digest:
            raise HDMLPError(
                f"{self._hidden(name)}: what was written is not what is read back: the disk or its "
                "memory is faulty"
            )

    def finish(self) -> list[str]:
        """Completes the last shard, and returns the paths of all."""
        if self._part is not None:
            self._finish()
        return [self._path(line["name"]) for line in self._done]

    def close(self) -> None:
        """Closes the files. A shard that is not complete is written again by the next run."""
        if self._part is not None:
            self._part.close()
        self._journal.close()
