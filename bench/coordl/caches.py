"""The figures of caches: single servers and several (CoorDL 3.3.3, 4.1, 5.1, 5.2, 5.5, D)."""

from typing import Any

import charts
from paper import Item, Number, Paper, Row
from simulator import RAM, SEQUENTIAL, SHUFFLED, UNREAD, Run, Simulator
from stalls import share

FIRST = "how much stays depends on what was read in new orders before, which is not stated"
SIZE = "section 3.3.1 has 146 GiB of images, table 1, as here, 146 GB, 7 % less"
TFRECORDS = "TensorFlow shuffles the files, and reads several at a time: between our two"


def figure_8(sim: Simulator, paper: Paper) -> Item:
    counts = {
        policy: [round(gb * 1e3) for gb in sim.run("figure-8", policy).epochs_gb[1:-1]]
        for policy in ("pagecache_lru", "minio")
    }
    low, high = paper.number("figure 8", "page_cache").each()
    lru = counts["pagecache_lru"]
    return Item(
        "figure 8",
        "Misses of four items with a cache for two",
        "48 epochs, in each of which four items are read in a new order",
        [
            Row("MinIO", paper.number("figure 8", "minio"), max(counts["minio"])),
            Row("LRU, the fewest in an epoch", low, min(lru)),
            Row("LRU, the most in an epoch", high, max(lru)),
        ],
        lambda axes: charts.bars(
            axes,
            [str(misses) for misses in range(5)],
            {
                "LRU": [lru.count(misses) for misses in range(5)],
                "MinIO": [counts["minio"].count(misses) for misses in range(5)],
            },
            "epochs with so many misses",
            ".0f",
        ),
    )


def _loaders(sim: Simulator, scenario: str, **values: Any) -> dict[str, Run]:
    names = {
        "DALI-seq": SEQUENTIAL,
        "DALI-shuffle": SHUFFLED,
        "CoorDL": "minio",
    }
    return {name: sim.run(scenario, policy, **values) for name, policy in names.items()}


def figure_9a(sim: Simulator, paper: Paper) -> Item:
    found = {
        model: _loaders(sim, "openimages", **paper.rates(model, "openimages"))
        for model in paper.models
    }
    found["M5"] = _loaders(sim, "fma")
    times = {
        name: [runs["DALI-seq"].seconds / runs[name].seconds for runs in found.values()]
        for name in ("DALI-seq", "DALI-shuffle", "CoorDL")
    }
    rows = [
        Row(
            "CoorDL by DALI-seq, the most of all models",
            paper.number("figure 9a", "most"),
            max(times["CoorDL"]),
            "x",
            FIRST,
        )
    ]
    disk = _loaders(sim, "openimages-hdd")
    for name, key in (("DALI-seq", "hdd_sequential"), ("DALI-shuffle", "hdd_shuffle")):
        rows.append(
            Row(
                f"HDD-1080Ti, ResNet50, CoorDL by {name}",
                paper.number("figure 9a", key),
                disk[name].seconds / disk["CoorDL"].seconds,
                "x",
                FIRST if name == "DALI-seq" else "",
            )
        )
    for model in ("ShuffleNet", "AlexNet", "ResNet18"):
        runs = _loaders(sim, "imagenet-22k", **paper.rates(model, "imagenet-22k"))
        rows.append(
            Row(
                f"ImageNet-22k, {model}, CoorDL by DALI-shuffle",
                paper.number("figure 9a", model + "_22k"),
                runs["DALI-shuffle"].seconds / runs["CoorDL"].seconds,
                "x",
                "the disk allows 1.32 times: 86 % of misses by 65 %",
            )
        )
    return Item(
        "figure 9a",
        "One server with SSD: MinIO",
        "eight GPUs, OpenImages (M5: FMA)",
        rows,
        lambda axes: charts.bars(
            axes, [share(model) for model in found], times, "times as fast as DALI-seq", ".1f"
        ),
        wide=True,
    )


def _partitioned(sim: Simulator, scenario: str, nodes: int = 2, **values: Any) -> tuple[Run, Run]:
    return (
        sim.run(scenario, SHUFFLED, nodes=nodes, **values),
        sim.run(scenario, "partitioned", nodes=nodes, **values),
    )


