"""HDMLP beside torch's DataLoader, in two minutes: `make demo`.

Makes a small dataset, puts it behind a mount that is throttled to a quarter of what
training needs, trains a small network on it with two ranks, through each loader in
turn, and prints one table.
"""

import argparse
import multiprocessing
import os
import queue
import secrets
import sys
import tempfile
import time
from typing import Any, Optional

_HERE = os.path.dirname(os.path.abspath(__file__))
_ROOT = os.path.dirname(_HERE)
sys.path.insert(0, os.path.join(_ROOT, "python"))

import demo_rank
import make_dataset
import rounds
from throttled import Throttled, Unavailable

RANKS, EPOCHS, BATCH, SEED = 2, 4, 32, 42
SAMPLES, HELD_OUT = 2000, 400

#: Seconds that the emulated accelerator takes for a batch.
STEP = 0.06

#: The source delivers a quarter of what two ranks that never wait would need.
SHORTAGE = 4
LATENCY = 0.002


def train(
    loader: str, path: str, held_out: str, mount: Optional[Throttled]
) -> list[dict[str, Any]]:
    """Trains with one loader on all ranks and returns the figures of each epoch.

    Times are those of the slower rank, stall and utilisation the mean of both.
    """
    consumer = "numpy" if demo_rank.WITHOUT_TORCH else "torch"
    context = multiprocessing.get_context("spawn")
    say = context.Queue()
    exchange = (
        context.RawArray("d", RANKS * (demo_rank.NumpyTrainer.BINS + 1) * demo_rank.CLASSES),
        context.Barrier(RANKS),
    )
    with tempfile.TemporaryDirectory(prefix="hdmlp-demo-") as directory:
        environment = {
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(rounds.free_port()),
            "HDMLP_LINGER": "0s",
            "HDMLP_SOCKET": f"hdmlp-demo-{os.getpid()}-{secrets.token_hex(4)}",
            "HDMLP_INDEX_DIR": os.path.join(directory, "index"),
            "OMP_NUM_THREADS": "1",
        }
        ranks = [
            context.Process(
                target=demo_rank.main,
                args=(
                    {
                        "rank": rank,
                        "world_size": RANKS,
                        "epochs": EPOCHS,
                        "batch_size": BATCH,
                        "seed": SEED,
                        "step": STEP,
                        "steps": EPOCHS * -(-SAMPLES // (RANKS * BATCH)),
                        "path": path,
                        "held_out": held_out,
                        "loader": loader,
                        "consumer": consumer,
                        "environment": environment,
                    },
                    exchange,
                    say,
                ),
            )
            for rank in range(RANKS)
        ]
        before = mount.counters()["bytes"] if mount else 0
        for rank in ranks:
            rank.start()
        try:
            epochs: list[dict[str, Any]] = []
            listener = Listener(say, ranks)
            for epoch in range(EPOCHS):
                figures = listener.hear(epoch)
                read = mount.counters()["bytes"] if mount else 0
                epochs.append(
                    {
                        "time": max(one["time"] for one in figures),
                        "stall": sum(one["stall"] for one in figures) / RANKS,
                        "utilisation": sum(one["busy"] for one in figures)
                        / sum(one["time"] for one in figures),
                        "read": read - before if mount else None,
                        "accuracy": figures[0]["accuracy"],
                    }
                )
                before = read
            epochs[-1]["report"] = listener.hear(None)[0]["report"]
            for rank in ranks:
                rank.join(30)
            return epochs
        finally:
            for rank in ranks:
                if rank.is_alive():
                    rank.kill()
                    rank.join()


class Listener:
    """Collects the ranks' reports; one rank may be ahead of the other."""

    def __init__(self, say: Any, ranks: list[Any]) -> None:
        self._say, self._ranks = say, ranks
        self._heard: dict[Optional[int], list[dict[str, Any]]] = {}

    def hear(self, epoch: Optional[int]) -> list[dict[str, Any]]:
        """The ranks' reports on the epoch; ends the demo if a rank has died."""
        while len(self._heard.get(epoch, ())) < RANKS:
            try:
                _, said, figures = self._say.get(timeout=1)
            except queue.Empty:
                if any(rank.exitcode not in (None, 0) for rank in self._ranks):
                    sys.exit("demo: a rank has failed; its message is above")
                continue
            self._heard.setdefault(said, []).append(figures)
        return self._heard[epoch]


def table(results: dict[str, list[dict[str, Any]]], size: int) -> None:
    """Prints the one table: a line per loader and epoch."""
    form = "{:<24}{:>7}{:>11}{:>11}{:>13}{:>20}{:>10}"
    print(
        "\n"
        + form.format(
            "loader", "epoch", "time", "stall", "utilised", "read from source", "accuracy"
        )
    )
    for name, epochs in results.items():
        for number, epoch in enumerate(epochs):
            read = "not counted" if epoch["read"] is None else f"{epoch['read'] / 1e6:.1f} MB"
            print(
                form.format(
                    name if number == 0 else "",
                    number,
                    f"{epoch['time']:.2f} s",
                    f"{epoch['stall']:.3f} s",
                    f"{epoch['utilisation']:.1%}",
                    read,
                    f"{epoch['accuracy']:.1%}",
                )
            )
        total = None if epochs[0]["read"] is None else sum(epoch["read"] for epoch in epochs)
        print(
            form.format(
                "",
                "all",
                f"{sum(e['time'] for e in epochs):.2f} s",
                f"{sum(e['stall'] for e in epochs):.3f} s",
                "",
                "" if total is None else f"{total / 1e6:.1f} MB, {total / size:.2f}x",
                "",
            )
        )


def main() -> None:
    argparse.ArgumentParser(
        description=__doc__ + "\nDEMO_CONSUMER=numpy: numpy trains even where torch is.\n",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    ).parse_args()
    began = time.monotonic()
    data = os.path.join(_ROOT, "build", "data")
    folder, held_out = os.path.join(data, "demo-train"), os.path.join(data, "demo-held-out")
    size = make_dataset.make("gratings", folder, SAMPLES)["bytes"]
    make_dataset.make("gratings", held_out, HELD_OUT, first=SAMPLES)
    steps = SAMPLES / (RANKS * BATCH)
    bandwidth = int(size / (SHORTAGE * steps * STEP))
    print(
        f"{SAMPLES} JPEGs, {size / 1e6:.0f} MB, {demo_rank.CLASSES} classes; {RANKS} ranks, "
        f"{EPOCHS} epochs, global batch "
        f"{RANKS * BATCH}; a step takes {STEP * 1e3:.0f} ms (emulated accelerator)"
    )
    rival = "torch DataLoader"
    if demo_rank.WITHOUT_TORCH:
        rival = "reading when needed"
        print(
            f"without torch ({demo_rank.WITHOUT_TORCH}): numpy trains a softmax regression, and "
            f"HDMLP is compared "
            "with reading files when they are needed; the script decodes by itself, which counts "
            "as stall"
        )
    results: dict[str, list[dict[str, Any]]] = {}
    try:
        for loader, name in (("hdmlp", "HDMLP"), ("rival", rival)):
            with Throttled(folder, bandwidth, LATENCY) as mount:
                if not results:
                    print(
                        f"source: a mount of {bandwidth / 1e6:.1f} MB/s and {LATENCY * 1e3:.0f} "
                        f"ms per open; one epoch of "
                        f"reading takes {size / bandwidth:.1f} s, one of training "
                        f"{steps * STEP:.1f} s"
                    )
                results[name] = train(loader, mount.path, held_out, mount)
    except Unavailable as error:
        if results:
            raise
        print(
            f"source: the plain folder, NOT throttled, because there is no FUSE mount here: {error}"
        )
        for loader, name in (("hdmlp", "HDMLP"), ("rival", rival)):
            results[name] = train(loader, folder, held_out, None)
    table(results, size)
    print(f"\nHDMLP's report: {results['HDMLP'][-1]['report']}")
    print(f"The demo took {time.monotonic() - began:.0f} s.")


if __name__ == "__main__":
    main()
