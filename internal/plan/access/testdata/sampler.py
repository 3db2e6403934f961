"""Prints, for each case of a JSON array on stdin, what torch itself delivers:
a digest of every rank's batches of one epoch. The test compares it with ours.

A case: {"f", "w", "batch" (per rank), "seed", "epoch", "drop_tail", "drop_last",
"shuffle", "ranks" (those to digest), "loader" (run a real DataLoader)}.
The digest: SHA-256 over little-endian int32: each batch's length, then its samples.
With "randperm" instead: {"f", "seed"}, the digest of torch.randperm.
"""

import hashlib
import json
import sys

import numpy
import torch
from torch.utils.data import DataLoader, DistributedSampler


def digest(batches):
    h = hashlib.sha256()
    for b in batches:
        h.update(numpy.asarray([len(b)], dtype="<i4").tobytes())
        h.update(numpy.asarray(b, dtype="<i4").tobytes())
    return h.hexdigest()


def batches(case, rank):
    dataset = range(case["f"])
    sampler = DistributedSampler(
        dataset,
        num_replicas=case["w"],
        rank=rank,
        shuffle=case["shuffle"],
        seed=case["seed"],
        drop_last=case["drop_tail"],
    )
    sampler.set_epoch(case["epoch"])
    n = case["batch"]
    if case["loader"]:
        return [
            b.tolist()
            for b in DataLoader(dataset, batch_size=n, sampler=sampler, drop_last=case["drop_last"])
        ]
    ids = list(sampler)
    return [
        ids[i : i + n] for i in range(0, len(ids), n) if not case["drop_last"] or i + n <= len(ids)
    ]


answers = []
for case in json.load(sys.stdin):
    if case.get("randperm"):
        g = torch.Generator()
        g.manual_seed(case["seed"])
        answers.append([digest([torch.randperm(case["f"], generator=g).to(torch.int32).numpy()])])
    else:
        answers.append([digest(batches(case, r)) for r in case["ranks"]])
json.dump({"torch": torch.__version__, "digests": answers}, sys.stdout)
