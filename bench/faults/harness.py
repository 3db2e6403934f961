"""What faults are made of: a register, an oracle that knows nothing of HDMLP, processes under command, and a verdict.

A fault is a function of a :class:`Harness`. It builds a dataset, starts clients, does harm, and compares what the clients
were given with what the oracle says: a listing of its own, torch's sampler, digests of the bytes that open() reads. If it returns,
the stream was right. An error of HDMLP that nobody in the fault catches is a clear one if its message matches all the patterns of ``clear``.
"""
from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import hashlib
import json
import os
import random
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Tuple

RIGHT, CLEAR = "right stream", "clear error"
WRONG, HANG, CRASH, KILLED, RAW, FOREIGN = "WRONG DATA", "hang", "crash", "killed", "raw error", "foreign file touched"
SKIPPED, BROKEN = "not tried", "harness failed"
OUTCOMES = [RIGHT, CLEAR, WRONG, HANG, CRASH, KILLED, RAW, FOREIGN, BROKEN, SKIPPED]

SEED, BATCH = 7, 5
EXTENSIONS = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")  # torchvision's
NOBODY = 65534
HERE = Path(__file__).resolve().parent
libc = ctypes.CDLL(None, use_errno=True)


class Verdict(Exception):
    """An outcome, and why."""

    def __init__(self, outcome: str, message: str) -> None:
        super().__init__(message)
        self.outcome, self.message = outcome, message


class Told(Exception):
    """An exception of a client."""

    def __init__(self, name: str, ours: bool, message: str, trace: str, seconds: float) -> None:
        super().__init__(f"{name}: {message}")
        self.name, self.ours, self.message, self.trace, self.seconds = name, ours, message, trace, seconds


def wrong(message: str) -> Verdict:
    return Verdict(WRONG, message)


@dataclasses.dataclass
class Fault:
    name: str
    about: str
    run: Callable[["Harness"], None]
    clear: Optional[Sequence[str]]
    item: Optional[int]
    limit: float
    dies: bool
    theme: str


FAULTS: List[Fault] = []


def fault(about: str, clear: Optional[Sequence[str]] = None, item: Optional[int] = None, limit: float = 45, dies: bool = False) -> Callable:
    """Registers a fault.

    Args:
        about: one sentence: what is done to HDMLP.
        clear: patterns that the message of a clear error matches, all of them, in any case; None: only the right stream will do.
        item: its number in the list that the harness began with; None: not from there.
        limit: seconds after which all its processes are killed.
        dies: that the daemon is gone is what is expected to be told, not a crash.
    """
    def register(run: Callable[["Harness"], None]) -> Callable:
        theme = run.__module__
        FAULTS.append(Fault(f"{theme}.{run.__name__}", about, run, (clear,) if isinstance(clear, str) else clear, item, limit, dies, theme))
        return run
    return register


# The oracle.

def digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=8).hexdigest()


def digest_file(path: str) -> str:
    h = hashlib.blake2b(digest_size=8)
    with open(path, "rb") as f:
        while part := f.read(1 << 22):
            h.update(part)
    return h.hexdigest()


