"""on_error if Python decodes: a file that PIL cannot decode is treated as one that the daemon
cannot read or decode."""

import io
import itertools
import logging
import os
import random
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")
torchvision = pytest.importorskip("torchvision")
Image = pytest.importorskip("PIL.Image")

import hdmlp.torch as ht
from hdmlp import Job, errors
from hdmlp._loading import bring
from hdmlp._transforms.recipe import Undecodable
from reference import decoded, jpegs, read

V = torchvision.transforms
pytestmark = pytest.mark.usefixtures("real")
TRANSFORM = V.Compose([V.Resize((8, 8)), V.ToTensor()])
WORKERS = pytest.mark.parametrize("workers", [0, 2])


@pytest.fixture
def folder(tmp_path):
    """12 images in BMP, which the daemon does not decode; 5 are damaged in different ways. Its
    path, and their IDs."""
    root = jpegs(tmp_path / "data", {"ant": 7, "bee": 5})
    paths = [path for path, _ in torchvision.datasets.ImageFolder(root).samples]
    for path in paths:
        image = decoded(path)
        os.remove(path)
        image.save(path[:-4] + ".bmp")
    paths = [path[:-4] + ".bmp" for path in paths]
    whole = read(paths[9])
    png = io.BytesIO()
    Image.new("RGB", (20, 20)).save(png, "PNG")
    bomb = bytearray(png.getvalue())
    bomb[16:24] = (60000).to_bytes(
        4, "big"
    ) * 2  # its header says 60000 x 60000 pixels; PIL looks at that first
    for bad, data in (
        (2, b"no image at all"),
        (3, whole[: len(whole) // 2]),
        (4, b"BM"),
        (9, png.getvalue()[:50]),
        (11, bytes(bomb)),
    ):
        with open(paths[bad], "wb") as file:
            file.write(data)
    return root, [2, 3, 4, 9, 11]


def broken_png():
    """A PNG file of which a later chunk is damaged."""
    file = io.BytesIO()
    Image.frombytes("RGB", (300, 300), random.Random(1).randbytes(270_000)).save(file, "PNG")
    data = bytearray(file.getvalue())
    second = data.index(b"IDAT", data.index(b"IDAT") + 4)
    data[second : second + 4] = b"\x01\x02\x03\x04"
    return bytes(data)


def want_of(root, bad, order, substitute):
    """The (image, label) of the samples in this order, as torchvision makes them, without the bad
    ones or with the next good sample of the epoch in their place."""
    samples = torchvision.datasets.ImageFolder(root).samples
    out = []
    for sample in order:
        while substitute and (sample in bad or sample not in order):
            sample = (sample + 1) % len(samples)
        if sample not in bad:
            path, label = samples[sample]
            out.append((TRANSFORM(decoded(path)), label))
    return out


def check(got, want):
    assert [int(label) for _, labels in got for label in labels] == [label for _, label in want]
    assert torch.equal(
        torch.cat([images for images, _ in got]), torch.stack([image for image, _ in want])
    )


@WORKERS
@pytest.mark.parametrize("policy", ["skip", "substitute"])
@pytest.mark.parametrize("memory", ["1B", "10MB"])
def test_each_policy_treats_bad_files_as_the_daemon_does(folder, workers, policy, memory, caplog):
    root, bad = folder
    caplog.set_level(logging.WARNING, "hdmlp")
    with ht.DataLoader(
        ht.ImageFolder(root, TRANSFORM),
        3,
        shuffle=True,
        seed=5,
        epochs=2,
        offload=False,
        num_workers=workers,
        on_error=policy,
        memory=memory,
        verify=True,
    ) as loader:
        for epoch in range(2):
            order = [
                sample for step in range(len(loader)) for sample in loader.explain(epoch, step).ids
            ]
            got = list(loader)
            assert len(got) == len(loader)
            if policy == "substitute":
                assert [len(labels) for _, labels in got] == [3, 3, 3, 3]
            check(
                [batch for batch in got if len(batch[1])],
                want_of(root, bad, order, policy == "substitute"),
            )
        report = loader.report()
    assert [(fault["sample"], fault["policy"]) for fault in report["faults"]] == [
        (sample, policy) for sample in bad
    ]
    assert all(
        "the file cannot be decoded and transformed in Python" in fault["reason"]
        and fault["count"] > 0
        for fault in report["faults"]
    )
    assert "5 samples could not be read or transformed" in str(report)
    said = [
        record.getMessage()
        for record in caplog.records
        if "cannot be decoded and transformed in Python" in record.getMessage()
    ]
    assert len(said) == len(bad)
    assert not any(
        "could not be verified" in record.getMessage()
        or "cannot be verified" in record.getMessage()
        for record in caplog.records
    )
    for sample, message in zip(bad, sorted(said, key=lambda text: int(text.split()[1]))):
        assert message.startswith(f"sample {sample} (")
        assert loader.dataset.sample(sample)[0] in message
        assert f"on_error={policy}" in message
    assert (
        "UnidentifiedImageError" in said[0]
        or "OSError" in said[0]
        or "DecompressionBomb" in said[0]
        or "SyntaxError" in said[0]
    )


def test_a_bad_sample_without_a_path_is_named_by_its_number(caplog):
    stream = SimpleNamespace(call=lambda method, params: {"on_error": "skip"})
    source = SimpleNamespace(restart=lambda: None)
    bad = Undecodable("OSError: truncated")
    bad.sample, bad.path = 3, None
    bring._leave_out(SimpleNamespace(stream=stream, source=source), bad)
    assert caplog.messages == [
        "sample 3 (path unknown) cannot be decoded and transformed in Python, and is left out "
        "(on_error=skip): OSError: truncated"
    ]


@WORKERS
def test_raise_names_the_bad_file(folder, workers):
    root, _bad = folder
    with ht.DataLoader(
        ht.ImageFolder(root, TRANSFORM), 1, offload=False, num_workers=workers
    ) as loader:
        for again in range(2):  # when it is iterated again, the daemon has them
            batches = iter(loader)
            check([next(batches), next(batches)], want_of(root, [], [0, 1], False))
            with pytest.raises(
                errors.SampleError,
                match="cannot be decoded and transformed in Python: UnidentifiedImageError",
            ) as caught:
                next(batches)
            assert caught.value.sample == 2
            assert caught.value.path == loader.dataset.sample(2)[0]
            if not again:
                assert "UnidentifiedImageError" in str(caught.value.__cause__) or isinstance(
                    caught.value.__cause__, Image.UnidentifiedImageError
                )
        assert [fault["sample"] for fault in loader.report()["faults"]] == [2]


@WORKERS
def test_a_bad_file_ends_all_ranks_before_the_same_step(folder, workers):
    """As if the daemon had found it."""
    root, _ = folder
    ranks = [
        ht.DataLoader(
            ht.ImageFolder(root, TRANSFORM),
            1,
            offload=False,
            num_workers=workers,
            rank=rank,
            world_size=2,
            shuffle=False,
            seed=1,
            name="both",
        )
        for rank in range(2)
    ]
    first, second = map(iter, ranks)
    next(first), next(second)  # samples 0 and 1
    with pytest.raises(errors.SampleError):
        next(first)  # sample 2
    with pytest.raises(
        errors.SampleError, match=r"rank 0 stopped: .*cannot be decoded and transformed in Python"
    ) as caught:
        next(second)
    assert caught.value.sample == 2
    assert caught.value.rank == 0
    for loader in ranks:
        loader.close()


@WORKERS
def test_policies_apply_to_subsets_and_samplers(folder, workers):
    root, bad = folder
    part = torch.utils.data.Subset(ht.ImageFolder(root, TRANSFORM), [1, 2, 5, 9, 8])
    with ht.DataLoader(
        part, 2, offload=False, num_workers=workers, on_error="substitute"
    ) as loader:
        check(
            list(loader), want_of(root, [], [1, 5, 5, 1, 8], False)
        )  # the next of the subset stands in
    order = [9, 0, 2, 5, 6]
    with ht.DataLoader(
        ht.ImageFolder(root, TRANSFORM),
        2,
        offload=False,
        num_workers=workers,
        on_error="skip",
        sampler=order,
    ) as loader:
        for _ in range(2):
            check(list(loader), want_of(root, bad, order, False))
        assert [fault["sample"] for fault in loader.report()["faults"]] == [2, 9]


@WORKERS
def test_a_resumed_epoch_leaves_out_the_same_files(folder, workers):
    root, _bad = folder
    options = dict(offload=False, num_workers=workers, on_error="skip", shuffle=True, seed=3)
    with ht.DataLoader(ht.ImageFolder(root, TRANSFORM), 3, **options) as loader:
        whole = list(loader)
    with ht.DataLoader(ht.ImageFolder(root, TRANSFORM), 3, **options) as loader:
        begun = iter(loader)
        next(begun), next(begun)
        state = loader.state_dict()
    with ht.DataLoader(ht.ImageFolder(root, TRANSFORM), 3, **options) as loader:
        loader.load_state_dict(state)
        rest = list(loader)
    assert len(rest) == len(whole) - 2
    assert all(torch.equal(x, u) and torch.equal(y, v) for (x, y), (u, v) in zip(rest, whole[2:]))


@WORKERS
def test_errors_of_user_code_raise_under_every_policy(folder, workers):
    root, _ = folder

    def fails(image):
        raise OSError("mine")

    def load(view):
        return Image.open(io.BytesIO(view)).convert("RGB")

    with ht.DataLoader(
        ht.ImageFolder(root, fails), 1, num_workers=workers, on_error="skip", offload=False
    ) as loader:
        with pytest.raises(OSError, match="mine"):
            next(iter(loader))
        assert loader.report()["faults"] == []
    with ht.DataLoader(
        ht.ImageFolder(root, TRANSFORM, loader=load), 3, num_workers=workers, on_error="skip"
    ) as loader:
        with pytest.raises(Image.UnidentifiedImageError):
            next(iter(loader))
        assert loader.report()["faults"] == []


@pytest.mark.parametrize("policy", ["skip", "substitute"])
def test_policies_apply_to_the_thesiss_loader(folder, policy, monkeypatch):
    root, bad = folder
    monkeypatch.setenv("HDMLP_ON_ERROR", policy)
    job = Job(root, 4, 1, seed=2)
    dataset = ht.HDMLPImageFolder(
        root, job, V.Compose([TRANSFORM.transforms[0].forward, V.ToTensor()])
    )  # the daemon has no functions
    order = [sample for step in range(job.steps) for sample in job._loader.explain(0, step).ids]
    check(list(ht.HDMLPDataLoader(dataset)), want_of(root, bad, order, policy == "substitute"))
    assert [fault["sample"] for fault in job._loader.report()["faults"]] == bad
    job.destroy()


@WORKERS
@pytest.mark.parametrize("policy", ["skip", "substitute"])
def test_policies_apply_to_repeated_samples(folder, workers, policy):
    root, bad = folder
    drawn = [3, 0, 3, 1, 9, 0, 5, 11, 5, 2]
    with ht.DataLoader(
        ht.ImageFolder(root, TRANSFORM),
        5,
        offload=False,
        sampler=drawn,
        num_workers=workers,
        on_error=policy,
    ) as loader:
        check(list(loader), want_of(root, bad, drawn, policy == "substitute"))


class Endless(torch.utils.data.Sampler):
    def __init__(self):
        pass

    def __iter__(self):
        return itertools.cycle(range(12))


def test_policies_without_meaning_are_refused(folder, monkeypatch):
    """Epochs made without the daemon cannot follow a policy."""
    root, _ = folder
    dataset = ht.ImageFolder(root, TRANSFORM)
    for policy in ("skip", "substitute"):
        with pytest.raises(errors.ConfigError, match=f"on_error='{policy}'.*batch_size"):
            ht.DataLoader(dataset, batch_size=None, on_error=policy)
        with ht.DataLoader(dataset, 4, offload=False, sampler=Endless(), on_error=policy) as loader:
            with pytest.raises(
                errors.ConfigError,
                match=f"on_error='{policy}': Endless has no __len__, or a wrong one",
            ):
                iter(loader)
    monkeypatch.setenv("HDMLP_ON_ERROR", "skip")
    with pytest.raises(errors.ConfigError, match=r"on_error='skip'.*batch_size"):
        ht.DataLoader(dataset, batch_size=None)


def test_items_of_a_folder_are_errors_that_name_the_file(folder):
    """Of the types that PIL raises, for datasets of which Python reads the items."""
    root, bad = folder
    path = os.path.join(os.path.dirname(torchvision.datasets.ImageFolder(root).samples[0][0]), "z")
    with open(f"{path}.png", "wb") as file:  # for which PIL raises SyntaxError
        file.write(broken_png())
    bad = [*(sample + (sample > 6) for sample in bad), 7]
    items = ht.ImageFolder(root)
    theirs = torchvision.datasets.ImageFolder(root)
    for sample in bad:
        try:
            theirs[sample]
        except Exception as error:
            want = type(error)
        with pytest.raises(want) as caught:
            torch.utils.data.ConcatDataset([items, items])[len(items) + sample]
        assert str(caught.value).startswith(f"sample {sample} ({theirs.samples[sample][0]}): ")
        assert "BytesIO" not in str(caught.value)
    mine = ht.ImageFolder(root, loader=lambda data: Image.open(io.BytesIO(data)))
    with pytest.raises(Image.UnidentifiedImageError, match=r"^cannot identify"):
        mine[bad[0]]
