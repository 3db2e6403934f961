"""Contents and order of the fake daemon's datasets."""

from __future__ import annotations

import os
import random

EXTENSIONS = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")


def fingerprint(path, samples):
    """The version of a dataset, which changes with the number of its samples."""
    return f"{len(samples):x}-{path}"


def scan(path, extensions=None):
    classes = sorted(e.name for e in os.scandir(path) if e.is_dir())
    samples = []
    for label, name in enumerate(classes):
        for folder, _, files in sorted(os.walk(os.path.join(path, name))):
            for file in sorted(files):
                if file.lower().endswith(tuple(extensions or EXTENSIONS)):
                    samples.append((os.path.relpath(os.path.join(folder, file), path), label))
    return classes, samples


def order(count, stream, epoch):
    """The epoch's IDs in order, over all ranks."""
    ids = list(range(count))
    if stream["shuffle"] != "none":
        random.Random(f"{stream['seed']}/{epoch}").shuffle(ids)
    return ids


def rank_ids(count, stream, epoch, rank, world):
    """One rank's batches of an epoch: a list of lists of IDs."""
    ids = order(count, stream, epoch)
    batch = stream["global_batch"]
    if stream["scheme"] == "uniform":
        out = []
        for begin in range(0, count, batch):
            part = ids[begin : begin + batch]
            if len(part) < batch and stream["drop_last"]:
                break
            share = -(-batch // world)
            out.append(part[rank * share : (rank + 1) * share])
        return out
    if stream["tail"] == "drop":
        ids = ids[: count // world * world]
    else:
        ids += ids[: -count % world]
    mine = ids[rank::world]
    local = batch // world
    out = [mine[i : i + local] for i in range(0, len(mine), local)]
    if out and stream["drop_last"] and len(out[-1]) < local:
        out.pop()
    return out
