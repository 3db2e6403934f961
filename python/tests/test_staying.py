"""Worker processes without ``persistent_workers`` that make the next epoch as well, because new
ones could do nothing else: what the program changes has the effect that it has with new ones.
"""

import functools
import multiprocessing.util
import os
import resource
import signal
import warnings

import pytest

torch = pytest.importorskip("torch")
torchvision = pytest.importorskip("torchvision")

import hdmlp.torch as ht
from hdmlp._workers import pool, staying
from hdmlp._workers import processes as of_pool
from reference import jpegs
from torch.utils.data import RandomSampler
from torchvision import transforms as V
from waiting import until, until_ended

Image = pytest.importorskip("PIL.Image")
ImageFile = pytest.importorskip("PIL.ImageFile")

SEED, LABELS = 5, {"ant": 9, "bee": 8}


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return str(jpegs(tmp_path_factory.mktemp("jpegs") / "data", LABELS))


@pytest.fixture(autouse=True)
def patient(monkeypatch):
    """However slow the machine is."""
    monkeypatch.setattr(of_pool, "IDLE", 3_600_000)
    monkeypatch.setattr(pool, "_GRACE", 600.0)


def recipe():
    """Of torchvision alone; AugMix, and what follows, runs in Python."""
    return V.Compose([V.Resize((24, 18)), V.AugMix(), V.ToTensor()])


def loader(data, workers=2, **options):
    given = {"shuffle": True, "seed": SEED, "multiprocessing_context": "fork", **options}
    if not workers:
        for name in ("multiprocessing_context", "prefetch_factor"):
            given.pop(name, None)
    return ht.DataLoader(data, 4, num_workers=workers, **given)


def plain(batches):
    return [(images.clone(), labels.tolist()) for images, labels in batches]


def equal(got, want):
    return len(got) == len(want) and all(
        torch.equal(a, b) and x == y for (a, x), (b, y) in zip(got, want)
    )


def processes():
    """The IDs of the worker processes that run."""
    return {process.pid for process in multiprocessing.active_children()}


def wanted(data, epoch, **options):
    with loader(data, 0, **options) as made:
        made.set_epoch(epoch)
        return plain(made)


# Processes that stay.

WAYS = {
    "served": {},
    "drawn": {"seed": None, "generator": None},
    "a sampler": {"shuffle": None, "sampler": "random"},
    "torchvision's": {"class": torchvision.datasets.ImageFolder},
    "spawned": {"multiprocessing_context": "spawn"},
}


def with_sampler(data, options):
    if options.get("sampler") == "random":
        generator = torch.Generator().manual_seed(7)
        return {**options, "sampler": RandomSampler(data, generator=generator)}
    return options


@pytest.mark.usefixtures("spawns_preloaded")
@pytest.mark.parametrize("way", WAYS)
def test_they_make_what_this_process_makes(real, root, way):
    epochs = []
    for workers in (2, 0):
        torch.manual_seed(3)
        options = dict(WAYS[way])
        data = options.pop("class", ht.ImageFolder)(root, recipe())
        with loader(data, workers, **with_sampler(data, options)) as made:
            epochs.append([])
            seen = []
            for _ in range(3):
                batches = iter(made)
                first = next(batches)
                seen.append(processes())
                epochs[-1].append(plain([first, *batches]))
        if workers:
            assert len(seen[0]) == 2
            assert seen == seen[:1] * 3
        assert not processes()
    for got, want in zip(*epochs):
        assert equal(got, want)


def of_v2():
    from torchvision.transforms import v2

    return [v2.Resize((24, 18)), v2.JPEG(50), v2.ToImage(), v2.ToDtype(torch.float32)]


def of_timm():
    from timm.data.auto_augment import augment_and_mix_transform

    return [V.Resize((24, 18)), augment_and_mix_transform("augmix-m5-w4-d2", {}), V.ToTensor()]


RECIPES = {
    "a function of torchvision": lambda: [V.CenterCrop(8), V.functional.hflip, V.ToTensor()],
    "within": lambda: [V.RandomApply([V.AugMix(), V.Pad(1), V.CenterCrop(8)], 1), V.ToTensor()],
    "v2": of_v2,
    "timm": of_timm,
}


