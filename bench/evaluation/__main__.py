"""Repeats the papers' measurements: python -m evaluation [--quick] [--only ROW,ROW] [--out DIR].

Writes EVALUATION.md and evaluation.json; rows that are not run keep the figures of an earlier file.
As root, on Linux: nodes are network namespaces and control groups.

EXIT STATUS
  0    all rows that were asked for have figures
  1    a row failed; the page names it, and why
  2    the command line is wrong
  130  interrupted; what was measured is written
"""

import argparse
import datetime
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

BENCH = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(BENCH))

import newest
import rounds
import run
from throttled import Unavailable

from evaluation import page
from evaluation.lines import Row
from evaluation.table import ROWS

#: Minutes that all rows together may take.
FULL, QUICK = 60, 10


class TimeUp(rounds.RoundFailed):
    """The time of all rows is over."""


def stop(*_: object) -> None:
    """Ends the row that is running."""
    raise TimeUp("the time of all rows was over before it ended (--minutes)")


def measured(row: Row, quick: bool, left: float) -> dict[str, Any]:
    """Runs a row for at most so many seconds; what failed is in the result."""
    watch, begin, cpu = rounds.Watch(), time.monotonic(), sum(os.times()[:4])
    print(f"{row.key}: {row.title}", flush=True)
    lines, failed = [], None
    try:
        if left <= 0:
            raise TimeUp("the time of all rows was over before it began (--minutes)")
        signal.setitimer(signal.ITIMER_REAL, left)
        try:
            lines = row.measure(**(row.quick if quick else row.full))
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
    except (rounds.RoundFailed, Unavailable, OSError) as error:
        failed = str(error) or type(error).__name__
        print(f"  FAILED: {failed}", file=sys.stderr, flush=True)
    for line in lines:
        print(f"  {line.what}: {page.number(line.ours, line.unit)}", flush=True)
    commit = subprocess.run(
        ["git", "-C", str(BENCH), "rev-parse", "--short", "HEAD"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    return {
        "at": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="minutes"),
        "commit": commit.stdout.strip(),
        "seconds": time.monotonic() - begin,
        "quick": quick,
        "failed": failed,
        "lines": [line._asdict() for line in lines],
        **watch.shares(sum(os.times()[:4]) - cpu),
    }


def write(folder: Path, results: dict[str, dict[str, Any]], machine: dict[str, Any]) -> None:
    """Writes the page and its figures."""
    folder.mkdir(parents=True, exist_ok=True)
    report = {"machine": machine, "rows": results}
    (folder / "evaluation.json").write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    text = page.markdown(ROWS, results, machine)
    (folder / "EVALUATION.md").write_text(text, encoding="utf-8")


def earlier(folder: Path) -> dict[str, dict[str, Any]]:
    """The rows that were written before."""
    try:
        rows: dict[str, dict[str, Any]] = json.loads(
            (folder / "evaluation.json").read_text(encoding="utf-8")
        )["rows"]
    except FileNotFoundError:
        return {}
    return {row.key: rows[row.key] for row in ROWS if row.key in rows}


def chosen(keys: str) -> list[Row]:
    """The rows with these keys, with commas between them; all for "".

    Raises:
        ValueError: no row has one of them.
    """
    known = {row.key: row for row in ROWS}
    wanted = [key.strip() for key in keys.split(",")] if keys else list(known)
    for key in wanted:
        if key not in known:
            raise ValueError(f"no row is called {key!r}; there are {', '.join(known)}")
    return [known[key] for key in wanted]


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="evaluation", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="less of everything")
    parser.add_argument("--only", default="", help="these rows, as hymenoptera,sharing")
    parser.add_argument("--out", type=Path, default=BENCH.parent / "build" / "evaluation",
                        help="the folder of page and figures (default: %(default)s)")  # fmt: skip
    parser.add_argument(
        "--minutes",
        type=float,
        help=f"stop after so many minutes (default: {FULL}, or {QUICK} if quick)",
    )
    parser.add_argument(
        "--page",
        action="store_true",
        help="run nothing, and write the page anew from the figures that are there",
    )
    options = parser.parse_args()
    if options.minutes is not None and not options.minutes > 0:
        parser.error(f"--minutes is {options.minutes:g}; allowed are numbers above 0")
    if options.page:
        try:
            report = json.loads((options.out / "evaluation.json").read_text(encoding="utf-8"))
        except FileNotFoundError as error:
            parser.error(f"--page: there are no figures in {options.out}: {error}")
        write(options.out, report["rows"], report["machine"])
        return 0
    try:
        rows = chosen(options.only)
        versions = newest.versions("torch", "torchvision")
    except ValueError as error:
        parser.error(str(error))
    except Unavailable as error:
        print(f"evaluation: {error}", file=sys.stderr)
        return 1
    machine = {**run.machine(), "versions": versions}
    results = earlier(options.out)
    limit = 60 * (options.minutes or (QUICK if options.quick else FULL))
    signal.signal(signal.SIGALRM, stop)
    began = time.monotonic()
    for row in rows:
        results[row.key] = measured(row, options.quick, limit - (time.monotonic() - began))
        write(options.out, results, machine)
    print(f"{options.out / 'EVALUATION.md'}: {time.monotonic() - began:.0f} s")
    return 1 if page.failed(rows, results) else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
