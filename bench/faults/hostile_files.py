"""Everything that comes with a dataset is hostile: its index, its files, their names, their pixels."""
import contextlib
import os
import signal
import struct
import threading
import time
import zlib

from harness import HANG, Listing, NOBODY, RAW, Verdict, bind, digest, expecting, fault, same, umount, until, wrong

INDEX = ".hdmlp-index"


def index(h, a):
    """An index as HDMLP itself writes it, trusted because the directories are old enough."""
    h.age(a)
    h.command_clear(h.hdmlp("dataset", str(a)))
    return a / INDEX


def swell(path, field, by):
    """Lets an index claim ``by`` bytes more in one of its parts (docs/FORMATS.md), which lie in a hole of the file."""
    with open(path, "r+b") as f:
        head = bytearray(f.read(96))
        length, = struct.unpack_from("<Q", head, 16)
        claimed, = struct.unpack_from("<Q", head, field)
        struct.pack_into("<Q", head, 16, length + by)
        struct.pack_into("<Q", head, field, claimed + by)
        f.seek(0)
        f.write(head)
        f.truncate(length + by)


@fault("the dataset's index is sparse: 4 KiB on disk claim 4 GiB of names; another job runs; 600 MiB of memory", item=6)
def index_sparse(h):
    a, b = h.dataset("a"), h.dataset("b")
    path = index(h, a)
    swell(path, 80, 4 << 30)
    group = h.memory(600 << 20)
    other = h.client(cgroup=group).open(b, memory="50MB", name="other")
    other.ask("iter")
    got = other.ask("next", n=2)
    h.client(cgroup=group).open(a, memory="50MB").right(Listing(a))
    same(got + other.ask("next"), other.expected(Listing(b)), what="the other job")


@fault("the dataset's index is sparse and claims 3 GiB of class names", item=6)
def index_sparse_classes(h):
    a = h.dataset("a")
    swell(index(h, a), 56, 3 << 30)
    h.client(cgroup=h.memory(600 << 20)).open(a, memory="50MB").right(Listing(a))


@fault("the dataset's index is sparse and claims 2^30 samples", item=6)
def index_sparse_samples(h):
    a = h.dataset("a")
    path = index(h, a)
    with open(path, "r+b") as f:
        head = bytearray(f.read(96))
        length, samples = struct.unpack_from("<QQ", head, 16)
        each = {1: 8, 2: 16}[struct.unpack_from("<I", head, 8)[0]]  # bytes of a sample but for its name
        total = length + each * ((1 << 30) - samples) + (0 if each == 8 else 16 * (64 - min(samples, 64)))
        struct.pack_into("<QQ", head, 16, total, 1 << 30)
        f.seek(0)
        f.write(head)
        f.truncate(total)
    h.client(cgroup=h.memory(600 << 20)).open(a, memory="50MB").right(Listing(a))


@fault("the dataset's index is a sparse file of 1 TiB")
def index_of_a_tebibyte(h):
    a = h.dataset("a")
    os.truncate(index(h, a), 1 << 40)
    h.client(cgroup=h.memory(600 << 20)).open(a, memory="50MB").right(Listing(a))


@fault("a FIFO lies in the place of the dataset's index; then Ctrl-C, after which no daemon may stay", item=7)
def index_fifo(h):
    a = h.dataset("a")
    os.mkfifo(a / INDEX)
    client = h.client(env={"HDMLP_LINGER": "1s"})
    client.send_open(a)
    try:
        client.answer(8)
        opened = True
    except Verdict:
        opened = False
    if opened:
        client.right(Listing(a))
    os.kill(client.pid, signal.SIGINT)
    time.sleep(0.2)
    client.send("exit")
    if h.daemons():
        until(lambda: not h.daemons(), 6, "the end of the daemon after Ctrl-C" + ("" if opened else " (OPEN did not return in 8 s either)"))
    if not opened:
        raise Verdict(HANG, "OPEN did not return within 8 s")