class Listing:
    """A dataset as torchvision's ImageFolder lists it, with digests of its files, as it is at this moment."""

    def __init__(self, root: os.PathLike, extensions: Sequence[str] = EXTENSIONS, read: bool = True) -> None:
        root = os.fspath(root)
        self.classes = sorted(entry.name for entry in os.scandir(root) if entry.is_dir())
        self.paths: List[str] = []
        self.labels: List[int] = []
        self.digests: List[Optional[str]] = []
        for label, name in enumerate(self.classes):
            for folder, _, files in sorted(os.walk(os.path.join(root, name), followlinks=True)):
                for file in sorted(files):
                    if file.lower().endswith(tuple(extensions)):
                        self.paths.append(os.path.join(folder, file))
                        self.labels.append(label)
        self.digests = [None] * len(self.paths)
        if read:
            for i, path in enumerate(self.paths):
                with contextlib.suppress(OSError):
                    if os.path.isfile(path):
                        self.digests[i] = digest_file(path)

    def __len__(self) -> int:
        return len(self.paths)

    def epoch(self, epoch: int = 0, *, seed: int = SEED, batch: int = BATCH, rank: int = 0, world: int = 1, shuffle: bool = True,
              drop_last: bool = False, skip: Sequence[str] = (), substitute: Sequence[str] = ()) -> List[list]:
        """The batches that torch's loader with a DistributedSampler gives to a rank; without the files whose name is in ``skip``."""
        from torch.utils.data import BatchSampler, DistributedSampler
        sampler = DistributedSampler(range(len(self)), world, rank, shuffle=shuffle, seed=seed, drop_last=drop_last)  # type: ignore[arg-type]
        sampler.set_epoch(epoch)
        found = []
        bad = {i for i, path in enumerate(self.paths) if os.path.basename(path) in skip}
        stand = {i for i, path in enumerate(self.paths) if os.path.basename(path) in substitute}
        for ids in BatchSampler(sampler, batch, drop_last):
            ids = [i for i in ids if i not in bad]
            while any(i in stand for i in ids):
                ids = [(i + 1) % len(self) if i in stand else i for i in ids]
            found.append([[self.digests[i] for i in ids], [self.labels[i] for i in ids]])
        return found


def same(got: List[list], *allowed: List[list], what: str = "the stream") -> None:
    """Raises unless ``got`` is one of ``allowed``."""
    if any(got == wanted for wanted in allowed):
        return
    wanted = allowed[0]
    if len(got) != len(wanted):
        lengths = " or ".join(str(len(w)) for w in allowed)
        note = f"{len(got)} batches instead of {lengths}; "
    else:
        note = ""
    bad = sum(a != b for a, b in zip(got, wanted))
    samples = [(x, y) for a, b in zip(got, wanted) for x, y in zip(a[0], b[0])]
    differ = sum(x != y for x, y in samples)
    raise wrong(f"{what}: {note}{bad} of {len(wanted)} batches differ, {differ} of {len(samples)} samples")


# Namespaces.

MS_RDONLY, MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE = 1, 32, 4096, 16384, 1 << 18
CLONE_NEWNS, CLONE_NEWPID, CLONE_NEWNET = 0x20000, 0x20000000, 0x40000000


def mount(source: Any, target: Any, kind: str = "", flags: int = 0, data: str = "") -> None:
    if libc.mount(os.fsencode(source), os.fsencode(target), kind.encode() or None, ctypes.c_ulong(flags), data.encode() or None):
        raise OSError(ctypes.get_errno(), f"mount {source} at {target}: {os.strerror(ctypes.get_errno())}")


def bind(source: Any, target: Any, readonly: bool = False) -> None:
    mount(source, target, flags=MS_BIND)
    if readonly:
        mount("none", target, flags=MS_BIND | MS_REMOUNT | MS_RDONLY)


def umount(target: Any, lazy: bool = False) -> None:
    if libc.umount2(os.fsencode(target), 2 if lazy else 0):
        raise OSError(ctypes.get_errno(), f"umount {target}: {os.strerror(ctypes.get_errno())}")


def loopback_up() -> None:
    import fcntl
    import struct
    with socket.socket() as s:
        request = struct.pack("16sH14x", b"lo", 1 | 64)  # IFF_UP, IFF_RUNNING
        fcntl.ioctl(s, 0x8914, request)  # SIOCSIFFLAGS


