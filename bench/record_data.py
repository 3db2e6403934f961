"""Makes the data of bench/records.py: tar and MDS shards, pairs of images and masks, volumes.

The content is a function of the arguments alone. A finished directory carries a description beside
it, DIRECTORY.json, and is not made again.
"""

import io
import json
import os
import shutil
import subprocess
import tarfile
import tempfile
import time
from typing import Any, Callable

import make_dataset
import newest
import numpy
from PIL import Image
from throttled import Unavailable

#: Raised whenever the content of anything here changes.
VERSION = 1

PAGE = 4096

#: Edges of a volume, and its type.
VOLUME, VOLUME_TYPE = (4, 128, 128, 128), numpy.uint16


def once(directory: str, write: Callable[[], dict[str, Any]], **wanted: Any) -> dict[str, Any]:
    """Has a directory be written, unless it is there, and returns its description: `wanted`, and
    what `write` returned."""
    note = f"{directory}.json"
    wanted["version"] = VERSION
    try:
        with open(note, encoding="utf-8") as file:
            found = json.load(file)
        if {key: found.get(key) for key in wanted} == wanted and os.path.isdir(directory):
            return found
    except FileNotFoundError:
        pass
    shutil.rmtree(directory, ignore_errors=True)
    os.makedirs(directory)
    found = {**wanted, **write()}
    with open(note, "w", encoding="utf-8") as file:
        json.dump(found, file)
    return found


def photos(folder: str) -> list[tuple[str, int]]:
    """The files of a folder of class folders, and their classes, in the order of their numbers."""
    found = [
        (os.path.join(folder, f"class{label}", name), label)
        for label in range(make_dataset.CLASSES)
        for name in os.listdir(os.path.join(folder, f"class{label}"))
    ]
    return sorted(found, key=lambda one: os.path.basename(one[0]))


