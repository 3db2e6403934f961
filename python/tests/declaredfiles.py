"""Shared by the tests of ``files=``: what was counted, and files that change."""

import os


def counts(loader):
    """How many calls of ``open`` there were of each kind."""
    return loader._content._copying.tally.counts()


def only_served(loader, calls=None):
    """Every call of ``open`` got a copy, of each declared file."""
    found = counts(loader)
    assert found["served"] > 0
    assert found == {
        "served": found["served"] if calls is None else calls,
        "undeclared": 0,
        "written": 0,
        "absent": 0,
        "refused": 0,
        "unopened": 0,
    }


def change(path, how):
    if how == "written":
        path.write_bytes(b"other " + path.read_bytes())
    elif how == "same size":
        path.write_bytes(path.read_bytes()[::-1])
    elif how == "replaced":
        other = path.with_suffix(".new")
        other.write_bytes(path.read_bytes()[::-1])
        os.utime(other, ns=(path.stat().st_atime_ns, path.stat().st_mtime_ns))
        other.rename(path)
    elif how == "times put back":
        before = path.stat()
        path.write_bytes(path.read_bytes()[::-1])
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
