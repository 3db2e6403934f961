"""Images in zip archives whose members are stored as they are, as a folder of class folders."""

from __future__ import annotations

import array
import bisect
import errno
import os
import stat
import struct
import zipfile
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from .._lib.arguments import check_path, is_url
from ..errors import ConfigError
from .arrays import Indexed, paths_in, unreadable
from .files import IMAGES
from .form import Form
from .labels import Labels
from .manifest import located
from .records import check_count
from .runs import Ranges

#: The header before the data of a member: a mark, flags, the method, how many bytes there are in
#: the archive and outside, and the lengths of its name and of what follows that (APPNOTE 6.3.10,
#: 4.3.7).
_HEADER = struct.Struct("<4s2xHH8xIIHH")
_MARK = b"PK\x03\x04"
#: A size that follows the data (flag, 4.4.4), and one that is in the header's extra field.
_LATER, _IN_EXTRA = 1 << 3, 0xFFFFFFFF
#: The number and length of a part of the extra field (4.5.1).
_PART = struct.Struct("<HH")
#: Flags of members (4.4.4).
_ENCRYPTED, _PATCHED = 1 | 1 << 6, 1 << 5
#: What members are compressed by, by number (4.4.5).
_METHODS = {8: "deflate", 9: "deflate64", 12: "bzip2", 14: "lzma", 93: "zstd", 95: "xz"}
#: What zipfile raises for archives that are damaged.
_ERRORS = (
    *(zipfile.BadZipFile, NotImplementedError, ValueError, struct.error, EOFError, OverflowError),
    *(IndexError, MemoryError),
)


class _Member(NamedTuple):
    """A file in an archive.

    Attributes:
        name: Its path below the directory that was asked for.
        archive: The number of the archive.
        offset: Where its bytes begin in it.
        size: How many there are.
    """

    name: str
    archive: int
    offset: int
    size: int

    @property
    def place(self) -> tuple[str, str, str]:
        """Its place in the order in which torchvision's ``ImageFolder`` lists files."""
        directory, _, name = self.name.rpartition("/")
        return self.name.partition("/")[0], directory, name


class Zip(Indexed):
    """Images in zip archives whose members are stored, and not compressed (``zip -0``).

    They are those of torchvision's ``ImageFolder`` in the unpacked archives, in its order: the
    directories below ``root`` are the classes. The list at each archive's end is read, and the
    header before each image; checksums are not compared.

    Args:
        paths: An archive, or a list of them, of which no two have a file of the same name.
        root: The directory in the archives that has the classes, such as ``"train"``. Default:
            ``""``, the archive itself.
        labels: One per image, in the order of their names: images may then lie anywhere below
            ``root``. Default: None: classes by directory.
        classes: See :class:`Files`. Default: None.

    An item is (bytes, label); the key of a record is its name in the archive.

    Raises:
        ConfigError: An archive is none or damaged, its images are compressed or encrypted, or there
            are none.
    """

    def __init__(
        self,
        paths: object,
        root: str = "",
        *,
        labels: Sequence[object] | None = None,
        classes: Sequence[str] | None = None,
    ):
        self._open(paths, root, labels, classes)

    def _open(
        self,
        paths: object,
        root: str,
        labels: Sequence[object] | None,
        classes: Sequence[str] | None,
    ) -> None:
        archives = paths_in("paths", paths, None)
        check_path("root", root)
        parts = [part for part in os.fsdecode(root).split("/") if part not in ("", ".")]
        below = "".join(f"{part}/" for part in parts)
        if any(map(is_url, archives)):
            raise ConfigError("paths: zip archives are indexed where they are files, not at URLs")
        if labels is None and classes is not None:
            raise ConfigError("classes without labels: give labels=")
        self._note(archives)
        where = located(archives, None)
        members, directories = [], set()
        for path, number in zip(archives, where.numbers):
            for member in _members(path, number, below):
                if member.offset < 0:
                    directories.add(member.name.partition("/")[0])
                else:
                    members.append(member)
        if not members:
            raise ConfigError(
                f"{archives[0]}: no file {f'below {below!r} ' if below else ''}ends with "
                f"{', '.join(IMAGES)}"
            )
        members.sort(key=(lambda m: m.name) if labels is not None else (lambda m: m.place))
        for one, other in zip(members, members[1:]):
            if one.name == other.name:
                one_at, other_at = (where.names[m.archive] for m in (one, other))
                raise ConfigError(
                    f"{where.root}/{other_at}: {below}{one.name} is there twice, or in {one_at} as "
                    "well: labels and keys are by name"
                )
        made = _classes(archives[0], below, members, directories) if labels is None else None
        if made is None:
            made = Labels(labels, classes)  # type: ignore[arg-type]
            check_count("labels", len(made), len(members))
        ranges = Ranges(
            array.array("i", [member.archive for member in members]),
            array.array("q", [member.offset for member in members]),
            array.array("q", [member.size for member in members]),
        )
        names = [f"{below}{member.name}" for member in members]
        self._set(where, Form("one", ["0"]), [ranges], made, names)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self)} images below {self._path!r})"


