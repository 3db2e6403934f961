"""Workers start without ``num_workers`` only where what they run can have no state of its own."""

import enum
import functools
import logging
import math
import os
import random
import sys
import types

import pytest

torch = pytest.importorskip("torch")
torchvision = pytest.importorskip("torchvision")
numpy = pytest.importorskip("numpy")

import hdmlp.torch as ht
from hdmlp._launch import processors
from hdmlp._transforms.own_state import own_state
from hdmlp.torch._engine import counted
from PIL import Image, ImageFilter, ImageOps
from reference import jpegs
from torch.utils.data import DataLoader
from torchvision import datasets
from torchvision import transforms as V

FACTOR, NAMES, SHAPE = 2.5, ["a"], (8, 8)
GENERATOR = random.Random(3)
NUMPYS = numpy.random.default_rng(3)
OPEN = open(__file__)  # noqa: SIM115 - as a module of the user's holds one
TENSOR = torch.zeros(1)
calls = 0


class Colour(enum.Enum):
    RED = 1


def scaled(x):
    return x * FACTOR * math.sqrt(4) if SHAPE else x


def posterized(image):
    return ImageOps.posterize(image, int(numpy.clip(random.random() * 8, 1, 8)))


def blurred(image):
    return image.filter(ImageFilter.GaussianBlur(2))


def both(image):
    return scaled(posterized(image))


def counting(x):
    global calls
    calls += 1
    return x


def by_global(x):
    return x + GENERATOR.random()


def by_numpys(x):
    return x + NUMPYS.normal()


def by_file(x):
    return x, OPEN.read(1)


def by_list(x):
    return NAMES[x]


def by_tensor(x):
    return x + TENSOR


def by_helper(x):
    return by_global(x)


def by_module(x):
    return holder.GENERATOR.random()


def by_import(x):
    from dropin import NUMBERS

    return NUMBERS[x]


def by_getattr(x):
    return getattr(holder, "GENERATOR").random()  # noqa: B009


def by_table_of_modules(x):
    return sys.modules["holder"].GENERATOR.random()


def by_import_function(x):
    return __import__("holder").GENERATOR.random()


def by_dict(x):
    return holder.__dict__["GENERATOR"].random()


def by_frame(x):
    return sys._getframe().f_globals["GENERATOR"].random()


def by_environment(x):
    os.environ["COUNT"] = str(int(os.environ.get("COUNT", "0")) + 1)
    return x


def by_descriptor(x):
    return os.read(0, 1)


def by_dynamic_module(x):
    return dynamic.anything


def with_paths(x):
    return os.path.join("a", str(x))


dynamic = types.ModuleType("dynamic")
dynamic.__getattr__ = lambda name: GENERATOR.random()


def by_setattr(x):
    setattr(holder, "x", x)  # noqa: B010
    return x


def marked(x):
    marked.number = x
    return x


def with_attribute(x):
    return x


with_attribute.strength = 3

holder = types.ModuleType("holder")
holder.GENERATOR = GENERATOR


def closure(value):
    return lambda x: (x, value)


def nonlocally():
    number = 0

    def count(x):
        nonlocal number
        number += 1
        return x + number

    return count


def default(x, seen=[]):  # noqa: B006
    seen.append(x)
    return x


def with_locals(x):
    number = 0

    def add():
        nonlocal number
        number += 1

    add()
    return x + number


class Own:
    def __call__(self, x):
        return x


class OwnErasing(V.RandomErasing):
    pass


def hooked():
    module = V.RandomRotation(3)
    module.register_forward_hook(lambda *_: None)
    return module


def patched():
    module = V.RandomRotation(3)
    module.forward = lambda x: x
    return module