class Cgroup:
    """A control group with limits, of version 1 or 2."""

    def __init__(self, token: str, controller: str, **limits: int) -> None:
        self.folder = self.find(controller) / f"hdmlp-faults-{token}"
        self.folder.mkdir(exist_ok=True)
        self.v2 = (self.folder / "cgroup.controllers").exists()
        for key, value in limits.items():
            (self.folder / (f"{controller}.{key}")).write_text(str(value))

    @staticmethod
    def find(controller: str) -> Path:
        base = Path("/sys/fs/cgroup")
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            _, names, path = line.split(":", 2)
            if controller in names.split(","):
                return base / controller / path.lstrip("/")
            if not names and (base / path.lstrip("/") / "cgroup.subtree_control").exists() and \
                    controller in (base / path.lstrip("/") / "cgroup.subtree_control").read_text():
                return base / path.lstrip("/")
        raise Verdict(SKIPPED, f"no control groups for {controller} that this user may make")

    @staticmethod
    def memory(token: str, limit: int) -> "Cgroup":
        group = Cgroup(token, "memory")
        (group.folder / ("memory.max" if group.v2 else "memory.limit_in_bytes")).write_text(str(limit))
        with contextlib.suppress(OSError):
            (group.folder / ("memory.swap.max" if group.v2 else "memory.memsw.limit_in_bytes")).write_text("0" if group.v2 else str(limit))
        return group

    def join(self) -> None:
        (self.folder / "cgroup.procs").write_text("0" if not self.v2 else str(os.getpid()))

    def kills(self) -> int:
        """How often the kernel killed here for want of memory."""
        file = self.folder / ("memory.events" if self.v2 else "memory.oom_control")
        found = re.search(r"oom_kill (\d+)", file.read_text())
        return int(found[1]) if found else 0

    @staticmethod
    def sweep(token: str) -> None:
        for path in Path("/sys/fs/cgroup").glob(f"**/hdmlp-faults-{token}"):
            with contextlib.suppress(OSError):
                path.rmdir()


# Processes.

class Client:
    """A training process, which does what it is told. Its exceptions are raised here, as :class:`Told`."""

    def __init__(self, harness: "Harness", process: Optional[subprocess.Popen], connection: socket.socket, hello: dict) -> None:
        self.harness, self.process, self.connection, self.hello = harness, process, connection, hello
        self.rank, self.buffer = int(hello["rank"] or 0), b""
        self.world = 1
        self.job: Dict[str, Any] = {}

    @property
    def pid(self) -> int:
        return self.hello["pid"]

    def send(self, what: str, **arguments: Any) -> None:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self.connection.sendall((json.dumps({"do": what, **arguments}) + "\n").encode("utf-8", "surrogateescape"))
        self.asked = what

    def answer(self, within: float = 20) -> Any:
        line = self.harness.line(self, within, self.asked)
        reply = json.loads(line)
        if "error" in reply:
            raise Told(reply["error"], reply["ours"], reply["message"], reply["trace"], reply["seconds"])
        self.seconds = reply["seconds"]
        return reply["result"]

    def ask(self, what: str, within: float = 20, **arguments: Any) -> Any:
        self.send(what, **arguments)
        return self.answer(within)

    def open(self, path: Any, within: float = 20, **keys: Any) -> "Client":
        self.send_open(path, **keys)
        self.answer(within)
        return self

    def send_open(self, path: Any, **keys: Any) -> None:
        keys.setdefault("seed", SEED)
        self.job = {"seed": keys["seed"], "batch": keys.get("batch", BATCH), "drop_last": keys.get("drop_last", False),
                    "shuffle": keys.get("shuffle", True)}
        if "world_size" in keys:
            self.rank, self.world = keys["rank"], keys["world_size"]
        self.send("open", path=os.fspath(path), **keys)

    def expected(self, listing: Listing, epoch: int = 0, **more: Any) -> List[list]:
        return listing.epoch(epoch, rank=self.rank, world=self.world, **self.job, **more)

    def epoch(self, epoch: int, within: float = 20) -> List[list]:
        self.ask("iter", within, epoch=epoch)
        return self.ask("next", within)

    def right(self, listing: Listing, epochs: Sequence[int] = (0,), within: float = 20, what: str = "", also: Sequence[Listing] = (), **more: Any) -> None:
        """Iterates, and compares: each epoch with ``listing``, or as a whole with one of ``also``."""
        for e in epochs:
            got = self.epoch(e, within)
            same(got, *(self.expected(one, e, **more) for one in [listing, *also]), what=f"{what or f'rank {self.rank}'}, epoch {e}")

    def run(self, code: str, within: float = 20) -> Any:
        return self.ask("run", within, code=code)

    def end(self) -> int:
        """Lets the process end by itself; its exit status."""
        self.send("exit")
        return self.wait()

    def raise_uncaught(self) -> Tuple[int, str]:
        """Has the last exception raised again where nobody catches it: exit status, and the last line of standard error."""
        self.send("exit", uncaught=True)
        status = self.wait()
        lines = self.harness.stderr(self).strip().splitlines() or [""]
        return status, lines[-1]

    def wait(self, within: float = 15) -> int:
        assert self.process
        try:
            return self.process.wait(within)
        except subprocess.TimeoutExpired:
            raise Verdict(HANG, f"the training process did not end within {within:.0f} s") from None


