"""HDMLP and other loaders side by side: `make bench`, or run.py [--quick] [--scenario a,c].

Every round runs each contender once, in an order that changes from round to round.
Prints tables with medians and ranges; writes all that was measured as JSON, and a
chart as PNG, to bench/results.
"""

import argparse
import datetime
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from typing import Any, Optional

import analyzed
import clusters
import frameworks
import grid
import hf
import lmdb_values
import lmdbio
import own_items
import page_cache
import pipelines
import ray_search
import recipes
import records
import regressions
import rounds
import share_jobs
import stored
import streams
import worker_threads
from throttled import Unavailable

import scenarios

_HERE = os.path.dirname(os.path.abspath(__file__))

#: Share of the machine's processors that others may use before a run is called busy.
BUSY = 0.05


def find(keys: Optional[str], quick: bool) -> list[scenarios.Scenario]:
    """The scenarios with the given keys, "a,c", or keys that begin with them and "/"; without
    keys all but those that compare this tree with an earlier commit, or settings with each
    other, which take long."""
    usual = (
        scenarios.all_scenarios(quick)
        + pipelines.all_pipelines(quick)
        + clusters.all_clusters(quick)
        + frameworks.all_frameworks(quick)
    )
    if not keys:
        return usual
    known = (
        usual
        + grid.all_cells(quick)
        + share_jobs.all_sharing(quick)
        + streams.all_streams(quick)
        + page_cache.all_page_caches(quick)
        + analyzed.all_analyzed(quick)
        + regressions.all_regressions(quick)
        + own_items.all_own_items(quick)
        + hf.all_hugging_face(quick)
        + records.all_records(quick)
        + stored.all_stored(quick)
        + lmdb_values.all_lmdb(quick)
        + lmdbio.all_lmdbio(quick)
        + recipes.all_recipes(quick)
        + pipelines.all_forms(quick)
        + worker_threads.all_worker_threads(quick)
        + ray_search.all_searches(quick)
    )
    wanted = keys.replace(",", " ").split()

    def chosen(scenario: scenarios.Scenario, words: list[str]) -> bool:
        return any(f"{scenario.key}/".startswith(f"{word}/") for word in words)

    unknown = [word for word in wanted if not any(chosen(scenario, [word]) for scenario in known)]
    if unknown:
        groups = dict.fromkeys(scenario.key.split("/")[0] for scenario in known)
        raise ValueError(f"unknown scenario {unknown[0]!r}; the scenarios are {', '.join(groups)}")
    return [scenario for scenario in known if chosen(scenario, wanted)]


def machine() -> dict[str, Any]:
    """The machine on which the figures were measured."""
    model = "unknown processor"
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        for line in file:
            if line.startswith("model name"):
                model = line.split(":", 1)[1].strip()
                break
    found = {
        "processor": model,
        "processors": os.cpu_count(),
        "kernel": platform.release(),
        "memory": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "python": platform.python_version(),
    }
    for name in ("torch", "torchvision", "numpy"):
        try:
            found[name] = __import__(name).__version__
        except ImportError:
            found[name] = None
    commit = subprocess.run(
        ["git", "-C", _HERE, "describe", "--always", "--dirty"], capture_output=True, text=True
    )
    found["commit"] = commit.stdout.strip() or None
    return found