def figure_9b(sim: Simulator, paper: Paper) -> Item:
    found = {
        "AlexNet": _partitioned(sim, "openimages-hdd", compute=2000),
        "ResNet50": _partitioned(sim, "openimages-hdd"),
    }
    times = {model: dali.seconds / ours.seconds for model, (dali, ours) in found.items()}
    return Item(
        "figure 9b",
        "Two servers with hard disks: partitioned caching",
        "16 GPUs, OpenImages; other models' rates on a 1080Ti are not stated",
        [
            Row(
                model,
                paper.number("figure 9b", model),
                value,
                "x",
                "our page cache misses 4 % less (figure 18)",
            )
            for model, value in times.items()
        ],
        lambda axes: charts.bars(
            axes,
            list(times),
            {"CoorDL": list(times.values())},
            "times as fast as DALI",
            ".1f",
            {model: paper.value("figure 9b", model) for model in times},
        ),
    )


def figure_9c(sim: Simulator, paper: Paper) -> Item:
    found = {
        model + " 22k": _partitioned(sim, "imagenet-22k", **paper.rates(model, "imagenet-22k"))
        for model in paper.models
    }
    for model in paper.models:
        found[model] = _partitioned(sim, "openimages", **paper.rates(model, "openimages"))
    found["M5"] = _partitioned(sim, "fma")
    times = {name: dali.seconds / ours.seconds for name, (dali, ours) in found.items()}
    rows = [
        Row(
            f"ImageNet-22k, {model}",
            paper.number("figure 9c", model + "_22k"),
            times[model + " 22k"],
            "x",
            "DALI misses 79 % here, and the disk limits it; otherwise rates that are extrapolated "
            "from table 7 do",
        )
        for model in ("ShuffleNet", "AlexNet", "ResNet18")
    ]
    rows.append(Row("FMA, M5", paper.number("figure 9c", "M5"), times["M5"], "x"))
    return Item(
        "figure 9c",
        "Two servers with SSD: partitioned caching",
        "16 GPUs; OpenImages, ImageNet-22k (M5: FMA)",
        rows,
        lambda axes: charts.bars(
            axes,
            [*map(share, paper.models), "M5"],
            {
                "ImageNet-22k": [times[model + " 22k"] for model in paper.models] + [None],
                "OpenImages (M5: FMA)": [times[model] for model in paper.models] + [times["M5"]],
            },
            "times as fast as DALI",
            ".1f",
        ),
        wide=True,
    )


def figure_11(sim: Simulator, paper: Paper) -> Item:
    rates = paper.rates("ResNet18", "openimages")
    courses = {}
    for name, policy in (("DALI", SHUFFLED), ("CoorDL", "minio")):
        run = sim.run("openimages", policy, batches=True, **rates)
        steps = len(run.batches) // 8
        courses[name] = _course(run.batches[4 * steps : 6 * steps])
    late = [rate for at, rate in courses["DALI"] if at > 0.3 * courses["DALI"][-1][0] / 2]

    def draw(axes: Any) -> None:
        for name, colour in (("DALI", charts.OTHERS), ("CoorDL", charts.OURS)):
            axes.plot(*zip(*courses[name]), color=colour, linewidth=1.4, label=name)
        axes.set_xlabel("s, two epochs")
        axes.set_ylabel("MB/s from the disk")
        axes.set_ylim(0, 700)
        charts.finish(axes)

    return Item(
        "figure 11",
        "What is read from the disk in two epochs of ResNet18",
        "eight GPUs, OpenImages, SSD",
        [Row("the most that DALI reads, MB/s", paper.number("figure 11", "disk"), max(late))],
        draw,
        wide=True,
    )


