"""``batch_transform=``: what a loader does with each batch last, such as mixing its images."""

import functools
import importlib.util
import logging
import signal

import numpy
import pytest

torch = pytest.importorskip("torch")
torchvision = pytest.importorskip("torchvision")

import hdmlp.torch as ht
from byhand import by_hand
from hdmlp import errors
from hdmlp._lib.protocol import mix64
from hdmlp.torch._data import batch_transform, mixing
from pins import Pinned, cuda  # noqa: F401 - a fixture
from reference import decoded, jpegs
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    DistributedSampler,
    IterableDataset,
    SequentialSampler,
    default_collate,
)
from torchvision import transforms as V

SEED, CLASSES = 77, 5
HAS_V2 = hasattr(torchvision.transforms, "v2") or importlib.util.find_spec(
    "torchvision.transforms.v2"
)
MIXERS = ["function"]
if HAS_V2:
    from torchvision.transforms import v2

    if hasattr(v2, "MixUp"):
        MIXERS += ["MixUp", "CutMix", "RandomChoice", "RandomApply"]
if importlib.util.find_spec("timm") is not None:
    MIXERS += ["timm", "timm cut", "timm pair"]


def noisy(batch):
    """Draws from torch's and numpy's generators."""
    images, labels = batch
    return images + torch.rand(1), labels, numpy.random.rand()


def mixer(name):
    """A transform of batches, made anew."""
    if name == "function":
        return noisy
    if name.startswith("timm"):
        from timm.data.mixup import Mixup

        own = {"mode": "pair"} if name == "timm pair" else {}
        if name == "timm cut":
            own = {"cutmix_minmax": (0.2, 0.8), "prob": 0.7, "label_smoothing": 0.0}
        return Mixup(cutmix_alpha=0.7, num_classes=CLASSES, **own)
    both = [v2.MixUp(alpha=0.4, num_classes=CLASSES), v2.CutMix(num_classes=CLASSES)]
    every = {"MixUp": both[0], "CutMix": both[1], "RandomChoice": v2.RandomChoice(both)}
    return every[name] if name in every else v2.RandomApply(both, 0.7)


def apply(own, batch):
    """Their own code."""
    return own(*batch) if type(own).__name__ == "Mixup" else own(batch)


def same(got, want):
    """Reports whether two batches, or parts of them, have the same bits."""
    if isinstance(want, torch.Tensor):
        return got.dtype == want.dtype and torch.equal(got, want)
    if isinstance(want, (list, tuple)):
        return type(got) is type(want) and len(got) == len(want) and all(map(same, got, want))
    return got == want


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """21 images, of one size after RESIZED."""
    return jpegs(tmp_path_factory.mktemp("jpegs") / "data", {"ant": 7, "bee": 6, "cat": 8})


RESIZED = V.Compose([V.Resize((20, 16)), V.ToTensor()])


def wanted(root, name, epoch, rank=0, ranks=1, size=4, drop_last=False, make=default_collate):
    """What torch's loader yields in an epoch, and the mixer makes of it by hand."""
    dataset = torchvision.datasets.ImageFolder(root, RESIZED)
    sampler = DistributedSampler(dataset, ranks, rank, seed=SEED, drop_last=drop_last)
    sampler.set_epoch(epoch)
    batches = DataLoader(dataset, size, sampler=sampler, drop_last=drop_last, collate_fn=make)
    for step, batch in enumerate(batches):
        with ht.seeded_batch(SEED, epoch, step, rank):
            yield apply(mixer(name), batch)


def loader(dataset, name, size=4, **options):
    given = {"shuffle": True, "seed": SEED, **options}
    return ht.DataLoader(dataset, size, batch_transform=mixer(name), **given)


def test_the_key_is_the_documented_one():
    key = SEED ^ 0x4261746368657321
    for number in (3, 5, 1):
        key = mix64(key) ^ number
    assert ht.batch_seed(SEED, 3, 5, 1) == mix64(mix64(key) ^ 1)
    with pytest.raises(errors.ConfigError, match="rank=-1"):
        ht.batch_seed(SEED, 3, 5, -1)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("name", MIXERS)
