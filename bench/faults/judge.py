"""Runs a fault in namespaces of its own, and determines its outcome."""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from harness import HERE, Harness, Product
from machine import (
    CLONE_NEWNET,
    CLONE_NEWNS,
    CLONE_NEWPID,
    MS_PRIVATE,
    MS_REC,
    Cgroup,
    libc,
    loopback_up,
    mount,
)
from verdicts import BROKEN, CLEAR, CRASH, HANG, KILLED, RAW, RIGHT, Fault, Told, Verdict, lacking


def judge(h: Harness) -> tuple[str, str]:
    """Runs a fault, and returns its outcome and a message."""
    try:
        try:
            note = h.fault.run(h)
            if not h.dies and (kills := sum(group.kills() for group in h.groups)):
                return (
                    KILLED,
                    f"the kernel killed {kills} process for want of memory, unnoticed by the "
                    f"ranks; {note or ''}",
                )
            outcome, message = RIGHT, note or ""
        finally:
            h.untouched()
    except Told as e:
        shown = " ".join(str(e).split())
        if e.name == "DaemonDiedError" and any(group.kills() for group in h.groups) and not h.dies:
            return KILLED, shown
        if e.name == "DaemonDiedError" and not h.dies:
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
    except (
        Exception
    ) as e:  # a defect of the harness, or a system that cannot do what the fault needs
        import traceback

        where = traceback.extract_tb(sys.exc_info()[2])
        line = next((f for f in reversed(where) if str(HERE) in f.filename), where[-1])
        return BROKEN, f"{type(e).__name__}: {e} ({Path(line.filename).name}:{line.lineno})"
    return outcome, message


def carry_out(the: Fault, product: Product) -> dict[str, Any]:
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
                pid, _status = os.wait()
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
            os.write(
                writing,
                (
                    "result "
                    + json.dumps(
                        {
                            "outcome": outcome,
                            "seconds": round(seconds, 2),
                            "message": message[:1500],
                        }
                    )
                    + "\n"
                ).encode(),
            )
        except BaseException as e:
            os.write(
                writing,
                (
                    "result "
                    + json.dumps(
                        {"outcome": BROKEN, "seconds": 0, "message": f"{type(e).__name__}: {e}"}
                    )
                    + "\n"
                ).encode(),
            )
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
        result = {
            "outcome": HANG,
            "seconds": round(time.monotonic() - started, 2),
            "message": f"not finished within {the.limit:.0f} s"
            + (f", at: {stages[-1].decode()}" if stages else ""),
        }
    Cgroup.sweep(token)
    subprocess.run(
        ["chattr", "-R", "-i", "-a", str(folder)], stderr=subprocess.DEVNULL, check=False
    )
    shutil.rmtree(folder, ignore_errors=True)
    return {"name": the.name, "about": the.about, "item": the.item, **result}