FREE = {
    "of torchvision": V.RandomErasing(),
    "of several": V.RandomApply([V.RandomRotation(3), V.RandomChoice([V.Pad(1), V.Pad(2)])]),
    "in torch's container": torch.nn.Sequential(V.RandomRotation(3), torch.nn.Identity()),
    "a lambda in torchvision's": V.Lambda(lambda x: x * FACTOR),
    "a tensor as an argument": V.LinearTransformation(torch.eye(3), torch.zeros(3)),
    "a function of torchvision": V.functional.hflip,
    "a function of PIL": ImageOps.grayscale,
    "a function of HDMLP": ht.pil_loader,
    "globals": scaled,
    "modules": posterized,
    "classes of modules": blurred,
    "other functions": both,
    "closure": closure(3),
    "closure of a function": closure(scaled),
    "its own variables": with_locals,
    "a partial": functools.partial(pow, exp=2),
    "a builtin": abs,
    "a type": float,
    "paths": with_paths,
    "constants": closure((1, "a", None, Colour.RED, torch.float32)),
}

STATEFUL = {
    "a class of the user's": Own(),
    "a subclass": OwnErasing(),
    "the user's in torchvision's": V.RandomApply([Own()]),
    "a stateful lambda in torchvision's": V.Lambda(by_global),
    "hooks": hooked(),
    "methods of its own": patched(),
    "a global count": counting,
    "a global generator": by_global,
    "numpy's generator": by_numpys,
    "an open file": by_file,
    "a list": by_list,
    "a tensor": by_tensor,
    "a helper": by_helper,
    "a module of the user's": by_module,
    "an import of the user's": by_import,
    "getattr": by_getattr,
    "the table of modules": by_table_of_modules,
    "an import by a function": by_import_function,
    "a module's dict": by_dict,
    "a frame": by_frame,
    "the environment": by_environment,
    "a descriptor": by_descriptor,
    "a module that makes its attributes": by_dynamic_module,
    "a function of the system": os.read,
    "setattr": by_setattr,
    "an attribute that it sets": marked,
    "an attribute that it has": with_attribute,
    "a method of an object": GENERATOR.random,
    "a method of a builtin": {1: 2}.get,
    "a closure of an object": closure(Own()),
    "a closure of a list": closure([1]),
    "nonlocal": nonlocally(),
    "a default": default,
    "a partial of an object": functools.partial(scaled, [1]),
    "a class itself": Own,
}


@pytest.mark.parametrize("name", FREE)
def test_has_no_state(name):
    assert own_state(FREE[name]) == ""


@pytest.mark.parametrize("name", STATEFUL)
def test_may_have_state(name):
    assert own_state(STATEFUL[name])


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return str(jpegs(tmp_path_factory.mktemp("jpegs") / "data", {"ant": 9, "bee": 8}))


@pytest.fixture
def processors_to_spare(monkeypatch):
    monkeypatch.setattr(processors, "processors", lambda: 4)


class Noise:
    """Draws from a generator of its own, with a strength that the loop may change."""

    def __init__(self):
        self.generator, self.strength = random.Random(5), 1

    def __call__(self, image):
        return torch.tensor(self.generator.random() * self.strength, dtype=torch.float64)


def epochs(loader, noise):
    """Two epochs, in which the loop changes the strength."""
    values = []
    for _ in range(2):
        for images, _labels in loader:
            values += images.tolist()
            noise.strength += 1
    return values


def test_a_generator_and_a_strength_are_the_loops(real, processors_to_spare, root, caplog):
    """As with torch's loader: no value comes twice, and each change counts for the next batch."""
    noise = Noise()
    want = epochs(DataLoader(datasets.ImageFolder(root, noise), 4), noise)
    noise = Noise()
    with ht.DataLoader(ht.ImageFolder(root, [noise]), 4) as loader:
        assert loader.num_workers == 0
        assert epochs(loader, noise) == want
    (line,) = [r.getMessage() for r in caplog.records if "num_workers" in r.getMessage()]
    assert "Noise may have state of its own, of which each worker would have a copy" in line
    assert "give num_workers=3 to have 3 worker processes do it beside the training" in line