class Daemon:
    """A daemon, seen from outside: a process whose program is the binary, with the argument ``serve``."""

    def __init__(self, pid: int) -> None:
        self.pid = pid

    def signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def alive(self) -> bool:
        try:
            return Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
        except OSError:
            return False

    def rss(self) -> int:
        found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{self.pid}/status").read_text())
        return int(found[1]) << 10 if found else 0


def until(condition: Callable[[], Any], seconds: float, what: str) -> Any:
    """Waits for a condition; Hang at the deadline."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        if time.monotonic() > deadline:
            raise Verdict(HANG, f"{what}: not within {seconds:.0f} s")
        time.sleep(0.02)
    return value


@dataclasses.dataclass
class Product:
    package: Path
    binary: Path
    python: str
    throttle: Path


class Harness:
    """One fault's world: a directory, an environment of its own, and what was started in it."""

    def __init__(self, product: Product, folder: Path, token: str, the: Fault, stage: Callable[[str], None]) -> None:
        self.product, self.tmp, self.token, self.fault, self.stage = product, folder, token, the, stage
        self.clear = the.clear
        self.dies = the.dies
        self.random = random.Random(the.name)
        for name in ("home", "run", "cache", "config", "data", "state", "t"):
            (folder / name).mkdir()
        (folder / "run").chmod(0o700)
        folder.chmod(0o755)
        (folder / "t").chmod(0o1777)
        self.env = {
            "PATH": os.environ.get("PATH", "/usr/bin:/bin"), "LANG": "C.UTF-8", "HOME": str(folder / "home"), "TMPDIR": str(folder / "t"),
            "XDG_RUNTIME_DIR": str(folder / "run"), "XDG_CACHE_HOME": str(folder / "cache"), "XDG_CONFIG_HOME": str(folder / "config"),
            "XDG_DATA_HOME": str(folder / "data"), "XDG_STATE_HOME": str(folder / "state"),
            "HDMLP_SOCKET": f"hdmlp-fault-{token}", "HDMLP_BINARY": str(product.binary), "PYTHONPATH": str(product.package),
            "PYTHONDONTWRITEBYTECODE": "1", "FAULT_CONTROL": str(folder / "control"),
        }
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(folder / "control"))
        (folder / "control").chmod(0o777)
        self.listener.listen(64)
        self.clients: List[Client] = []
        self.groups: List[Cgroup] = []
        self.guarded: Dict[str, Any] = {}
        self.started = 0

    # Files.

    def folder(self, name: str) -> Path:
        path = self.tmp / name
        path.mkdir(parents=True, exist_ok=True)
        return path

    def dataset(self, name: str = "train", classes: int = 4, per_class: int = 15, size: int = 400, salt: Any = 0, mtime: Optional[int] = None,
                sizes: str = "varied") -> Path:
        """A dataset of random bytes. Two of different salt have the same names and sizes, and with ``mtime`` the same times."""
        root = self.tmp / name
        for c in range(classes):
            folder = root / f"class{c}"
            folder.mkdir(parents=True)
            for i in range(per_class):
                self.sample(folder / f"{i:03}.jpg", size if sizes == "same" else size + (c * per_class + i) % 37, salt)
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
        """Waits until the directories' times are old enough to be trusted, so that an index counts."""
        newest = max(os.lstat(os.path.join(folder, ".")).st_ctime for folder, _, _ in os.walk(root))
        time.sleep(max(0.0, newest + 2.1 - time.time()))

    def guard(self, *paths: Any) -> None:
        """Files and trees that nobody has any business to change."""
        for path in paths:
            self.guarded[os.fspath(path)] = self.print_of(os.fspath(path))

    @staticmethod
    def print_of(path: str) -> Any:
        if os.path.isdir(path):
            return sorted((os.path.relpath(os.path.join(d, n), path), Harness.print_of(os.path.join(d, n)))
                          for d, _, ns in os.walk(path) for n in ns)
        try:
            meta = os.lstat(path)
            return (meta.st_size, meta.st_mode, meta.st_uid, meta.st_mtime_ns, digest_file(path) if os.path.isfile(path) else "")
        except OSError as e:
            return str(e)

    def untouched(self) -> None:
        for path, before in self.guarded.items():
            if (now := self.print_of(path)) != before:
                raise Verdict(FOREIGN, f"{path.replace(str(self.tmp), '')} was {str(before)[:80]}, is {str(now)[:80]}")

    # Processes.

    def client(self, *, env: Optional[Dict[str, Optional[str]]] = None, wrap: Sequence[str] = (), before: Optional[Callable[[], None]] = None,
               cgroup: Optional[Cgroup] = None, user: Optional[int] = None, cwd: Optional[Path] = None, package: Optional[Path] = None,
               mounts: Sequence[Tuple[Any, Any]] = (), close_fds: bool = True) -> Client:
        """Starts a training process. ``mounts`` are bind mounts (source, target) that it alone sees, in a namespace of its own."""
        self.started += 1
        token = f"{self.token}-{self.started}"
        environment = {**self.env, "FAULT_TOKEN": token, **(env or {})}
        if package:
            environment["PYTHONPATH"] = str(package)

        def prepare() -> None:
            if cgroup:
                cgroup.join()
            if mounts:
                if libc.unshare(CLONE_NEWNS):
                    os._exit(90)
                mount("none", "/", flags=MS_REC | MS_PRIVATE)
                for source, target in mounts:
                    bind(source, target) if source != "tmpfs" else mount("tmpfs", target, "tmpfs")
            if user is not None:
                os.setgroups([])
                os.setgid(user)
                os.setuid(user)
            if before:
                before()

        with open(self.tmp / f"stderr-{token}", "wb") as errors:
            process = subprocess.Popen([*wrap, self.product.python, str(HERE / "client.py")], env={k: v for k, v in environment.items() if v is not None},
                                       stdin=subprocess.DEVNULL, stdout=errors, stderr=errors, preexec_fn=prepare, cwd=cwd or self.tmp)
        client = self.accept(process)
        client.token = token
        return client

    def open(self, path: Any, **keys: Any) -> Client:
        """A training process in plain surroundings, with a loader."""
        return self.client().open(path, **keys)

    def accept(self, process: Optional[subprocess.Popen], within: float = 20) -> Client:
        deadline = time.monotonic() + within
        while not select.select([self.listener], [], [], 0.05)[0]:
            if process and process.poll() is not None:
                text = "".join(f.read_text(errors="replace") for f in sorted(self.tmp.glob("stderr-*")))
                raise Verdict(RAW, f"the training process ended with {process.returncode} before it began: {text[-500:]}")
            if time.monotonic() > deadline:
                raise Verdict(HANG, f"the training process did not begin within {within:.0f} s")
        connection, _ = self.listener.accept()
        client = Client(self, process, connection, {"rank": 0, "pid": 0})
        client.asked = "hello"
        client.token = ""
        client.hello = json.loads(self.line(client, within, "hello"))
        client.rank = int(client.hello["rank"] or 0)
        self.clients.append(client)
        return client

    def line(self, client: Client, within: float, what: str) -> bytes:
        deadline = time.monotonic() + within
        while b"\n" not in client.buffer:
            if not select.select([client.connection], [], [], max(0.0, deadline - time.monotonic()))[0]:
                raise Verdict(HANG, f"{what!r} of a training process did not return within {within:.0f} s")
            try:
                part = client.connection.recv(1 << 20)
            except ConnectionResetError:
                part = b""
            if not part:
                self.ended(client, what)
            client.buffer += part
        line, client.buffer = client.buffer.split(b"\n", 1)
        return line

    def ended(self, client: Client, what: str) -> None:
        status = client.process.wait(10) if client.process else None
        message = f"a training process ended during {what!r}" + (f" with {status}" if status is not None else "")
        if status == -signal.SIGKILL:
            raise Verdict(KILLED, message)
        raise Verdict(CRASH, f"{message}: {self.stderr(client)[-400:]}")

    def stderr(self, client: Client) -> str:
        path = self.tmp / f"stderr-{client.token}"
        return path.read_text(errors="replace") if path.exists() else ""

    def daemons(self) -> List[Daemon]:
        found = []
        for entry in os.listdir("/proc"):
            if entry.isdigit():
                with contextlib.suppress(OSError):
                    words = Path(f"/proc/{entry}/cmdline").read_bytes().split(b"\0")
                    if b"serve" in words and os.path.basename(words[0]) == os.fsencode(self.product.binary.name) and Daemon(int(entry)).alive():
                        found.append(Daemon(int(entry)))
        return found

    def daemon(self) -> Daemon:
        found = self.daemons()
        if len(found) != 1:
            raise Verdict(BROKEN, f"{len(found)} daemons instead of one")
        return found[0]

    def stop_daemon(self, hard: bool = False) -> None:
        for daemon in self.daemons():
            daemon.signal(signal.SIGKILL if hard else signal.SIGTERM)
            until(lambda: not daemon.alive(), 10, "the end of the daemon after a signal")  # noqa: B023

    def hdmlp(self, *arguments: str, within: float = 15, env: Optional[Dict[str, str]] = None, **more: Any) -> subprocess.CompletedProcess:
        """The command."""
        try:
            return subprocess.run([str(self.product.binary), *arguments], env={**self.env, **(env or {})}, capture_output=True, text=True,
                                  errors="replace", timeout=within, stdin=subprocess.DEVNULL, cwd=self.tmp, **more)
        except subprocess.TimeoutExpired:
            raise Verdict(HANG, f"hdmlp {' '.join(arguments)} did not end within {within:.0f} s") from None

    def command_clear(self, done: subprocess.CompletedProcess) -> None:
        """A command that failed as it should: status 2 or 1, one line, no traceback. Else it goes on."""
        if done.returncode == 0:
            return
        if done.returncode < 0 or "goroutine" in done.stderr:
            raise Verdict(CRASH, f"the command ended with {done.returncode}: {done.stderr[-300:]}")
        raise Told("command", True, done.stderr.strip(), "", 0)

    def memory(self, limit: int) -> Cgroup:
        group = Cgroup.memory(f"{self.token}", limit)
        self.groups.append(group)
        return group

    def throttle(self, source: Path, at: Path, *flags: str) -> subprocess.Popen:
        """A source that can be slow, fail or hang: a FUSE mount of ``source``."""
        if not self.product.throttle.exists():
            raise Verdict(SKIPPED, f"{self.product.throttle} is not there: make throttle")
        at.mkdir(exist_ok=True)
        process = subprocess.Popen([str(self.product.throttle), "--source", str(source), "--mount", str(at), *flags], stdin=subprocess.DEVNULL,
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=self.tmp)
        until(lambda: os.path.ismount(at) or process.poll() is not None, 10, "the mount of the throttled source")
        if process.poll() is not None:
            raise Verdict(SKIPPED, f"the throttled source could not be mounted (status {process.returncode})")
        return process

    def cluster(self, nodes: int, *flags: str, ranks: int = 1, cgroup: Optional[Cgroup] = None, env: Optional[Dict[str, str]] = None) -> List[Client]:
        """Clients on several nodes, by rank, under ``hdmlp dev cluster``."""
        with open(self.tmp / "stderr-cluster", "ab") as errors:
            process = subprocess.Popen(
                [str(self.product.binary), "dev", "cluster", "-n", str(nodes), "--ranks-per-node", str(ranks), "--run", self.token, *flags, "--",
                 self.product.python, str(HERE / "client.py")], env={**self.env, **(env or {})}, stdin=subprocess.DEVNULL, stdout=errors, stderr=errors,
                preexec_fn=cgroup.join if cgroup else None, cwd=self.tmp)
        found = sorted((self.accept(None, 20) for _ in range(nodes * ranks)), key=lambda c: c.rank)
        for client in found:
            client.world = nodes * ranks
            client.token = "cluster"
        self.launcher = process
        return found

    def on_node(self, node: int, *command: str, within: float = 20, wait: bool = True) -> subprocess.Popen:
        process = subprocess.Popen([str(self.product.binary), "dev", "exec", str(node), "--run", self.token, "--", *command], env=self.env,
                                   stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd=self.tmp, text=True)
        if wait:
            try:
                process.wait(within)
            except subprocess.TimeoutExpired:
                raise Verdict(BROKEN, f"{command} on node {node} did not end") from None
        return process


