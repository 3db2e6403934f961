"""Runs `go test` with these arguments, and shows its progress.

It prints a line for each package as it ends, the output of those that failed, what runs after half
a minute without a line, and at the end the tests that took longest.

Usage: GO=go scripts/gotest.py ARGUMENT...
"""

import json
import os
import queue
import subprocess
import sys
import threading
import time

#: After how long without a line it says what runs, in seconds.
QUIET = 30


class Progress:
    """What is known of the packages that run, from the events of `go test -json`."""

    def __init__(self, say):
        self._say = say
        self._begun = {}  # by package: when its tests began
        self._output = {}  # by package: (test, text) of what is not known to have passed
        self._slow = []  # (seconds, package and test)

    def event(self, event):
        """Takes in one event: says what is to be seen of it."""
        action, test = event["Action"], event.get("Test", "")
        if action == "build-output":
            self._say(event["Output"])
            return
        package = event.get("Package", "")
        if action == "start":
            self._begun[package] = time.monotonic()
        elif action == "output":
            self._output.setdefault(package, []).append((test, event["Output"]))
        elif action in ("pass", "fail", "skip"):
            if test and "/" not in test:
                self._slow.append((event.get("Elapsed", 0), f"{package} {test}"))
            self._ended(package, test, failed=action == "fail")

    def _ended(self, package, test, failed):
        output = self._output.get(package, [])
        if test:
            if not failed:
                self._output[package] = [
                    line
                    for line in output
                    if line[0] != test and not line[0].startswith(test + "/")
                ]
            return
        self._begun.pop(package, None)
        self._output.pop(package, None)
        for _, text in output:
            if failed or text.startswith(("ok ", "?", "\t")):
                self._say(text)

    def running(self):
        """What runs, and for how long."""
        now = time.monotonic()
        return ", ".join(
            f"{os.path.basename(package)} ({now - begun:.0f} s)"
            for package, begun in self._begun.items()
        )

    def slowest(self, count):
        """The tests that took longest, as lines."""
        for seconds, name in sorted(self._slow, reverse=True)[:count]:
            yield f"  {seconds:6.1f} s  {name}\n"


def main(arguments):
    """Runs go test. Returns its exit status."""

    def say(text):
        sys.stdout.write(text)
        sys.stdout.flush()

    go = subprocess.Popen(
        [os.environ.get("GO") or "go", "test", "-json", *arguments],
        stdout=subprocess.PIPE,
        text=True,
        errors="replace",
    )
    lines = queue.Queue()

    def read():
        for line in go.stdout:
            lines.put(line)
        lines.put(None)

    threading.Thread(target=read, daemon=True).start()
    progress = Progress(say)
    while True:
        try:
            line = lines.get(timeout=QUIET)
        except queue.Empty:
            say(f"...    {progress.running() or 'compiling'}\n")
            continue
        if line is None:
            break
        try:
            event = json.loads(line)
        except ValueError:
            say(line)
            continue
        progress.event(event)
    status = go.wait()
    say("slowest tests:\n")
    for text in progress.slowest(10):
        say(text)
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