@pytest.mark.parametrize("name", RECIPES)
def test_all_libraries_count(real, root, name):
    try:
        data = ht.ImageFolder(root, V.Compose(RECIPES[name]()))
    except (ImportError, AttributeError) as error:
        pytest.skip(str(error))
    with loader(data) as made:
        first = plain(made)
        seen = processes()
        assert len(seen) == 2
        second = plain(made)
        assert processes() == seen
    assert equal(first, wanted(data, 0))
    assert equal(second, wanted(data, 1))


def test_records_fields_too(real, root):
    paths = [os.path.join(root, name, f) for name in LABELS for f in os.listdir(f"{root}/{name}")]
    data = ht.Files(sorted(paths), labels=[i % 3 for i in range(17)], transform=recipe())
    with loader(data) as made:
        first = plain(made)
        seen = processes()
        assert len(seen) == 2
        assert equal(plain(made), wanted(data, 1))
        assert processes() == seen
    assert equal(first, wanted(data, 0))


@pytest.mark.filterwarnings("ignore:'pin_memory'")
def test_with_pinned_memory(real, root):
    """Without an accelerator nothing is copied, by what would do so."""
    data = ht.ImageFolder(root, recipe())
    with loader(data, pin_memory=True) as made:
        first = plain(made)
        seen = processes()
        assert len(seen) == 2
        second = plain(made)
        assert processes() == seen
    assert equal(first, wanted(data, 0))
    assert equal(second, wanted(data, 1))


def test_they_end_with_the_loader_and_after_its_last_epoch(real, root):
    data = ht.ImageFolder(root, recipe())
    made = loader(data)
    list(made)
    assert len(processes()) == 2
    del made
    assert not processes()
    with loader(data, epochs=2) as made:
        list(made)
        assert len(processes()) == 2
        list(made)
        assert not processes()


def test_another_job_of_the_seed_may_follow(real, root):
    """The epochs that a state resumes are made by processes that stay, too."""
    data = ht.ImageFolder(root, recipe())
    with loader(data) as made:
        list(made)
        seen = processes()
        made.load_state_dict({**made.state_dict(), "epoch": 4, "step": 2})
        assert equal(plain(made), wanted(data, 4)[2:])
        assert processes() == seen


# What has new ones begin.


def _attribute(data):
    data.transform.transforms[1].severity = 9


def _list(data):
    data.transform.transforms.insert(1, V.RandomAdjustSharpness(9, 1))


def _default_type(data):
    torch.set_default_dtype(torch.float64)


def _largest(data):
    Image.MAX_IMAGE_PIXELS = 10**6


def _truncated(data):
    ImageFile.LOAD_TRUNCATED_IMAGES = not ImageFile.LOAD_TRUNCATED_IMAGES


def _function(data):
    V.functional.to_tensor = functools.partial(_brighter, V.functional.to_tensor)


def _brighter(original, image):
    return original(image) + 1


def _method(data):
    original = V.AugMix.forward
    V.AugMix.forward = lambda self, image: original(self, image).rotate(90).resize((18, 24))


def _of_a_table(data):
    Image.EXTENSION[".own"] = "JPEG"


def _unlisted(data):
    """A function which nothing that HDMLP does replaces, but AugMix calls."""
    V.AugMix._sample_dirichlet = lambda self, params: torch.full_like(params, 0.25)


def _plugin(data):
    Image.register_open("OWN", Image.Image, lambda prefix: False)


def _environment(data):
    os.environ["A_SETTING_OF_A_LIBRARY"] = "1"


def _priority(data):
    os.nice(1)


def _warnings(data):
    warnings.filterwarnings("error", "nothing of the kind")


def _deterministic(data):
    torch.use_deterministic_algorithms(True)


def _denormals(data):
    torch.set_flush_denormal(True)


def _affinity(data):
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})


def _limit(data):
    most, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most - 1, hard))


def _file(data):
    OPEN.pop().close()


CHANGES = {
    name[1:]: change
    for name, change in list(globals().items())
    if name[0] == "_" and change.__class__ is _file.__class__ and name != "_brighter"
}
#: Files that were open when processes started.
OPEN = []


