"""The ports of a job on several nodes are flooded by processes that do not know its secret."""

import subprocess
import sys
import time

from handles import all_of, open_all, together
from oracle import Listing
from verdicts import Verdict, fault

FLOOD = r"""
import os, random, resource, select, socket, struct, sys, threading, time
how, host, port, count = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
resource.setrlimit(resource.RLIMIT_NOFILE, (20000, 20000))
held = []
noise = random.Random(1).randbytes(1 << 16)
HTTP2 = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\x04\0\0\0\0\0"
HTTP1 = b"POST /hdmlp.cluster.v1.Control/Attend HTTP/1.1\r\nHost: x\r\n"
def data_frame(stream):
    return b"\x00\x40\x00\x01\x00" + struct.pack(">I", stream) + b"\0" * 16384
def u16(value):
    return struct.pack("<H", value)
def u32(value):
    return struct.pack(">I", value)
START = {
    "idle": b"", "noise": noise[:3000], "one": b"\n",
    "gossip": b"\x0a" + u32((20 << 20) - 1),
    "label": b"\xf4\xff" + b"x" * 255 + b"\x0a" + u32((20 << 20) - 1),
    "hello": b"HDMX" + u16(1) + u16(304) + b"\x01\0" + u16(4096) + bytes(100),
    "http2": HTTP2 + b"".join(data_frame(i * 2 + 1) for i in range(60)),
    "http1": HTTP1 + b"Content-Length: 999999999\r\n\r\n",
    "slow": b"GET /metrics HTTP/1.1\r\nX: ", "tls": b"\x16\x03\x01\x40\x00\x01\x00\x3f\xfc\x03\x03",
}
BODY = {
    "gossip": (20 << 20) - 100, "label": (20 << 20) - 100, "http1": 8 << 20, "slow": 4 << 20,
}.get(how, 0)
if how == "udp":
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    for i in range(count):
        n = random.randrange(1, 1400)
        kind = random.choice([0, 1, 6, 7, 8, 9, 10, 12, 244, 255])
        s.sendto(bytes([kind]) + noise[i % 60000:i % 60000 + n], (host, port))
    print("flooded", flush=True)
    time.sleep(30)
whole = memoryview(START[how] + bytes(BODY))
left = {}
sent = 0
for i in range(count):
    s = socket.socket()
    s.settimeout(2)
    try:
        s.connect((host, port))
    except OSError:
        continue
    s.setblocking(False)
    held.append(s)
    if whole:
        left[s] = 0
until = time.monotonic() + 6
while left and time.monotonic() < until:
    ready = select.select([], list(left)[:900], [], 1)[1]
    if not ready:
        break
    for s in ready:
        try:
            n = s.send(whole[left[s]:left[s] + (1 << 18)])
            sent += n
            left[s] += n
        except BlockingIOError:
            continue
        except OSError:
            left.pop(s)
            continue
        if left[s] == len(whole):
            left.pop(s)
print("flooded:", len(held), "connections,", sent >> 20, "MiB", flush=True)
time.sleep(30)
"""


def flooded(h, how, offset, count, limit=450, **keys):
    a = h.dataset("a")
    group = h.memory(limit << 20)
    ranks = h.cluster(2, cgroup=group)
    open_all(ranks, a, memory="20MB", port=29510, start_timeout="10s", **keys)
    together(ranks, Listing(a), [0])
    host = ranks[0].run("import os; result = os.environ['MASTER_ADDR']")
    before = max(d.rss() for d in h.daemons())
    process = h.on_node(
        1, sys.executable, "-c", FLOOD, how, host, str(29510 + offset), str(count), wait=False
    )
    line = process.stdout.readline()
    if "flooded" not in line:
        raise Verdict("harness failed", line + process.stdout.read())
    after = max((d.rss() for d in h.daemons()), default=0)
    together(ranks, Listing(a), [1, 2])
    return f"{line.strip()}; the largest daemon went from {before >> 20} to {after >> 20} MiB"


@fault(
    "60 connections without the secret to the failure-detection port each send 20 MiB of a "
    "message; 450 MiB of memory",
    item=5,
)
def flood_gossip(h):
    return flooded(h, "gossip", 2, 60)


@fault("60 connections to the failure-detection port send a label and 20 MiB", item=5)
def flood_gossip_label(h):
    return flooded(h, "label", 2, 60)


@fault("1,500 silent connections to the failure-detection port", item=5)
def flood_gossip_idle(h):
    return flooded(h, "idle", 2, 1500)


@fault("30,000 datagrams of noise to the failure-detection port", item=5)
def flood_gossip_udp(h):
    return flooded(h, "udp", 2, 30_000)


@fault("1,500 silent connections to the port of samples", item=5)
def flood_samples_idle(h):
    return flooded(h, "idle", 1, 1500)


@fault("1,000 connections that send half a HELLO to the port of samples", item=5)
def flood_samples_hello(h):
    return flooded(h, "hello", 1, 1000)


@fault("300 connections of noise to the port of samples", item=5)
def flood_samples_noise(h):
    return flooded(h, "noise", 1, 300)


@fault("1,500 silent connections to node 0's control port", item=5)
def flood_control_idle(h):
    return flooded(h, "idle", 0, 1500)


@fault(
    "100 HTTP/2 connections to node 0's control port, each with 60 streams and 1 MB of headers "
    "that do not end",
    item=5,
)
def flood_control_http2(h):
    return flooded(h, "http2", 0, 100)


@fault(
    "60 HTTP/1 requests to node 0's control port, each with 8 MiB of a body that does not end",
    item=5,
)
def flood_control_http1(h):
    return flooded(h, "http1", 0, 60)


@fault("300 TLS hellos that do not end to node 0's control port, with tls=on", item=5)
def flood_control_tls(h):
    return flooded(h, "tls", 0, 300, tls="on")


@fault(
    "500 slow requests to the metrics port, each with a header of 4 MiB that does not end; 300 "
    "MiB of memory",
    item=5,
)
def flood_metrics(h):
    a = h.dataset("a")
    client = h.client(env={"HDMLP_METRICS": "127.0.0.1:9400"}, cgroup=h.memory(300 << 20)).open(
        a, memory="20MB"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", FLOOD, "slow", "127.0.0.1", "9400", "500"],
        stdout=subprocess.PIPE,
        text=True,
    )
    process.stdout.readline()
    client.right(Listing(a), [0, 1])
    h.client().open(a, name="two").right(Listing(a))


@fault("floods of all ports at the same time while the nodes of a job start", item=5)
def flood_at_the_start(h):
    a = h.dataset("a")
    ranks = h.cluster(2, cgroup=h.memory(450 << 20))
    host = ranks[0].run("import os; result = os.environ['MASTER_ADDR']")
    ranks[0].send_open(a, memory="20MB", port=29510, start_timeout="15s")
    time.sleep(1)
    floods = [
        h.on_node(1, sys.executable, "-c", FLOOD, how, host, str(29510 + offset), "100", wait=False)
        for how, offset in (("idle", 0), ("http2", 0), ("hello", 1), ("gossip", 2))
    ]
    time.sleep(1)
    ranks[1].send_open(a, memory="20MB", port=29510, start_timeout="15s")
    all_of(ranks, lambda c: None)
    together(ranks, Listing(a), [0, 1])
    for process in floods:
        process.kill()
