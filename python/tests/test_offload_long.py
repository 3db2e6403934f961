"""Longer runs of transforms in the daemon: memory does not grow, and a network learns as with
torchvision."""

import os

import pytest

torch = pytest.importorskip("torch")
torchvision = pytest.importorskip("torchvision")
numpy = pytest.importorskip("numpy")
Image = pytest.importorskip("PIL.Image")

import hdmlp.torch as ht
from hdmlp import transforms as T
from reference import batches, jpegs, read

V = torchvision.transforms
pytestmark = [pytest.mark.usefixtures("real"), pytest.mark.slow]

#: Epochs of the soak test, as in Go's. Taken out of the environment: the daemon would take it for a
#: key.
SOAK = int(os.environ.pop("HDMLP_SOAK", "40"))


def resident(pid):
    """Bytes of the process's memory, without shared memory, which caches and staging buffers are
    in."""
    with open(f"/proc/{pid}/status") as status:
        return sum(int(line.split()[1]) for line in status if line.startswith("RssAnon")) * 1024


@pytest.mark.limit(300 * max(1, SOAK // 40))
def test_memory_does_not_grow(tmp_path):
    root = jpegs(tmp_path / "data", {"a": 200, "b": 200}, edges=(60, 240))
    paths = [path for path, _ in ht.ImageFolder(root).samples]
    for i, path in enumerate(paths):
        content = read(path)
        spoilt = {
            0: content[: len(content) // 2],
            1: content[:100],
            2: b"text",
            3: content.replace(b"\xff\xda", b"\xff\xff", 1),
        }
        if i % 40 == 0:
            with open(path, "wb") as file:
                file.write(spoilt[i // 40 % 4])
    transforms = [
        T.RandomResizedCrop(48),
        T.RandomHorizontalFlip(),
        T.ColorJitter(0.2, 0.2, 0.2, 0.1),
        T.ToTensor(),
    ]
    sizes = []
    warm_up = 4  # jobs in which each of Go's processors fills its caches of memory
    for job in range(-warm_up, 2 + SOAK // 4):  # each tries the bad ones again
        with ht.DataLoader(
            ht.ImageFolder(root, transforms), 20, seed=1, on_error="skip", memory="1B", shuffle=True
        ) as loader:
            for _ in range(4):
                assert sum(len(images) for images, _ in loader) == 390
            assert len(loader.report()["faults"]) == 10
            if job >= 0:
                sizes.append(resident(loader._engine._feeds[0].stream.daemon.pid))
    # It goes up and down by 2 MB with the garbage collector, so the least of each half counts.
    # Measured: less than 0.5 MB more, with HDMLP_SOAK=400 1 MB. 2 MB are 200 bytes of each sample.
    half = len(sizes) // 2
    assert min(sizes[half:]) - min(sizes[1:half]) < 2e6, [round(size / 1e6, 1) for size in sizes]


# A network.


@pytest.fixture(scope="module")
def stripes(tmp_path_factory):
    """Three classes of noisy textures, for training and testing: their paths."""
    rng = numpy.random.default_rng(7)
    roots = []
    for part, count in (("train", 96), ("val", 64)):
        root = tmp_path_factory.mktemp("stripes") / part
        for k in range(3):
            (root / str(k)).mkdir(parents=True)
            for i in range(count):
                y, x = numpy.mgrid[0:36, 0:44] / rng.uniform(1.5, 3)
                angle = k * numpy.pi / 3 + rng.normal(0, 0.3)
                wave = numpy.sin(numpy.cos(angle) * x + numpy.sin(angle) * y + rng.uniform(0, 6))
                pixels = (
                    128
                    + 40 * wave[..., None] * rng.uniform(0.3, 1, 3)
                    + rng.normal(0, 45, (36, 44, 3))
                )
                Image.fromarray(pixels.clip(0, 255).astype(numpy.uint8)).save(
                    root / str(k) / f"{i}.jpg", quality=90
                )
        roots.append(str(root))
    return roots


def accuracy(train, test, seed, epochs):
    """The share of the test images that a small network classifies correctly."""
    torch.manual_seed(seed)
    net = torch.nn.Sequential(
        torch.nn.Conv2d(3, 12, 5, 2),
        torch.nn.ReLU(),
        torch.nn.Conv2d(12, 24, 3, 2),
        torch.nn.ReLU(),
        torch.nn.AdaptiveAvgPool2d(2),
        torch.nn.Flatten(),
        torch.nn.Linear(96, 3),
    )
    steps = torch.optim.Adam(net.parameters(), 4e-3)
    for epoch in range(epochs):
        for images, labels in train(epoch):
            steps.zero_grad()
            torch.nn.functional.cross_entropy(net(images), labels).backward()
            steps.step()
    right = [(net(images).argmax(1) == labels).double() for images, labels in test]
    return torch.cat(right).mean().item()


def test_a_network_learns_as_with_torchvision(stripes):
    train, val = stripes
    norm = V.Normalize((0.5, 0.5, 0.5), (0.25, 0.25, 0.25))
    augment = V.Compose(
        [
            V.RandomResizedCrop(28, (0.4, 1)),
            V.RandomHorizontalFlip(0.1),
            V.ColorJitter(0.2, 0.2),
            V.ToTensor(),
            norm,
        ]
    )
    test = batches(
        val, 64, 1, 0, False, 0, 1, V.Compose([V.Resize(32), V.CenterCrop(28), V.ToTensor(), norm])
    )[0]
    ours, theirs = [], []
    for seed in range(3):
        with ht.DataLoader(ht.ImageFolder(train, augment), 24, seed=seed, shuffle=True) as loader:
            assert loader._engine._made.recipe is None
            ours.append(accuracy(lambda epoch, loader=loader: loader, test, seed, 6))
        dataset = torchvision.datasets.ImageFolder(train, augment)
        sampler = torch.utils.data.DistributedSampler(dataset, 1, 0, seed=seed)
        loader = torch.utils.data.DataLoader(dataset, 24, sampler=sampler)

        def of_epoch(epoch, sampler=sampler, loader=loader):
            sampler.set_epoch(epoch)
            return loader

        theirs.append(accuracy(of_epoch, test, seed, 6))
    # Measured over 6 seeds: 0.863 and 0.868, and 0.014 of deviation from seed to seed; 0.05 are
    # more than four deviations of a difference of means of three.
    assert abs(sum(ours) - sum(theirs)) / 3 < 0.05, (ours, theirs)
    assert min(ours + theirs) > 0.75, (ours, theirs)