def all_of(clients: Sequence[Client], do: Callable[[Client], None], within: float = 25) -> List[Any]:
    """Has all clients do the same at the same time; raises the first error, if any, when all have answered."""
    for client in clients:
        do(client)
    answers: List[Any] = []
    failure: Optional[BaseException] = None
    deadline = time.monotonic() + within
    for client in clients:
        try:
            answers.append(client.answer(max(0.1, deadline - time.monotonic())))
        except (Told, Verdict) as e:
            if failure is None or isinstance(failure, Told) and isinstance(e, Verdict):
                failure = e
    if failure:
        raise failure
    return answers


def together(clients: Sequence[Client], listing: Any, epochs: Sequence[int] = (0,), within: float = 25, **more: Any) -> None:
    """All ranks iterate at the same time, and each is compared. ``listing``: one for all, or one per client."""
    for e in epochs:
        all_of(clients, lambda c: c.send("iter", epoch=e), within)  # noqa: B023
        got = all_of(clients, lambda c: c.send("next"), within)
        for i, (client, batches) in enumerate(zip(clients, got)):
            one = listing[i] if isinstance(listing, list) else listing
            same(batches, client.expected(one, e, **more), what=f"rank {client.rank}, epoch {e}")


def open_all(clients: Sequence[Client], path: Any, within: float = 25, **keys: Any) -> None:
    all_of(clients, lambda c: c.send_open(path, **keys), within)


