"""No policy of the commit before may be faster: sources, links and storage classes of many speeds.

A cell is a scenario of its own, such as grid/2-nodes/100mbit/200: two nodes, links of
100 Mbit/s, a source of 200 MB/s. The loops do not compute, so that an epoch takes as
long as its reads. Datasets are as large as a later epoch of the wanted length needs, if
the best policy uses all places at once; they consist of links to 700 files, so that
many large ones take little room.
"""

import contextlib
import os
import statistics
import tempfile
from typing import Any

import before
import make_dataset
import namespaces
import rounds
from throttled import Throttled

from scenarios import DATA, Figures, Scenario

MEGA = 1e6
SIZE = 110_000
#: Bytes per second at which a loop without compute takes samples from the source, if that is this
#: machine's memory, roughly.
FASTEST = 3000 * MEGA
#: The same of all nodes together from their caches, without a copy.
IN_PLACE = 6000 * MEGA
#: What a link carries, by the name that `hdmlp dev cluster` has for it.
LINKS = {"20mbit": 2.4 * MEGA, "100mbit": 12 * MEGA, "1gbit": 120 * MEGA, "unlimited": FASTEST}
SOURCES = {"40": 40 * MEGA, "200": 200 * MEGA, "unthrottled": 0.0}

#: A policy of the commit before that takes so many times as long as the best is not run again.
FAR = 1.5
#: Seconds that a round may take to start, at most.
MARGIN = 10.0
#: And with all of its epochs, if nothing is known of the cell.
LONGEST = 300.0

OURS = {"name": "HDMLP, cooperative", "contender": "bare", "policy": "cooperative"}
#: The one that needs no link comes first: with it, others that take far longer are noticed.
POLICIES = ("staging", "minio", "frequency", "partitioned", "cooperative")


def earlier(policy: str, **options: Any) -> dict[str, Any]:
    """A policy of the commit before."""
    return {
        "name": f"before, {policy}",
        "contender": "bare",
        "policy": policy,
        "before": before.COMMIT,
        **options,
    }


def linked(samples: int) -> str:
    """A dataset of so many files of SIZE bytes: links to those of a small one."""
    base = os.path.join(DATA, f"blobs-700x{SIZE}")
    make_dataset.make("blobs", base, 700, SIZE)
    files = sorted(
        os.path.join(folder, name) for folder, _, names in os.walk(base) for name in names
    )
    path = os.path.join(DATA, f"links-{samples}x{SIZE}")
    if not os.path.isdir(path):
        os.makedirs(DATA, exist_ok=True)
        made = tempfile.mkdtemp(dir=DATA)
        for label in range(make_dataset.CLASSES):
            os.mkdir(os.path.join(made, f"class{label}"))
        for i in range(samples):
            name = os.path.join(made, f"class{i % make_dataset.CLASSES}", f"{i:07}.jpg")
            os.link(files[i % len(files)], name)
        os.chmod(made, 0o755)
        os.rename(made, path)
    return path


