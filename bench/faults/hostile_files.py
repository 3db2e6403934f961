"""Hostile files in a dataset: special files, links, names, sizes, permissions."""

import os

from machine import NOBODY, bind, umount
from oracle import Listing
from verdicts import expecting, fault, wrong


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


@fault(
    "a directory within a class is a symlink to the class: an endless tree",
    clear=["class1|loop|cycle|link"],
)
def directory_loop(h):
    a = h.dataset("a", classes=2, per_class=4)
    (a / "class1/again").symlink_to(".")
    h.open(a).right(Listing(a))


@fault(
    "directories are symlinks to each other: an endless tree of two",
    clear=["class[01]|loop|cycle|link"],
)
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
    """Samples are absolute symlinks, whose targets are other files, or missing, in the daemon's
    mount
    namespace."""
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


@fault(
    "in a container, samples are absolute symlinks whose targets exist there alone",
    clear=["abs\\d.jpg", "symbolic|symlink|namespace|container|mount"],
)
def absolute_symlinks_in_a_container(h):
    from_a_container(h, elsewhere=False)


@fault(
    "in a container, samples are absolute symlinks whose targets are other files, of equal size, "
    "where the daemon was started",
    clear=["abs\\d.jpg", "symbolic|symlink|namespace|container|mount"],
)
def absolute_symlinks_of_a_container(h):
    from_a_container(h, elsewhere=True)


@fault(
    "names of samples: not UTF-8, newline, tab, quotes, leading dash, 255 bytes, combining "
    "characters, right-to-left"
)
def odd_names(h):
    a = h.dataset("a", classes=2, per_class=5)
    for name in (
        b"\xff\xfe.jpg",
        b"new\nline.jpg",
        b"tab\t.jpg",
        b"'\".jpg",
        b"-rf.jpg",
        b"x" * 251 + b".jpg",
        "é.jpg".encode(),
        "é.jpg".encode(),
        "‮a.jpg".encode(),
        b" .jpg",
        b"%s%n.jpg",
        b"..jpg",
        b"\x01\x1b[31m.jpg",
        "\U0001f600.jpg".encode(),
        b"\\.jpg",
    ):
        with open(os.path.join(os.fsencode(a / "class0"), name), "wb") as f:
            f.write(name * 3)
    h.open(a, cache_dir=str(h.tmp / "c")).right(Listing(a), [0, 1])


@fault(
    "names that bytes sort otherwise than Python's strings: not UTF-8 beside characters above "
    "U+DC80"
)
def names_that_sort_otherwise(h):
    a = h.dataset("a", classes=2, per_class=2)
    for name in (
        b"\xff.jpg",
        b"\x80.jpg",
        b"\xe9.jpg",
        "ﬀ.jpg".encode(),
        "\ue000.jpg".encode(),
        "\U0001f600.jpg".encode(),
        "퟿.jpg".encode(),
    ):
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


@fault(
    "files of other kinds, hidden files, capital suffixes, files beside the classes, directories "
    "called *.jpg"
)
def beside_the_samples(h):
    a = h.dataset("a", classes=3, per_class=4)
    for name in (
        "a.JPG",
        "b.JpEg",
        ".hidden.jpg",
        ".jpg",
        "c.txt",
        "d.jpg.bak",
        "e",
        "f.webp",
        "Thumbs.db",
    ):
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
        with expecting(name):
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
    h.open(a, source_timeout="3s", on_error="substitute").right(
        Listing(a), [0, 1], substitute=["0000.jpg"]
    )


@fault(
    "one sample is a sparse file of 5 GiB; memory for 1 GiB",
    clear=["huge.jpg|staging.buffer", r"\d"],
)
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
    h.client(user=NOBODY, env=nobody(h)).open(a, source_timeout="3s", on_error="skip").right(
        Listing(a), skip=["bad.jpg"]
    )


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
    """A home directory for the user nobody."""
    env = {}
    for key, name in (
        ("HOME", "nhome"),
        ("XDG_RUNTIME_DIR", "nrun"),
        ("XDG_CACHE_HOME", "ncache"),
        ("XDG_CONFIG_HOME", "nconfig"),
        ("XDG_DATA_HOME", "ndata"),
        ("XDG_STATE_HOME", "nstate"),
    ):
        path = h.folder(name)
        path.chmod(0o700)
        os.chown(path, NOBODY, NOBODY)
        env[key] = str(path)
    return env


@fault("a folder of 3,000 classes, with 100 open files allowed", clear=["file"])
def many_classes(h):
    import resource

    a = h.folder("a")
    for c in range(3000):
        (a / f"c{c}").mkdir()
        (a / f"c{c}/0.jpg").write_bytes(b"%d" % c)
    h.client(before=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100))).open(
        a, batch=100
    ).right(Listing(a))


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


@fault(
    "directories so deep that paths are longer than PATH_MAX, where torchvision does not see the "
    "samples",
    clear=["class0|long|deep"],
)
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
