"""ToTensor, conversions and Normalize after a transform that runs in Python: one pass, with the
libraries' own numbers."""

import pickle
import sys

import pytest

torch = pytest.importorskip("torch")
torchvision = pytest.importorskip("torchvision")
numpy = pytest.importorskip("numpy")
Image = pytest.importorskip("PIL.Image")

import hdmlp.torch as ht
from hdmlp import transforms as T
from hdmlp._transforms.generators import generators_kept, seed_generators
from hdmlp._transforms.keys import entry_key
from hdmlp._transforms.split import entries_of
from offloaded import folder, same  # noqa: F401
from reference import batches

V = torchvision.transforms

MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
FIRST = {
    "to tensor": [V.ToTensor()],
    "normalized": [V.ToTensor(), V.Normalize(MEAN, STD)],
    "one number": [V.ToTensor(), V.Normalize([0.5], (0.25,), inplace=True)],
    "twice": [V.ToTensor(), V.Normalize(MEAN, STD), V.Normalize((1, 2, 3), [1e-3, -7, 1e30])],
    "converted": [V.PILToTensor(), V.ConvertImageDtype(torch.float32), V.Normalize(MEAN, STD)],
    "half": [V.ToTensor(), V.ConvertImageDtype(torch.float16)],
    "double": [V.PILToTensor(), V.ConvertImageDtype(torch.float64), V.Normalize(MEAN, STD)],
    "levels": [V.PILToTensor()],
    "bfloat16": [V.ToTensor(), V.ConvertImageDtype(torch.bfloat16), V.Normalize(MEAN, STD)],
}


def of_v2():
    try:
        from torchvision.transforms import v2
    except ImportError:  # before torchvision 0.15
        return {}
    scaled = v2.ToDtype(torch.float32, scale=True)
    return {
        "v2": [v2.ToImage(), scaled, v2.Normalize(MEAN, STD)],
        "v2, pure": [v2.ToImage(), v2.ToPureTensor(), scaled, v2.Normalize(MEAN, STD)],
        "v2, not scaled": [v2.ToImage(), v2.ToDtype(torch.float32), v2.Normalize(MEAN, STD)],
        "v2, float16": [v2.PILToTensor(), v2.ToDtype(torch.float16, scale=True)],
        "v2, levels": [v2.ToImage()],
        "mixed": [V.PILToTensor(), scaled, V.Normalize(MEAN, STD)],
    }


LISTS = {**FIRST, **of_v2()}


def levels(mode, size=(40, 20)):
    """An image with every level in every channel."""
    rng = numpy.random.default_rng(len(mode))
    width, height = size
    planes = [rng.permutation(numpy.arange(width * height) % 256) for _ in mode]
    array = numpy.stack(planes, -1).astype(numpy.uint8).reshape(height, width, len(mode))
    return Image.fromarray(array[:, :, 0] if mode == "L" else array)


INPUTS = {
    "RGB": levels("RGB"),
    "L": levels("L"),
    "large": levels("RGB", (400, 300)),
    "array": numpy.asarray(levels("RGB")).copy(),
    "plane": numpy.asarray(levels("L")).copy(),
    "strided": numpy.asarray(levels("RGB")).copy()[::2, ::3],
    "reversed": numpy.asarray(levels("RGB")).copy()[::-1],
    "floats": numpy.linspace(0, 1, 60, dtype=numpy.float32).reshape(4, 5, 3),
    "RGBA": levels("RGB").convert("RGBA"),
    "1": levels("L").convert("1"),
    "I;16": Image.fromarray(numpy.arange(12, dtype=numpy.uint16).reshape(3, 4)),
    "subclass": None,
    "tensor": torch.arange(12, dtype=torch.uint8).view(3, 2, 2),
}


class Own(Image.Image):
    """An image of the program's own."""


INPUTS["subclass"] = Own()
INPUTS["subclass"].__dict__.update(levels("RGB").__dict__)


def outcome(run, value):
    """What a list makes of a value, or the exception."""
    try:
        return run(value)
    except Exception as error:
        return type(error), str(error)


def one_by_one(steps):
    def run(value):
        for step in steps:
            value = step(value)
        return value

    return run


