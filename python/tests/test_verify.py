"""``hdmlp verify``: a run that was interrupted, and went on with other ranks, is proved whole."""

import json
import signal
import subprocess

import pytest
from hdmlp import Job, data
from hdmlp import transforms as T
from hdmlp._daemon import connecting
from hdmlp._launch.place import Place
from hdmlp._loading.delivered import MOST, Part, parts

pytestmark = pytest.mark.usefixtures("real")

SEED, GLOBAL, EPOCHS = 5, 4, 3


def verify(paths, *flags):
    """The command's exit status, output and errors."""
    command = [connecting.find_binary(), "verify", *flags, *map(str, paths)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60)
    return ended.returncode, ended.stdout, ended.stderr


def launch(folder, directory, ranks, steps, states=(), **keys):
    """Runs some ranks for some steps, from the states of others; returns the files with theirs."""
    loaders = [
        data.DataLoader(
            folder,
            GLOBAL // ranks,
            seed=SEED,
            epochs=EPOCHS,
            rank=rank,
            world_size=ranks,
            name=f"{directory.name}-{ranks}",
            **keys,
        )
        for rank in range(ranks)
    ]
    for rank, loader in enumerate(loaders):
        if states:
            loader.load_state_dict(json.loads(states[rank % len(states)].read_text()))
    left = steps
    while left and loaders[0].epoch < EPOCHS:
        for _ in zip(*loaders):
            left -= 1
            if not left:
                break
    files = []
    directory.mkdir(exist_ok=True)
    for rank, loader in enumerate(loaders):
        files.append(directory / f"{rank}.json")
        files[-1].write_text(json.dumps({"epoch": 1, "loader": loader.state_dict()}))
        loader.close()
    return files


@pytest.fixture
def run(folder, tmp_path):
    """The files of three launches: 2 ranks for 9 steps, 1 for 5, and 4 up to the end."""

    def inner(files):  # as a program takes the loader's state out of its own checkpoint
        for file in files:
            file.write_text(json.dumps(json.loads(file.read_text())["loader"]))
        return files

    first = inner(launch(folder, tmp_path / "first", 2, 9))
    second = inner(launch(folder, tmp_path / "second", 1, 5, first))
    return [first, second, launch(folder, tmp_path / "last", 4, 100, second)]


def test_a_run_is_proved_across_launches(run):
    first, second, last = run
    status, out, err = verify([*first, *last])
    assert (status, err) == (0, "")
    assert out.splitlines() == [
        "2 ranks: step 0 of epoch 0 to step 1 of epoch 1",
        "1 rank: steps 2 to 6 of epoch 1",
        "4 ranks: epoch 2",
        # 25 samples, padded to a multiple of the ranks: 26 of 2, 25 of 1 and 28 of 4
        "proved: in epochs 0 to 2, 79 samples, each sample came exactly once, as the order has it",
    ]
    assert verify([*first, *second, *last])[:2] == (0, out)
    status, out, _ = verify([*first, *last], "--json")
    assert json.loads(out)["proved"] is True


def test_what_is_not_proved_is_said(run):
    first, _, last = run
    status, out, err = verify([*first, *last[:3]])
    assert status == 1
    assert "missing: epoch 2: no state says that it was delivered to rank 3 of 4\n" in out
    assert "not proved" in err
    status, out, _ = verify(last)
    assert status == 1
    first_launch = "missing: step 0 of epoch 0 to step 1 of epoch 1"
    assert f"{first_launch}: no state says that it was delivered to rank 1 of 2" in out

    state = json.loads(first[1].read_text())
    state["delivered"][0]["sum"] = "0123456789abcdef"
    first[1].write_text(json.dumps(state))
    status, out, _ = verify([*first, *last])
    assert status == 1
    assert "wrong: rank 1 of 2, step 0 of epoch 0 to step 1 of epoch 1: 17 samples" in out