def test_batches_are_mixed_as_by_hand(real, folder, name, workers):
    """Over two epochs, of tensors from the daemon, and of what Python makes."""
    even = name.startswith("timm")  # it refuses a last batch of one image
    for transform in (RESIZED, V.Compose([*RESIZED.transforms, _same])):
        with loader(
            ht.ImageFolder(folder, transform), name, num_workers=workers, drop_last=even
        ) as made:
            for epoch in range(2):
                assert same(list(made), list(wanted(folder, name, epoch, drop_last=even)))


def _same(value):
    return value


@pytest.mark.parametrize("name", MIXERS)
def test_the_rest_of_an_epoch_is_mixed_as_all_of_it(real, folder, name):
    data = ht.ImageFolder(folder, RESIZED)
    with (
        loader(data, name, 2, drop_last=True) as first,
        loader(data, name, 2, drop_last=True) as second,
    ):
        for _ in first:
            pass
        batches = iter(first)
        for _ in range(3):
            next(batches)
        state = first.state_dict()
        second.load_state_dict(state)
        want = list(wanted(folder, name, 1, size=2, drop_last=True))[3:]
        assert same(list(batches), want)
        assert same(list(second), want)


def test_ranks_mix_differently(real, folder):
    """Each rank's batches are mixed under its number."""
    data = ht.ImageFolder(folder, RESIZED)
    options = {"shuffle": True, "seed": SEED, "world_size": 2, "epochs": 1, "name": "ranks"}
    ranks = [
        ht.DataLoader(data, 4, batch_transform=noisy, rank=rank, **options) for rank in range(2)
    ]
    want = [list(wanted(folder, "function", 0, rank, 2)) for rank in range(2)]
    assert same([list(batches) for batches in zip(*ranks)], [list(b) for b in zip(*want)])
    for made in ranks:
        made.close()


class Shard(BatchSampler):
    """As accelerate's: every second batch of an order that both ranks draw."""

    seed = SEED

    def __init__(self, batches, process_index):
        self.batch_sampler, self.process_index, self.num_processes = batches, process_index, 2

    def __len__(self):
        return len(self.batch_sampler) // 2

    def __iter__(self):
        batches = list(self.batch_sampler)
        return iter(batches[self.process_index : 2 * len(self) : 2])


@pytest.mark.parametrize("workers", [0, 2])
def test_accelerates_shards_are_mixed_by_their_ranks(real, folder, workers):
    """Samples are transformed as on one rank."""
    transform = V.Compose([V.RandomResizedCrop(16), V.ToTensor()])
    data = ht.ImageFolder(folder, transform)
    for rank in range(2):
        shard = Shard(BatchSampler(SequentialSampler(data), 4, True), rank)
        with ht.DataLoader(
            data, batch_sampler=shard, seed=SEED, num_workers=workers, batch_transform=noisy
        ) as made:
            got = list(made)
        assert len(got) == 2
        for step, batch in enumerate(got):
            items = []
            for i in list(shard)[step]:
                path, label = data.samples[i]
                items.append((by_hand(transform, decoded(path), SEED, 0, i), label))
            with ht.seeded_batch(SEED, 0, step, rank):
                assert same(batch, noisy(default_collate(items)))


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("name", MIXERS)
def test_items_of_other_datasets_are_mixed(folder, name, workers):
    levels = torch.rand(8, 3, 9, 8, generator=torch.Generator().manual_seed(1))
    items = [(image, i % CLASSES) for i, image in enumerate(levels)]
    made = loader(items, name, shuffle=False, num_workers=workers)
    for epoch in range(2):
        for step, batch in enumerate(made):
            plain = default_collate(items[4 * step : 4 * step + 4])
            with ht.seeded_batch(SEED, epoch, step):
                assert same(batch, apply(mixer(name), plain))
    assert torch.equal(levels, torch.rand(8, 3, 9, 8, generator=torch.Generator().manual_seed(1)))


