"""Files of a fault: datasets, and files that must not change."""

from __future__ import annotations

import os
import random
import time
from pathlib import Path
from typing import Any

from oracle import digest_file
from verdicts import FOREIGN, Verdict


class Files:
    """A fault's directory.

    Attributes:
        tmp: the directory.
        guarded: by path, the state of the files and trees that must not change.
    """

    def __init__(self, folder: Path) -> None:
        self.tmp = folder
        self.guarded: dict[str, Any] = {}

    def folder(self, name: str) -> Path:
        path = self.tmp / name
        path.mkdir(parents=True, exist_ok=True)
        return path

    def dataset(
        self,
        name: str = "train",
        classes: int = 4,
        per_class: int = 15,
        size: int = 400,
        salt: Any = 0,
        mtime: int | None = None,
        sizes: str = "varied",
    ) -> Path:
        """A dataset of random bytes. Two of different salt have the same names and sizes, and with
        ``mtime`` the same times."""
        root = self.tmp / name
        for c in range(classes):
            folder = root / f"class{c}"
            folder.mkdir(parents=True)
            for i in range(per_class):
                self.sample(
                    folder / f"{i:03}.jpg",
                    size if sizes == "same" else size + (c * per_class + i) % 37,
                    salt,
                )
        if mtime is not None:
            self.date(root, mtime)
        return root

    def sample(self, path: Path, size: int = 400, salt: Any = 0) -> Path:
        path.write_bytes(random.Random(f"{salt}/{path.parent.name}/{path.name}").randbytes(size))
        return path

    @staticmethod
    def date(root: Path, mtime: int) -> None:
        """Gives a tree one time, as archives and images of containers do."""
        for folder, _, files in os.walk(root, topdown=False):
            for name in [*files, "."]:
                os.utime(os.path.join(folder, name), (mtime, mtime), follow_symlinks=False)

    @staticmethod
    def age(root: Path) -> None:
        """Waits until the directories' times are old enough to be trusted, so that an index
        counts."""
        newest = max(os.lstat(os.path.join(folder, ".")).st_ctime for folder, _, _ in os.walk(root))
        time.sleep(max(0.0, newest + 2.1 - time.time()))

    def guard(self, *paths: Any) -> None:
        """Marks files and trees that HDMLP must not change."""
        for path in paths:
            self.guarded[os.fspath(path)] = self.print_of(os.fspath(path))

    @staticmethod
    def print_of(path: str) -> Any:
        if os.path.isdir(path):
            return sorted(
                (os.path.relpath(os.path.join(d, n), path), Files.print_of(os.path.join(d, n)))
                for d, _, ns in os.walk(path)
                for n in ns
            )
        try:
            meta = os.lstat(path)
            return (
                meta.st_size,
                meta.st_mode,
                meta.st_uid,
                meta.st_mtime_ns,
                digest_file(path) if os.path.isfile(path) else "",
            )
        except OSError as e:
            return str(e)

    def untouched(self) -> None:
        for path, before in self.guarded.items():
            if (now := self.print_of(path)) != before:
                raise Verdict(
                    FOREIGN,
                    f"{path.replace(str(self.tmp), '')} was {str(before)[:80]}, is {str(now)[:80]}",
                )
