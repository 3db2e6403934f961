"""Classes of training scripts that make views: known by their code, and exactly what they do."""

import linecache

import pytest

torch = pytest.importorskip("torch")
torchvision = pytest.importorskip("torchvision")

import hdmlp.torch as ht
from byhand import by_hand
from hdmlp import transforms as T
from hdmlp._transforms.wrappers import views_of
from reference import decoded, jpegs
from torchvision import transforms as V

pytestmark = pytest.mark.usefixtures("real")


class MoCo:
    """Take two random crops of one image as the query and key."""

    def __init__(self, base_transform):
        self.base_transform = base_transform

    def __call__(self, x):
        q = self.base_transform(x)
        k = self.base_transform(x)
        return [q, k]


class SimSiam(MoCo):
    """Takes two random crops of one image."""

    def __call__(self, image):
        """Returns both."""
        first = self.base_transform(image)
        second = self.base_transform(image)
        return [first, second]


class MoCo3:
    """Take two random crops of one image."""

    def __init__(self, base_transform1, base_transform2):
        self.base_transform1 = base_transform1
        self.base_transform2 = base_transform2

    def __call__(self, x):
        im1 = self.base_transform1(x)
        im2 = self.base_transform2(x)
        return [im1, im2]


class DINO:
    """DINO's DataAugmentationDINO, with what the daemon does of it."""

    def __init__(self, first, second, local, local_crops_number):
        self.global_transfo1 = first
        self.global_transfo2 = second
        self.local_crops_number = local_crops_number
        self.local_transfo = local

    def __call__(self, image):
        crops = []
        crops.append(self.global_transfo1(image))
        crops.append(self.global_transfo2(image))
        for _ in range(self.local_crops_number):
            crops.append(self.local_transfo(image))
        return crops


class SimCLR:
    """Take two random crops of one image as the query and key."""

    def __init__(self, base_transform, n_views=2):
        self.base_transform = base_transform
        self.n_views = n_views

    def __call__(self, x):
        return [self.base_transform(x) for i in range(self.n_views)]


class Lightly:
    """lightly's MultiViewTransform."""

    def __init__(self, transforms):
        self.transforms = transforms

    def __call__(self, image: "torch.Tensor") -> "list[torch.Tensor]":
        """Transforms an image into multiple views.

        Args:
            image:
                Image to be transformed into multiple views.

        Returns:
            List of views.

        """
        return [transform(image) for transform in self.transforms]


def augment(size):
    return V.Compose(
        [
            V.RandomResizedCrop(size, scale=(0.2, 1)),
            V.ColorJitter(0.4, 0.4, 0.4, 0.1),
            V.RandomHorizontalFlip(),
            V.ToTensor(),
            V.Normalize([0.5] * 3, [0.2] * 3),
        ]
    )


KNOWN = {
    "MoCo": MoCo(augment(24)),
    "SimSiam": SimSiam(augment(24)),
    "MoCo v3": MoCo3(augment(24), augment(20)),
    "DINO": DINO(augment(24), augment(24), augment(10), 8),
    "SimCLR": SimCLR(augment(24), 3),
    "lightly": Lightly([augment(24), augment(12)]),
}


@pytest.fixture(scope="module")
def five(tmp_path_factory):
    return jpegs(tmp_path_factory.mktemp("views") / "data", {"ant": 2, "bee": 3})


@pytest.mark.parametrize("name", sorted(KNOWN))
def test_the_daemon_makes_what_the_class_does(five, caplog, name):
    """16 seeds, by 8 epochs of 2, of 5 images."""
    transform = KNOWN[name]
    assert T.split(transform).rest == []
    dataset = ht.ImageFolder(five, transform)
    images = [decoded(path) for path, _ in dataset.samples]
    for seed in range(2):
        with ht.DataLoader(dataset, 5, seed=seed, shuffle=False, epochs=8) as loader:
            for epoch in range(8):
                [(views, _)] = list(loader)
                for i in range(5):
                    want = by_hand([transform], images[i], seed, epoch, i)
                    got = [view[i] for view in views]
                    assert len(got) == len(want)
                    assert all(map(torch.equal, got, want))
    assert not [r for r in caplog.records if "in Python" in r.getMessage()]


