"""Whether a network learns as well under policy locality, which deals the same global batches to
other ranks, as under DistributedSampler's order, and what crosses the links meanwhile.

    bench/locality.py [--seeds 5] [--epochs 6] [--nodes 4] [--batch 16] [--json FILE]

Nodes are those of `hdmlp dev cluster`, a rank on each, in a DistributedDataParallel with batch norm
over each rank's own part of a batch, which is what dealing changes. Prints the accuracy on images
that were not trained on, and the samples that came from other nodes, for each seed and policy.
"""

import argparse
import collections
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
from typing import Any

import make_dataset

BENCH = pathlib.Path(__file__).resolve().parent
ROOT = BENCH.parent
BINARY = str(ROOT / "python" / "hdmlp" / "bin" / "hdmlp")
POLICIES = ("cooperative", "locality")


def rank(spec: dict[str, Any]) -> None:
    """Trains one rank under each policy and with each seed of `runs` in turn; rank 0 prints a line
    of figures for each."""
    import hdmlp.torch as ht
    import torch
    import torchvision.transforms as transforms
    from demo_rank import CROP, TorchTrainer

    number = int(os.environ["RANK"])
    transform = transforms.Compose(
        [transforms.CenterCrop(CROP), transforms.ToTensor(), transforms.Normalize([0.5], [0.5])]
    )
    trainer = None
    for policy, seed in spec["runs"]:
        loader = ht.DataLoader(
            ht.ImageFolder(spec["train"], transform),
            spec["batch"],
            shuffle=True,
            shard=True,
            seed=seed,
            drop_last=True,
            policy=policy,
            memory=spec["memory"],
            num_workers=0,
        )
        trainer = TorchTrainer(
            {
                "seed": seed,
                "rank": number,
                "world_size": int(os.environ["WORLD_SIZE"]),
                "steps": len(loader) * spec["epochs"],
            },
            None,
        )
        for _ in range(spec["epochs"]):
            for images, labels in loader:
                trainer.step(images, labels)
        report = loader.report(cluster=True)
        if number == 0:
            tiers: collections.Counter[str] = collections.Counter()
            for node in report["nodes"]:
                last = node["epochs"][spec["epochs"] - 1]  # others may follow: they are read ahead
                for tier, amount in last["reads"].items():
                    tiers[tier] += amount["samples"]
            figures = {"accuracy": trainer.accuracy(spec["held"]), "tiers": tiers}
            print(json.dumps(figures), flush=True)
        torch.distributed.barrier()
        loader.close()
    trainer.close()


def run(spec: dict[str, Any], nodes: int) -> list[dict[str, Any]]:
    """Trains on the nodes, and returns the figures of rank 0, of each of `runs`."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("HDMLP_")}
    environment["PYTHONPATH"] = f"{ROOT / 'python'}:{BENCH}"
    environment["OMP_NUM_THREADS"] = "1"
    done = subprocess.run(
        [BINARY, "dev", "cluster", "-n", str(nodes), "--", sys.executable, __file__, "--rank",
         json.dumps(spec)],
        env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    lines = [line.split("] ", 1)[1] for line in done.stdout.splitlines() if "] {" in line]
    if done.returncode or len(lines) != len(spec["runs"]):
        raise SystemExit(f"{spec}: {done.stdout}{done.stderr}")
    return [json.loads(line) for line in lines]


def share(figures: dict[str, Any]) -> float:
    """The share of the last epoch's samples that came from other nodes."""
    return figures["tiers"].get("peer", 0) / sum(figures["tiers"].values())


def main() -> None:
    """Runs all seeds under both policies, in turn."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rank", help=argparse.SUPPRESS)
    for name, default in (("seeds", 5), ("epochs", 6), ("nodes", 4), ("batch", 16)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--json")
    options = parser.parse_args()
    if options.rank:
        rank(json.loads(options.rank))
        return
    results: dict[str, list[dict[str, Any]]] = {policy: [] for policy in POLICIES}
    with tempfile.TemporaryDirectory(prefix="hdmlp-locality-") as base:
        folders = {}
        for name, samples, first in (("train", 1600, 0), ("held", 400, 1600)):
            folders[name] = f"{base}/{name}"
            make_dataset.make("gratings", folders[name], samples, first=first)
        size = sum(f.stat().st_size for f in pathlib.Path(folders["train"]).rglob("*.jpg"))
        memory = int(size / options.nodes * 1.15)  # of each node: its part, and a little
        print("seed  " + "".join(f"{policy:>13}      from others" for policy in POLICIES))
        for seed in range(options.seeds):
            for policy in POLICIES:
                spec = {"runs": [(policy, seed)], "batch": options.batch,
                        "epochs": options.epochs, "memory": memory, **folders}  # fmt: skip
                results[policy] += run(spec, options.nodes)
            last = [results[policy][-1] for policy in POLICIES]
            print(
                f"{seed:4}  " + "".join(f"{r['accuracy']:13.2%} {share(r):16.1%}" for r in last),
                flush=True,
            )
    ours, theirs = ([r["accuracy"] for r in results[policy]] for policy in reversed(POLICIES))
    differences = [a - b for a, b in zip(ours, theirs)]
    spread = statistics.stdev(differences) if len(differences) > 1 else 0.0
    print(
        f"mean  {statistics.mean(theirs):13.2%} {'':16}{statistics.mean(ours):13.2%}\n"
        f"locality - cooperative: {statistics.mean(differences):+.2%}, standard deviation of the "
        f"differences {spread:.2%}; of cooperative over seeds "
        f"{statistics.stdev(theirs) if len(theirs) > 1 else 0.0:.2%}"
    )
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