def _classes(path: str, below: str, members: Sequence[_Member], directories: set[str]) -> Labels:
    """Returns the classes of images, which are directories.

    Raises:
        ConfigError: An image is in none of them, or one has no images.
    """
    for member in members:
        if "/" not in member.name:
            raise ConfigError(
                f"{path}: {below}{member.name} is in no directory of a class: give root=, the "
                "directory that has these, or labels="
            )
    names = [member.name.partition("/")[0] for member in members]
    classes = sorted(set(names))
    lacking = sorted(directories.difference(classes))
    if lacking:
        raise ConfigError(
            f"{path}: the directory {below}{lacking[0]} has no images, as a class must: give "
            "root=, the directory that has the classes"
        )
    return Labels(names, classes)


def _members(path: str, number: int, below: str) -> Iterator[_Member]:
    """Yields the images of an archive below a directory, and other members with offset -1.

    Raises:
        ConfigError: The archive is damaged, or an image is compressed or encrypted.
    """
    try:
        with zipfile.ZipFile(path) as file:
            infos, end = file.infolist(), file.start_dir
    except OSError as error:
        if error.errno == errno.EINVAL:  # of an offset that lies
            raise _damaged(path, f"zipfile cannot read it ({error})") from None
        raise unreadable(path, error) from error
    except _ERRORS as error:
        raise _damaged(path, f"zipfile cannot read it ({error})") from None
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError as error:
        raise unreadable(path, error) from error
    starts = sorted({*(info.header_offset for info in infos), end})
    try:
        for info in infos:
            if "\0" in info.orig_filename:
                raise _damaged(path, f"the name {info.orig_filename!r} has a NUL")
            unpacked = _unpacked(info.filename)
            name = unpacked.removeprefix(below)
            if not unpacked.startswith(below) or not name:
                continue
            if info.is_dir() or not name.lower().endswith(IMAGES):
                if "/" in name or info.is_dir():
                    yield _Member(name + "/" * info.is_dir(), number, -1, 0)
                continue
            _check(path, info)
            at = _begin(path, descriptor, info)
            if at + info.file_size > starts[bisect.bisect(starts, info.header_offset)]:
                raise _damaged(path, f"{info.filename} ends after what follows it begins")
            yield _Member(name, number, at, info.file_size)
    except OSError as error:
        raise unreadable(path, error) from error
    finally:
        os.close(descriptor)


def _unpacked(name: str) -> str:
    """Returns the path that a member has when it is unpacked, as zipfile does it."""
    return "/".join(part for part in name.split("/") if part not in ("", ".", ".."))


def _begin(path: str, descriptor: int, info: zipfile.ZipInfo) -> int:
    """Returns where the bytes of a member begin, after a header that agrees with the list.

    Raises:
        ConfigError: It does not agree.
    """
    begin = info.header_offset
    head = os.pread(descriptor, _HEADER.size, begin) if begin >= 0 else b""
    if len(head) < _HEADER.size or not head.startswith(_MARK):
        raise _damaged(path, f"there is no header of {info.filename}")
    flags, method, inside, outside, named, more = map(int, _HEADER.unpack(head)[1:])
    own = os.pread(descriptor, named + more, begin + _HEADER.size)
    if own[:named] != _raw(info):
        raise _damaged(path, f"the header of {info.filename} is another one")
    sizes = {inside, outside} - {info.file_size, _IN_EXTRA, *([0] if flags & _LATER else [])}
    other = (flags ^ info.flag_bits) & (_ENCRYPTED | _PATCHED)
    if sizes or other or method != info.compress_type or not _whole(own[named:]):
        raise _damaged(path, f"the header of {info.filename} differs from the list of files")
    return begin + _HEADER.size + named + more


def _whole(extra: bytes) -> bool:
    """Reports whether the parts of an extra field fill it, but for zeros, which align data."""
    at = 0
    while len(extra) - at >= _PART.size and any(extra[at:]):
        at += _PART.size + _PART.unpack_from(extra, at)[1]
    return at <= len(extra) and not any(extra[at:])


def _raw(info: zipfile.ZipInfo) -> bytes:
    """Returns a member's name as it is stored: without a flag for UTF-8, in code page 437."""
    return info.orig_filename.encode("utf-8" if info.flag_bits & 0x800 else "cp437", "replace")


def _check(path: str, info: zipfile.ZipInfo) -> None:
    if stat.S_ISLNK(info.external_attr >> 16):
        raise ConfigError(
            f"{path}: {info.filename} is a symbolic link, of which nothing is unpacked: write the "
            "file itself (zip without -y)"
        )
    if info.flag_bits & _ENCRYPTED:
        raise ConfigError(f"{path}: {info.filename} is encrypted: write it without a password")
    if info.compress_type != zipfile.ZIP_STORED or info.flag_bits & _PATCHED:
        method = _METHODS.get(info.compress_type, f"method {info.compress_type}")
        raise ConfigError(
            f"{path}: {info.filename} is compressed ({method}), and images are already: store "
            "them (zip -0 -r, or zipfile.ZIP_STORED), or unpack the archive and use ImageFolder"
        )
    if info.compress_size != info.file_size:
        raise _damaged(
            path,
            f"{info.filename} is stored, and has {info.compress_size} bytes in the archive, and "
            f"{info.file_size} outside",
        )


def _damaged(path: str, why: str) -> ConfigError:
    return ConfigError(
        f"{path}: {why}: it is no zip archive, or is damaged; copy it once more from where it is "
        "whole"
    )
