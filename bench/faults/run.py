"""Injects faults into HDMLP, as of clusters and hostile users, and prints the outcome of each:
run.py [--only WORD] [--list] [--json FILE].

As root, on Linux: each fault has process, mount and network namespaces of its own, which end with
it.

EXIT STATUS
  0  every fault ended in the right stream or in a clear error
  1  a fault did not
  2  the command line is wrong, or this machine cannot run the harness
"""

import argparse
import collections
import importlib
import json
import os
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
TREE = HERE.parent.parent
sys.path.insert(0, str(HERE))

from harness import Product
from judge import carry_out
from verdicts import BROKEN, CLEAR, FAULTS, OUTCOMES, RIGHT, SKIPPED

THEMES = [
    "identity",
    "rewritten",
    "hostile_index",
    "hostile_files",
    "hostile_changes",
    "hostile_pictures",
    "cache",
    "cache_damage",
    "source",
    "cluster",
    "floods",
    "processes",
    "sockets",
    "limits",
    "states",
    "api",
]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--only",
        action="append",
        metavar="WORD",
        help="faults whose name contains it; may be given several times",
    )
    parser.add_argument("--list", action="store_true", help="list the faults, and run none")
    parser.add_argument(
        "--json",
        type=Path,
        metavar="FILE",
        help="also write the results to this file, after each fault",
    )
    parser.add_argument(
        "--product",
        type=Path,
        default=TREE,
        metavar="DIR",
        help="the tree that HDMLP is taken from (default: this one)",
    )
    parser.add_argument(
        "--package",
        type=Path,
        metavar="DIR",
        help="directory of the package hdmlp (default: PRODUCT/python)",
    )
    parser.add_argument(
        "--binary", type=Path, metavar="FILE", help="the binary (default: PACKAGE/hdmlp/bin/hdmlp)"
    )
    parser.add_argument(
        "--throttle",
        type=Path,
        default=TREE / "build/bin/throttle",
        metavar="FILE",
        help="what `make throttle` built",
    )
    options = parser.parse_args()
    for theme in THEMES:
        importlib.import_module(theme)
    chosen = [f for f in FAULTS if not options.only or any(word in f.name for word in options.only)]
    if options.list:
        for f in chosen:
            print(f"{f.name:42} {f.about}")
        print(
            f"{len(chosen)} faults, {sum(f.item is not None for f in chosen)} of them from the "
            f"harness's first list"
        )
        return 0
    package = (options.package or options.product / "python").resolve()
    product = Product(
        package,
        (options.binary or package / "hdmlp/bin/hdmlp").resolve(),
        sys.executable,
        options.throttle.resolve(),
    )
    if os.geteuid() != 0 or not product.binary.exists() or not chosen:
        print(
            "run.py: "
            + (
                "needs root, for namespaces and mounts"
                if os.geteuid()
                else "no fault has such a name: see --list"
                if not chosen
                else f"{product.binary} is missing: run `make build`"
            ),
            file=sys.stderr,
        )
        return 2
    importlib.import_module("torch.utils.data")  # once, before the faults' processes are forked

    results = []
    for f in chosen:
        result = carry_out(f, product)
        results.append(result)
        print(
            f"{result['name']:42} {result['outcome']:20} {result['seconds']:6.1f} s  "
            f"{result['message'][:200]}",
            flush=True,
        )
        if options.json:
            options.json.write_text(json.dumps({"faults": results}, indent=1) + "\n")
    counts = collections.Counter(r["outcome"] for r in results)
    print()
    for outcome in OUTCOMES:
        if counts[outcome]:
            print(f"{counts[outcome]:4} {outcome}")
    print(f"{len(results):4} faults tried")
    return (
        0
        if all(r["outcome"] in (RIGHT, CLEAR, SKIPPED) for r in results) and not counts[BROKEN]
        else 1
    )


if __name__ == "__main__":
    sys.exit(main())