class Cell(Scenario):
    """A source, and either links between nodes or a file class."""

    columns = [
        ("later", "later epoch", "{:.3f} s"),
        ("worst", "slowest later", "{:.3f} s"),
        ("first", "first epoch", "{:.3f} s"),
        ("run", "all epochs", "{:.3f} s"),
        ("share", "bytes/dataset", "{:.3f}"),
        ("bound_ratio", "bytes/bound", "{:.3f}"),
        ("direct", "direct/dataset", "{:.3f}"),
        ("streams", "streams", "{:.0f}"),
    ]
    epochs = 5
    batch_size = 64

    def __init__(self, key: str, source: str, seconds: float, **kind: Any) -> None:
        self.key, self._source, self._seconds = key, source, seconds
        self._nodes: int = kind.get("nodes", 1)
        self._link: str = kind.get("link", "unlimited")
        self._disk: float = kind.get("disk", 0.0)  # bytes per second of the file class; 0: none
        # bytes per second that the loop of a node takes; 0: as many as it gets
        self._demand: float = kind.get("demand", 0.0)
        # seconds for a round of a policy before: twice what one that is FAR from the best takes
        self._limit = LONGEST
        self.contenders = [OURS] if self._demand else [OURS, *map(earlier, POLICIES)]
        rate = SOURCES[source] or FASTEST
        if self._disk:
            self._memory = 0.13
            wanted = (rate + self._disk) / (1 - self._memory)
        else:
            self._memory = 1.02 / self._nodes
            remote = 1 - 1 / self._nodes
            wanted = (rate + self._nodes * LINKS[self._link]) / remote
        # The first epoch, in which all comes from the source, need not take longer than forty later
        # ones should.
        fastest = FASTEST if self._nodes == 1 else IN_PLACE
        size = seconds * min(wanted, fastest, 40 * rate, self._nodes * self._demand or fastest)
        if self._disk:  # much more than the copies that may wait to be written to the class
            size = max(size, seconds * 80 * MEGA)
        self._samples = max(int(size / SIZE), 64 * 4 * self._nodes)

    @property
    def _bytes(self) -> int:
        return self._samples * SIZE

    def prepare(self) -> None:
        self._path = linked(self._samples)
        before.tree()
        self.title = (
            f"{self._samples:,} files of 110 KB, {self._bytes / MEGA:.0f} MB; source: "
            + (f"{self._source} MB/s" if SOURCES[self._source] else "unthrottled")
            + (
                f"; a file class of {self._disk / MEGA:.0f} MB/s, memory for 13 %"
                if self._disk
                else f"; {self._nodes} nodes, links: {self._link}, caches for all of it together"
            )
            + (f"; a loop of {self._demand / MEGA:.0f} MB/s" if self._demand else "")
        )

    def describe(self) -> Figures:
        return {
            "samples": self._samples,
            "bytes": self._bytes,
            "source": SOURCES[self._source],
            "nodes": self._nodes,
            "link": self._link,
            "disk": self._disk,
            "memory": self._memory,
            "demand": self._demand,
        }

    def _mount(self, stack: contextlib.ExitStack) -> Any:
        if not SOURCES[self._source]:
            return None
        return stack.enter_context(Throttled(self._path, int(SOURCES[self._source])))

    def measure(self, contender: dict[str, Any]) -> dict[str, Any]:
        memory = int(self._memory * self._bytes)
        spec = {
            "batch_size": self.batch_size,
            "epochs": self.epochs,
            "seed": 42,
            "step": self.batch_size * SIZE / self._demand if self._demand else 0.0,
            "world_size": self._nodes,
            # As in training: a node that is an epoch ahead would leave the others its processors.
            "synchronous": self._nodes > 1,
            "memory": f"{memory}B",
        }
        if "before" in contender:
            spec["limit"] = self._limit
        with contextlib.ExitStack() as stack:
            mount = self._mount(stack)
            nodes = None
            if self._nodes > 1:
                nodes = stack.enter_context(namespaces.Nodes(self._nodes, self._link))
            if self._disk:
                folder = stack.enter_context(tempfile.TemporaryDirectory(dir=DATA))
                disk = stack.enter_context(Throttled(folder, int(self._disk), 0.0, "--writable"))
                spec.update(cache_dir=os.path.join(disk.path, "cache"), disk_reserve="1MB")
            spec["path"] = mount.path if mount else self._path
            result = rounds.run(contender, spec, mount, nodes)
        caches = self._bytes if self._disk else self._nodes * memory
        result["figures"] = figures = self._figures(result, caches)
        if "before" in contender:
            took = figures["first"] + (self.epochs - 1) * FAR * figures["later"]
            self._limit = min(self._limit, MARGIN + 2 * took)
        return result

    def _figures(self, result: dict[str, Any], caches: int) -> Figures:
        ranks = result["ranks"]
        for e in range(self.epochs):
            delivered = sum(rank["epochs"][e]["samples"] for rank in ranks)
            if not self._samples <= delivered < self._samples + self._nodes:  # padded
                raise rounds.RoundFailed(f"epoch {e} had {delivered} samples, not {self._samples}")
        # An epoch ends when the last rank has ended it.
        ends = [max(rank["epochs"][e]["end"] for rank in ranks) for e in range(self.epochs)]
        begin = min(rank["epochs"][0]["begin"] for rank in ranks)
        walls = [end - last for last, end in zip([begin, *ends], ends)]
        reports = [rank["report"] for rank in ranks]
        if result["source"]:
            read = result["source"][-1]["bytes"]
        else:
            read = sum(report["source"]["bytes"] for report in reports)
        epochs = [
            sum(report["epochs"][e].get("direct", {}).get("bytes", 0) for report in reports)
            for e in range(self.epochs)
        ]
        direct, later = sum(epochs), sum(epochs[1:])
        bound = self._bytes + (self.epochs - 1) * max(0, self._bytes - caches)
        return {
            # The mean, because a loader that reads ahead moves time from one epoch to another.
            "later": statistics.mean(walls[1:]),
            "worst": max(walls[1:]),
            "walls": walls,
            "first": walls[0],
            "run": sum(walls),
            "share": read / self._bytes,
            "bound_ratio": read / bound,
            "direct": direct / self._bytes,
            "direct_later": later / self._bytes,
            "streams": statistics.median(report["source_threads"] for report in reports),
        }

    def settled(self, medians: dict[str, Figures]) -> set[str]:
        """The policies before that are far from the best of them."""
        others = _earlier(medians)
        return {name for name in others if others[name] > FAR * min(others.values())}

    def conclusions(self, medians: dict[str, Figures]) -> list[str]:
        ours, others = medians.get(OURS["name"]), _earlier(medians)
        if ours and self._demand:
            return [
                f"{self.key}: bytes/bound {ours['bound_ratio']:.4f} (wanted: at most 1.01); read "
                "from the source in later epochs although a cache has it: "
                f"{ours['direct_later']:.4f} of the dataset"
            ]
        if not ours or not others:
            return []
        best = min(others, key=others.__getitem__)
        runs = {name: medians[name]["run"] for name in others}
        least = min(runs, key=runs.__getitem__)
        equal = self._disk and self._disk == SOURCES[self._source]
        return [
            f"{self.key}: a later epoch takes {ours['later'] / others[best]:.3f} times as long as "
            f"with the best of the commit before, {best.split(', ')[1]} (wanted: at most "
            f"{0.6 if equal else 1.05:g}), the slowest {ours['worst'] / others[best]:.3f} times, "
            f"all epochs {ours['run'] / runs[least]:.3f} times as with {least.split(', ')[1]}; "
            f"bytes/bound {ours['bound_ratio']:.3f}"
        ]


