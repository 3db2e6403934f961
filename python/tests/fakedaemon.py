"""A daemon for tests, in Python: it implements docs/FORMATS.md over real sockets and memfds.

It reads folders, orders by a simple rule of its own (:func:`order`), and reuses the slot
that was returned last first, after scribbling over it: a client that returns a slot
too early sees the scribble.
"""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import socket
import struct
import threading

from fakedata import fingerprint, rank_ids, scan
from hdmlp._lib.protocol import audit_sum
from hdmlp._lib.version import __version__


class Slots:
    """Memory for batches: slots of one segment; the last one returned is used first."""

    def __init__(self, number, slot, count, first):
        self.number, self.slot = number, slot
        self.fd = os.memfd_create("fake")
        os.ftruncate(self.fd, slot * count)
        self.map = mmap.mmap(self.fd, slot * count)
        self.first = first
        self.free = list(range(first, first + count))

    def offset(self, slot):
        return (slot - self.first) * self.slot


class Session(threading.Thread):
    """One connection."""

    def __init__(self, daemon, sock):
        super().__init__(daemon=True)
        self.daemon_ = daemon
        self.sock = sock
        self.cond = threading.Condition()
        self.generation = 0
        self.at = None
        self.acks = []
        self.waits = 0
        self.iterates = []
        self.held = set()
        self.segments = []
        self.closed = False
        self.key = None

    # Frames.

    def send(self, kind, payload=b"", fd=None):
        frame = struct.pack("<IB3x", len(payload), kind) + payload
        try:
            if fd is None:
                self.sock.sendall(frame)
            else:
                n = socket.send_fds(self.sock, [frame], [fd])
                self.sock.sendall(frame[n:])
        except OSError:
            self.closed = True

    def send_json(self, kind, value, fd=None):
        self.send(kind, json.dumps(value).encode(), fd)

    def exactly(self, n):
        data = b""
        while len(data) < n:
            got = self.sock.recv(n - len(data))
            if not got:
                raise EOFError
            data += got
        return data

    def run(self):
        try:
            while True:
                length, kind = struct.unpack("<IB3x", self.exactly(8))
                self.handle(kind, self.exactly(length))
        except (EOFError, OSError):
            pass
        finally:
            with self.cond:
                self.closed = True
                self.cond.notify_all()
            self.daemon_.jobs.pop(self.key, None)
            self.sock.close()

    def handle(self, kind, payload):
        daemon = self.daemon_
        if kind == 1:
            assert json.loads(payload)["protocol"] == 7
            self.send_json(
                129, {"protocol": 7, "version": daemon.version, "pid": os.getpid()}, daemon.log
            )
        elif kind == 2:
            self.open(json.loads(payload))
        elif kind == 3:
            generation, epoch, step = struct.unpack("<QII", payload)
            with self.cond:
                assert generation > self.generation
                self.generation, self.at = generation, (epoch, step)
                self.iterates.append((epoch, step))
                self.cond.notify_all()
        elif kind == 4:
            generation, epoch, step, stall, python, audit, n = struct.unpack_from(
                "<QIIQQQI", payload
            )
            slots = struct.unpack_from(f"<{n}I", payload, 44)
            assert len(payload) == 44 + 4 * n
            assert python <= stall
            with self.cond:
                if epoch != 0xFFFFFFFF:
                    self.acks.append((generation, epoch, step, stall, audit))
                for slot in slots:
                    assert slot in self.held, f"slot {slot} returned twice"
                    self.held.remove(slot)
                    for memory in self.segments:
                        if memory.first <= slot < memory.first + len(memory.map) // memory.slot:
                            begin = memory.offset(slot)
                            memory.map[begin : begin + memory.slot] = b"\xaa" * memory.slot
                            memory.free.append(slot)
                self.cond.notify_all()
        elif kind == 5:
            self.waits += 1
        elif kind == 6:
            self.call(json.loads(payload))

    # Jobs.

    def open(self, request):
        daemon = self.daemon_
        daemon.requests.append(request)
        if daemon.open_error:
            return self.send_json(134, daemon.open_error)
        key = (request["job"], request["rank"])
        if key in daemon.jobs:
            return self.send_json(134, {"kind": "busy", "message": "rank taken", "details": {}})
        dataset = request["dataset"]
        if not os.path.isdir(dataset["path"]):
            return self.send_json(
                134, {"kind": "dataset", "message": f"{dataset['path']}: missing"}
            )
        self.key = key
        daemon.jobs[key] = self
        self.request = request
        self.stream = request["stream"]
        if self.stream["seed"] is None:
            self.stream["seed"] = 1234
        self.path = dataset["path"]
        self.classes, self.samples = scan(self.path, dataset["options"].get("extensions"))
        self.batches = {}
        self.steps = len(self.epoch(0))
        self.send_json(136, {"what": "scanning", "done": 1, "total": 0})
        self.send_json(
            130,
            {
                "samples": len(self.samples),
                "classes": self.classes,
                "bytes": 0,
                "fingerprint": fingerprint(self.path, self.samples),
                "seed": self.stream["seed"],
                "steps": self.steps,
                "rank_samples": sum(map(len, self.epoch(0))),
                "warnings": [],
                "outputs": [{"field": "", "shape": None, "type": ""}],
            },
        )
        threading.Thread(target=self.feed, daemon=True).start()

    def epoch(self, number):
        if number not in self.batches:
            self.batches[number] = rank_ids(
                len(self.samples),
                self.stream,
                number,
                self.request["rank"],
                self.request["world_size"],
            )
        return self.batches[number]

    def call(self, message):
        method, params = message["method"], message.get("params") or {}
        try:
            result = getattr(self, "call_" + method)(
                **{k.replace("from", "from_"): v for k, v in params.items()}
            )
            self.send_json(133, {"id": message["id"], "result": result})
        except Exception as error:
            self.send_json(
                133, {"id": message["id"], "error": {"kind": "internal", "message": repr(error)}}
            )

    def call_check(self, **_):
        return {"on_error": "raise"}

    def call_dataset(self, path, options, **_):
        classes, samples = scan(path, options.get("extensions"))
        sizes = [sum(1 for _, label in samples if label == i) for i in range(len(classes))]
        return {
            "samples": len(samples),
            "classes": classes,
            "bytes": 0,
            "fingerprint": fingerprint(path, samples),
            "class_sizes": sizes,
        }

    def call_samples(self, path, options, from_, to, **_):
        return scan(path, options.get("extensions"))[1][from_:to]

    def call_explain(self, epoch, step, rank=None):
        rank = self.request["rank"] if rank is None else rank
        ids = rank_ids(len(self.samples), self.stream, epoch, rank, self.request["world_size"])[
            step
        ]
        return {
            "ids": ids,
            "labels": [self.samples[i][1] for i in ids],
            "paths": [self.samples[i][0] for i in ids],
        }

    def call_report(self):
        return {"sentence": "all is well", "epochs": 1}

    def call_audit(self, epoch):
        expected = sum(audit_sum(epoch, ids) for ids in self.epoch(epoch)) % 2**64
        delivered = (
            next((a for _, e, _, _, a in reversed(self.acks) if e == epoch), 0) + self.daemon_.lie
        )
        return {
            "complete": True,
            "expected": f"{expected:x}",
            "delivered": f"{delivered:x}",
            "samples": 0,
        }

    # Batches.

    def grow(self, number):
        daemon = self.daemon_
        memory = Slots(number, daemon.slot_bytes, daemon.slots, number * 1000)
        self.segments.append(memory)
        self.send(131, struct.pack("<IIQ", number, 1, len(memory.map)), memory.fd)

    def take_slots(self, count, generation):
        """Returns free slots of one segment, or None if the generation has ended."""
        daemon = self.daemon_
        with self.cond:
            while True:
                if self.closed or self.generation != generation:
                    return None
                for memory in self.segments:
                    if len(memory.free) >= count:
                        slots = [memory.free.pop() for _ in range(count)]
                        self.held.update(slots)
                        return memory, slots
                if len(self.segments) < daemon.max_segments:
                    self.grow(len(self.segments))
                    continue
                self.cond.wait()

    def feed(self):
        while True:
            with self.cond:
                while self.at is None and not self.closed:
                    self.cond.wait()
                if self.closed:
                    return
                generation, (epoch, step), self.at = self.generation, self.at, None
            self.feed_generation(generation, epoch, step)

    def feed_generation(self, generation, epoch, step):
        daemon = self.daemon_
        while True:
            if self.stream["epochs"] and epoch >= self.stream["epochs"]:
                return self.send(135, struct.pack("<Q", generation))
            if (epoch, step) == daemon.die_at:
                os.write(daemon.log, b"fatal: the disk is on fire\n")
                self.sock.shutdown(socket.SHUT_RDWR)
                return
            if (epoch, step) == daemon.fail_at:
                return self.send_json(134, {**daemon.failure, "generation": generation})
            daemon.gate.wait()
            ids = self.epoch(epoch)[step]
            got = self.take_slots(len(ids), generation)
            if got is None:
                return
            memory, slots = got
            columns = [[], [], [], [], [], []]
            for sample, slot in zip(ids, slots):
                path, label = self.samples[sample]
                with open(os.path.join(self.path, path), "rb") as file:
                    data = file.read()
                begin = memory.offset(slot)
                memory.map[begin : begin + len(data)] = data
                for values, value in zip(
                    columns, (label, begin, len(data), sample, 0, memory.number)
                ):
                    values.append(value)
            n = len(ids)
            audit = (audit_sum(epoch, ids) + ((epoch, step) == daemon.miscount_at)) % 2**64
            payload = struct.pack("<QIIIIQ", generation, epoch, step, n, n, audit)
            payload += struct.pack(
                f"<{n}q{n}Q{n}Q{n}I{n}I{n}I{n}I", *(v for c in columns for v in c), *slots
            )
            self.send(132, payload)
            step += 1
            if step == self.steps:
                epoch, step = epoch + 1, 0