@contextlib.contextmanager
def expecting(h: Harness, *patterns: str) -> Iterator[None]:
    """Within it an error of HDMLP is expected, and must match; that there is none is wrong."""
    try:
        yield
    except Told as e:
        missing = lacking(e, patterns)
        if not e.ours or missing:
            raise Verdict(RAW, f"{e} (lacks {missing})") from None
        return
    raise wrong("no error where there must be one")


def lacking(e: Told, patterns: Sequence[str]) -> List[str]:
    return [p for p in patterns if not re.search(p, f"{e.name} {e.message}", re.IGNORECASE)]


def judge(h: Harness) -> Tuple[str, str]:
    """Carries a fault out: outcome and message."""
    try:
        try:
            note = h.fault.run(h)
            if not h.dies and (kills := sum(group.kills() for group in h.groups)):
                return KILLED, f"the kernel killed {kills} process for want of memory, unnoticed by the ranks; {note or ''}"
            outcome, message = RIGHT, note or ""
        finally:
            h.untouched()
    except Told as e:
        shown = " ".join(str(e).split())
        if e.name == "DaemonDied" and any(group.kills() for group in h.groups) and not h.dies:
            return KILLED, shown
        if e.name == "DaemonDied" and not h.dies:
            return CRASH, shown
        if not e.ours:
            return RAW, shown + " " + " | ".join(e.trace.strip().splitlines()[-3:])
        if not h.dies and (kills := sum(group.kills() for group in h.groups)):
            return KILLED, f"the kernel killed {kills} process for want of memory; {shown}"
        if h.clear is None:
            return RAW, f"an error where none is due: {shown}"
        if missing := lacking(e, h.clear):
            return RAW, f"does not say {', '.join(missing)}: {shown}"
        return CLEAR, shown
    except Verdict as e:
        return e.outcome, " ".join(e.message.split())
    except Exception as e:  # a defect of the harness, or a system that cannot do what the fault needs
        import traceback
        where = traceback.extract_tb(sys.exc_info()[2])
        line = next((f for f in reversed(where) if str(HERE) in f.filename), where[-1])
        return BROKEN, f"{type(e).__name__}: {e} ({Path(line.filename).name}:{line.lineno})"
    return outcome, message