def _add(archive: tarfile.TarFile, name: str, data: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(data)
    archive.addfile(member, io.BytesIO(data))


def tar_shards(directory: str, folder: str, shards: int) -> dict[str, Any]:
    """Tar shards of the photos of a folder, members jpg and cls; `bytes`: of the shards."""

    def write() -> dict[str, Any]:
        files = photos(folder)
        per, total = -(-len(files) // shards), 0
        for number in range(shards):
            path = os.path.join(directory, f"{number:06d}.tar")
            with tarfile.open(path, "w") as archive:
                for i, (name, label) in enumerate(files[number * per : (number + 1) * per]):
                    with open(name, "rb") as file:
                        _add(archive, f"{number * per + i:07d}.jpg", file.read())
                    _add(archive, f"{number * per + i:07d}.cls", str(label).encode())
            total += os.path.getsize(path)
        return {"samples": len(files), "bytes": total}

    return once(directory, write, folder=os.path.basename(folder), shards=shards)


def many_members(directory: str, shards: int, samples: int, size: int) -> dict[str, Any]:
    """Tar shards of `samples` random jpg of `size` bytes each, and cls; two members a sample."""

    def write() -> dict[str, Any]:
        total = 0
        for number in range(shards):
            path = os.path.join(directory, f"{number:06d}.tar")
            rng = numpy.random.default_rng([VERSION, number])
            with tarfile.open(path, "w") as archive:
                for i in range(samples):
                    # Sizes scatter, so that headers begin anywhere in a page.
                    _add(archive, f"{i:07d}.jpg", rng.bytes(int(size * rng.uniform(0.5, 1.5))))
                    _add(archive, f"{i:07d}.cls", str(i % 1000).encode())
            total += os.path.getsize(path)
        return {"members": 2 * shards * samples, "bytes": total}

    return once(directory, write, shards=shards, samples=samples, size=size)


_WRITE_MDS = """
import sys
import record_data
from streaming import MDSWriter
folder, directory, limit = sys.argv[1:]
columns = {"jpg": "bytes", "cls": "int"}
with MDSWriter(out=directory, columns=columns, size_limit=int(limit)) as writer:
    for name, label in record_data.photos(folder):
        with open(name, "rb") as file:
            writer.write({"jpg": file.read(), "cls": label})
"""


def mds_shards(directory: str, folder: str, limit: int) -> dict[str, Any]:
    """MDS shards of the photos of a folder, of at most `limit` bytes each; `bytes`: of the shards.

    Raises:
        Unavailable: mosaicml-streaming is not installed.
    """
    newest.peers("mosaicml-streaming")

    def write() -> dict[str, Any]:
        _write(_WRITE_MDS, "mosaicml-streaming wrote no shards", folder, directory, str(limit))
        return {"bytes": _size(directory, ".mds")}

    return once(directory, write, folder=os.path.basename(folder), limit=limit)


_WRITE_CHUNKS = """
import sys
import litdata
import record_data
folder, directory, limit = sys.argv[1:]

def item(photo):
    name, label = photo
    with open(name, "rb") as file:
        return {"jpg": file.read(), "cls": label}

if __name__ == "__main__":
    litdata.optimize(
        item, record_data.photos(folder), directory, chunk_bytes=int(limit), num_workers=1
    )
"""


def litdata_chunks(directory: str, folder: str, limit: int) -> dict[str, Any]:
    """litdata's chunks of the photos of a folder, of at most `limit` bytes each; `bytes`: of the
    chunks.

    Raises:
        Unavailable: litdata is not installed.
    """
    newest.peers("litdata")

    def write() -> dict[str, Any]:
        _write(_WRITE_CHUNKS, "litdata wrote no chunks", folder, directory, str(limit))
        return {"bytes": _size(directory, ".bin")}

    return once(directory, write, folder=os.path.basename(folder), limit=limit)


def _write(script: str, failure: str, *arguments: str) -> None:
    """Runs a script that writes with another loader's package."""
    with tempfile.TemporaryDirectory(prefix="hdmlp-bench-") as scratch:
        path = os.path.join(scratch, "write.py")
        with open(path, "w", encoding="utf-8") as file:
            file.write(script)
        done = subprocess.run(
            [newest.PEERS, path, *arguments],
            env={**os.environ, "PYTHONPATH": os.path.dirname(os.path.abspath(__file__))},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
    if done.returncode:
        raise Unavailable(f"{failure}: {done.stderr[-2000:]}")


def _size(directory: str, suffix: str) -> int:
    """The bytes of a directory's files whose names end so."""
    names = [name for name in os.listdir(directory) if name.endswith(suffix)]
    return sum(os.path.getsize(os.path.join(directory, name)) for name in names)


def masks(directory: str, folder: str) -> dict[str, Any]:
    """A mask for each photo of a folder: a PNG of one channel, the numbers of classes in regions
    with uneven edges."""

    def write() -> dict[str, Any]:
        total = 0
        for name, _ in photos(folder):
            path = mask_of(directory, name)
            number = os.path.splitext(os.path.basename(path))[0]
            rng = numpy.random.default_rng([VERSION, int(number)])
            with Image.open(name) as image:
                size = image.size
            coarse = rng.integers(0, 255, (12, 16), numpy.uint8)
            smooth = Image.fromarray(coarse).resize(size, Image.BICUBIC)
            levels = numpy.asarray(smooth) // 12
            Image.fromarray(levels.astype(numpy.uint8)).save(path)
            total += os.path.getsize(path)
        return {"bytes": total}

    return once(directory, write, folder=os.path.basename(folder))


def mask_of(directory: str, photo: str) -> str:
    """The path of a photo's mask."""
    number = os.path.splitext(os.path.basename(photo))[0]
    return os.path.join(directory, f"{number}.png")


def volumes(directory: str, count: int) -> dict[str, Any]:
    """`.npy` files of random numbers."""

    def write() -> dict[str, Any]:
        total = 0
        for number in range(count):
            path = os.path.join(directory, f"{number:04d}.npy")
            rng = numpy.random.default_rng([VERSION, number])
            numpy.save(path, rng.integers(0, 1 << 16, VOLUME, VOLUME_TYPE))
            total += os.path.getsize(path)
        return {"count": count, "bytes": total}

    return once(directory, write, volumes=count, shape=list(VOLUME))


_LMDB = """
import os, sys, lmdb
path, count, size = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
environment = lmdb.open(path, map_size=2 * count * (size + 8192) + (1 << 24), lock=False)
for first in range(0, count, 1000):
    with environment.begin(write=True) as transaction:
        for i in range(first, min(first + 1000, count)):
            transaction.put(b"%08d" % i, os.urandom(size), append=True)
environment.close()
"""


def lmdb_values(directory: str, count: int, size: int) -> dict[str, Any]:
    """Makes an LMDB environment with values of random bytes; keys are numbers of 8 digits."""

    def write() -> dict[str, Any]:
        subprocess.run([newest.PEERS, "-c", _LMDB, directory, str(count), str(size)], check=True)
        return {}

    return once(directory, write, values=count, size=size)


def forget_pages(directory: str) -> None:
    """Has the kernel cache nothing of the files of a directory."""
    for name in os.listdir(directory):
        with open(os.path.join(directory, name), "rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def read_pages(directory: str, count: int) -> dict[str, float]:
    """Reads `count` pages of each file of a directory, which lie apart, of all files at once: the
    kernel is asked for one of each before they are read. Returns what record_index.py does."""
    forget_pages(directory)
    names = sorted(os.listdir(directory))
    files = [os.open(os.path.join(directory, name), os.O_RDONLY) for name in names]
    size = min(os.fstat(file).st_size for file in files)
    device, cpu, clock = read_bytes(), time.process_time(), time.monotonic()
    for file in files:
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_RANDOM)
    for number in range(count):
        at = size * number // count // PAGE * PAGE
        for file in files:
            os.posix_fadvise(file, at, PAGE, os.POSIX_FADV_WILLNEED)
        for file in files:
            os.pread(file, PAGE, at)
    found = {
        "python": time.process_time() - cpu,
        "daemon": 0.0,
        "clock": time.monotonic() - clock,
        "device": read_bytes() - device,
        "asked": count * len(files) * PAGE,
    }
    for file in files:
        os.close(file)
    return found


def read_bytes(pid: str = "self") -> int:
    """Bytes that a process has had read from disks."""
    with open(f"/proc/{pid}/io", encoding="ascii") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("read_bytes:"))


def into_page_cache(directory: str) -> None:
    """Reads the files of a directory, so that the kernel caches them."""
    for name in os.listdir(directory):
        with open(os.path.join(directory, name), "rb") as file:
            while file.read(1 << 20):
                pass