def doubled(items):
    """Draws; and keeps what it returns."""
    images, labels = default_collate(items)
    KEPT.append(images * (1 + torch.rand(1)))
    return KEPT[-1], labels


KEPT = []


@pytest.mark.parametrize("name", [n for n in MIXERS if n not in ("function", "timm pair")][:3])
def test_what_a_collate_function_keeps_is_not_written_to(real, folder, name):
    """It draws before the batch_transform, from generators of its own."""
    KEPT.clear()
    data = ht.ImageFolder(folder, RESIZED)
    with loader(data, name, collate_fn=doubled, num_workers=0, drop_last=True) as made:
        got = list(made)
    with ht.DataLoader(
        data, 4, shuffle=True, seed=SEED, collate_fn=doubled, num_workers=0, drop_last=True
    ) as made:
        plain = list(made)
    kept, again = KEPT[: len(got)], KEPT[len(got) :]
    assert same(kept, again)
    for step, batch in enumerate(plain):
        with ht.seeded_batch(SEED, 0, step):
            assert same(got[step], apply(mixer(name), batch))


def test_the_generators_of_the_process_stay(real, folder):
    data = ht.ImageFolder(folder, RESIZED)
    before = numpy.random.get_state()[1].tolist()
    after = []
    for transform in (noisy, None):
        torch.manual_seed(1)
        with ht.DataLoader(data, 4, batch_transform=transform) as made:
            list(made)
        after.append(torch.get_rng_state())
    assert torch.equal(*after)
    assert before == numpy.random.get_state()[1].tolist()


class Changing:
    """A batch sampler that yields what the loop sets, and so cannot be foreseen; and one that has
    an empty batch."""

    seed = SEED

    def __init__(self, empty):
        self.empty, self.next = empty, 0

    def __len__(self):
        return 5

    def __iter__(self):
        for step in range(5):
            if self.empty:
                yield [] if step == 1 else [step, step + 1]
            else:
                yield [self.next, self.next + 1]


@pytest.mark.parametrize("empty", [True, False])
def test_batches_of_any_sampler_have_their_number_in_the_epoch(real, folder, empty):
    numbers = []

    def draw(batch):
        numbers.append(torch.rand(1).item())
        return batch

    with ht.DataLoader(
        ht.ImageFolder(folder, RESIZED),
        batch_sampler=Changing(empty),
        seed=SEED,
        collate_fn=len,
        batch_transform=draw,
    ) as made:
        sizes = []
        for step, size in enumerate(made):
            made.batch_sampler.next = 2 * step
            sizes.append(size)
    assert sizes == [2, 0, 2, 2, 2] if empty else [2] * 5
    want = []
    for step in range(5):
        with ht.seeded_batch(SEED, 0, step):
            want.append(torch.rand(1).item())
    assert numbers == (want[:1] + want[2:] if empty else want)


class Struck(Exception):
    """What a signal's handler raises."""


def strike(number, frame):
    raise Struck


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("served", [True, False])
def test_a_batch_that_a_signal_interrupts_is_made_again(real, folder, served, workers):
    """Also if it was mixed in part."""
    struck = []

    def mix(batch):
        images, labels = batch
        images += torch.rand(1)
        if len(struck) < 2:
            struck.append(True)
            signal.raise_signal(signal.SIGUSR1)
        return images, labels

    levels = torch.rand(8, 3, 5, 5)
    data = [(image, 1) for image in levels]
    if served:
        data = ht.ImageFolder(folder, V.Compose([*RESIZED.transforms, _same]))
    before = signal.signal(signal.SIGUSR1, strike)
    try:
        made = ht.DataLoader(
            data, 4, shuffle=True, seed=SEED, batch_transform=mix, num_workers=workers
        )
        batches, got = iter(made), []
        while True:
            try:
                got.append(next(batches))
            except Struck:
                continue
            except StopIteration:
                break
        assert len(struck) == 2
        made.set_epoch(0)
        assert same(got, list(made))
    finally:
        signal.signal(signal.SIGUSR1, before)


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("served", [True, False])
def test_what_is_yielded_is_pinned(real, folder, cuda, served, workers):
    data = [(torch.rand(3, 5, 5), 1)] * 8
    if served:
        data = ht.ImageFolder(folder, RESIZED)
    with ht.DataLoader(
        data, 4, batch_transform=noisy, num_workers=workers, pin_memory=True
    ) as made:
        for images, labels, _ in made:
            assert isinstance(images, Pinned)
            assert isinstance(labels, Pinned)