def test_lightlys_own_class_is_known():
    lightly = pytest.importorskip("lightly.transforms.multi_view_transform")
    assert len(views_of(lightly.MultiViewTransform([augment(8), augment(9)]))) == 2


class Third(MoCo):
    def __call__(self, x):
        q = self.base_transform(x)
        k = self.base_transform(q)
        return [q, k]


class Tuple(MoCo):
    def __call__(self, x):
        q = self.base_transform(x)
        k = self.base_transform(x)
        return (q, k)


class Property(MoCo):
    base_transform = property(lambda self: self.other, lambda self, t: setattr(self, "other", t))


class Looked(MoCo):
    def __getattribute__(self, name):
        return super().__getattribute__(name)


class More(MoCo):
    def __call__(self, x, times=1):
        q = self.base_transform(x)
        k = self.base_transform(x)
        return [q, k]


def wrapped(call):
    def __call__(self, x):
        return call(self, x)[:1]

    __call__.__wrapped__ = call
    return __call__


class Decorated(MoCo):
    __call__ = wrapped(MoCo.__call__)


class Count(int):
    pass


def other_range():
    namespace = {"range": lambda n: [0]}
    exec(
        "class SimCLR:\n"
        "    def __call__(self, x):\n"
        "        return [self.base_transform(x) for i in range(self.n_views)]\n",
        namespace,
    )
    made = namespace["SimCLR"]()
    made.base_transform, made.n_views = augment(8), 2
    return made


@pytest.mark.parametrize(
    "make",
    [
        lambda: Third(augment(8)),
        lambda: Tuple(augment(8)),
        lambda: Property(augment(8)),
        lambda: Looked(augment(8)),
        lambda: More(augment(8)),
        lambda: Decorated(augment(8)),
        lambda: SimCLR(augment(8), Count(2)),
        lambda: SimCLR(augment(8), -1),
        lambda: SimCLR(augment(8), True),
        lambda: DINO(augment(8), augment(8), augment(8), 63),
        lambda: Lightly(iter([augment(8)])),
        lambda: Lightly([]),
        lambda: other_range(),
    ],
)
def test_another_class_runs_in_python(make):
    found = T.split(make())
    assert found.described == []
    assert found.why.startswith("it is not a transform that HDMLP has")


def test_the_line_names_views(five, caplog):
    class Unlike(MoCo):
        def __call__(self, x):
            return [self.base_transform(x), self.base_transform(x)]

    dataset = ht.ImageFolder(five, Unlike(augment(8)))
    with ht.DataLoader(dataset, 5, seed=3, shuffle=True) as loader:
        [(views, _)] = list(loader)
    [said] = [r.getMessage() for r in caplog.records if "in Python" in r.getMessage()]
    assert "hdmlp.transforms.Views" in said
    with ht.DataLoader(ht.ImageFolder(five, MoCo(augment(8))), 5, seed=3, shuffle=True) as loader:
        [(want, _)] = list(loader)
    assert all(map(torch.equal, views, want))


def test_classes_are_known_without_their_source():
    """As where a script is given on standard input, or its file has changed since."""
    source = "class Crops:\n    def __call__(self, picture):\n" + "".join(
        f"        {line}\n"
        for line in (
            "a = self.base_transform(picture)",
            "b = self.base_transform(picture)",
            "return [a, b]",
        )
    )
    namespace = {}
    exec(compile(source, "<stdin>", "exec"), namespace)
    linecache.clearcache()
    made = namespace["Crops"]()
    made.base_transform = augment(8)
    assert views_of(made) == [made.base_transform] * 2
    assert len(T.split(made).described) == 1
