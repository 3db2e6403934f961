"""Files of a dataset are removed, replaced or rewritten after it was scanned."""

import contextlib
import os
import threading

from hostile_index import index
from oracle import Listing
from verdicts import RAW, Verdict, fault


def scanned(h, **keys):
    """A dataset with a trusted index, and its listing."""
    a = h.dataset("a")
    index(h, a)
    listing = Listing(a)
    return a, listing


@fault("a sample is deleted after the scan", clear=["004.jpg"])
def deleted_after_the_scan(h):
    a, listing = scanned(h)
    client = h.open(a, memory=0, source_timeout="3s", prefetch_batches=1)
    (a / "class1/004.jpg").unlink()
    client.right(listing)


@fault("a sample is truncated after the scan", clear=["004.jpg"])
def truncated_after_the_scan(h):
    a, listing = scanned(h)
    client = h.open(a, memory=0, source_timeout="3s")
    os.truncate(a / "class1/004.jpg", 100)
    client.right(listing, also=[Listing(a)])


@fault("a sample grows after the scan", clear=["004.jpg"])
def grown_after_the_scan(h):
    a, listing = scanned(h)
    client = h.open(a, memory=0, source_timeout="3s")
    with open(a / "class1/004.jpg", "ab") as f:
        f.write(b"more")
    client.right(listing, also=[Listing(a)])


@fault("a sample becomes a directory after the scan", clear=["004.jpg"])
def directory_after_the_scan(h):
    a, listing = scanned(h)
    client = h.open(a, memory=0, source_timeout="3s")
    (a / "class1/004.jpg").unlink()
    (a / "class1/004.jpg").mkdir()
    client.right(listing)


@fault("a sample becomes a FIFO after the scan", clear=["004.jpg"])
def fifo_after_the_scan(h):
    a, listing = scanned(h)
    client = h.open(a, memory=0, source_timeout="3s")
    (a / "class1/004.jpg").unlink()
    os.mkfifo(a / "class1/004.jpg")
    client.right(listing, within=12)


@fault(
    "a sample becomes a FIFO that another process writes to after the scan, of equal length",
    clear=["004.jpg"],
)
def fed_fifo_after_the_scan(h):
    a, listing = scanned(h)
    client = h.open(a, memory=0, source_timeout="3s")
    path = a / "class1/004.jpg"
    size = path.stat().st_size
    path.unlink()
    os.mkfifo(path)

    def feed():
        with contextlib.suppress(BrokenPipeError), open(path, "wb") as f:
            f.write(b"f" * size)

    threading.Thread(target=feed, daemon=True).start()
    client.right(listing, within=12)


@fault("a class directory is renamed away after the scan", clear=["class1"])
def class_renamed_after_the_scan(h):
    a, listing = scanned(h)
    client = h.open(a, memory=0, source_timeout="3s")
    (a / "class1").rename(h.tmp / "gone")
    client.right(listing)


@fault(
    "a sample becomes a symlink to a file outside, of equal size, after the scan", clear=["004.jpg"]
)
def symlink_after_the_scan(h):
    a, listing = scanned(h)
    client = h.open(a, memory=0, source_timeout="3s")
    path = a / "class1/004.jpg"
    h.sample(h.tmp / "other.jpg", path.stat().st_size, salt="other")
    path.unlink()
    path.symlink_to(h.tmp / "other.jpg")
    client.right(listing, also=[Listing(a)])


@fault(
    "samples are replaced by rename with others of another size, all the time, while a job "
    "iterates",
    clear=[r"\d\d\d.jpg"],
)
def replaced_all_the_time(h):
    a, _listing = scanned(h)
    stop = threading.Event()

    def churn():
        i = 0
        while not stop.wait(0.002):
            path = a / f"class{i % 4}" / f"{i % 15:03}.jpg"
            h.sample(h.tmp / "new", 300 + i % 50, salt=i)
            os.rename(h.tmp / "new", path)
            i += 1

    thread = threading.Thread(target=churn, daemon=True)
    thread.start()
    try:
        client = h.open(a, memory=0, source_timeout="3s")
        client.epoch(0)
        raise Verdict(RAW, "no error though every file had changed its size")
    finally:
        stop.set()
        thread.join()