class FakeDaemon:
    """Listens on the socket ``name``, a path or an abstract name, until closed."""

    def __init__(self, name, slots=64, slot_bytes=4096, max_segments=1, version=__version__):
        self.version = version
        self.slots, self.slot_bytes, self.max_segments = slots, slot_bytes, max_segments
        self.open_error = None
        self.fail_at = self.die_at = None
        self.failure = {
            "kind": "sample",
            "message": "cat/1.jpg is gone",
            "details": {"sample": 1, "path": "cat/1.jpg"},
        }
        self.lie = 0  # what the epochs' sums are reported to be more than they are
        self.miscount_at = None  # a batch whose sum is reported to be one more than it is
        self.jobs = {}
        self.requests = []
        self.sessions = []
        self.gate = threading.Event()
        self.gate.set()
        self.log = os.memfd_create("fakelog")
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.listener.bind(name if "/" in name else "\0" + name)
        self.listener.listen(16)
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                sock, _ = self.listener.accept()
            except OSError:
                return
            session = Session(self, sock)
            self.sessions.append(session)
            session.start()

    @property
    def session(self):
        """The newest session that opened a job."""
        return [s for s in self.sessions if s.key is not None][-1]

    def close(self):
        with contextlib.suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        for session in self.sessions:
            with contextlib.suppress(OSError):
                session.sock.shutdown(socket.SHUT_RDWR)