def strides(tensor):
    """The distances in memory between a tensor's elements."""
    return [step for edge, step in zip(tensor.shape, tensor.stride()) if edge > 1]


def alike(got, want):
    """Reports whether two outcomes are equal: of tensors, bits, types, classes and layouts."""
    if not isinstance(want, torch.Tensor):
        return got == want if isinstance(want, tuple) else numpy.array_equal(got, want)
    kept = ("dtype", "shape", "device", "requires_grad", "__class__")
    return (
        all(getattr(got, name) == getattr(want, name) for name in kept)
        and strides(got) == strides(want)
        and got.contiguous().view(torch.uint8).equal(want.contiguous().view(torch.uint8))
    )


@pytest.mark.parametrize("kind", INPUTS)
@pytest.mark.parametrize("name", LISTS)
def test_a_tail_makes_what_its_steps_make(name, kind):
    steps, value = LISTS[name], INPUTS[kind]
    entries = entries_of([abs_of, *steps])
    for run in (entries, pickle.loads(pickle.dumps(entries))):
        got = outcome(lambda value, run=run: run(value, None), value)
        assert alike(got, outcome(one_by_one(steps), value))


def abs_of(value):
    """A transform of the program's own, which changes nothing."""
    return value


#: The lists which make floats that numpy has.
TABLES = [name for name in LISTS if "levels" not in name and name != "bfloat16"]


def calls(run):
    """The names of the functions which ``run`` calls."""
    names = []

    def note(frame, event, argument):
        if event == "call":
            names.append(frame.f_code.co_name)
        elif event == "c_call":
            names.append(argument.__name__)

    sys.setprofile(note)
    try:
        run()
    finally:
        sys.setprofile(None)
    return names


@pytest.mark.parametrize("name", TABLES)
def test_a_tails_steps_are_called_once_for_a_kind_of_image(name):
    entries = entries_of([abs_of, *LISTS[name]])

    def run():
        for _ in range(5):
            entries(INPUTS["RGB"], None)

    called = calls(run)
    assert called.count("abs_of") == 5
    assert sum(called.count(f) for f in ("to_tensor", "pil_to_tensor")) == 1
    assert entries.steps == [abs_of, *LISTS[name]]


@pytest.mark.parametrize("name", TABLES)
def test_lists_of_views_have_a_tail_each(name):
    lists = [[abs_of, *LISTS[name]], V.Compose([V.RandomRotation(9), *LISTS[name], abs])]
    views = T.Views(lists)
    entries = entries_of([views])
    for key in range(3):
        got = entries(INPUTS["RGB"], key)
        with generators_kept():
            seed_generators(entry_key(key, 0))
            want = views(INPUTS["RGB"])
        assert len(got) == 2
        assert all(map(alike, got, want))
    called = calls(lambda: [entries(INPUTS["RGB"], key) for key in range(5)])
    assert called.count("abs_of") == 5
    assert sum(called.count(f) for f in ("to_tensor", "pil_to_tensor")) == 0
    assert entries.steps == [views]


def test_parameters_that_change_count():
    normalize = V.Normalize(list(MEAN), STD)
    steps = [V.ToTensor(), normalize]
    entries = entries_of([abs_of, *steps])
    image = INPUTS["RGB"]
    first = entries(image, None)
    for change in (
        lambda: normalize.mean.__setitem__(0, 0.25),
        lambda: setattr(normalize, "std", [1.0, 2.0, 3.0]),
        lambda: setattr(normalize, "std", torch.tensor([1.0, 2.0, 4.0])),
        lambda: torch.set_default_dtype(torch.float64),
    ):
        try:
            change()
            got, want = entries(image, None), one_by_one(steps)(image)
        finally:
            torch.set_default_dtype(torch.float32)
        assert alike(got, want)
        assert not alike(got, first)


class Brighter(V.Normalize):
    """A subclass."""

    def forward(self, tensor):
        return super().forward(tensor) + 1