def test_states_that_do_not_fit_are_wrong_input(run, folder, tmp_path):
    first, _, last = run
    state = json.loads(first[0].read_text())
    for key, value, what in [
        ("seed", 6, "the states are of different runs: seed is 6 in"),
        ("scheme", "whole", "the states are of different runs: scheme is whole in"),
        ("steps", 9, "the states are of different runs: steps is 9 in"),
        ("version", 2, "version is 2, and this release reads 1"),
        ("samples", "many", "samples is a string: the state was changed"),
        ("delivered", None, "does not say what its rank was given"),
        ("delivered", [{**state["delivered"][0], "rank": 7}], "rank 7 of 2: the state was changed"),
        ("delivered", [{**state["delivered"][0], "sum": "x"}], 'sum is "x", and not 16'),
        ("delivered", [{**state["delivered"][0], "to": [0, 70]}], "step 70 of epoch 0, and an"),
        ("delivered", [{**state["delivered"][0], "from": [0]}], "from has 1 number"),
        ("epoch", 0, "epoch is 0 and step is 2, and delivered ends at epoch 1, step 2"),
        ("random", 1, "random is 1, and this release reads 2"),
        ("order", {"policy": "mine"}, "a policy made an order of its own"),
        ("mix", "12ab", "mix is a string: the state was changed"),
        ("mix", {"sizes": [25], "weights": [[1]], "entries": 9, "single": False}, "mix is"),
        ("mix", {"sizes": [25], "weights": [[1]], "entries": 9}, "mix.single is missing"),
        ("kind", "sampler", "whose order a sampler drew"),
    ]:
        changed = tmp_path / "changed.json"
        changed.write_text(json.dumps({**state, key: value}))
        status, out, err = verify([changed, first[1], *last])
        assert (status, out) == (2, ""), (key, out)
        assert what in err, key
    for text, what in [("no", "not JSON"), ("[1]", "no state of an HDMLP loader in it")]:
        changed.write_text(text)
        status, _, err = verify([changed])
        assert status == 2
        assert what in err
    with data.DataLoader(folder, 4, seed=SEED) as loader:
        changed.write_text(json.dumps(loader.state_dict()))
    status, _, err = verify([changed])
    assert status == 2
    assert "nothing was delivered before the state was saved" in err
    assert verify([])[0] == 2
    assert "no such file" in verify([tmp_path / "none"])[2]


def test_epochs_that_the_loop_left_are_gaps(folder, tmp_path):
    with data.DataLoader(folder, 5, seed=SEED, epochs=3) as loader:
        next(iter(loader))
        for _ in loader:
            pass
        file = tmp_path / "state.json"
        file.write_text(json.dumps(loader.state_dict()))
    status, out, _ = verify([file])
    assert status == 1
    assert "missing: steps 1 to 4 of epoch 0: no state says that it was delivered" in out


def passes(loader, tmp_path, *epochs):
    """What is said of a loader that yields some steps of some epochs: pairs of epoch and steps."""
    file = tmp_path / f"{len(list(tmp_path.iterdir()))}.json"
    for epoch, steps in epochs:
        loader.set_epoch(epoch)
        for step, _ in enumerate(loader, 1):
            if step == steps:
                break
    file.write_text(json.dumps(loader.state_dict()))
    return file, verify([file])


def test_epochs_that_come_again_are_repetitions(folder, tmp_path):
    """Also where a pass is a part of another one, or equal to it."""
    for epochs, what in [
        ([(0, 5), (0, 5), (0, 5)], "twice: epoch 0: samples came 3 times"),
        ([(0, 2), (0, 5)], "twice: steps 0 to 1 of epoch 0: samples came 2 times"),
        ([(0, 5), (1, 5), (0, 3)], "twice: steps 0 to 2 of epoch 0: samples came 2 times"),
    ]:
        with data.DataLoader(folder, 5, seed=SEED, epochs=3) as loader:
            _, (status, out, _) = passes(loader, tmp_path, *epochs)
        assert status == 1, out
        assert what in out
        assert "proved" not in out
    with data.DataLoader(folder, 5, seed=SEED, epochs=3) as loader:
        _, (status, out, _) = passes(loader, tmp_path, (2, 5), (1, 5), (0, 5))
        assert status == 0, out


def test_a_loader_that_begins_again_gives_samples_twice(folder, tmp_path):
    """States of both passes are there; one alone, or one that the other extends, proves."""
    with data.DataLoader(folder, 5, seed=SEED, epochs=3) as loader:
        start = loader.state_dict()
        early, (status, _, _) = passes(loader, tmp_path, (0, 5))
        assert status == 0
        first, (status, _, _) = passes(loader, tmp_path, (1, 3))
        assert status == 0
        loader.load_state_dict(start)
        again, (status, _, _) = passes(loader, tmp_path, (0, 5))
        assert status == 0
    assert verify([early, first])[0] == 0
    for states in ([first, again], [again, first], [early, again]):
        status, out, _ = verify(states)
        assert status == 1, out
        assert "twice: epoch 0: samples came 2 times" in out


def test_samples_that_are_left_out_are_not_proved(tmp_path):
    numpy = pytest.importorskip("numpy")
    image = pytest.importorskip("PIL.Image")
    root = tmp_path / "images"
    (root / "a").mkdir(parents=True)
    for i in range(6):
        image.fromarray(numpy.zeros((8, 8, 3), "uint8")).save(root / "a" / f"{i}.png")
    (root / "a" / "6.png").write_bytes(b"no image")
    keys = {"transforms": [T.Resize((4, 4)), T.ToTensor()], "on_error": "skip"}
    with data.DataLoader(str(root), 7, seed=SEED, epochs=1, **keys) as loader:
        assert len(next(iter(loader)).labels) == 6
        file = tmp_path / "state.json"
        file.write_text(json.dumps(loader.state_dict()))
    status, out, _ = verify([file])
    assert status == 1
    assert "wrong: rank 0 of 1, epoch 0: 6 samples that sum to" in out
    assert "on_error leaves samples out" in out


