"""HDMLP beside torch's DataLoader, in two minutes: `make demo`.

Makes a small dataset, puts it behind a mount that is throttled to a quarter of what
training needs, trains a small network on it with two ranks, through each loader in
turn, and prints a table, a sentence, and where a plot lies.
"""

import argparse
import multiprocessing
import os
import queue
import secrets
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable
from typing import Any, Optional, TextIO

_HERE = os.path.dirname(os.path.abspath(__file__))
_ROOT = os.path.dirname(_HERE)
sys.path.insert(0, os.path.join(_ROOT, "python"))

import demo_plot
import demo_rank
import demo_summary
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


#: The plot, from the repository's root.
PLOT = os.path.join("build", "demo.png")


class Progress:
    """What the demo is at: one line of a terminal, or else a line per event."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._live = out.isatty() and os.environ.get("TERM", "dumb") != "dumb"

    def at(self, text: str) -> None:
        """Replaces the terminal's line; nothing where there is no terminal."""
        if self._live:
            columns = os.get_terminal_size(self._out.fileno()).columns or 80
            print(f"\r\x1b[K{text[: columns - 1]}", end="", file=self._out, flush=True)

    def event(self, text: str) -> None:
        """Prints a line that stays, except on a terminal."""
        if self._live:
            self.at(text)
        else:
            print(text, file=self._out, flush=True)

    def clear(self) -> None:
        """Clears the terminal's line."""
        self.at("")


def paragraph(text: str) -> None:
    """Prints a sentence or more, in lines of at most 100 columns."""
    print(textwrap.fill(text, 100, break_long_words=False, break_on_hyphens=False), flush=True)


def train(
    loader: str, name: str, folders: tuple[str, str], mount: Optional[Throttled], progress: Progress
) -> list[dict[str, Any]]:
    """Trains with one loader on all ranks and returns the figures of each epoch.

    ``folders`` are that of the training images, through the mount if there is one, and that of the
    held-out images.

    Times are those of the slower rank, stall and utilisation the mean of both.
    """
    consumer = "numpy" if demo_rank.WITHOUT_TORCH else "torch"
    context = multiprocessing.get_context("spawn")
    say = context.Queue()
    done = context.RawValue("i")  # steps of rank 0 so far
    per_epoch = -(-SAMPLES // (RANKS * BATCH))
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
                        "steps": EPOCHS * per_epoch,
                        "path": folders[0],
                        "held_out": folders[1],
                        "loader": loader,
                        "consumer": consumer,
                        "environment": environment,
                    },
                    exchange,
                    say,
                    done,
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
                figures = listener.hear(
                    epoch,
                    lambda epoch=epoch: progress.at(
                        f"{name}: epoch {epoch} (the last is {EPOCHS - 1}), step "
                        f"{min(max(done.value - epoch * per_epoch, 0), per_epoch)} of {per_epoch}"
                    ),
                )
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
                progress.event(
                    f"{name}: epoch {epoch} took {epochs[-1]['time']:.2f} s, of which it waited "
                    f"{epochs[-1]['stall']:.3f} s"
                )
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
        self._heard: dict[Optional[int], dict[int, dict[str, Any]]] = {}

    def hear(
        self, epoch: Optional[int], waiting: Callable[[], None] = lambda: None
    ) -> list[dict[str, Any]]:
        """The ranks' reports on the epoch, by rank; ends the demo if a rank has died.

        Meanwhile it calls ``waiting`` every 0.2 s.
        """
        while len(self._heard.get(epoch, ())) < RANKS:
            waiting()
            try:
                rank, said, figures = self._say.get(timeout=0.2)
            except queue.Empty:
                if any(process.exitcode not in (None, 0) for process in self._ranks):
                    sys.exit("\ndemo: a rank has failed; its message is above")
                continue
            self._heard.setdefault(said, {})[rank] = figures
        # In order: the ranks' statistics of batch normalisation differ, and so do accuracies.
        return [self._heard[epoch][rank] for rank in range(RANKS)]


def main() -> None:
    argparse.ArgumentParser(
        description=__doc__ + "\nDEMO_CONSUMER=numpy: numpy trains even where torch is.\n",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    ).parse_args()
    began = time.monotonic()
    progress = Progress(sys.stdout)
    size, results = measure(progress)
    progress.clear()
    print()
    print("\n".join(demo_summary.table(results, size)))
    note = demo_summary.accuracies(results, same_order=not demo_rank.WITHOUT_TORCH)
    paragraph(note)
    print()
    paragraph(f"HDMLP's report: {results['HDMLP'][-1]['report']}")
    print()
    sentence = demo_summary.sentence(results)
    try:
        demo_plot.draw(results, sentence, os.path.join(_ROOT, PLOT))
        plot = f"Plot: {PLOT}."
    except ImportError as error:
        print("\n".join(demo_plot.text(results)))
        print(f"(A plot in text, because matplotlib is missing: {error}.)\n")
        plot = ""
    print(f"{plot} The demo took {time.monotonic() - began:.0f} s.".strip())
    paragraph(sentence)


def measure(progress: Progress) -> tuple[int, demo_summary.Results]:
    """Trains through both loaders; returns the dataset's bytes and the figures."""
    data = os.path.join(_ROOT, "build", "data")
    folder, held_out = os.path.join(data, "demo-train"), os.path.join(data, "demo-held-out")
    progress.event(f"making {SAMPLES + HELD_OUT} images in build/data, if they are not there")
    progress.clear()  # make_dataset has progress of its own
    size = make_dataset.make("gratings", folder, SAMPLES)["bytes"]
    make_dataset.make("gratings", held_out, HELD_OUT, first=SAMPLES)
    steps = SAMPLES / (RANKS * BATCH)
    bandwidth = int(size / (SHORTAGE * steps * STEP))
    paragraph(
        f"{SAMPLES} JPEGs, {size / 1e6:.0f} MB, {demo_rank.CLASSES} classes; {RANKS} ranks, "
        f"{EPOCHS} epochs, global batch "
        f"{RANKS * BATCH}; a step takes {STEP * 1e3:.0f} ms (emulated accelerator)"
    )
    rival = "torch DataLoader"
    if demo_rank.WITHOUT_TORCH:
        rival = "reading when needed"
        paragraph(
            f"without torch ({demo_rank.WITHOUT_TORCH}): numpy trains a softmax regression, and "
            "HDMLP is compared with reading files when they are needed; the script decodes by "
            "itself, which counts as stall"
        )
    results: demo_summary.Results = {}
    try:
        for loader, name in (("hdmlp", "HDMLP"), ("rival", rival)):
            with Throttled(folder, bandwidth, LATENCY) as mount:
                if not results:
                    paragraph(
                        f"source: a mount of {bandwidth / 1e6:.1f} MB/s and {LATENCY * 1e3:.0f} "
                        f"ms per open; one epoch of reading takes {size / bandwidth:.1f} s, one "
                        f"of training {steps * STEP:.1f} s"
                    )
                results[name] = train(loader, name, (mount.path, held_out), mount, progress)
    except Unavailable as error:
        if results:
            raise
        paragraph(
            f"source: the plain folder, NOT throttled, because there is no FUSE mount here: {error}"
        )
        for loader, name in (("hdmlp", "HDMLP"), ("rival", rival)):
            results[name] = train(loader, name, (folder, held_out), None, progress)
    return size, results


if __name__ == "__main__":
    main()