def _earlier(medians: dict[str, Figures]) -> dict[str, float]:
    """Seconds of a later epoch, of each policy of the commit before."""
    return {name: medians[name]["later"] for name in medians if name.startswith("before, ")}


def all_cells(quick: bool) -> list[Scenario]:
    """All cells."""
    seconds = 0.5 if quick else 2.0
    return [
        *(
            Cell(f"grid/disk/{disk}/{source}", source, seconds, disk=disk * MEGA)
            for disk in (20, 40, 80)
            for source in SOURCES
        ),
        *(
            Cell(f"grid/{nodes}-nodes/{link}/{source}", source, seconds, nodes=nodes, link=link)
            for nodes in (2, 4)
            for link in LINKS
            for source in SOURCES
        ),
        # Where links and classes carry the demand, the source is read once. At least 0.6 GB: the
        # first batch, which comes from wherever it is soonest, is 7 MB on each node.
        *(
            Cell(
                f"grid/carried/{nodes}-nodes/{link}/{source}",
                source,
                (18 if link == "100mbit" else 3) * seconds,
                nodes=nodes,
                link=link,
                demand=demand * MEGA,
            )
            for nodes, link, demand in ((2, "100mbit", 15), (2, "1gbit", 50), (4, "1gbit", 30))
            for source in SOURCES
        ),
        *(
            Cell(
                f"grid/carried/disk/80/{source}",
                source,
                3 * seconds,
                disk=80 * MEGA,
                demand=50 * MEGA,
            )
            for source in SOURCES
        ),
    ]
