"""Files of arrays: where in each its numbers begin, of which type and shape they are."""

from __future__ import annotations

import io
import os
import pickle
import pickletools
import struct
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from .._lib.arguments import is_url
from ..errors import ConfigError
from .records import read_file

_NPY = b"\x93NUMPY"
#: The types of idx files, as MNIST's, by their codes; numbers are big-endian.
_IDX = {8: "u1", 9: "i1", 11: ">i2", 12: ">i4", 13: ">f4", 14: ">f8"}
#: How other files begin, and what to do with them.
_OTHERS = {
    b"PK\x03\x04": "it is an archive, as .npz: save each of its arrays with numpy.save",
    b"\x1f\x8b": "it is compressed by gzip: decompress it (gunzip)",
    b"\x28\xb5\x2f\xfd": "it is compressed by zstd: decompress it (zstd -d)",
    b"\x89HDF": "it is an HDF5 file: use HDF5",
}
#: The longest header of an npy file, in bytes. numpy itself takes 10,000 characters.
_LONGEST = 1 << 16


class ArrayFile(NamedTuple):
    """An array in a file, in C order.

    Attributes:
        path: The file.
        offset: Where its first element begins, in bytes.
        dtype: numpy's type of the elements.
        shape: Its shape; the first axis is that of the samples.
    """

    path: str
    offset: int
    dtype: Any
    shape: tuple[int, ...]

    @property
    def stride(self) -> int:
        """How many bytes a sample has: all that follows the first axis."""
        count: int = self.dtype.itemsize
        for edge in self.shape[1:]:
            count *= edge
        return count


def idx_at(path: str) -> ArrayFile:
    """Returns the array of an idx file, as MNIST's.

    Args:
        path: The file.

    Raises:
        ConfigError: It is none.
        OSError: It cannot be read.
    """
    head = read_file(path, 0, _LONGEST)
    _check_others(path, head)
    found = _idx(path, head)
    if found is None:
        raise ConfigError(
            f"{path}: it is no idx file, as MNIST's are, which begins with the bytes 00 00, a type "
            f"and a number of axes; it begins with {head[:4].hex(' ') or 'nothing'}: take it once "
            "more from where it is whole"
        )
    return found


def located(
    path: str, dtype: object = None, shape: Sequence[int] | None = None, offset: int = 0
) -> ArrayFile:
    """Returns the array in a file.

    Args:
        path: The file, or the URL of an object.
        dtype: Of a file that is nothing but numbers, their type. None: the file says it, as npy and
            idx files do.
        shape: The same: the shape, whose first edge may be -1. None: numbers one after another.
        offset: The same: where the numbers begin, in bytes.

    Raises:
        ConfigError: The file is not one of these, or its array has no samples in a row.
        OSError: It cannot be read.
    """
    if dtype is not None:
        # One request less of a store.
        says = path.endswith(".npy") if is_url(path) else read_file(path, 0, len(_NPY)) == _NPY
        if says and not offset:
            raise ConfigError(
                f"{path}: it is an npy file, which says its type and shape itself: leave dtype out"
            )
        return _raw(path, dtype, shape, offset)
    if shape is not None or offset:
        raise ConfigError("shape and offset are those of a raw file: give its dtype as well")
    head = read_file(path, 0, len(_NPY)) if is_url(path) else read_file(path, 0, _LONGEST)
    if head.startswith(_NPY):
        return checked(_npy(path, head))
    _check_others(path, head)
    found = _idx(path, head)
    if found is None:
        raise ConfigError(
            f"{path}: it is no npy file; of a raw file give dtype and shape, as in "
            "Arrays(path, dtype='uint16')"
        )
    return found


def _check_others(path: str, head: bytes) -> None:
    for magic, what in _OTHERS.items():
        if head.startswith(magic):
            raise ConfigError(f"{path}: {what}")


def checked(file: ArrayFile) -> ArrayFile:
    """Returns the array, if it has samples, whose numbers a tensor can have, in the whole file.

    Raises:
        ConfigError: It does not.
    """
    path, _, dtype, shape = file
    if dtype.hasobject:
        raise ConfigError(f"{path}: it has Python objects, which are pickled; save numbers")
    check_samples(path, dtype, shape)
    if not is_url(path):
        size, need = os.stat(path).st_size, file.offset + shape[0] * file.stride
        if size < need:
            raise ConfigError(
                f"{path}: it has {size} bytes, and an array of shape {shape} and type "
                f"{_shown(dtype)} ends at byte {need}: it was cut off, or is another one"
            )
    return file


