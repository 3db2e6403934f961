"""LMDB environments: each record is a sample, in the order of the keys."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from .._lib.arguments import check_path, is_url
from ..errors import ConfigError, DatasetNotFoundError
from .directory import located
from .form import Form
from .found import Found, Texts
from .labels import Labels

_DATA = "data.mdb"


class LMDB(Found):
    """The records of an LMDB environment, in the order of their keys.

    Pages are read with ordinary reads, never mapped; the index comes from branches and leaves
    alone. A writer that commits while the environment is open is noticed with the next read, which
    is an error then.

    Args:
        path: The environment: a directory with a ``data.mdb``, or a data file.
        database: The name of a database in it. Default: ``""``, the main one, or the only named
            one.
        decoder: ``"raw"``: a sample is the value; ``"datum"``: the value is Caffe's ``Datum``, of
            which a sample is the data, with its label. Default: ``"raw"``.
        label: ``"prefix"``: what precedes the first ``_`` or ``/`` of a key is the name of a class;
            or a function of (key, value) to a label, which runs in Python. Default: None, there
            are no labels but those of ``"datum"``.

    Attributes:
        fields: The names of the fields: ``"value"``, or ``"data"`` of a ``Datum``.

    Raises:
        ConfigError: An argument is wrong.
        DatasetNotFoundError: There is no such environment.
    """

    kind: ClassVar[str] = "lmdb"

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        database: str = "",
        decoder: str = "raw",
        label: str | Callable[[bytes, object], object] | None = None,
    ):
        check_path("path", path)
        if decoder not in ("raw", "datum"):
            raise ConfigError(f"decoder={decoder!r}: allowed: 'raw', 'datum'")
        if label not in (None, "prefix") and not callable(label):
            raise ConfigError(f"label={label!r}: allowed: 'prefix', or a function of (key, value)")
        if label is not None and decoder == "datum":
            raise ConfigError("label and decoder='datum': a Datum has its label; leave label out")
        root, name = self._split(os.path.expanduser(os.fsdecode(path)))
        self._labels_by = label if callable(label) else None
        options: dict[str, object] = {"objects": [name], "decoder": decoder}
        if database:
            options["database"] = database
        if label == "prefix":
            options["label"] = "prefix"
        facts = self._find(root, options)
        columns, fields = list(facts["columns"]), list(facts["fields"])
        self._shapes: list[tuple[int, int, int]] | None = None
        self._settle(Form("one" if len(fields) == 1 else "tuple", fields), facts)
        keys, _, values = self._table(len(columns))
        found = dict(zip(columns, values))
        self.__dict__["_keys"] = Texts(found["key"]) if "key" in found else keys
        if label == "prefix":
            self.__dict__["_labels"] = Labels(found["label"])
        elif decoder == "datum":
            self.__dict__["_labels"] = Labels(list(map(int, found["label"])))
            self._take_shapes(found)

    def _take_shapes(self, found: dict[str, list[str]]) -> None:
        encoded = {value not in ("", "0") for value in found["encoded"]}
        if len(encoded) > 1:
            raise ConfigError(
                f"{self!r}: some records are encoded images and some are not; use decoder='raw'"
            )
        if encoded == {False}:
            edges = (map(int, found[name]) for name in ("channels", "height", "width"))
            self._shapes = list(zip(*edges))

    @staticmethod
    def _split(path: str) -> tuple[str, str]:
        """Returns the directory of an environment's data file, and the file's name there."""
        if is_url(path):
            if not path.endswith((".mdb", ".lmdb")):
                return located(path), _DATA
            head, _, name = path.rpartition("/")
            return located(head), name
        if os.path.isdir(path):
            if not os.path.exists(os.path.join(path, _DATA)):
                raise DatasetNotFoundError(
                    f"path={path!r}: the directory has no {_DATA}, as an LMDB environment has"
                )
            return located(path), _DATA
        if not os.path.exists(path):
            raise DatasetNotFoundError(f"path={path!r}: there is no such file or directory")
        head, name = os.path.split(path)
        return located(head or "."), name

    def key(self, index: int) -> Any:
        """Returns the key of a record, as bytes.

        Raises:
            IndexError: There is no such record.
        """
        keys: Sequence[str] = self.__dict__["_keys"]
        return os.fsencode(keys[self._index(index)])

    def __getitem__(self, index: int) -> object:
        """Returns one item: the value, or (data, label).

        Raises:
            IndexError: There is no such record.
            SampleError: It cannot be read.
        """
        index = self._index(index)
        fields = self._fields_of(index)
        return self._form.item(fields, index, self._label_of(index, fields))

    def _label_of(self, index: int, contents: Sequence[bytes | None]) -> object:
        if self._labels_by is not None:
            return self._labels_by(self.key(index), contents[0])
        return self._label(index)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({os.path.join(self._path, self._found_files.names[0])!r})"
