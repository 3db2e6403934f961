"""Jobs times ranks on one node that train on the same images (CoorDL's figure 9e)."""

from typing import Any

import newest
import rounds
import share_jobs

from evaluation import cluster
from evaluation.lines import Line
from scenarios import into_page_cache

#: By kind of a job, what makes a rank of it.
KINDS = {
    "HDMLP": dict(share_jobs.KINDS[share_jobs.SHARED], python=newest.PYTHON),
    "DataLoader": dict(share_jobs.KINDS[share_jobs.TORCH], python=newest.PYTHON),
}


def jobs(shapes: tuple[tuple[int, int], ...], samples: int, epochs: int) -> list[Line]:
    """Images per second of a job, by kind: of all epochs, before which nothing is prepared.

    Args:
        shapes: numbers of jobs, and of the ranks of each.
    """
    path, size = cluster.photos(samples)
    into_page_cache(path)
    lines = []
    for count, ranks in shapes:
        print(f"  {count} x {ranks}", flush=True)
        rates = {
            name: _rate(kind, path, size, samples, count, ranks, epochs)
            for name, kind in KINDS.items()
        }
        where = f"{count} job{'s' * (count > 1)} x {ranks} rank{'s' * (ranks > 1)}"
        lines += [Line(f"{where}, {kind}", rate, "images/s") for kind, rate in rates.items()]
        faster = rates["HDMLP"] / rates["DataLoader"]
        lines.append(Line(f"{where}: HDMLP, times as fast as DataLoader", faster, "x"))
    return lines


def _rate(
    kind: dict[str, Any], path: str, size: int, samples: int, count: int, ranks: int, epochs: int
) -> float:
    members = []
    for _ in range(count):
        port = str(rounds.free_port())
        for rank in range(ranks):
            launcher = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(ranks)}
            launcher.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
            members.append({"rank": rank, "world_size": ranks, "environment": launcher})
    spec = {
        "path": path,
        "batch_size": 16,
        "epochs": epochs,
        "seed": 42,
        "step": 0.0,
        "world_size": ranks,
        "memory": int(1.1 * size),
        "pipeline": "crop",
        "jobs": members,
    }
    if kind.get("share"):
        spec["share_members"] = count
    found = [rank["epochs"] for rank in rounds.run(kind, spec)["ranks"]]
    seconds = max(rank[-1]["end"] for rank in found) - max(rank[0]["begin"] for rank in found)
    return samples * epochs / seconds