def _course(batches: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """When, and MB/s, of 16 batches each."""
    at, points = 0.0, []
    for k in range(0, len(batches) - 15, 16):
        seconds = sum(batch[0] for batch in batches[k : k + 16])
        points.append((at + seconds / 2, sum(batch[1] for batch in batches[k : k + 16]) / seconds))
        at += seconds
    return points


def figure_18(sim: Simulator, paper: Paper) -> Item:
    servers = [1, 2, 3, 4]
    runs = [_partitioned(sim, "openimages-hdd", nodes) for nodes in servers]
    image = paper.image("openimages") / 1e3
    speeds = {
        "DALI": [dali.dataset_gb / dali.seconds / image for dali, _ in runs],
        "CoorDL": [ours.dataset_gb / ours.seconds / image for _, ours in runs],
    }
    numbers = paper.number("figure 18", "dali").each()
    rows = [
        Row(f"GB per server, DALI, {n}", number, dali.gb / n)
        for n, number, (dali, _) in zip(servers, numbers, runs)
    ]
    rows += [
        Row(
            f"GB per server, CoorDL, {n}",
            Number(0, paper.number("figure 18", "coordl").at),
            ours.gb / n,
            "",
            "images of the batch that the first epoch drops come when memory is full of copies",
        )
        for n, (_, ours) in zip(servers[1:], runs[1:])
    ]
    return Item(
        "figure 18",
        "One to four servers with hard disks",
        "ResNet50, OpenImages, of which each server's memory holds 65 %",
        rows,
        lambda axes: charts.lines(axes, servers, speeds, "servers", "images/s"),
    )


def table_3(sim: Simulator, paper: Paper) -> Item:
    rows = []
    misses = paper.number("table 3", "misses").each()
    amounts = paper.number("table 3", "gb").each()
    for x, miss, gb in zip(paper.value("table 3", "cached"), misses, amounts):
        memory = {RAM: round(146_000 * x)}
        for policy, order in (
            (UNREAD, "one order"),
            (SHUFFLED, "new orders"),
        ):
            rows.append(
                Row(
                    f"misses, {100 * x:.0f} % cached, files in {order}",
                    miss,
                    sim.run("tfrecord", policy, values=memory).misses,
                    "%",
                    TFRECORDS,
                )
            )
        search = sim.run("tfrecord", SHUFFLED, gpus=1, jobs=8, values=memory)
        rows.append(
            Row(
                f"GB read by eight jobs, {100 * x:.0f} % cached",
                gb,
                search.gb,
                "",
                "files in new orders, whole; jobs of the paper miss nearly all, as in one order",
            )
        )
    return Item(
        "table 3",
        "TFRecords of ImageNet-1k in the page cache",
        "973 files of 100 to 200 MB; ResNet18",
        rows,
    )


def table_6(sim: Simulator, paper: Paper) -> Item:
    runs = _loaders(sim, "openimages", **paper.rates("ShuffleNet", "openimages"))
    rows = []
    for name, key, why in (
        ("DALI-seq", "sequential", FIRST),
        ("DALI-shuffle", "shuffle", ""),
        ("CoorDL", "minio", ""),
    ):
        rows.append(
            Row(f"{name}, misses", paper.number("table 6", key), runs[name].misses, "%", why)
        )
        rows.append(
            Row(f"{name}, GB", paper.number("table 6", key + "_gb"), runs[name].gb, "", why)
        )
    return Item("table 6", "Misses of OpenImages, 65 % cached", "ShuffleNet, eight GPUs", rows)


def scale(sim: Simulator, paper: Paper) -> Item:
    """One case with every image by itself, and several as one."""
    full = {"samples": 2_150_000, "mu": "300 KB", "sigma": "100 KB", "global_batch_size": 4096}
    rows = []
    for name, policy, how in (
        ("pagecache", SHUFFLED, {}),
        ("minio", "minio", {}),
        ("pagecache, eight jobs", SHUFFLED, {"gpus": 1, "jobs": 8, "epochs": 4}),
    ):
        one = sim.run("openimages", policy, values=full, **how)
        sixteen = sim.run("openimages", policy, **how)
        for what, a, b in (
            ("s per epoch", one.seconds, sixteen.seconds),
            ("GB from the disk", one.gb, sixteen.gb),
        ):
            rows.append(Row(f"{name}, {what}", Number(a, "in full"), b))
    return Item(
        "scale",
        "One case in full",
        "OpenImages, ResNet18, one server: all 2.15 million images, in the place of the paper's "
        "numbers, and 16 as one",
        rows,
    )