def check_samples(where: str, dtype: Any, shape: Sequence[int]) -> None:
    """Checks that an array has samples, of numbers that a tensor can have.

    Args:
        where: The file, and what in it, for messages.
        dtype: numpy's type of the elements.
        shape: The shape.

    Raises:
        ConfigError: It does not.
    """
    if dtype.kind not in "biufc" or dtype.itemsize > (16 if dtype.kind == "c" else 8):
        raise ConfigError(
            f"{where}: its elements are {_shown(dtype)}, of which there are no tensors; save "
            "numbers (each field of a structure as an array of its own)"
        )
    if not shape:
        raise ConfigError(f"{where}: it is one number, without an axis of samples")
    if min(shape) < 1:
        raise ConfigError(
            f"{where}: its shape is {tuple(shape)}, so that it has no samples, or empty ones"
        )


def _shown(dtype: object) -> str:
    return str(dtype) if len(str(dtype)) < 60 else f"{str(dtype)[:57]}..."


def _raw(path: str, dtype: Any, shape: Sequence[int] | None, offset: int) -> ArrayFile:
    import numpy

    try:
        made = numpy.dtype(dtype)
    except TypeError as error:
        raise ConfigError(f"dtype={dtype!r}: {error}") from None
    edges = (-1,) if shape is None else tuple(int(edge) for edge in shape)
    if offset < 0 or not edges or edges[0] < -1 or any(edge < 0 for edge in edges[1:]):
        raise ConfigError(
            f"shape={shape}, offset={offset}: the first edge may be -1, which is as many as there "
            "are; nothing else may be negative"
        )
    file = ArrayFile(path, offset, made, edges)
    if made.hasobject or 0 in edges[1:] or not made.itemsize:
        return checked(file)
    if edges[0] >= 0:
        return checked(file)
    if is_url(path):
        raise ConfigError(f"{path}: how long an object is is not looked up: give the whole shape")
    rest = os.stat(path).st_size - offset
    if rest <= 0:
        raise ConfigError(
            f"{path}: it has {rest + offset} bytes, and offset={offset} is its end, or after it"
        )
    if rest % file.stride:
        raise ConfigError(
            f"{path}: from byte {offset} on it has {rest} bytes, which is no multiple of "
            f"{file.stride}, as one sample of shape {edges[1:]} and type {made} has"
        )
    return checked(file._replace(shape=(rest // file.stride, *edges[1:])))


def _npy(path: str, head: bytes) -> ArrayFile:
    import numpy

    form: Any = numpy.lib.format
    if len(head) < 12:
        head = read_file(path, 0, 12)  # no npy file has less
    version = tuple(head[6:8])
    size, begin = (2, 10) if version == (1, 0) else (4, 12)
    if version not in ((1, 0), (2, 0), (3, 0)) or len(head) < begin:
        raise ConfigError(f"{path}: it is an npy file of version {version}, with another header")
    end = begin + int.from_bytes(head[8 : 8 + size], "little")
    if end > _LONGEST:
        raise ConfigError(f"{path}: it is an npy file whose header has {end} bytes")
    if len(head) < end:
        head = read_file(path, 0, end)
    text = head[begin:end]
    try:
        if version == (3, 0):
            # numpy's function for it is private; version 2 differs in the encoding of names only.
            text = text.decode().encode("latin1", "backslashreplace")
        header = io.BytesIO(len(text).to_bytes(4, "little") + text)
        shape, fortran, dtype = form.read_array_header_2_0(header)
    except Exception as error:  # of numpy's parsers, which raise what their tokenizers do
        raise ConfigError(f"{path}: its header is damaged: {error}") from None
    if fortran and len(shape) > 1:
        raise ConfigError(
            f"{path}: it is in Fortran's order, in which the numbers of a sample lie apart: save "
            "it with numpy.save(path, numpy.ascontiguousarray(array))"
        )
    if min(shape, default=0) < 0:
        raise ConfigError(f"{path}: its header is damaged: its shape is {shape}")
    return ArrayFile(path, end, dtype, tuple(map(int, shape)))


def _idx(path: str, head: bytes) -> ArrayFile | None:
    """Returns the array of an idx file; None: it is none."""
    if len(head) < 4 or head[:2] != b"\0\0" or head[2] not in _IDX or not 1 <= head[3] <= 8:
        return None
    import numpy

    begin = 4 + 4 * head[3]
    head = head if len(head) >= begin else read_file(path, 0, begin)
    if len(head) < begin:
        return None
    shape = struct.unpack(f">{head[3]}I", head[4:begin])
    file = checked(ArrayFile(path, begin, numpy.dtype(_IDX[head[2]]), shape))
    size, need = os.stat(path).st_size if not is_url(path) else None, begin + shape[0] * file.stride
    if size not in (None, need):
        raise ConfigError(
            f"{path}: it has {size} bytes, and its array of shape {shape} ends at byte {need}: it "
            "is damaged"
        )
    return file


class Pickled(NamedTuple):
    """A file with a pickled dict, as CIFAR's.

    Attributes:
        file: The array in it, as it lies in the file.
        values: The other values of the dict, by name: numbers, texts, and lists of them.
    """

    file: ArrayFile
    values: dict[str, Any]


class _Reduced:
    """Stands for what a pickle would make of a function's or class's name."""

    def __init__(self, *given: object):
        self.given, self.state = given, None

    given: Sequence[object]
    state: Any

    def __setstate__(self, state: object) -> None:
        self.state = state


class _Unpickler(pickle.Unpickler):
    """Reads pickles without calling what they name: only of numpy's arrays is anything made."""

    def find_class(self, module: str, name: str) -> Any:
        if module.partition(".")[0] == "numpy" and name in ("_reconstruct", "ndarray", "dtype"):
            return _Reduced
        raise pickle.UnpicklingError(f"it names {module}.{name}")


#: Where an operation's bytes begin, after its position, by its name.
_BYTES = {"BINSTRING": 5, "BINBYTES": 5, "BINBYTES8": 9, "BYTEARRAY8": 9}


def pickled(path: str, name: str) -> Pickled:
    """Returns an array of uint8 in a file with a pickled dict, without running what that names.

    Args:
        path: The file.
        name: The array's name in the dict.

    Raises:
        ConfigError: It is no such file, or the array's bytes do not lie in it as they are.
        OSError: It cannot be read.
    """
    import numpy

    data = read_file(path)
    values = _unpickled(path, data)
    array = values.pop(name, None)
    state = array.state if isinstance(array, _Reduced) else None
    if not isinstance(state, tuple) or len(state) != 5:
        raise ConfigError(f"{path}: it has no array {name!r}, as a batch of CIFAR has")
    version, shape, dtype, fortran, content = state
    kind = dtype.given[:1] if isinstance(dtype, _Reduced) and _is_plain(dtype.state) else ()
    if isinstance(content, str):
        content = content.encode("latin1")
    if kind not in (("u1",), ("|u1",)):
        raise ConfigError(f"{path}: {name!r} is no array of uint8, as CIFAR's images are")
    if (
        version != 1
        or fortran
        or not isinstance(content, bytes)
        or not _is_shape(shape, len(content))
    ):
        raise ConfigError(f"{path}: {name!r} is no array in C order whose bytes lie together")
    found = [
        position + _BYTES[operation.name]
        for operation, _, position in pickletools.genops(data)
        if operation.name in _BYTES
        and position is not None
        and data.startswith(content, position + _BYTES[operation.name])
    ]
    if len(found) != 1:
        raise ConfigError(f"{path}: the bytes of {name!r} do not lie in it as they are, once")
    file = ArrayFile(path, found[0], numpy.dtype("u1"), tuple(shape))
    return Pickled(checked(file), values)


def _is_plain(state: object) -> bool:
    """Reports whether the state of a pickled dtype is one of numpy's, without fields."""
    if state is None:
        return True
    return (
        isinstance(state, tuple)
        and 8 <= len(state) <= 9
        and state[0] in range(5)
        and not any(state[2:5])
    )


def _is_shape(shape: object, size: int) -> bool:
    if not isinstance(shape, tuple) or not all(isinstance(edge, int) for edge in shape):
        return False
    count = 1
    for edge in shape:
        count *= edge
    return len(shape) > 0 and min(shape) > 0 and count == size


def unpickled(path: str) -> dict[str, Any]:
    """Returns the dict of a file with a pickle, of numbers, texts and lists of them.

    Raises:
        ConfigError: It is no such file.
        OSError: It cannot be read.
    """
    return _unpickled(path, read_file(path))


def _unpickled(path: str, data: bytes) -> dict[str, Any]:
    try:
        _check_memory(data)
        found = _Unpickler(io.BytesIO(data), encoding="latin1").load()
    except (pickle.UnpicklingError, EOFError, ValueError, TypeError, KeyError) as error:
        raise ConfigError(f"{path}: it is not a pickle as CIFAR's: {error}") from None
    except (AttributeError, IndexError, OverflowError, MemoryError, RecursionError) as error:
        raise ConfigError(f"{path}: it is a damaged pickle: {error}") from None
    if not isinstance(found, Mapping):
        raise ConfigError(f"{path}: its pickle is no dict, as a batch of CIFAR is")
    return {str(key): value for key, value in found.items()}


def _check_memory(data: bytes) -> None:
    """Checks that a pickle asks for no more memory than its bytes say.

    The unpickler makes a table as long as the largest number of a value that is put into it.
    """
    for operation, number, position in pickletools.genops(data):
        if operation.name in ("PUT", "BINPUT", "LONG_BINPUT") and (number or 0) > len(data):
            raise pickle.UnpicklingError(f"a value of number {number} at byte {position}")