def failing(batch):
    if len(batch[0]) < 4:
        raise ValueError(f"a batch of {len(batch[0])}")
    return batch


@pytest.mark.parametrize("served", [True, False])
def test_a_batch_that_cannot_be_mixed_counts(real, folder, served):
    """Its exception is raised, and the next batch follows, as if making the batch had failed."""
    data = ht.ImageFolder(folder, RESIZED) if served else [(torch.rand(3), 1)] * 21
    made = ht.DataLoader(data, 4, batch_transform=failing)
    batches = iter(made)
    assert sum(1 for _ in zip(range(5), batches)) == 5
    with pytest.raises(ValueError, match="a batch of 1"):
        next(batches)
    assert made.state_dict()["epoch"] == 1
    with pytest.raises(StopIteration):
        next(batches)


@pytest.mark.skipif("timm" not in MIXERS, reason="timm is not installed")
def test_errors_are_the_librarys_own(real, folder):
    data = ht.ImageFolder(folder, RESIZED)
    with loader(data, "timm", 3) as made, pytest.raises(AssertionError, match="should be even"):
        list(made)
    if "MixUp" in MIXERS:
        own = v2.MixUp()  # without num_classes
        with (
            ht.DataLoader(data, 4, batch_transform=own) as made,
            pytest.raises(ValueError, match="num_classes must be passed"),
        ):
            list(made)


class Endless(IterableDataset):
    def __iter__(self):
        return iter(range(4))


@pytest.mark.parametrize(
    "dataset, options, says",
    [
        (range(4), {"batch_transform": 3}, "batch_transform=3: must be callable"),
        (range(4), {"batch_size": None}, "batch_size=None: there are no batches"),
        (Endless(), {}, "Endless is an iterable dataset; call it in the loop"),
    ],
)
def test_what_has_no_batches_to_transform_is_refused(dataset, options, says):
    with pytest.raises(errors.ConfigError, match=says):
        ht.DataLoader(dataset, **{"batch_transform": len, **options})


@pytest.mark.skipif("timm" not in MIXERS, reason="timm is not installed")
def test_timms_collate_function_is_refused():
    from timm.data.mixup import FastCollateMixup

    with pytest.raises(errors.ConfigError, match="give it as collate_fn"):
        ht.DataLoader(range(4), 2, batch_transform=FastCollateMixup())


def test_the_argument_is_kept_and_cannot_be_set(caplog):
    made = ht.DataLoader(range(4), 2, batch_transform=len)
    assert made.batch_transform is len
    assert made.sampler is made.batch_sampler.sampler
    assert made.batch_sampler.hdmlp_arguments["batch_transform"] is len  # for frameworks
    with pytest.raises(ValueError, match="batch_transform attribute should not be set"):
        made.batch_transform = sum


@pytest.mark.skipif("MixUp" not in MIXERS, reason="torchvision has no MixUp")
def test_a_collate_function_that_mixes_is_named(caplog):
    mix = v2.RandomChoice([v2.MixUp(num_classes=9), v2.CutMix(num_classes=9)])

    def closure(items):
        return mix(*default_collate(items))

    with caplog.at_level(logging.WARNING, "hdmlp"):
        ht.DataLoader(range(4), 2, collate_fn=default_collate)
        ht.DataLoader(range(4), 2, collate_fn=list)
        assert "batch_transform" not in caplog.text
        ht.DataLoader(range(4), 2, collate_fn=closure)
    assert "collate_fn runs RandomChoice in Python: batch_transform= does the same" in caplog.text
    for function in (functools.partial(closure), lambda items: GLOBAL(items)):
        caplog.clear()
        batch_transform.say_mixes(function)
        assert len(caplog.records) == 1


