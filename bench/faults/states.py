"""What scripts do to states and epochs: a state of another dataset, world or seed, an edited one;
epochs in any order."""

import json

from handles import all_of
from oracle import Listing, same
from verdicts import RAW, Told, Verdict, fault, wrong


@fault("a state of one dataset is loaded into a loader of another", clear=["dataset|fingerprint"])
def state_of_another_dataset(h):
    a, b = h.dataset("a"), h.dataset("b", per_class=16)
    client = h.open(a)
    client.ask("iter")
    client.ask("next", n=4)
    state = client.ask("state")
    client.open(b)
    client.ask("load", state=state)
    client.ask("iter")
    same(client.ask("next"), client.expected(Listing(b))[4:])


@fault(
    "a state of a dataset is loaded for a similar one: equal names, sizes and times, other bytes",
    clear=["dataset|fingerprint|content"],
    item=2,
)
def state_of_its_like(h):
    a, b = h.dataset("a", salt="a", mtime=10**9), h.dataset("b", salt="b", mtime=10**9)
    client = h.open(a)
    client.ask("iter")
    client.ask("next", n=4)
    state = client.ask("state")
    h.open(b, name="two").ask("load", state=state)
    raise wrong("the state of another dataset was accepted")


@fault("a state is loaded after files were added", clear=["dataset|fingerprint"])
def state_after_files_were_added(h):
    a = h.dataset("a")
    client = h.open(a)
    client.ask("iter")
    client.ask("next", n=4)
    state = client.ask("state")
    client.end()
    h.stop_daemon()
    h.sample(a / "class1/999.jpg")
    h.open(a).ask("load", state=state)
    raise wrong("the state of another dataset was accepted")


@fault(
    "a state is loaded after one file was rewritten with other bytes of equal size",
    clear=["dataset|fingerprint|content"],
)
def state_after_a_rewrite(h):
    a = h.dataset("a")
    client = h.open(a)
    client.ask("iter")
    client.ask("next", n=4)
    state = client.ask("state")
    client.end()
    h.stop_daemon()
    h.sample(a / "class1/004.jpg", (a / "class1/004.jpg").stat().st_size, salt="new")
    again = h.open(a)
    again.ask("load", state=state)
    again.ask("iter")
    same(again.ask("next"), again.expected(Listing(a))[4:])


@fault("a state of two ranks is loaded by one and by four, and back, in the middle of epochs")
def state_of_another_world(h):
    a = h.dataset("a", per_class=20)  # 80 samples
    listing, state = Listing(a), None
    for step, (world, batch) in enumerate(((2, 10), (1, 20), (4, 5), (2, 10))):
        ranks = [h.client() for _ in range(world)]
        for i, r in enumerate(ranks):
            r.send_open(a, rank=i, world_size=world, batch=batch, name=f"of {world} at {step}")
        for r in ranks:
            r.answer()
        if state:
            all_of(ranks, lambda c, state=state: c.send("load", state=state))
        all_of(ranks, lambda c: c.send("iter"))
        got = all_of(ranks, lambda c: c.send("next", n=1))
        for r, one in zip(ranks, got):
            same(
                one,
                r.expected(listing)[step : step + 1],
                what=f"rank {r.rank} of {world} at step {step}",
            )
        state = json.loads(json.dumps(ranks[0].ask("state")))
        for r in ranks:
            r.end()


@fault("a state of another seed is loaded", clear=["seed"])
def state_of_another_seed(h):
    a = h.dataset("a")
    state = h.open(a, seed=1).ask("state")
    h.open(a, seed=2, name="two").ask("load", state=state)
    raise wrong("the state of another seed was accepted")


@fault(
    "states that were edited by hand are loaded: negative, huge, of wrong types, empty, not a "
    "dictionary",
    clear=None,
)
def state_edited(h):
    client = h.open(h.dataset("a"))
    good = client.ask("state")
    bad = [
        {**good, "epoch": -1},
        {**good, "step": 10**9},
        {**good, "step": "3"},
        {**good, "epoch": 2**70},
        {**good, "step": 1.5},
        {},
        [],
        None,
        7,
        {**good, "epoch": None},
    ]
    for state in bad:
        try:
            client.ask("load", state=state)
            client.ask("iter")
            client.ask("next", n=1)
        except Told as e:
            if not e.ours:
                raise Verdict(RAW, f"{str(state)[-60:]} gave {e}") from None
            continue
        raise wrong(f"the state ...{str(state)[-80:]} was accepted")
    client.ask("load", state=good)
    client.ask("iter")
    same(client.ask("next"), client.expected(Listing(h.tmp / "a")))


@fault("set_epoch forwards, backwards, twice, and again after a break")
def set_epoch_variants(h):
    a = h.dataset("a")
    client, listing = h.open(a), Listing(a)
    client.right(listing, [5, 2, 2, 0, 1000])
    client.ask("iter", epoch=3)
    same(client.ask("next", n=2), client.expected(listing, 3)[:2])
    client.run("loader.set_epoch(9); loader.set_epoch(4)")
    client.ask("iter")
    same(client.ask("next"), client.expected(listing, 4))
    client.ask("iter")
    same(client.ask("next"), client.expected(listing, 5), what="the epoch after")


@fault("set_epoch while an epoch is under way leaves that one as it is")
def set_epoch_under_way(h):
    a = h.dataset("a")
    client, listing = h.open(a), Listing(a)
    client.ask("iter", epoch=0)
    got = client.ask("next", n=2)
    client.run("loader.set_epoch(6)")
    same(got + client.ask("next"), client.expected(listing, 0))
    client.ask("iter")
    same(client.ask("next"), client.expected(listing, 6))


@fault("set_epoch with -1, 2**40, 1.5, a text and None")
def set_epoch_of_nonsense(h):
    a = h.dataset("a")
    client = h.open(a, epochs=3)
    for value in ("-1", "2**40", "1.5", "'x'", "None", "3"):
        try:
            client.run(f"loader.set_epoch({value}); next(iter(loader))")
        except Told as e:
            if not e.ours and e.name not in ("ValueError", "TypeError"):
                raise
            continue
        raise wrong(f"set_epoch({value}) was accepted, of 3 epochs")
    client.right(Listing(a), [1])
