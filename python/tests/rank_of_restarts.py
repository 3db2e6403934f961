"""A rank of test_nodes_restart.py: resumes from a state, and prints a line of JSON with the samples
that it received and its new state.

    rank_of_restarts.py FOLDER OPTIONS

OPTIONS is a JSON object: the loader's arguments, and

    state  what state_dict returned; None: from the beginning
    steps  after so many batches, or at its end, it prints its line
    count  then it waits for this file, and prints what it has read from the source by now; None:
           nothing
    go_on  then it waits for the file with this name and its rank; None: until it is killed
    decodes  it takes images that the daemon decodes, instead of files
    formed   before it prints its line, it waits until nodes keep so many samples as coefficients
"""

import json
import os
import signal
import sys
import zlib

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

import hdmlp.data as data
from hdmlp import errors
from hdmlp import transforms as T
from waiting import until, until_exists


def main() -> None:
    folder, options = sys.argv[1], json.loads(sys.argv[2])
    state, steps = options.pop("state"), options.pop("steps")
    go_on, count = options.pop("go_on", None), options.pop("count", None)
    decodes, formed = options.pop("decodes", False), options.pop("formed", 0)
    rank, given = int(os.environ["RANK"]), []
    try:
        with decoder(folder, options) if decodes else files(folder, options) as loader:
            if state is not None:
                loader.load_state_dict(state)
            first = loader.state_dict()
            try:
                for _ in range(first["epoch"], options["epochs"]):
                    for samples, _ in loader:
                        samples = samples.numpy() if decodes else samples
                        given.append([zlib.crc32(sample) for sample in samples])
                        if len(given) == steps:
                            if formed:
                                until(lambda: kept(loader) >= formed, "coefficients are kept")
                            say(rank, loader, given, count)
                            if go_on is None:
                                signal.pause()
                            until_exists(f"{go_on}-{rank}")
            except errors.DaemonDiedError:
                loader.report(cluster=True)  # as a script's ``finally`` does
                raise
            if len(given) < steps:
                say(rank, loader, given, count)
    except errors.HDMLPError as error:
        print(
            json.dumps({"rank": rank, "error": str(error), "kind": type(error).__name__}),
            flush=True,
        )
        sys.exit(1)


def files(folder, options):
    return data.DataLoader(data.Folder(folder), seed=5, **options)


def decoder(folder, options):
    import hdmlp.torch as ht

    size = options.pop("batch_size")
    dataset = ht.ImageFolder(folder, T.Compose([T.Resize(40), T.CenterCrop(32), T.ToTensor()]))
    return ht.DataLoader(dataset, size, seed=5, shuffle=True, shard=True, **options)


def kept(loader):
    """How many samples all nodes keep as coefficients."""
    nodes = loader.report(cluster=True)["nodes"]
    return sum(c.get("forms", {}).get("samples", 0) for node in nodes for c in node["classes"])


def say(rank, loader, given, count) -> None:
    state, warnings = loader.state_dict(), loader.report().get("warnings")
    print(
        json.dumps({"rank": rank, "given": given, "state": state, "warnings": warnings}),
        flush=True,
    )
    if count is None:
        return
    # Not before every rank is here: what a rank behind still needs, its owner reads for it. And
    # what this job read: "tiers" counts since the dataset's cache was made, which may be the cache
    # of the job before.
    until_exists(count)
    print(json.dumps({"read": loader.report()["source"]["samples"]}), flush=True)


if __name__ == "__main__":
    main()