@fault("a FIFO lies in the place of the index, in HDMLP_INDEX_DIR; `hdmlp dataset`", item=7)
def index_fifo_in_index_dir(h):
    a = h.dataset("a")
    h.age(a)
    folder = h.folder("index")
    h.command_clear(h.hdmlp("dataset", str(a), "--index-dir", str(folder)))
    for path in folder.iterdir():
        path.unlink()
        os.mkfifo(path)
    h.command_clear(h.hdmlp("dataset", str(a), "--index-dir", str(folder), within=8))
    h.client(env={"HDMLP_INDEX_DIR": str(folder)}).open(a, within=8).right(Listing(a))


@fault("the dataset's index is a symlink to /dev/zero", clear=None)
def index_dev_zero(h):
    a = h.dataset("a")
    (a / INDEX).symlink_to("/dev/zero")
    h.client(cgroup=h.memory(600 << 20)).open(a, within=10, memory="50MB").right(Listing(a))


@fault("the dataset's index is a symlink to a file of somebody else's")
def index_symlink(h):
    a = h.dataset("a")
    h.folder("foreign")
    (h.tmp / "foreign/file").write_text("not yours")
    (a / INDEX).symlink_to(h.tmp / "foreign/file")
    h.guard(h.tmp / "foreign")
    h.open(a).right(Listing(a))


@fault("the dataset's index is a directory, which makes it a class without samples for torchvision as well", clear=["hdmlp-index"])
def index_directory(h):
    a = h.dataset("a")
    (a / INDEX).mkdir()
    h.open(a).right(Listing(a))


@fault("the dataset's index is a Unix socket")
def index_socket(h):
    import socket
    a = h.dataset("a", classes=2)
    os.chdir(a)
    s = socket.socket(socket.AF_UNIX)
    s.bind(INDEX)
    h.open(a, within=10).right(Listing(a))


