"""Bit flips on the wire: forwards the frames that one node sends to another, and flips bits in what
they carry: wire.py FROM TO MAC SHARE SEED.

It runs in the bridge's namespace. FROM and TO are the bridge's ports, MAC the address to which the
first node sends what is meant for the second one. Checksums are made right again, so that nothing
below the application notices. It writes a line when it forwards, and at its end, on SIGTERM, one
with the number of segments in which it flipped a bit.
"""

from __future__ import annotations

import contextlib
import random
import signal
import socket
import struct
import sys

ETH_P_ALL, IP, TCP, UDP = 0x0003, 0x0800, 6, 17


def checksum(data: bytes) -> int:
    """The Internet checksum (RFC 1071)."""
    if len(data) % 2:
        data += b"\0"
    total: int = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def mended(frame: bytearray, r: random.Random, share: float) -> bool:
    """Flips one bit of a TCP segment's data in this share of segments, and sets the checksum.
    Reports whether a bit was flipped."""
    if struct.unpack_from("!H", frame, 12)[0] != IP or len(frame) < 34:
        return False
    start = 14 + (frame[14] & 15) * 4
    end = 14 + struct.unpack_from("!H", frame, 16)[0]
    protocol, flipped = frame[23], False
    if protocol == UDP:
        struct.pack_into("!H", frame, start + 6, 0)  # none, which IPv4 allows
    if protocol != TCP:
        return False
    data = start + (frame[start + 12] >> 4) * 4
    if data < end and r.random() < share:
        frame[r.randrange(data, end)] ^= 1 << r.randrange(8)
        flipped = True
    struct.pack_into("!H", frame, start + 16, 0)
    pseudo = frame[26:34] + struct.pack("!BBH", 0, TCP, end - start)
    struct.pack_into("!H", frame, start + 16, checksum(bytes(pseudo + frame[start:end])))
    return flipped


def main() -> None:
    """Forwards until SIGTERM."""
    source, sink, address, share, seed = sys.argv[1:]
    mac, count = bytes.fromhex(address.replace(":", "")), 0
    r = random.Random(seed)
    incoming = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
    incoming.bind((source, 0))
    outgoing = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    outgoing.bind((sink, 0))
    real = bytes.fromhex(sys.stdin.readline().replace(":", ""))

    def end(*_: object) -> None:
        print(count, flush=True)
        sys.exit()

    signal.signal(signal.SIGTERM, end)
    print("forwarding", flush=True)
    while True:
        try:
            data, whence = incoming.recvfrom(1 << 17)
        except OSError:  # the link was cut
            continue
        if data[:6] != mac or whence[2] == socket.PACKET_OUTGOING:
            continue
        frame = bytearray(data)
        count += mended(frame, r, float(share))
        frame[:6] = real
        with contextlib.suppress(OSError):  # the other link is cut
            outgoing.send(frame)


if __name__ == "__main__":
    main()
