"""Has a patch of ``patches.py`` applied, and compares a loader of HDMLP with torch's.

    patched.py ROOT WHEN

Prints a line of JSON for each patch: its name, and what differs (nothing, if all is well). WHEN is
``before`` or ``after``: before HDMLP is imported, or afterwards; or ``sitecustomize``, where the
``sitecustomize.py`` of ``test_originals.py`` has applied it. Each patch has a process of its own.
"""

import gc
import json
import os
import sys
import traceback


def same(a, b):
    import torch

    if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
        return a.shape == b.shape and bool((a - b).abs().max() <= 1.01 / 127) if a.numel() else True
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    return a == b


def compare(name, root):
    """What differs between both loaders."""
    import patches
    import torch
    from hdmlp import torch as ht

    make = patches.LOADERS[patches.PATCHES[name][1]]
    try:
        theirs, ours = make(torch.utils.data.DataLoader, root), make(ht.DataLoader, root)
        got, want = [], []
        for loader, batches in ((ours, got), (theirs, want)):
            torch.manual_seed(7)
            for epoch in range(2):
                if hasattr(loader.sampler, "set_epoch"):
                    loader.sampler.set_epoch(epoch)
                batches.extend(loader)
        ours.close()
    except Exception:
        return traceback.format_exc()
    return "" if same(got, want) else f"{got!r:.300}\n{want!r:.300}"


def forked(names, root, apply):
    """Compares in a process of its own for each patch."""
    gc.freeze()  # or else each process would look through it all, and so have a copy of it
    for name in names:
        if os.fork() == 0:
            apply(name)
            print(json.dumps({"name": name, "differs": compare(name, root)}), flush=True)
            os._exit(0)
        os.wait()


def main(root, when):
    if when == "sitecustomize":
        name = os.environ["PATCHED_WITH"]
        print(json.dumps({"name": name, "differs": compare(name, root)}), flush=True)
        os._exit(0)
    if when == "after":
        import hdmlp.torch  # noqa: F401
    import patches

    forked(patches.PATCHES, root, lambda name: patches.PATCHES[name][0]())


if __name__ == "__main__":
    main(*sys.argv[1:])