@fault("the dataset's index is cut off, empty, noise, and has a bit flipped, in turn")
def index_damaged(h):
    a = h.dataset("a")
    path = index(h, a)
    good = path.read_bytes()
    flipped = bytearray(good)
    flipped[len(good) // 2] ^= 4
    for i, data in enumerate((good[:100], b"", h.random.randbytes(len(good)), bytes(flipped), good[:96] + b"\0" * (len(good) - 96), good * 2)):
        path.write_bytes(data)
        h.open(a, name=str(i)).right(Listing(a), what=f"damage {i}")


@fault("the dataset's index was copied, with its times, from another dataset of equal names and sizes but other order of classes")
def index_of_another(h):
    a, b = h.dataset("a", classes=4), h.dataset("b", classes=3, per_class=20)
    path = index(h, b)
    h.age(a)
    (a / INDEX).write_bytes(path.read_bytes())
    h.open(a).right(Listing(a))


@fault("the dataset was copied with its index (cp -a), and a file was added to the copy before, within its directory's times")
def index_copied(h):
    a = h.dataset("a")
    index(h, a)
    import shutil
    shutil.copytree(a, h.tmp / "b")
    b = h.tmp / "b"
    h.sample(b / "class1/9999.jpg")
    os.utime(b / "class1", ns=(0, (a / "class1").stat().st_mtime_ns))
    h.open(b).right(Listing(b))


@fault("an index with huge counts by another user in a directory of samples that both may write")
def index_of_another_user(h):
    a = h.dataset("a")
    (a / INDEX).write_bytes(b"HDMLPIDX" + struct.pack("<II", 1, 0) + b"\xff" * 80)
    os.chown(a / INDEX, NOBODY, NOBODY)
    h.open(a).right(Listing(a))


# Files.

@fault("a sample is a FIFO", clear=["bad.jpg"])
def sample_fifo(h):
    a = h.dataset("a")
    os.mkfifo(a / "class1/bad.jpg")
    h.open(a, source_timeout="3s").epoch(0, 15)
    raise wrong("no error")


@fault("a sample is a symlink to /dev/zero", clear=["bad.jpg"])
def sample_dev_zero(h):
    a = h.dataset("a")
    (a / "class1/bad.jpg").symlink_to("/dev/zero")
    h.client(cgroup=h.memory(600 << 20)).open(a, source_timeout="3s", memory="50MB").epoch(0, 15)
    raise wrong("no error")


@fault("a sample is a symlink to nowhere", clear=["bad.jpg"])
def sample_dangling(h):
    a = h.dataset("a")
    (a / "class1/bad.jpg").symlink_to("nowhere")
    h.open(a, source_timeout="3s").epoch(0, 15)
    raise wrong("no error")


@fault("a sample is a symlink to nowhere, with on_error=skip")
def sample_dangling_skipped(h):
    a = h.dataset("a")
    (a / "class1/bad.jpg").symlink_to("nowhere")
    h.clear = ["bad.jpg"]
    h.open(a, source_timeout="3s", on_error="skip").right(Listing(a), [0, 1], skip=["bad.jpg"])


@fault("two samples are symlinks to each other", clear=["bad[12].jpg"])
def sample_link_loop(h):
    a = h.dataset("a")
    (a / "class1/bad1.jpg").symlink_to("bad2.jpg")
    (a / "class1/bad2.jpg").symlink_to("bad1.jpg")
    h.open(a, source_timeout="3s").epoch(0, 15)
    raise wrong("no error")


@fault("a directory within a class is a symlink to the class: an endless tree", clear=["class1|loop|cycle|link"])
def directory_loop(h):
    a = h.dataset("a", classes=2, per_class=4)
    (a / "class1/again").symlink_to(".")
    h.open(a).right(Listing(a))


@fault("directories are symlinks to each other: an endless tree of two", clear=["class[01]|loop|cycle|link"])
def directory_loop_of_two(h):
    a = h.dataset("a", classes=2, per_class=4)
    (a / "class0/x").symlink_to("../class1")
    (a / "class1/y").symlink_to("../class0")
    client = h.client(cgroup=h.memory(600 << 20))
    client.send_open(a, memory="50MB")
    client.answer(15)
    client.epoch(0)
    raise wrong("no error")


@fault("samples and classes are absolute and relative symlinks to outside of the dataset")
def symlinks_outside(h):
    a, b = h.dataset("a"), h.dataset("b", salt="b")
    (a / "class1/link.jpg").symlink_to(b / "class0/001.jpg")
    (a / "class1/rel.jpg").symlink_to("../../b/class0/002.jpg")
    (a / "zclass").symlink_to(b / "class3")
    (a / "class2/sub").symlink_to("../../b/class1")
    h.open(a, cache_dir=str(h.tmp / "c")).right(Listing(a), [0, 1])


def from_a_container(h, elsewhere):
    """Samples that are absolute symlinks, whose targets mean something else, or nothing, where the daemon was started."""
    b, c, at = h.dataset("b", salt="b"), h.dataset("c", salt="c"), h.folder("mnt")
    a = h.dataset("a")
    for i in range(5):
        (a / f"class1/abs{i}.jpg").symlink_to(at / f"class0/00{i}.jpg")
    if elsewhere:
        bind(c, at)
    h.open(b).right(Listing(b))  # starts the daemon outside
    client = h.client(mounts=[(b, at)])
    bind(b, at)
    listing = Listing(a)
    umount(at)
    client.open(a)
    client.right(listing, [0, 1])


@fault("in a container, samples are absolute symlinks whose targets exist there alone",
       clear=["abs\\d.jpg", "symbolic|symlink|namespace|container|mount"])
def absolute_symlinks_in_a_container(h):
    from_a_container(h, elsewhere=False)


@fault("in a container, samples are absolute symlinks whose targets are other files, of equal size, where the daemon was started",
       clear=["abs\\d.jpg", "symbolic|symlink|namespace|container|mount"])
def absolute_symlinks_of_a_container(h):
    from_a_container(h, elsewhere=True)


@fault("names of samples: not UTF-8, newline, tab, quotes, leading dash, 255 bytes, combining characters, right-to-left")
def odd_names(h):
    a = h.dataset("a", classes=2, per_class=5)
    for name in (b"\xff\xfe.jpg", b"new\nline.jpg", b"tab\t.jpg", b"'\".jpg", b"-rf.jpg", b"x" * 251 + b".jpg", "é.jpg".encode(), "é.jpg".encode(),
                 "‮a.jpg".encode(), b" .jpg", b"%s%n.jpg", b"..jpg", b"\x01\x1b[31m.jpg", "\U0001f600.jpg".encode(), b"\\.jpg"):
        with open(os.path.join(os.fsencode(a / "class0"), name), "wb") as f:
            f.write(name * 3)
    h.open(a, cache_dir=str(h.tmp / "c")).right(Listing(a), [0, 1])


@fault("names that bytes sort otherwise than Python's strings: not UTF-8 beside characters above U+DC80")
def names_that_sort_otherwise(h):
    a = h.dataset("a", classes=2, per_class=2)
    for name in (b"\xff.jpg", b"\x80.jpg", b"\xe9.jpg", "ﬀ.jpg".encode(), "\ue000.jpg".encode(), "\U0001f600.jpg".encode(), "퟿.jpg".encode()):
        with open(os.path.join(os.fsencode(a / "class0"), name), "wb") as f:
            f.write(b"of " + name)
    h.open(a, cache_dir=str(h.tmp / "c")).right(Listing(a), [0, 1])


@fault("directories within classes whose names sort before and after a slash")
def names_around_a_slash(h):
    a = h.dataset("a", classes=2, per_class=2)
    for folder in ("x", "x-y", "x.y", "x/y", "x y", "x0", "X"):
        (a / "class0" / folder).mkdir(parents=True, exist_ok=True)
        for i in range(2):
            h.sample(a / "class0" / folder / f"{i}.jpg", salt=folder)
    (a / "class0" / "x.jpg").write_bytes(b"x")
    h.open(a).right(Listing(a), [0, 1])


@fault("files of other kinds, hidden files, capital suffixes, files beside the classes, directories called *.jpg")
def beside_the_samples(h):
    a = h.dataset("a", classes=3, per_class=4)
    for name in ("a.JPG", "b.JpEg", ".hidden.jpg", ".jpg", "c.txt", "d.jpg.bak", "e", "f.webp", "Thumbs.db"):
        h.sample(a / "class1" / name)
    h.sample(a / "root.jpg")
    (a / "class1/dir.jpg").mkdir()
    h.sample(a / "class1/dir.jpg/inside.jpg")
    h.open(a).right(Listing(a), [0, 1])


@fault("a class has no samples", clear=["class1"])
def empty_class(h):
    a = h.dataset("a")
    for path in (a / "class1").iterdir():
        path.unlink()
    h.open(a)
    raise wrong("no error")


@fault("the dataset is an empty directory; a file; not there; a FIFO", clear=["train-fifo"])
def no_dataset(h):
    h.folder("train-empty")
    (h.tmp / "train-file").write_text("x")
    os.mkfifo(h.tmp / "train-fifo")
    client = h.client()
    for name in ("train-empty", "train-file", "train-missing"):
        with expecting(h, name):
            client.open(h.tmp / name)
    client.open(h.tmp / "train-fifo", within=8)
    raise wrong("no error")


@fault("a sample has 0 bytes", clear=["empty.jpg"])
def empty_sample(h):
    a = h.dataset("a")
    (a / "class1/empty.jpg").touch()
    h.open(a, source_timeout="3s").right(Listing(a))


@fault("a sample has 0 bytes, with on_error=substitute")
def empty_sample_substituted(h):
    a = h.dataset("a")
    (a / "class1/0000.jpg").touch()
    h.open(a, source_timeout="3s", on_error="substitute").right(Listing(a), [0, 1], substitute=["0000.jpg"])


@fault("one sample is a sparse file of 5 GiB; memory for 1 GiB", clear=["huge.jpg|staging.buffer", r"\d"])
def sample_of_5_gib(h):
    a = h.dataset("a")
    with open(a / "class1/huge.jpg", "wb") as f:
        f.truncate(5 << 30)
    h.client(cgroup=h.memory(1 << 30)).open(a, memory="50MB", source_timeout="5s").epoch(0, 15)
    raise wrong("no error")


@fault("samples of 30 MB pass through a memory class of 1 MB and the smallest staging buffer")
def large_samples(h):
    a = h.dataset("a", classes=2, per_class=2)
    for i in range(3):
        h.sample(a / f"class{i % 2}/big{i}.jpg", 30_000_000)
    h.open(a, memory="1MB", batch=2, staging_buffer="1MB").right(Listing(a), [0, 1])


def scanned(h, **keys):
    """A dataset whose index is made and settled, and a loader that has not read the samples yet."""
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


@fault("a sample becomes a FIFO that somebody writes to after the scan, of equal length", clear=["004.jpg"])
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


@fault("a sample becomes a symlink to a file outside, of equal size, after the scan", clear=["004.jpg"])
def symlink_after_the_scan(h):
    a, listing = scanned(h)
    client = h.open(a, memory=0, source_timeout="3s")
    path = a / "class1/004.jpg"
    h.sample(h.tmp / "other.jpg", path.stat().st_size, salt="other")
    path.unlink()
    path.symlink_to(h.tmp / "other.jpg")
    client.right(listing, also=[Listing(a)])


@fault("samples are replaced by rename with others of another size, all the time, while a job iterates", clear=[r"\d\d\d.jpg"])
def replaced_all_the_time(h):
    a, listing = scanned(h)
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


@fault("an unprivileged user may not read one sample", clear=["004.jpg"])
def unreadable_sample(h):
    a = h.dataset("a")
    (a / "class1/004.jpg").chmod(0)
    h.client(user=NOBODY, env=nobody(h)).open(a, source_timeout="3s").right(Listing(a))


@fault("an unprivileged user may not read one sample, with on_error=skip")
def unreadable_sample_skipped(h):
    a = h.dataset("a")
    (a / "class1/bad.jpg").write_bytes(b"x" * 100)
    (a / "class1/bad.jpg").chmod(0)
    h.client(user=NOBODY, env=nobody(h)).open(a, source_timeout="3s", on_error="skip").right(Listing(a), skip=["bad.jpg"])


@fault("an unprivileged user may not list one class", clear=["class1"])
def unreadable_class(h):
    a = h.dataset("a")
    (a / "class1").chmod(0o700)
    h.client(user=NOBODY, env=nobody(h)).open(a, source_timeout="3s")
    raise wrong("no error")


@fault("an unprivileged user may pass through the dataset's parent, and not list it")
def unlistable_parent(h):
    a = h.dataset("deep/a")
    a.parent.chmod(0o711)
    h.client(user=NOBODY, env=nobody(h)).open(a).right(Listing(a), [0, 1])


def nobody(h):
    """A home of his own for the user nobody."""
    env = {}
    for key, name in (("HOME", "nhome"), ("XDG_RUNTIME_DIR", "nrun"), ("XDG_CACHE_HOME", "ncache"), ("XDG_CONFIG_HOME", "nconfig"),
                      ("XDG_DATA_HOME", "ndata"), ("XDG_STATE_HOME", "nstate")):
        path = h.folder(name)
        path.chmod(0o700)
        os.chown(path, NOBODY, NOBODY)
        env[key] = str(path)
    return env


# Pixels.

def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(width, height, depth=8, colour=2, data=None, extra=b""):
    """A PNG of zeros; its pixels take width * height * channels * depth / 8 bytes, and nearly none in the file."""
    channels = {0: 1, 2: 3, 6: 4}[colour]
    if data is None:
        data = zeros((width * channels * depth // 8 + 1) * height)
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0)) + extra
            + chunk(b"IDAT", data) + chunk(b"IEND", b""))