def measure(
    scenario: scenarios.Scenario, count: int, has_torch: bool, only: Optional[list[str]] = None
) -> dict[str, Any]:
    """All rounds of one scenario, of the contenders alone whose names contain one of `only`."""
    try:
        scenario.prepare()
    except (rounds.RoundFailed, Unavailable) as error:
        print(f"\n({scenario.key}): FAILED: {error}", file=sys.stderr, flush=True)
        return {
            "title": scenario.title,
            "conditions": {},
            "rounds": {},
            "medians": {},
            "conclusions": [],
            "failed": {contender["name"]: str(error) for contender in scenario.contenders},
        }
    print(f"\n({scenario.key}) {scenario.title}", flush=True)
    contenders = [
        c
        for c in scenario.contenders
        if (
            has_torch
            or "python" in c
            or c["contender"] in ("plain", "hdmlp", "bare", "exchange", "framework")
        )
        and (only is None or any(word in c["name"] for word in only))
    ]
    measured: dict[str, list[dict[str, Any]]] = {contender["name"]: [] for contender in contenders}
    failed: dict[str, str] = {}
    medians: dict[str, scenarios.Figures] = {}
    for number in range(count):
        settled = scenario.settled(medians)
        shift = number % len(contenders)
        for contender in contenders[shift:] + contenders[:shift]:
            name = contender["name"]
            if name in failed or name in settled:
                continue
            begin = time.monotonic()
            try:
                result = scenario.measure(contender)
            except (rounds.RoundFailed, Unavailable) as error:
                failed[name] = str(error)
                print(f"  {name}: FAILED: {error}", file=sys.stderr, flush=True)
                continue
            measured[name].append(result)
            for words in result["errors"]:
                print(f"  {name}: {words}", file=sys.stderr)
            print(
                f"  round {number + 1}, {name}: {time.monotonic() - begin:.0f} s, "
                f"other processes used {result['others']:.0%} of the machine",
                flush=True,
            )
        done = {name: results for name, results in measured.items() if results}
        medians = {
            name: middle([result["figures"] for result in results])
            for name, results in done.items()
        }
    print()
    print_table(scenario, done, medians)
    conclusions = scenario.conclusions(medians) + agreement(done)
    for sentence in conclusions:
        print(f"  {sentence}.")
    return {
        "title": scenario.title,
        "conditions": scenario.describe(),
        "rounds": measured,
        "medians": medians,
        "conclusions": conclusions,
        "failed": failed,
    }


def middle(figures: list[dict[str, Any]]) -> dict[str, Any]:
    """The median of every figure; if it is not a number, that of the first round."""
    return {
        key: statistics.median(one[key] for one in figures)
        if isinstance(value, (int, float))
        else value
        for key, value in figures[0].items()
    }


def agreement(done: dict[str, list[dict[str, Any]]]) -> list[str]:
    """Whether HDMLP and torch delivered the same labels and lengths in the same order, in the first
    epoch."""
    orders: dict[str, set] = {}
    for results in done.values():
        for result in results:
            kind = result["contender"]["contender"]
            if kind in ("torch", "hdmlp") and "epochs" in result["ranks"][0]:
                orders.setdefault(kind, set()).add(
                    tuple(rank["epochs"][0]["order"] for rank in result["ranks"])
                )
    if len(orders) < 2:
        return []
    same = orders["torch"] == orders["hdmlp"] and len(orders["torch"]) == 1
    return [
        f"HDMLP and DataLoader delivered {'the same' if same else 'DIFFERENT'} labels and "
        f"lengths in the same order"
    ]


def print_table(
    scenario: scenarios.Scenario,
    done: dict[str, list[dict[str, Any]]],
    medians: dict[str, dict[str, Any]],
) -> None:
    rows = [["", *(heading for _, heading, _ in scenario.columns)]]
    for name, results in done.items():
        rows.append([name, *(form.format(medians[name][key]) for key, _, form in scenario.columns)])
        if len(results) > 1:
            ranges = [""]
            for key, _, form in scenario.columns:
                values = [result["figures"][key] for result in results]
                number = form.split("}")[0] + "}"
                ranges.append(
                    f"{number.format(min(values))}..{number.format(max(values))}"
                    if isinstance(values[0], (int, float))
                    else ""
                )
            rows.append(ranges)
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        print(
            "  "
            + "  ".join(
                cell.ljust(width) if i == 0 else cell.rjust(width)
                for i, (cell, width) in enumerate(zip(row, widths))
            )
        )
    print()


def busy(report: dict[str, Any]) -> list[str]:
    """The rounds that other processes disturbed."""
    said = []
    for key, scenario in report["scenarios"].items():
        for name, results in scenario["rounds"].items():
            for number, result in enumerate(results, 1):
                if max(result["others"], result["stolen"]) > BUSY:
                    said.append(
                        f"({key}) round {number} of {name}: other processes used "
                        f"{result['others']:.0%} "
                        f"of the machine, "
                        f"its host took {result['stolen']:.0%}"
                    )
    return said


def summary(report: dict[str, Any]) -> dict[str, Any]:
    """A report without the measurements that its figures were computed from."""
    scenarios_ = {
        key: {
            **scenario,
            "rounds": {
                name: [
                    {"figures": result["figures"], "others": result["others"]} for result in results
                ]
                for name, results in scenario["rounds"].items()
            },
        }
        for key, scenario in report["scenarios"].items()
    }
    return {**report, "scenarios": scenarios_}


