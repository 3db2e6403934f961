"""A rank of test_nodes_restart.py: goes on where a state says, and prints a line of JSON with what
it was given and where it is.

    rank_of_restarts.py FOLDER OPTIONS

OPTIONS is a JSON object: the loader's arguments, and

    state  what state_dict returned; None: from the beginning
    steps  after so many batches it says where it is; then it goes on until it is killed, or the end
"""

import json
import os
import sys
import time
import zlib

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

import hdmlp.data as data
from hdmlp import errors


def main() -> None:
    folder, options = sys.argv[1], json.loads(sys.argv[2])
    state, steps = options.pop("state"), options.pop("steps")
    rank, given = int(os.environ["RANK"]), []
    try:
        with data.DataLoader(data.Folder(folder), seed=5, **options) as loader:
            if state is not None:
                loader.load_state_dict(state)
            first = loader.state_dict()
            for _ in range(first["epoch"], options["epochs"]):
                for samples, _ in loader:
                    given.append([zlib.crc32(sample) for sample in samples])
                    if len(given) == steps:
                        say(rank, loader, given)
                    if len(given) >= steps:
                        time.sleep(0.1)
            if len(given) < steps:
                say(rank, loader, given)
    except errors.HDMLPError as error:
        print(
            json.dumps({"rank": rank, "error": str(error), "kind": type(error).__name__}),
            flush=True,
        )
        sys.exit(1)


def say(rank, loader, given) -> None:
    report = loader.report()
    # What left the source for this job: "tiers" counts from when the dataset's cache was made,
    # which is that of the job before where its daemon has not let it go yet.
    print(
        json.dumps(
            {
                "rank": rank,
                "given": given,
                "state": loader.state_dict(),
                "warnings": report.get("warnings"),
                "read": report["source"]["samples"],
            }
        ),
        flush=True,
    )


if __name__ == "__main__":
    main()