GLOBAL = mixer("MixUp") if "MixUp" in MIXERS else None


# The pixels.


@pytest.mark.parametrize("name", [n for n in MIXERS if n not in ("function", "timm pair")])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_pixels_are_mixed_to_the_bit(monkeypatch, name, dtype):
    """Of all shapes and layouts, in pieces of any size, and however many images there are."""
    own = mixer(name)
    assert mixing.fast(own, True) is not own or name == "RandomApply"
    for seed, (count, size, piece, layout) in enumerate(
        [
            (2, (3, 8, 8), 64, torch.contiguous_format),
            (6, (3, 31, 17), 1 << 17, torch.channels_last),
            (8, (1, 5, 40), 100, torch.contiguous_format),
            (64, (3, 33, 32), 4096, torch.contiguous_format),
            (4, (4, 7, 7), 52, torch.channels_last),
        ]
    ):
        monkeypatch.setattr(mixing, "PIECE", piece)
        generator = torch.Generator().manual_seed(seed)
        images = torch.randn((count, *size), generator=generator).to(dtype)
        images = images.contiguous(memory_format=layout)
        labels = torch.randint(CLASSES, (count,), generator=generator)
        for owned in (True, False):
            with ht.seeded_batch(seed, 0, 0):
                want = own(images.clone(memory_format=torch.preserve_format), labels)
            given = images.clone(memory_format=torch.preserve_format)
            with ht.seeded_batch(seed, 0, 0):
                got = mixing.fast(own, owned)(given, labels)
            assert same(got, want)
            assert owned or name.startswith("timm") or torch.equal(given, images)


@pytest.mark.skipif("MixUp" not in MIXERS, reason="torchvision has no MixUp")
def test_what_was_changed_is_called_as_it_is(monkeypatch):
    class Mine(v2.MixUp):
        pass

    mine = v2.MixUp(num_classes=3)
    mine.transform = mine.transform
    hooked = v2.MixUp(num_classes=3)
    hooked.register_forward_hook(lambda module, given, made: made)
    for own in (Mine(num_classes=3), mine, hooked, print, 3):
        assert mixing.fast(own, True) is own
    own = v2.MixUp(num_classes=3)
    assert mixing.fast(own, True) is not own
    monkeypatch.setattr(v2.MixUp, "make_params", lambda self, flat: {"lam": 0.5}, raising=False)
    assert mixing.fast(own, True) is own


@pytest.mark.skipif("MixUp" not in MIXERS, reason="torchvision has no MixUp")
@pytest.mark.parametrize(
    "images, labels",
    [
        (torch.zeros(4, 3, 8, 8, dtype=torch.float64), torch.zeros(4, dtype=torch.int64)),
        (torch.zeros(4, 3, 8, 8), torch.eye(4)),
        (torch.zeros(4, 8, 3, 8).transpose(1, 2), torch.zeros(4, dtype=torch.int64)),
        (torch.zeros(4, 8, 8), torch.zeros(4, dtype=torch.int64)),
        (torch.zeros(4, 3, 8, 8), torch.zeros(3, dtype=torch.int64)),
        (torch.zeros(4, 3, 8, 8, dtype=torch.uint8), torch.zeros(4, dtype=torch.int64)),
        (torch.zeros(0, 3, 8, 8), torch.zeros(0, dtype=torch.int64)),
    ],
)
@pytest.mark.parametrize("name", ["MixUp", "CutMix"])
def test_other_batches_get_what_the_library_gives(name, images, labels):
    own = mixer(name)
    outcomes = []
    for call in (own, mixing.fast(own, True)):
        with ht.seeded_batch(1, 0, 0):
            try:
                outcomes.append(call(images.clone(), labels))
            except Exception as error:
                outcomes.append((type(error), str(error)))
    assert same(outcomes[1], outcomes[0])