def kept(report: dict[str, Any], path: str) -> dict[str, Any]:
    """A report, with the other scenarios of an earlier report in a file."""
    try:
        with open(path, encoding="utf-8") as file:
            earlier = json.load(file)
    except FileNotFoundError:
        return report
    again = report["scenarios"].keys()
    scenarios_ = {
        key: {"at": earlier["at"], "commit": earlier["machine"]["commit"], **scenario}
        for key, scenario in earlier["scenarios"].items()
    }
    return {
        **report,
        "scenarios": dict(sorted({**scenarios_, **report["scenarios"]}.items())),
        "busy": [line for line in earlier["busy"] if line[1:].split(")")[0] not in again]
        + report["busy"],
    }


def write(report: dict[str, Any], base: str) -> None:
    """Writes a report as JSON, and its chart where matplotlib is there."""
    os.makedirs(os.path.dirname(base), exist_ok=True)
    with open(base + ".json", "w", encoding="utf-8") as file:
        json.dump(report, file, indent=1)
    print(f"\nall figures: {base}.json")
    try:
        import chart
    except ImportError as error:
        print(f"no chart: {error}")
        return
    if chart.draw(report, base + ".png"):
        print(f"chart: {base}.png")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--quick", action="store_true", help="small datasets, one round: a smoke test"
    )
    parser.add_argument(
        "--scenario",
        help="keys, as a,c or frameworks; without, all but grid, share, streams, pagecache, "
        "analyze, items, hf, records, objects, lmdb, lmdbio, recipes, threads, search and before",
    )
    parser.add_argument(
        "--only", help="contenders whose names contain one of these words, as cooperative,staging"
    )
    parser.add_argument("--rounds", type=int, help="rounds of each scenario, 3 by default")
    parser.add_argument(
        "--save",
        action="store_true",
        help="write the figures and the chart of docs/PERFORMANCE.md, docs/FRAMEWORKS.md, and the "
        "figures of docs/LMDBIO.md as well; of scenarios that were not run, those of earlier "
        "times stay",
    )
    args = parser.parse_args()
    try:
        chosen = find(args.scenario, args.quick)
    except ValueError as error:
        parser.error(str(error))
    count = args.rounds or (1 if args.quick else 3)
    report: dict[str, Any] = {
        "machine": machine(),
        "quick": args.quick,
        "command": " ".join(sys.argv),
        "at": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "scenarios": {},
    }
    has_torch = bool(report["machine"]["torch"] and report["machine"]["torchvision"])
    if not has_torch:
        print("torch or torchvision is missing: HDMLP is compared only with plain reading")
    print(", ".join(f"{key} {value}" for key, value in report["machine"].items()))
    for scenario in chosen:
        report["scenarios"][scenario.key] = {
            "at": report["at"],
            "commit": report["machine"]["commit"],
            **measure(scenario, count, has_torch, args.only.split(",") if args.only else None),
        }
    report["busy"] = busy(report)
    if report["busy"]:
        print("\nTHE MACHINE WAS BUSY; these rounds are unreliable:")
        print("\n".join(f"  {line}" for line in report["busy"]))
    base = os.path.join(_HERE, "results", datetime.datetime.now().strftime("%Y%m%d-%H%M%S"))
    write(report, base)
    trained = report["scenarios"].get(lmdbio.Training.key, {})
    if trained.get("medians"):
        for name in lmdbio.draw(trained, base):
            print(f"LMDBIO's figures: {name}")
    if args.save:
        docs = os.path.join(os.path.dirname(_HERE), "docs")
        base = os.path.join(docs, "performance")
        write(kept(summary(report), base + ".json"), base)
        if trained.get("medians"):
            lmdbio.save(trained, report["machine"], docs)
        if report["scenarios"].get(frameworks.Frameworks.key, {}).get("conditions"):
            with open(os.path.join(docs, "FRAMEWORKS.md"), "w", encoding="utf-8") as file:
                file.write(frameworks.page(report))
    if any(scenario["failed"] for scenario in report["scenarios"].values()):
        sys.exit(1)


if __name__ == "__main__":
    main()
