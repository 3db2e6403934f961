"""A rank of several jobs at the same time, which may be members of a group: a process each.

    members_of_nodes.py FOLDER JOBS DIRECTORY

JOBS is a list of JSON objects with fields of Job below. It prints what each process received as a
line of JSON. DIRECTORY is an empty one, for waiting.barrier.
"""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import sys
from typing import Any

import hdmlp.torch as ht
import sharing
import waiting
from hdmlp import errors
from hdmlp._daemon import connecting

EPOCHS = 3


@dataclasses.dataclass
class Job:
    """What a job does.

    Attributes:
        loader: Arguments of its loaders.
        batch: The batch size of a rank.
        steps: After how many batches it ends.
        killed: Ranks that are killed after 3 batches.
        daemon: Ranks that kill their node's daemon after 3 batches, once all ranks of all jobs have
            opened their loaders: a job waits for a node whose daemon dies before that.
        bereft: Ranks that wait after 3 batches until a daemon has been killed.
        pause: After how many batches it waits until the job that is late has opened its loader.
        late: It opens its loader once another job has paused.
    """

    loader: dict[str, Any] = dataclasses.field(default_factory=dict)
    batch: int = 4
    steps: int | None = None
    killed: tuple[int, ...] = ()
    daemon: tuple[int, ...] = ()
    bereft: tuple[int, ...] = ()
    pause: int | None = None
    late: bool = False


def run(
    number: int, job: Job, jobs: int, folder: str, directory: str, rank: int, world: int
) -> None:
    """Runs a rank of one of so many jobs."""
    os.environ["TORCHELASTIC_RUN_ID"] += f"-{number}"
    os.environ["MASTER_PORT"] = str(int(os.environ["MASTER_PORT"]) + 300 * number)
    os.environ["HDMLP_SECRET"] += str(number)
    options = {"shuffle": True, "shard": True, "seed": 3, "epochs": EPOCHS, **job.loader}
    got: list[Any] = []
    said: dict[str, Any] = {"rank": rank, "job": number, "batches": got}
    over = os.path.join(directory, f"over-{number}-{rank}")
    if job.late:
        wait(directory, "paused", world)
    try:
        dataset = ht.ImageFolder(folder, sharing.transforms(random=True))
        with ht.DataLoader(dataset, job.batch, **options) as batches:
            said["epoch"] = batches.epoch
            open(os.path.join(directory, f"opened-{number}-{rank}"), "w").close()
            if job.late:
                open(os.path.join(directory, f"joined-{rank}"), "w").close()
            for batch in received(batches, job.steps):
                got.append(batch)
                if len(got) == job.pause:
                    open(os.path.join(directory, f"paused-{rank}"), "w").close()
                    wait(directory, "joined", world)
                if len(got) == 3 and rank in job.daemon:
                    for other in range(jobs):
                        wait(directory, f"opened-{other}", world)
                    os.kill(connecting.connect().pid, signal.SIGKILL)
                    open(os.path.join(directory, "dead"), "w").close()
                if len(got) == 3 and rank in job.bereft:
                    waiting.until_exists(os.path.join(directory, "dead"))
                if len(got) == 3 and rank in job.killed:
                    open(over, "w").close()
                    os.kill(os.getpid(), signal.SIGKILL)
            report = batches.report()
            said["alone"] = report["preprocessing"]["samples"]
            said["group"] = any("group" in of_rank for of_rank in report["ranks"])
            # No rank leaves the job while another one trains.
            waiting.barrier(directory, f"over-{number}", rank, world)
    except errors.HDMLPError as error:
        said["error"] = f"{type(error).__name__}: {error}"
    open(over, "w").close()
    with open(os.path.join(directory, f"said-{number}-{rank}"), "w") as file:
        json.dump(said, file)


def received(batches: Any, steps: int | None) -> Any:
    """Yields what identifies each batch, up to a number of batches, and writes to all of them."""
    number = 0
    for epoch in range(batches.epoch, EPOCHS):
        for images, labels in batches:
            number += 1
            yield sharing.digest(images, labels)
            images.fill_(epoch + number)
            if number == steps:
                return


def wait(directory: str, name: str, world: int) -> None:
    """Waits until each rank has left a file of this name."""
    for rank in range(world):
        waiting.until_exists(os.path.join(directory, f"{name}-{rank}"))


def main() -> None:
    folder, jobs, directory = sys.argv[1:]
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    children = []
    given = json.loads(jobs)
    for number, job in enumerate(given):
        child = os.fork()
        if child == 0:
            run(number, Job(**job), len(given), folder, directory, rank, world)
            os._exit(0)
        children.append(child)
    for number, child in enumerate(children):
        os.waitpid(child, 0)
        path = os.path.join(directory, f"said-{number}-{rank}")
        if os.path.exists(path):  # it was not killed
            with open(path) as file:
                print(file.read(), flush=True)
    waiting.barrier(directory, "all", rank, world)  # no node leaves while another one needs it
