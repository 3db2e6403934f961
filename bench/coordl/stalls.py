"""The figures of what a job waits for (CoorDL, section 3 and appendices B, C)."""

from typing import Any

import charts
from paper import CORES, Item, Paper, Row
from simulator import GPUS, RAM, SHUFFLED, Run, Simulator

THREADS = "storage_class.staging.threads"
#: MB of memory that hold ImageNet-1k.
ALL = 200_000
#: The memory for 35 % of it.
THIRD = 51_100
#: MB/s that limits nothing.
ENOUGH = 1e6


def share(name: str) -> str:
    """A model's name as an axis has it."""
    return name.replace("ShuffleNet", "Shuffle").replace("SqueezeNet", "Squeeze")


def figure_1(sim: Simulator, paper: Paper) -> Item:
    def rate(**values: Any) -> float:
        return sim.run("imagenet-1k", "minio", values={RAM: THIRD}, **values).mbps

    gpus = paper.value("figure 1", "gpus")
    rows = [
        Row(
            "fetched, 35 % cached, MB/s",
            paper.number("figure 1", "fetch"),
            rate(compute=ENOUGH, preprocess=ENOUGH),
            "",
            "the paper reads what is cached and what is not one after the other (equation 3), "
            "the simulator at the same time",
        )
    ]
    fetched = paper.number("figure 1", "fetch")
    for name, what in (("cores", "24 cores"), ("cores_and_gpus", "24 cores and the GPUs")):
        prepared = paper.number("figure 1", name)
        least = min(fetched, prepared, key=lambda number: number.value)
        speed = rate(compute=gpus, preprocess=prepared.value / CORES)
        rows.append(Row(f"trained on, {what} preprocessing, MB/s", least, speed))
    return Item("figure 1", "The pipeline of ResNet18", "`minio` with the paper's rates", rows)


def figure_2(sim: Simulator, paper: Paper) -> Item:
    stalls = {}
    for model in paper.models:
        rates = paper.rates(model, "imagenet-1k")
        cached = sim.run("imagenet-1k", SHUFFLED, **rates, values={RAM: ALL})
        third = sim.run("imagenet-1k", SHUFFLED, **rates, values={RAM: THIRD})
        stalls[model] = 1 - cached.seconds / third.seconds
    low, high = paper.number("figure 2", "stall").each()
    return Item(
        "figure 2",
        "Fetch stalls with 35 % of ImageNet-1k cached",
        "how much longer `pagecache` takes with memory for 35 % than with memory for all; seven of "
        "nine models",
        [
            Row(
                "the least of all models",
                low,
                min(stalls.values()),
                "%",
                "rounded in the paper; audio and detection, whose rates are not stated, are "
                "missing",
            ),
            Row(
                "the most of all models",
                high,
                max(stalls.values()),
                "%",
                "audio and detection, whose rates are not stated, are missing",
            ),
        ],
        lambda axes: charts.bars(
            axes,
            [share(model) for model in stalls],
            {"fetch stall": [100 * stall for stall in stalls.values()]},
            "% of the epoch",
            ".0f",
        ),
    )


def figure_3(sim: Simulator, paper: Paper) -> Item:
    shares = [0.25, 0.35, 0.5, 0.65, 0.8, 1.0]
    size = 146_000
    full = sim.run("imagenet-1k", "minio", values={RAM: ALL})
    minio = [sim.run("imagenet-1k", "minio", values={RAM: round(x * size)}) for x in shares[:-1]]
    pages = [sim.run("imagenet-1k", SHUFFLED, values={RAM: round(x * size)}) for x in shares[:-1]]
    minio.append(full)
    pages.append(sim.run("imagenet-1k", SHUFFLED, values={RAM: ALL}))
    third = shares.index(0.35)
    return Item(
        "figure 3",
        "ResNet18 by the memory for ImageNet-1k",
        "`minio` has the ideal fetch stall; what `pagecache` takes longer is thrashing",
        [
            Row(
                "misses of the page cache, 35 % cached",
                paper.number("figure 3", "page_cache"),
                pages[third].misses,
                "%",
                "its kernel is not stated (docs/SIMULATOR.md, The page cache)",
            ),
            Row(
                "misses if nothing is evicted",
                paper.number("figure 3", "ideal"),
                minio[third].misses,
                "%",
            ),
            Row("GB of these", paper.number("figure 3", "ideal_gb"), minio[third].gb),
        ],
        lambda axes: charts.stacked(
            axes,
            [f"{100 * x:.0f} %" for x in shares],
            {
                "compute and preprocessing": [full.seconds] * len(shares),
                "ideal fetch stall": [max(run.seconds - full.seconds, 0) for run in minio],
                "thrashing": [max(p.seconds - m.seconds, 0) for p, m in zip(pages, minio)],
            },
            "s per epoch",
        ),
    )