def test_what_may_do_anything_else_is_called():
    own = V.Normalize(MEAN, STD)
    own.forward = lambda tensor: tensor + 5
    hooked = V.Normalize(MEAN, STD)
    hooked.register_forward_hook(lambda module, given, made: made + 7)
    of_tensors = V.Normalize(torch.tensor(MEAN, requires_grad=True), STD)
    for step in (own, hooked, Brighter(MEAN, STD), of_tensors):
        steps = [V.ToTensor(), step]
        image = INPUTS["RGB"]
        assert alike(entries_of([abs_of, *steps])(image, None), one_by_one(steps)(image))


def test_a_replaced_function_is_called(monkeypatch):
    functional = V.functional
    original = functional.to_tensor
    monkeypatch.setattr(functional, "to_tensor", lambda image: original(image) + len(seen))
    seen = []
    entries = entries_of([abs_of, V.ToTensor()])
    for _ in range(3):
        got = entries(INPUTS["RGB"], None)
        assert torch.equal(got, original(INPUTS["RGB"]) + len(seen))
        seen.append(got)


# In a loader.


def turned(image):
    return image.transpose(Image.ROTATE_180)


def sometimes_grey(image):
    """Images of which some have other modes than most."""
    return (
        image.convert("L").convert("RGBA").convert("RGB")
        if image.getpixel((0, 0))[0] % 2
        else image
    )


def in_batches(rest):
    return V.Compose([V.Resize((24, 18)), turned, sometimes_grey, *rest])


IN_LOADERS = ("normalized", "half", "levels", "v2", "v2, levels", "mixed")
AFTER = {
    "nothing": [],
    "erased": [V.RandomErasing(p=1.0, scale=(0.1, 0.1), ratio=(1, 1.0001), value=3)],
    "own": [abs],
}


@pytest.mark.usefixtures("real")
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("name", [name for name in IN_LOADERS if name in LISTS])
def test_batches_are_torchs(folder, name, workers):
    transform = in_batches(LISTS[name])
    want = batches(folder, 8, 2, 3, False, 0, 1, transform)
    with ht.DataLoader(
        ht.ImageFolder(folder, transform), 8, seed=3, num_workers=workers, shuffle=True
    ) as loader:
        for epoch in want:
            assert same(loader, epoch)


@pytest.mark.usefixtures("real")
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("after", AFTER)
def test_what_follows_a_tail_gets_its_tensor(folder, after, workers):
    steps = [*FIRST["normalized"], *AFTER[after]]
    transform = in_batches(steps)
    made = {}
    with ht.DataLoader(
        ht.ImageFolder(folder, transform), 8, seed=3, num_workers=workers, shuffle=True
    ) as loader:
        images = torchvision.datasets.ImageFolder(folder)
        for step, (got, labels) in enumerate(loader):
            made[step] = got
            for i, sample in enumerate(loader.explain(0, step).ids):
                image, label = images[sample]
                value = in_batches(FIRST["normalized"])(image)
                for position, t in enumerate(AFTER[after], 5):
                    with ht.seeded(3, 0, sample, position=position):
                        value = t(value)
                assert torch.equal(got[i], value)
                assert labels[i] == label


@pytest.mark.usefixtures("real")
@pytest.mark.parametrize("after", ["nothing", "erased"])
def test_a_batch_is_made_in_place(folder, after):
    dataset = ht.ImageFolder(folder, in_batches([*FIRST["normalized"], *AFTER[after]]))
    with ht.DataLoader(dataset, 16, num_workers=0, drop_last=True) as loader:
        called = calls(lambda: list(loader))
    assert called.count("turned") == 16
    assert "stack" not in called
    assert called.count("clone") <= 1  # of the image with all levels


@pytest.mark.usefixtures("real")
@pytest.mark.parametrize("workers", [0, 2])
def test_images_of_other_sizes_are_refused_as_by_torch(folder, workers):
    def cropped(image):
        return image.crop((0, 0, 10 + image.getpixel((0, 0))[0] % 7, 20))

    transform = V.Compose([V.Resize((24, 18)), cropped, *FIRST["normalized"]])
    with (
        ht.DataLoader(ht.ImageFolder(folder, transform), 8, num_workers=workers) as loader,
        pytest.raises(RuntimeError, match="stack expects each tensor to be equal size"),
    ):
        list(loader)
