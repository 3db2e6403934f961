"""Whether a network learns as well under every policy that runs: bench/locality.py's training."""

import pathlib
import statistics
import tempfile
from typing import Any

import locality
import make_dataset
import rounds

from evaluation.lines import Line

#: Images that accuracy is measured on, none of which is trained on.
HELD = 400


def policies(
    nodes: int, samples: int, epochs: int, seeds: int, names: tuple[str, ...]
) -> list[Line]:
    """The accuracy after training, by policy: mean and standard deviation over seeds.

    Args:
        nodes: in a DistributedDataParallel, with memory for their part and 15 % more each.
        samples: that are trained on.
        seeds: how many, at least 2.
        names: the policies.
    """
    lines = []
    with tempfile.TemporaryDirectory(prefix="hdmlp-evaluation-") as base:
        folders = {}
        first = 0
        for name, count in (("train", samples), ("held", HELD)):
            folders[name] = f"{base}/{name}"
            make_dataset.make("gratings", folders[name], count, first=first)
            first += count
        size = sum(file.stat().st_size for file in pathlib.Path(folders["train"]).rglob("*.jpg"))
        runs = [(policy, seed) for policy in names for seed in range(seeds)]
        spec = {"runs": runs, "batch": 16, "epochs": epochs, "memory": int(size / nodes * 1.15)}
        accuracies = _accuracies({**spec, **folders}, nodes)
        for number, policy in enumerate(names):
            found = accuracies[number * seeds : (number + 1) * seeds]
            mean = statistics.mean(found)
            deviation = statistics.stdev(found)
            note = f"{seeds} seeds, standard deviation {100 * deviation:.2f} %"
            lines.append(Line(f"`{policy}`", mean, "%", note=note))
    return lines


def _accuracies(spec: dict[str, Any], nodes: int) -> list[float]:
    try:
        return [float(figures["accuracy"]) for figures in locality.run(spec, nodes)]
    except SystemExit as error:
        raise rounds.RoundFailed(str(error)) from None