def figure_4(sim: Simulator, paper: Paper) -> Item:
    threads = [1, 2, 3, 4, 6, 8, 10, 12, 14, 16, 20, 24]
    speeds: dict[str, list[float]] = {}
    rows = []
    core = paper.value("figure 1", "cores") / CORES
    for model in ("ResNet50", "ResNet18", "AlexNet", "ShuffleNet"):
        compute = paper.rates(model, "imagenet-1k")["compute"]
        if model == "ResNet18":
            compute = paper.value("figure 1", "gpus")

        def speed(count: int, compute: float = compute) -> float:
            run = sim.run(
                "imagenet-1k",
                "minio",
                gpus=1,
                compute=compute,
                preprocess=core,
                values={RAM: ALL, THREADS: count},
            )
            return run.mbps / paper.image("imagenet-1k")

        speeds[model] = [speed(count) for count in threads]
        needed = next(n for n in range(1, CORES + 1) if speed(n) > 0.99 * speed(CORES))
        if model != "ShuffleNet":
            rows.append(
                Row(
                    f"cores that {model} needs",
                    paper.number("figure 4", model),
                    needed,
                    "",
                    "by the rates of section 2, 285 MB/s of one GPU and 30.6 MB/s of one core",
                )
            )
    return Item(
        "figure 4",
        "Speed by cores for one GPU, ImageNet-1k in memory",
        "one job on one GPU with 1 to 24 threads of 30.6 MB/s each",
        rows,
        lambda axes: charts.lines(axes, threads, speeds, "threads", "images/s"),
    )


def figure_5(sim: Simulator, paper: Paper) -> Item:
    gpus = paper.value("figure 1", "gpus")
    stalls = {}
    for name in ("cores", "cores_and_gpus"):
        stalls[name] = _stall(
            sim, compute=gpus, preprocess=paper.value("figure 1", name) / CORES, values={RAM: ALL}
        )
    return Item(
        "figure 5",
        "ResNet18 on eight GPUs with three cores each",
        "all in memory, with the rates of section 2; those of the 1080Ti are not stated",
        [
            Row(
                "prep stall on V100, GPUs preprocessing too",
                paper.number("figure 5", "V100"),
                stalls["cores_and_gpus"],
                "%",
                "a GPU that preprocesses takes fewer images, which section 2's rate is without",
            )
        ],
        lambda axes: charts.bars(
            axes,
            ["24 cores", "24 cores and GPUs"],
            {"prep stall": [100 * stall for stall in stalls.values()]},
            "% of the epoch",
            ".0f",
        ),
    )


def figure_6(sim: Simulator, paper: Paper) -> Item:
    stalls = {
        model: _stall(sim, **paper.rates(model, "imagenet-1k"), values={RAM: ALL})
        for model in paper.models
    }
    low, high = paper.number("figure 6", "stall").each()
    why = (
        "by table 7, whose jobs have one GPU each and need not wait for each other; audio and "
        "detection are missing"
    )
    return Item(
        "figure 6",
        "Prep stalls on eight GPUs",
        "ImageNet-1k in memory; seven of nine models",
        [
            Row("the least of all models", low, min(stalls.values()), "%", why),
            Row("the most of all models", high, max(stalls.values()), "%", why),
        ],
        lambda axes: charts.bars(
            axes,
            [share(model) for model in stalls],
            {"prep stall": [100 * stall for stall in stalls.values()]},
            "% of the epoch",
            ".0f",
        ),
    )