@pytest.fixture
def restored(tmp_path):
    """The state of the process before a test; and a file that is open."""
    functions = [
        (V.functional, "to_tensor"),
        (V.AugMix, "forward"),
        (V.AugMix, "_sample_dirichlet"),
    ]
    settings = [(Image, "MAX_IMAGE_PIXELS"), (ImageFile, "LOAD_TRUNCATED_IMAGES")]
    before = [(owner, name, getattr(owner, name)) for owner, name in (*functions, *settings)]
    filters, opened, deterministic = list(warnings.filters), dict(Image.OPEN), False
    processors, limits = os.sched_getaffinity(0), resource.getrlimit(resource.RLIMIT_NOFILE)
    OPEN.append(open(tmp_path / "file", "w"))  # noqa: SIM115 - the test closes it
    yield
    for owner, name, value in before:
        setattr(owner, name, value)
    torch.set_default_dtype(torch.float32)
    torch.use_deterministic_algorithms(deterministic)
    torch.set_flush_denormal(False)
    os.sched_setaffinity(0, processors)
    resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    warnings.filters[:] = filters
    Image.OPEN.clear()
    Image.OPEN.update(opened)
    Image.ID[:] = [name for name in Image.ID if name != "OWN"]
    Image.EXTENSION.pop(".own", None)
    os.environ.pop("A_SETTING_OF_A_LIBRARY", None)
    while OPEN:
        OPEN.pop().close()


@pytest.mark.parametrize("name", CHANGES)
def test_what_changes_in_between_has_its_effect(real, root, restored, name):
    if name == "priority" and os.getpriority(os.PRIO_PROCESS, 0) > 15:
        pytest.skip("this process's priority is the lowest")
    if name == "affinity" and len(os.sched_getaffinity(0)) == 1:
        pytest.skip("this process has one processor")
    data = ht.ImageFolder(root, recipe())
    with loader(data) as made:
        list(made)
        seen = processes()
        assert len(seen) == 2
        CHANGES[name](data)
        got = plain(made)
        assert not processes() & seen
        again = plain(made)
    assert equal(got, wanted(data, 1))
    assert equal(again, wanted(data, 2))


# Where the program's own code runs, or files of its own are read, all are new.


def same(value):
    return value


class Own(V.AugMix):
    pass


class Number(float):
    pass


class Made(ht.FileDataset):
    def __init__(self, root):
        self.paths = [f"{root}/ant/{f}" for f in sorted(os.listdir(f"{root}/ant"))]

    def __len__(self):
        return len(self.paths)

    def files_of(self, i):
        return self.paths[i]

    def make(self, i, data):
        return torch.tensor(len(data)), i


def collated(items):
    return torch.stack([image for image, _ in items]), torch.tensor([y for _, y in items])


OWN = {
    "function": lambda root: (ht.ImageFolder(root, [*recipe().transforms, same]), {}),
    "in torchvision's": lambda root: (
        ht.ImageFolder(root, [*recipe().transforms, V.Lambda(same)]),
        {},
    ),
    "subclass": lambda root: (ht.ImageFolder(root, [V.CenterCrop(8), Own(), V.ToTensor()]), {}),
    "number": lambda root: (
        ht.ImageFolder(root, [V.CenterCrop(8), V.AugMix(alpha=Number(1)), V.ToTensor()]),
        {},
    ),
    "target": lambda root: (ht.ImageFolder(root, recipe(), target_transform=same), {}),
    "collate": lambda root: (ht.ImageFolder(root, recipe()), {"collate_fn": collated}),
    "init": lambda root: (ht.ImageFolder(root, recipe()), {"worker_init_fn": same}),
    "items": lambda root: (Made(root), {}),
}


@pytest.mark.parametrize("name", OWN)
def test_what_the_program_defines_has_new_processes(real, root, name):
    data, options = OWN[name](root)
    with loader(data, **options) as made:
        for _ in range(2):
            batches = iter(made)
            next(batches)
            assert len(processes()) == 2
            assert len(list(batches)) == len(made) - 1
            assert not processes()


def test_a_function_that_was_replaced_before_has_new_processes(real, root, monkeypatch):
    monkeypatch.setattr(V.AugMix, "_sample_dirichlet", lambda self, params: params)
    with loader(ht.ImageFolder(root, recipe())) as made:
        list(made)
        assert not processes()


def test_a_large_recipe_has_new_processes(real, root, monkeypatch):
    monkeypatch.setattr(staying, "_MOST_BYTES", 100)
    data = ht.ImageFolder(root, recipe())
    with loader(data) as made:
        list(made)
        seen = processes()
        assert equal(plain(made), wanted(data, 1))
        assert not processes() & seen