def test_an_open_file_is_read_by_one_process(real, processors_to_spare, root, tmp_path):
    """The records of a file which the program holds open, one for each sample."""
    records = tmp_path / "records"
    records.write_bytes(b"".join(b"%03d" % i for i in range(2 * 17)))
    with open(records, "rb", buffering=0) as file:
        data = ht.ImageFolder(root, V.CenterCrop(8), lambda label: int(file.read(3)))
        data.transform = V.Compose([V.CenterCrop(8), V.RandomRotation(1), V.ToTensor()])
        with ht.DataLoader(data, 4) as loader:
            labels = [y for _ in range(2) for _, batch in loader for y in batch.tolist()]
    assert labels == list(range(2 * 17))


def test_plain_steps_get_workers(real, processors_to_spare, root, caplog):
    caplog.set_level(logging.WARNING)
    steps = [V.RandomRotation(1), V.Resize(SHAPE), V.ToTensor(), scaled]
    with ht.DataLoader(ht.ImageFolder(root, steps), 4) as loader:
        assert loader.num_workers == 3
        assert len(list(loader)) == 5
    assert "3 worker processes run what the daemon does not do" in caplog.text


def test_a_function_in_place_of_a_librarys_gets_none(real, processors_to_spare, root, monkeypatch):
    monkeypatch.setattr(V.functional, "rotate", lambda image, *_, **__: image)
    steps = [V.RandomRotation(1), V.Resize(SHAPE), V.ToTensor()]
    with ht.DataLoader(ht.ImageFolder(root, steps), 4) as loader:
        assert loader.num_workers == 0


def test_torchvisions_folder_with_images_alone(real, processors_to_spare, root):
    """What only the daemon's images need, in Python, has no state."""
    with ht.DataLoader(
        datasets.ImageFolder(root), 4, collate_fn=lambda pairs: [x.size for x, _ in pairs]
    ) as loader:
        assert loader.num_workers == 3
        assert next(iter(loader))[0] == Image.open(datasets.ImageFolder(root).imgs[0][0]).size


class Slow(torch.utils.data.Dataset):
    """Items for which a loop that does nothing waits."""

    def __len__(self):
        return 40

    def __getitem__(self, i):
        return i


def told(caplog):
    return [r.getMessage() for r in caplog.records if "num_workers" in r.getMessage()]


@pytest.mark.parametrize("options", [{}, {"num_workers": 0}])
def test_a_loop_that_waits_is_told_what_workers_would_bring(
    real, processors_to_spare, monkeypatch, caplog, options
):
    """Once, for a dataset of its own, unless the program has said that it wants none."""
    monkeypatch.setattr(counted, "LONG_ENOUGH", 0.0)
    with ht.DataLoader(Slow(), 4, **options) as loader:
        assert loader.num_workers == 0
        assert [len(list(loader)) for _ in range(2)] == [10, 10]
    if options:
        assert told(caplog) == []
        return
    (line,) = told(caplog)
    assert line.startswith("Slow: the loop has waited 0.0 of 0.0 s for items")
    assert "num_workers=3 would have 3 worker processes make them beside the training" in line


@pytest.mark.parametrize("name, value", [("LONG_ENOUGH", 1e9), ("WORTH_SAYING", 1.1)])
def test_a_loop_that_waits_little_is_told_nothing(
    real, processors_to_spare, monkeypatch, caplog, name, value
):
    monkeypatch.setattr(counted, "LONG_ENOUGH", 0.0)
    monkeypatch.setattr(counted, name, value)
    with ht.DataLoader(Slow(), 4) as loader:
        assert len(list(loader)) == 10
    assert told(caplog) == []


@pytest.mark.parametrize(
    "waited, seconds, times", [(9.0, 10.0, "3.3"), (6.0, 10.0, "2.5"), (2.0, 10.0, "1.2")]
)
def test_workers_bring_what_either_side_allows(processors_to_spare, waited, seconds, times):
    """The training takes the rest, and 3 workers a third of what one process waits for."""
    line = processors.would_bring(waited, seconds)
    assert f"the loop has waited {waited:.1f} of {seconds:.1f} s for items" in line
    assert f"the loop up to {times} times as fast" in line


def test_one_processor_has_no_use_for_workers(monkeypatch):
    monkeypatch.setattr(processors, "processors", lambda: 1)
    assert processors.would_bring(9.0, 10.0) == ""