def carry_out(the: Fault, product: Product) -> Dict[str, Any]:
    """Runs a fault in namespaces of its own, which end with it: outcome, seconds and message."""
    import tempfile
    token = f"{os.getpid()}-{abs(hash((the.name, time.time()))) % 100000}"
    folder = Path(tempfile.mkdtemp(prefix="hdmlp-faults-"))
    reading, writing = os.pipe()
    started = time.monotonic()
    sys.stdout.flush()
    keeper = os.fork()
    if keeper == 0:
        os.setsid()
        os.close(reading)
        if libc.unshare(CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET):
            os._exit(91)
        mount("none", "/", flags=MS_REC | MS_PRIVATE)
        init = os.fork()
        if init:  # waits for the namespace's first process, and takes it along
            libc.prctl(1, signal.SIGKILL)
            os.write(writing, f"pid {init}\n".encode())
            os.waitpid(init, 0)
            os._exit(0)
        libc.prctl(1, signal.SIGKILL)
        mount("proc", "/proc", "proc")
        loopback_up()
        worker = os.fork()
        if worker:
            while True:
                pid, status = os.wait()
                if pid == worker:
                    os._exit(0)
        try:
            def stage(text: str) -> None:
                os.write(writing, f"stage {text}\n".encode())
            h = Harness(product, folder, token, the, stage)
            begun = time.monotonic()
            outcome, message = judge(h)
            seconds = time.monotonic() - begun
            message = message.replace(str(folder), "").replace(os.fspath(product.package), "")
            os.write(writing, ("result " + json.dumps({"outcome": outcome, "seconds": round(seconds, 2), "message": message[:1500]}) + "\n").encode())
        except BaseException as e:
            os.write(writing, ("result " + json.dumps({"outcome": BROKEN, "seconds": 0, "message": f"{type(e).__name__}: {e}"}) + "\n").encode())
        os._exit(0)
    os.close(writing)
    text, init = b"", 0
    deadline = started + the.limit
    while True:
        ready = select.select([reading], [], [], max(0.0, deadline - time.monotonic()))[0]
        if ready:
            part = os.read(reading, 1 << 16)
            text += part
            if found := re.search(rb"pid (\d+)\n", text):
                init = int(found[1])
            if part and b"result " not in text:
                continue
            if part and not text.endswith(b"\n"):
                continue
        if init:
            with contextlib.suppress(ProcessLookupError):
                os.kill(init, signal.SIGKILL)
        break
    os.waitpid(keeper, 0)
    os.close(reading)
    found = re.search(rb"result (.*)\n", text)
    if found:
        result = json.loads(found[1])
    else:
        stages = re.findall(rb"stage (.*)\n", text)
        result = {"outcome": HANG, "seconds": round(time.monotonic() - started, 2),
                  "message": f"not finished within {the.limit:.0f} s" + (f", at: {stages[-1].decode()}" if stages else "")}
    Cgroup.sweep(token)
    subprocess.run(["chattr", "-R", "-i", "-a", str(folder)], stderr=subprocess.DEVNULL, check=False)
    shutil.rmtree(folder, ignore_errors=True)
    return {"name": the.name, "about": the.about, "item": the.item, **result}