def test_memory_that_is_given_back_counts(real, root, monkeypatch):
    """Processes would hold it as long as they stay."""
    data = ht.ImageFolder(root, recipe())
    held = torch.ones(256 << 20, dtype=torch.uint8)
    with loader(data) as made:
        list(made)
        seen = processes()
        assert len(seen) == 2
        del held
        assert equal(plain(made), wanted(data, 1))
        assert not processes() & seen


# What happens to processes in between.


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_processes_that_ended_or_hang_are_replaced(real, root, monkeypatch, number):
    monkeypatch.setattr(pool, "_GRACE", 0.1)
    data = ht.ImageFolder(root, recipe())
    with loader(data) as made:
        list(made)
        seen = processes()
        os.kill(min(seen), number)
        if number == signal.SIGKILL:
            until_ended(min(seen))
        assert equal(plain(made), wanted(data, 1))
        assert len(processes()) == 2
        assert not processes() & seen


def test_processes_end_without_an_epoch(real, root, monkeypatch):
    monkeypatch.setattr(of_pool, "IDLE", 0)
    data = ht.ImageFolder(root, recipe())
    with loader(data) as made:
        list(made)
        until(lambda: not processes(), "the end of both")
        assert equal(plain(made), wanted(data, 1))


def test_what_waits_for_a_pipe_of_this_process_goes_on(real, root, monkeypatch):
    """Processes which were forked have its ends as well, but end."""
    monkeypatch.setattr(of_pool, "IDLE", 0)
    reader, writer = os.pipe()
    data = ht.ImageFolder(root, recipe())
    with loader(data) as made:
        list(made)
        os.close(writer)
        assert os.read(reader, 1) == b""
        os.close(reader)
        assert equal(plain(made), wanted(data, 1))


def test_a_pipe_that_is_closed_between_epochs_is_closed_in_the_next(real, root):
    reader, writer = os.pipe()
    data = ht.ImageFolder(root, recipe())
    with loader(data) as made:
        list(made)
        os.close(writer)
        batches = iter(made)
        first = next(batches)
        assert os.read(reader, 1) == b""
        os.close(reader)
        assert equal(plain([first, *batches]), wanted(data, 1))


def test_an_epoch_that_is_broken_off_has_new_ones_begin(real, root):
    data = ht.ImageFolder(root, recipe())
    with loader(data) as made:
        for epoch in range(3):
            for step, _ in enumerate(made):
                if step == epoch:
                    seen = processes()
                    break
            assert len(seen) == 2
        assert equal(plain(made), wanted(data, 3))
        assert not processes() & seen
        seen = processes()
        assert equal(plain(made), wanted(data, 4))
        assert processes() == seen


def test_each_of_several_iterators_has_its_own(real, root):
    data = ht.ImageFolder(root, recipe())
    with loader(data) as made:
        for epoch in (0, 2):
            first, second = iter(made), iter(made)
            got = [[], []]
            for a, b in zip(first, second):
                got[0].append(a)
                got[1].append(b)
            assert len(processes()) == 4
            list(first), list(second)
            assert equal(plain(got[0]), wanted(data, epoch))
            assert equal(plain(got[1]), wanted(data, epoch + 1))
    assert not processes()


def test_a_forked_process_leaves_them_alone(real, root):
    data = ht.ImageFolder(root, recipe())
    with loader(data) as made:
        list(made)
        seen = processes()
        pid = os.fork()
        if not pid:
            try:
                made.set_epoch(1)
                same = equal(plain(made), wanted(data, 1))
                made.close()
                multiprocessing.util._exit_function()  # as sys.exit() does
                os._exit(0 if same else 1)
            finally:
                os._exit(2)
        assert os.waitpid(pid, 0)[1] == 0
        assert equal(plain(made), wanted(data, 1))
        assert processes() == seen


def test_an_interrupt_while_they_begin_again_loses_nothing(real, root, monkeypatch):
    data = ht.ImageFolder(root, recipe())
    begin = of_pool.WorkerProcesses.begin_again

    def interrupted(self, *arguments):
        begin(self, *arguments)
        raise KeyboardInterrupt

    with loader(data) as made:
        list(made)
        seen = processes()
        assert len(seen) == 2
        batches = iter(made)
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(of_pool.WorkerProcesses, "begin_again", interrupted)
            next(batches)
        assert equal(plain(batches), wanted(data, 1))
        assert not processes() & seen