def zeros(n):
    """zlib's compression of n zeros, made of one block that comes again."""
    block = 1 << 20
    deflate = zlib.compressobj(9, zlib.DEFLATED, -15)
    one = deflate.compress(bytes(block)) + deflate.flush(zlib.Z_FULL_FLUSH)
    deflate = zlib.compressobj(9, zlib.DEFLATED, -15)
    last = deflate.compress(bytes(n % block)) + deflate.flush(zlib.Z_FINISH)
    return b"\x78\xda" + one * (n // block) + last + struct.pack(">I", (n % 65521) << 16 | 1)


CROP = "[T.CenterCrop(4)]"
BLACK = digest(bytes(48))


def pictures(h, evil, count=11):
    a = h.folder("a")
    for c in range(2):
        (a / f"class{c}").mkdir()
        for i in range(count):
            (a / f"class{c}/{i:02}.png").write_bytes(png(8, 8))
    (a / "class1/evil.png").write_bytes(evil)
    listing = Listing(a)
    listing.digests = [BLACK] * len(listing)
    return a, listing


@fault("one PNG of 1.4 MB holds 1.4 GB of pixels, of which 4 x 4 are wanted; memory for 700 MiB", clear=["evil.png", r"\d.*(B|byte|pixel)"], item=9)
def png_bomb(h):
    a, listing = pictures(h, png(13377, 13377, 16, 6))
    h.client(cgroup=h.memory(700 << 20)).open(a, memory="50MB", transform=CROP, within=30).right(listing, within=40)


@fault("eight PNGs of 500 MB of pixels each, at the same time; memory for 1400 MiB", clear=["png", r"\d.*(B|byte|pixel)"], item=9, limit=60)
def png_bombs(h):
    a, listing = pictures(h, png(13000, 13000))
    for i in range(8):
        (a / f"class0/0{i}.png").write_bytes((a / "class1/evil.png").read_bytes())
    h.client(cgroup=h.memory(1400 << 20)).open(a, memory="50MB", transform=CROP, transform_threads=8, within=30).right(listing, within=50)


@fault("a PNG claims 2^31 - 1 pixels squared", clear=["evil.png"])
def png_of_claims(h):
    a, listing = pictures(h, png(2**31 - 1, 2**31 - 1, data=zeros(100)))
    h.client(cgroup=h.memory(600 << 20)).open(a, memory="50MB", transform=CROP).right(listing)


@fault("a PNG's pixels end early; go on for 1 GB behind; are noise", clear=["evil.png"])
def png_of_wrong_length(h):
    for i, data in enumerate((zeros(100), zeros(1 << 30), h.random.randbytes(500))):
        evil = png(64, 64, data=data)
        if i == 0:
            a, listing = pictures(h, evil)
            client = h.client(cgroup=h.memory(700 << 20))
        (a / "class1/evil.png").write_bytes(evil)
        if i < 2:
            with expecting(h, "evil.png"):
                client.open(a, memory="50MB", transform=CROP, name=str(i)).right(listing)
        else:
            client.open(a, memory="50MB", transform=CROP, name=str(i)).right(listing)


@fault("a PNG's comment and profile inflate to 1 GB each", clear=["evil.png"])
def png_of_text(h):
    text = chunk(b"zTXt", b"Comment\0\0" + zeros(1 << 30)) + chunk(b"iCCP", b"profile\0\0" + zeros(1 << 30))
    a, listing = pictures(h, png(8, 8, extra=text))
    h.client(cgroup=h.memory(700 << 20)).open(a, memory="50MB", transform=CROP).right(listing)


def jpeg(width, height):
    import io

    from PIL import Image
    stream = io.BytesIO()
    Image.new("RGB", (width, height)).save(stream, "JPEG")
    return stream.getvalue()


@fault("a JPEG of 600 bytes claims 65500 x 65500 pixels; and one whose pixels end early", clear=["evil.png"])
def jpeg_of_claims(h):
    data = bytearray(jpeg(64, 64))
    at = data.index(b"\xff\xc0")
    struct.pack_into(">HH", data, at + 5, 65500, 65500)
    a, listing = pictures(h, bytes(data))
    client = h.client(cgroup=h.memory(600 << 20))
    with expecting(h, "evil.png"):
        client.open(a, memory="50MB", transform=CROP).right(listing)
    struct.pack_into(">HH", data, at + 5, 13000, 13000)
    (a / "class1/evil.png").write_bytes(data)
    grey = Listing(a)  # libjpeg, and so PIL, makes grey of what is missing
    grey.digests = [digest(bytes([128]) * 48) if path.endswith("evil.png") else BLACK for path in map(str, grey.paths)]
    client.open(a, memory="50MB", transform=CROP, name="two").right(grey, within=25)


@fault("noise, text, HTML of a download that failed, half a picture and a GIF, all called .png, are left out by on_error=skip")
def no_pictures(h):
    a, listing = pictures(h, b"<html>404</html>")
    for i, data in enumerate((h.random.randbytes(900), b"\x89PNG\r\n\x1a\n", png(64, 64, data=zlib.compress(h.random.randbytes(193 * 64)))[:5000], b"GIF89a" + bytes(30), b"\xff\xd8\xff", b"RIFF\xff\xff\xff\xffWEBPVP8 ")):
        (a / f"class0/bad{i}.png").write_bytes(data)
    listing = Listing(a)
    listing.digests = [BLACK] * len(listing)
    h.open(a, transform=CROP, on_error="skip").right(listing, [0, 1], skip=["evil.png"] + [f"bad{i}.png" for i in range(6)])


@fault("pictures through torchvision's ImageFolder and through the daemon, byte by byte: JPEGs, grey, palette, alpha, 16 bit")
def pictures_of_all_kinds(h):
    import numpy as np
    from PIL import Image
    a = h.folder("a")
    rng = np.random.default_rng(1)
    for c in range(2):
        (a / f"class{c}").mkdir()
        for i, (mode, suffix) in enumerate([("RGB", "jpg"), ("L", "jpg"), ("CMYK", "jpg"), ("RGB", "png"), ("L", "png"), ("P", "png"), ("RGBA", "png"), ("LA", "png"),
                                            ("1", "png"), ("I;16", "png"), ("RGB", "webp")]):
            pixels = rng.integers(0, 255, (20 + i, 30 + c, 3), dtype=np.uint8)
            picture = Image.fromarray(pixels)
            picture = Image.fromarray(pixels[:, :, 0].astype(np.uint16) * 200) if mode == "I;16" else picture.convert(mode)
            picture.save(a / f"class{c}/{i:02}.{suffix}", **({"quality": 90} if suffix == "jpg" else {"lossless": True} if suffix == "webp" else {}))
    listing = Listing(a)
    for i, path in enumerate(listing.paths):
        with Image.open(path) as picture:
            full = picture.convert("RGB")
        left, top = int(round((full.width - 8) / 2.0)), int(round((full.height - 8) / 2.0))
        listing.digests[i] = digest(np.asarray(full.crop((left, top, left + 8, top + 8))).tobytes())
    h.open(a, transform="[T.CenterCrop(8)]").right(listing, [0, 1])


@fault("a folder of 3,000 classes, with 100 open files allowed", clear=["file"])
def many_classes(h):
    import resource
    a = h.folder("a")
    for c in range(3000):
        (a / f"c{c}").mkdir()
        (a / f"c{c}/0.jpg").write_bytes(b"%d" % c)
    h.client(before=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100))).open(a, batch=100).right(Listing(a))


@fault("directories 120 deep, and names that together are nearly PATH_MAX long")
def deep_directories(h):
    a = h.dataset("a", classes=2, per_class=3)
    path = a / "class0"
    for i in range(120):
        path = path / f"d{i}"
    path.mkdir(parents=True)
    h.sample(path / "x.jpg")
    path = a / "class1"
    while len(str(path)) < 3800:
        path = path / ("n" * 200)
    path.mkdir(parents=True)
    h.sample(path / "y.jpg")
    h.open(a, cache_dir=str(h.tmp / "c")).right(Listing(a), [0, 1])


@fault("directories so deep that paths are longer than PATH_MAX, where torchvision does not see the samples", clear=["class0|long|deep"])
def deeper_than_path_max(h):
    a = h.dataset("a", classes=2, per_class=3)
    os.chdir(a / "class0")
    for _ in range(25):
        os.mkdir("n" * 200)
        os.chdir("n" * 200)
    with open("lost.jpg", "wb") as f:
        f.write(b"x")
    os.chdir("/")
    h.open(a).right(Listing(a))