@pytest.mark.parametrize("workers", [0, 2])
def test_a_batch_whose_making_failed_did_not_come(folder, tmp_path, workers):
    """Whether the loop goes on, or the run does, from a state that was saved after the error."""
    ht = pytest.importorskip("hdmlp.torch")
    flag = tmp_path / "failed"

    def collate(items):
        if any(label == 1 for _, label in items) and not flag.exists():
            flag.touch()
            raise MemoryError
        return len(items)

    def loader(name):
        keys = {"shuffle": True, "seed": SEED, "name": name, "num_workers": workers}
        return ht.DataLoader(ht.ImageFolder(folder), 4, collate_fn=collate, **keys)

    came, batches = 0, loader(f"on-{workers}")
    with batches:
        iterator = iter(batches)
        with pytest.raises(MemoryError):
            for n in iterator:
                came += n
        early = batches.state_dict()
        came += sum(iterator)
        late = batches.state_dict()
    total = len(batches.dataset)
    assert 0 < came < total
    with loader(f"resumed-{workers}") as batches:
        batches.load_state_dict(early)
        sum(batches)
        resumed = batches.state_dict()
    for state in early, late, resumed:
        file = tmp_path / "state.json"
        file.write_text(json.dumps(state))
        status, out, err = verify([file])
        assert status == 1, (state, out, err)
        assert "wrong: rank 0 of 1" in out
        assert "a batch does not come if a transform or collate_fn raised for it" in out


def test_passes_that_a_state_drops_are_counted():
    place = Place(0, 1, 0, "a test")
    earlier = ()
    for i in range(MOST + 3):
        earlier = parts(earlier, Part(i, i + 1, 7, 1, f"{i:016x}"), place, 5)
    assert [part.get("dropped") for part in earlier] == [3] + [None] * (MOST - 1)
    assert [int(part["id"], 16) for part in earlier] == list(range(3, MOST + 3))


def test_a_subset_is_proved_by_its_indices(folder, tmp_path):
    torch = pytest.importorskip("torch")
    import hdmlp.torch as ht

    chosen, file, indices = [3, 9, 9, 20, 4, 17, 8], tmp_path / "state", tmp_path / "indices"
    subset = torch.utils.data.Subset(ht.ImageFolder(folder), chosen)
    with ht.DataLoader(subset, 2, shuffle=True, seed=SEED, epochs=2, raw=True) as loader:
        for _ in range(2):
            for _ in loader:
                pass
        file.write_text(json.dumps(loader.state_dict()))
    status, _, err = verify([file])
    assert status == 2
    assert "give their indices" in err
    indices.write_text(json.dumps(chosen))
    status, out, err = verify([file], "--indices", str(indices))
    assert (status, err) == (0, "")
    assert "proved: in epochs 0 to 1, 14 samples" in out
    for text, what in [
        ('{"a": 1}', "there is a JSON object"),
        ("null", "it is null"),
        ("[1.5]", "there is a JSON number 1.5"),
        ("[1] x", "invalid character 'x' after"),
    ]:
        indices.write_text(text)
        status, _, err = verify([file], "--indices", str(indices))
        assert status == 2
        assert "not a JSON list of whole numbers" in err
        assert what in err
    indices.write_text(json.dumps(chosen[::-1]))
    status, _, err = verify([file], "--indices", str(indices))
    assert status == 2
    assert "they are not the loader's" in err


def test_an_interruption_loses_nothing_of_the_sum(folder, tmp_path, request):
    """Also if a signal's handler raises while a function of the loop's makes a batch."""

    class Late(Exception):
        pass

    failed = []

    def collate(items):
        if len(failed) < 3 and len(items) % 2:
            failed.append(1)
            signal.raise_signal(signal.SIGUSR1)
        return items

    def handler(number, frame):
        raise Late

    before = signal.signal(signal.SIGUSR1, handler)
    request.addfinalizer(lambda: signal.signal(signal.SIGUSR1, before))
    file = tmp_path / "state.json"
    with data.DataLoader(folder, 5, seed=SEED, epochs=2, collate_fn=collate) as loader:
        for _ in range(2):
            batches = iter(loader)
            while True:
                try:
                    next(batches)
                except Late:
                    continue
                except StopIteration:
                    break
        file.write_text(json.dumps(loader.state_dict()))
    assert failed
    status, out, _ = verify([file])
    assert status == 0, out


def test_a_job_has_no_state_but_loaders_of_each_scheme_do(folder, tmp_path):
    assert not hasattr(Job, "state_dict")
    for scheme in ("uniform", "whole", "imbalanced"):
        steps = 6 if scheme == "whole" else 3
        files = launch(folder, tmp_path / scheme, 2, steps, scheme=scheme, drop_last=True)
        status, out, err = verify(files)
        assert status == 0, (scheme, out, err)
