"""Tar shards and their samples, for tests: written and read by Python's tarfile."""

import io
import tarfile


def write(path, samples):
    """Writes a shard of (key, fields), fields being bytes by name."""
    with tarfile.open(path, "w") as file:
        for key, fields in samples:
            for name, data in fields.items():
                info = tarfile.TarInfo(f"{key}.{name}")
                info.size = len(data)
                file.addfile(info, io.BytesIO(data))


def read(paths):
    """Returns the samples of shards as (key, fields), by webdataset's rules."""
    samples = []
    for path in paths:
        with tarfile.open(path) as file:
            last = None
            for member in file:
                head, _, base = member.name.rpartition("/")
                stem, _, field = base.partition(".")
                key = f"{head}/{stem}" if head else stem
                if key != last:
                    samples.append((key, {}))
                    last = key
                samples[-1][1][field] = file.extractfile(member).read()
    return samples


def make(directory, counts=(3, 4, 5)):
    """Makes shards of samples of two or three fields, and returns the samples."""
    directory.mkdir()
    samples = []
    for shard, count in enumerate(counts):
        mine = []
        for _ in range(count):
            n = len(samples) + len(mine)
            fields = {"bin": bytes([n % 251]) * (300 + 7 * n), "cls": b"%d" % (n % 4)}
            if n % 2 == 0:
                fields["json"] = b'{"n": %d}' % n
            mine.append((f"a/{n:05d}", fields))
        write(directory / f"{shard:03d}.tar", mine)
        samples += mine
    return samples