def figure_12(sim: Simulator, paper: Paper) -> Item:
    gpus = paper.value("figure 1", "gpus")
    core = paper.value("figure 1", "cores") / CORES
    threads = list(range(1, 9))

    def run(count: int, policy: str = "minio") -> Run:
        machine = {RAM: ALL, THREADS: count * GPUS, "cores": 32, "hyperthreads": 64}
        return sim.run("imagenet-1k", policy, compute=gpus, preprocess=core, values=machine)

    ideal = run(8, "perfect").seconds
    seconds = [run(count).seconds for count in threads]
    return Item(
        "figure 12",
        "ResNet18 on a server with 32 cores and 64 hyperthreads",
        "ImageNet-1k in memory, 1 to 8 threads for each of eight GPUs",
        [
            Row(
                "prep stall with 8 threads for each GPU",
                paper.number("figure 12", "stall"),
                1 - ideal / seconds[7],
                "%",
                "a core of that server need not be as fast as one of Config-SSD-V100",
            ),
            Row(
                "twice the threads on as many cores",
                paper.number("figure 12", "hyperthreads"),
                seconds[3] / seconds[7],
                "x",
            ),
        ],
        lambda axes: charts.lines(
            axes,
            threads,
            {"GPUs alone": [ideal] * 8, "epoch": seconds},
            "threads for each GPU",
            "s per epoch",
        ),
    )


def _stall(sim: Simulator, **values: Any) -> float:
    """The share of an epoch that ImageNet-1k in memory has a job wait."""
    run = sim.run("imagenet-1k", "minio", **values)
    return 1 - sim.run("imagenet-1k", "perfect", **values).seconds / run.seconds


#: Appendix C: 530 MB/s of images of 113 KB, and memory of "few tens of GBps", for AlexNet.
SMALL = {
    "samples": 80_752,
    "mu": 1.808,
    "sigma": 0.15,
    "storage_class.ram.read": "{ 24 = 28000 }",
}


def _fetched(sim: Simulator, cached: float, **values: Any) -> float:
    """Images/s of ImageNet-1k with a share of it cached."""
    limits = {"compute": ENOUGH, "preprocess": ENOUGH, **values}
    run = sim.run("imagenet-1k", "minio", values={**SMALL, RAM: round(146_000 * cached), **limits})
    return run.mbps / 0.113


def table_5(sim: Simulator, paper: Paper) -> Item:
    shares = paper.value("table 5", "cached")
    equation = {
        round(cache["share"], 2): cache["fetch_samples_per_s"]
        for cache in sim.analyze("alexnet.json")["by_cache"]
    }
    rows = [
        Row(f"{100 * x:.0f} % cached, by equation 4, images/s", number, equation[x])
        for x, number in zip(shares, paper.number("table 5", "predicted").each())
    ]
    rows += [
        Row(f"{100 * x:.0f} % cached, measured and simulated, images/s", number, _fetched(sim, x))
        for x, number in zip(shares, paper.number("table 5", "measured").each())
    ]
    return Item(
        "table 5",
        "What DS-Analyzer predicts for AlexNet",
        "`hdmlp analyze`, and `minio` with neither GPUs nor cores limiting",
        rows,
    )


ENOUGH_CACHE = (
    "table 7 has 11,192 images/s preprocessed for eight jobs; 55 % by equation 4 means 10,200"
)


def figure_16(sim: Simulator, paper: Paper) -> Item:
    shares = [x / 20 for x in range(1, 20)]
    prepared = GPUS * paper.dali("AlexNet") * 0.113 / CORES
    speeds = [_fetched(sim, x, preprocess=prepared) for x in shares]
    fetched = [_fetched(sim, x) for x in shares]
    fine = [x / 100 for x in range(50, 66)]
    last = _fetched(sim, 0.95, preprocess=prepared)
    enough = next(x for x in fine if _fetched(sim, x, preprocess=prepared) > 0.995 * last)
    upto = sum(f < 3 * last for f in fetched)

    def draw(axes: Any) -> None:
        axes.plot(
            [100 * x for x in shares[:upto]],
            fetched[:upto],
            "--",
            color=charts.OTHERS,
            label="fetched",
        )
        charts.lines(
            axes, [100 * x for x in shares], {"trained on": speeds}, "% cached", "images/s"
        )
        x = [100 * cached for cached in paper.value("table 5", "cached")]
        axes.set_ylim(0, 2.2 * last)
        charts.papers(axes, x, paper.value("table 5", "measured"))

    return Item(
        "figure 16",
        "AlexNet by the memory for ImageNet-1k",
        "`minio`, and `hdmlp analyze`; preprocessing by table 7",
        [
            Row(
                "share of the dataset from which on more memory does not help",
                paper.number("figure 16", "cache"),
                enough,
                "%",
                ENOUGH_CACHE,
            ),
            Row(
                "the same, by equation 4",
                paper.number("figure 16", "cache"),
                sim.analyze("alexnet.json")["needed"]["cache_share"],
                "%",
                ENOUGH_CACHE,
            ),
        ],
        draw,
    )
