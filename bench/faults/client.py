"""A training process under the harness's command: one JSON line in, one out, over the Unix socket
$FAULT_CONTROL.

It uses the loader's public interface and nothing else; what it was given goes back as digests, to
be judged elsewhere.
"""

import hashlib
import inspect
import json
import os
import signal
import socket
import sys
import time
import traceback

loader = iterator = None
names = {}  # what commands keep between each other
last_error = None


def raw_bytes(sample):
    if isinstance(sample, (bytes, memoryview)):
        return sample
    if hasattr(sample, "numpy"):
        sample = sample.numpy()
    return sample.tobytes()


def digest(sample):
    return hashlib.blake2b(raw_bytes(sample), digest_size=8).hexdigest()


def shown(batch):
    samples, labels = batch
    return [[digest(s) for s in samples], [int(n) for n in labels]]


def as_data(loader):
    """Arguments that have the torch loader do what that without torch does: shuffle, and share
    epochs between the ranks."""
    shared = {} if "shard" not in inspect.signature(loader.__init__).parameters else {"shard": True}
    return {"shuffle": True, **shared}


def do_open(path, api="data", batch=5, folder=None, transform=None, **keys):
    """Makes a loader. ``transform`` is an expression over hdmlp.transforms, T."""
    global loader, iterator
    iterator = None
    made = None
    if transform is not None:
        import hdmlp.transforms as T

        made = eval(transform, {"T": T})
    if api == "torch":
        import hdmlp.torch as ht

        dataset = ht.ImageFolder(path, made, **(folder or {}))
        loader = ht.DataLoader(dataset, batch, **{**as_data(ht.DataLoader), **keys})
    else:
        import hdmlp.data as hd

        if made is not None:
            keys["transforms"] = made
        loader = hd.DataLoader(hd.Folder(path, **(folder or {})), batch, **keys)
    return {"steps": len(loader)}


def do_iter(epoch=None):
    global iterator
    if epoch is not None:
        loader.set_epoch(epoch)
    iterator = iter(loader)


def do_next(n=None):
    """n batches, or all that are left; fewer at the end of the epoch."""
    found = []
    while n is None or len(found) < n:
        try:
            batch = next(iterator)
        except StopIteration:
            break
        found.append(shown(batch))
    return found


def do_keep(n=None):
    """The same, but looked at only when all of them are there."""
    found = []
    while n is None or len(found) < n:
        try:
            found.append(next(iterator))
        except StopIteration:
            break
    names["kept"] = found
    return len(found)


def do_kept():
    return [shown(batch) for batch in names["kept"]]


def do_state():
    return loader.state_dict()


def do_load(state):
    loader.load_state_dict(state)


def do_close():
    loader.close()


def do_run(code):
    """Python of the fault's own. What it leaves in ``result`` is the answer."""
    space = globals()
    space["result"] = None
    exec(code, space)
    return space["result"]


def do_pid():
    return os.getpid()


def told(error):
    try:
        import hdmlp.errors

        ours = isinstance(error, hdmlp.errors.HDMLPError)
    except ImportError:
        ours = False
    return {
        "error": type(error).__name__,
        "ours": ours,
        "message": str(error),
        "trace": "" if ours else traceback.format_exc()[-2000:],
    }


def main():
    global last_error
    control = socket.socket(socket.AF_UNIX)
    control.connect(os.environ["FAULT_CONTROL"])
    stream = control.makefile("rw", encoding="utf-8", errors="surrogateescape")

    def say(answer):
        stream.write(json.dumps(answer) + "\n")
        stream.flush()

    say(
        {
            "token": os.environ.get("FAULT_TOKEN", ""),
            "rank": os.environ.get("RANK"),
            "node": os.environ.get("GROUP_RANK"),
            "pid": os.getpid(),
        }
    )
    for line in stream:
        command = json.loads(line)
        what = command.pop("do")
        if what == "exit":
            if command.get("uncaught") and last_error is not None:
                raise last_error
            return
        started = time.monotonic()
        try:
            answer = {"result": globals()["do_" + what](**command)}
        except (Exception, KeyboardInterrupt) as e:
            last_error = e
            answer = told(e)
        answer["seconds"] = time.monotonic() - started
        say(answer)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.dont_write_bytecode = True
    main()
