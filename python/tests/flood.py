"""Floods a daemon's ports with what clients can send that do not know the job's secret.

    flood.py HOST PORTS UNTIL ADDRESS...

PORTS is a JSON object: by kind (control, samples, gossip, metrics) a port. Connections come from
the addresses in turn, are held and renewed until the file UNTIL is there; then how many were made,
and how many bytes taken, is printed by kind, as a line of JSON.
"""

import contextlib
import errno
import itertools
import json
import os
import random
import socket
import struct
import sys
import time

EACH = 60  # connections at a time, per port and habit
LARGE = 20 << 20

_FRAME = (
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0"
)  # HTTP/2's preface, and empty SETTINGS
_HELLO = struct.pack(
    "<4sHHBBHIII32s", b"HDMX", 1, 48 + 256, 1, 0, 512, 1, 0, 2, b"n" * 32
)  # and a job's name of 256 bytes is to come
# What seems to begin something large, and what it goes on with.
PLAUSIBLE = {
    "control": (
        _FRAME + (1 << 20).to_bytes(3, "big") + b"\0\0\0\0\0\1",
        b"\0",
    ),  # DATA of 1 MiB, the most that HTTP/2's servers take by default
    "samples": (_HELLO, b"j"),
    "gossip": (
        b"\x0a" + struct.pack(">I", LARGE - 1),
        b"g",
    ),  # memberlist's encryptMsg of nearly 20 MiB
    "metrics": (b"GET /metrics HTTP/1.1\r\nHost: x\r\nX-Long: ", b"x"),
}


class Client:
    """A connection without the secret, and what it sends."""

    def __init__(self, source, address, kind, habit):
        self.socket, self.kind, self.habit = socket.socket(), kind, habit
        self.socket.setblocking(False)
        self.sent, self.next = 0, 0.0
        self.begun = b""
        if habit in ("fast", "drip"):
            self.begun = PLAUSIBLE[kind][0]
        self.socket.bind((source, 0))
        if self.socket.connect_ex(address) not in (0, errno.EINPROGRESS):
            raise OSError("connect")

    def speak(self, now):
        """Sends what can be sent now; returns False if the connection has ended."""
        try:
            if self.begun:
                self.begun = self.begun[self.socket.send(self.begun) :]
            elif self.habit == "garbage" and self.sent == 0:
                self.sent += self.socket.send(random.randbytes(4096))
            elif self.habit == "fast" and self.sent < LARGE:
                self.sent += self.socket.send(PLAUSIBLE[self.kind][1] * (256 << 10))
            elif self.habit == "drip" and now >= self.next:
                self.sent, self.next = (
                    self.sent + self.socket.send(PLAUSIBLE[self.kind][1]),
                    now + 0.2,
                )
            return self.socket.recv(4096) != b""
        except BlockingIOError:
            return True
        except OSError:
            return False


def main():
    host, ports, until, sources = (
        sys.argv[1],
        json.loads(sys.argv[2]),
        sys.argv[3],
        itertools.cycle(sys.argv[4:]),
    )
    habits = ["silent", "garbage", "drip", "fast"]
    made, taken = dict.fromkeys(ports, 0), dict.fromkeys(ports, 0)
    datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    clients, wanted = (
        [],
        [(kind, habit) for kind in ports for habit in habits for _ in range(EACH)],
    )
    while not os.path.exists(until):
        now = time.monotonic()
        for kind, habit in wanted:
            try:
                clients.append(Client(next(sources), (host, ports[kind]), kind, habit))
                made[kind] += 1
            except OSError:
                pass
        wanted, there = [], []
        for client in clients:
            if client.speak(now):
                there.append(client)
            else:
                client.socket.close()
                taken[client.kind] += client.sent
                wanted.append((client.kind, client.habit))
        clients = there
        for size in (1, 100, 1400, 1400, 1400, 60000) if "gossip" in ports else ():
            for begin in (
                b"",
                b"\x01",
                b"\x09",
            ):  # garbage; what looks sealed; what looks compressed
                with contextlib.suppress(OSError):
                    datagrams.sendto(
                        (begin + random.randbytes(size))[:size], (host, ports["gossip"])
                    )
        time.sleep(0.005)
    for client in clients:
        taken[client.kind] += client.sent
    print(json.dumps({"made": made, "taken": taken}), flush=True)


if __name__ == "__main__":
    main()
