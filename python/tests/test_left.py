"""Files that only Pillow decodes, or as no other decoder does, in batches of one size: Pillow
decodes them in the process, and what comes out is torchvision's."""

import pytest

torch = pytest.importorskip("torch")
torchvision = pytest.importorskip("torchvision")
numpy = pytest.importorskip("numpy")
Image = pytest.importorskip("PIL.Image")
features = pytest.importorskip("PIL.features")

import hdmlp.data
import hdmlp.torch as ht
from byhand import by_hand
from elsewhere import elastic
from hdmlp import errors
from hdmlp import transforms as T
from reference import decoded, picture

V = torchvision.transforms
pytestmark = pytest.mark.usefixtures("real")

SEED = 5
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)

#: Formats that the daemon does not decode, by the options with which PIL writes them. AVIF and JPEG
#: 2000 are there if this PIL has them.
FOREIGN = {
    "BMP": {},
    "TIFF": {"compression": "tiff_lzw"},
    "GIF": {},
    "PPM": {},
    "ICO": {"sizes": [(48, 40)]},
    "PCX": {},
    "TGA": {},
    "DIB": {},
    "SGI": {},
    "AVIF": {"quality": 100},
    "JPEG2000": {},
}


def later_scans(data):
    """A progressive JPEG with only the first of its scans, the first two, and so on."""
    at = 2
    while data[at : at + 2] != b"\xff\xd9":
        scan = data[at + 1] == 0xDA
        at += 2 + int.from_bytes(data[at + 2 : at + 4], "big")
        while scan and (data[at] != 0xFF or data[at + 1] == 0):
            at += 1
        if scan:
            yield data[:at] + b"\xff\xd9"


def add(root, rng):
    """Writes a file of each kind beside JPEGs; returns the names of those that PIL decodes."""
    Image.init()
    names = []
    for kind, options in FOREIGN.items():
        if kind not in Image.SAVE or (kind == "AVIF" and not features.check("avif")):
            continue
        name = f"{kind.lower()}.jpg"  # whose contents count, as for torchvision's loader
        picture(rng, 48, 40).save(root / name, kind, **options)
        names.append(name)
    picture(rng, 48, 40).convert("1").save(root / "pbm.jpg", "PPM")
    frames = [picture(rng, 48, 40) for _ in range(2)]
    frames[0].save(root / "moving.webp", save_all=True, append_images=frames[1:], lossless=True)
    names += ["pbm.jpg", "moving.webp"]
    for mode, options in (("RGB", {}), ("RGB", {"subsampling": 0}), ("L", {}), ("CMYK", {})):
        image = picture(rng, 61, 47).convert(mode)
        image.save(root / "whole.jpg", progressive=True, quality=90, **options)
        *cut, _ = later_scans((root / "whole.jpg").read_bytes())
        for n, data in enumerate(cut):
            name = f"scans-{mode}-{options.get('subsampling', 2)}-{n:02}.jpg"
            (root / name).write_bytes(data)
            names.append(name)
    return names


def photographs(root):
    rng = numpy.random.default_rng(2)
    for name in ("ant", "bee"):
        (root / name).mkdir(parents=True)
        for i in range(6):
            picture(rng, 50 + i, 60 - i).save(root / name / f"{i}.jpg", quality=90)
    return rng


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    root = tmp_path_factory.mktemp("foreign") / "data"
    add(root / "ant", photographs(root))
    return str(root)


@pytest.fixture
def one(tmp_path):
    """Twelve JPEGs and a BMP, which is sample 6."""
    root = tmp_path / "data"
    picture(photographs(root), 400, 300).save(root / "ant" / "z.bmp")
    return str(root)


@pytest.fixture
def broken(one):
    """The same, of which Pillow cannot decode the BMP."""
    with open(f"{one}/ant/z.bmp", "r+b") as file:
        file.truncate(5000)
    return one


def wanted(folder, transform, epoch=0):
    """What torchvision makes of all images, by sample."""
    out = []
    for i, (path, _) in enumerate(torchvision.datasets.ImageFolder(folder).samples):
        out.append(by_hand(transform, decoded(path), SEED, epoch, i))
    return out


SMALL = V.Compose([V.Resize((24, 32)), V.ToTensor()])
OURS = [T.Resize((24, 32)), T.ToTensor()]

FIXED = {
    "Resize": [V.Resize((24, 32)), V.ToTensor()],
    "Resize, CenterCrop, Normalize": [
        V.Resize(30),
        V.CenterCrop(24),
        V.ToTensor(),
        V.Normalize(MEAN, STD),
    ],
    "PILToTensor": [V.Resize((24, 32)), V.PILToTensor()],
    "a function after": [V.Resize((24, 32)), V.ToTensor(), lambda x: x * 2],
    "images": [V.Resize((24, 32)), lambda x: x.rotate(9), V.ToTensor()],
}


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("name", FIXED)
def test_they_are_decoded_by_pillow(folder, name, workers):
    transform = V.Compose(FIXED[name])
    want = wanted(folder, transform)
    with ht.DataLoader(
        torchvision.datasets.ImageFolder(folder, transform),
        7,
        shuffle=True,
        seed=SEED,
        num_workers=workers,
    ) as loader:
        for epoch in range(2):
            seen = []
            for step, (images, _) in enumerate(loader):
                ids = loader.explain(epoch, step).ids
                for image, i in zip(images, ids):
                    assert torch.equal(image, want[i]), (epoch, loader.dataset.samples[i])
                seen += ids
            assert sorted(seen) == list(range(len(want)))
        assert not loader.report()["faults"]


RANDOM = {
    "torchvision's": [V.RandomResizedCrop(24), V.RandomHorizontalFlip(), V.ToTensor()],
    "and Python's": [V.RandomResizedCrop(24), V.ToTensor(), elastic()],
    "ours": [T.RandomResizedCrop(24), T.RandomHorizontalFlip(), T.ToTensor()],
}


@pytest.mark.parametrize("sampler", ["seed", "given", "twice"])
@pytest.mark.parametrize("name", RANDOM)
def test_random_numbers_follow_from_the_sample(one, name, sampler):
    """They do not depend on workers, and a sample that comes twice draws twice."""

    def made(workers):
        options = {"shuffle": True, "seed": SEED}
        dataset = ht.ImageFolder(one, RANDOM[name])
        if sampler == "given":
            options = {"sampler": list(range(12, -1, -1))}
        elif sampler == "twice":
            dataset = torch.utils.data.Subset(dataset, [6, 3, 6])
        torch.manual_seed(1)
        with ht.DataLoader(dataset, 3, num_workers=workers, **options) as loader:
            return [image for _ in range(2) for images, _ in loader for image in images]

    first = made(0)
    assert all(torch.equal(a, b) for a, b in zip(first, made(2), strict=True))
    if sampler == "twice":
        epochs = first[:3], first[3:]
        assert all(len({bytes(i.numpy().tobytes()) for i in epoch}) == 3 for epoch in epochs)


def test_random_transforms_draw_as_torchvisions(one):
    transform = V.Compose(RANDOM["torchvision's"])
    with ht.DataLoader(ht.ImageFolder(one, transform), 13, shuffle=False, seed=SEED) as loader:
        for epoch in range(3):
            ((images, _),) = loader
            assert torch.equal(images[6], wanted(one, transform, epoch)[6])


@pytest.mark.parametrize(
    "ours, theirs",
    [
        (OURS, [V.Resize((24, 32)), V.ToTensor()]),
        (
            [
                T.ImgDecode("L"),
                T.Resize(40, "bicubic", max_size=44),
                T.CenterCrop(50),
                T.ToTensor(),
            ],
            [V.Grayscale(), V.Resize(40, V.InterpolationMode.BICUBIC, 44), V.CenterCrop(50)],
        ),
        (
            [T.CenterCrop((60, 70)), T.Pad((1, 2), 7, "edge"), T.ToTensor(dtype="float16")],
            [V.CenterCrop((60, 70)), V.Pad((1, 2), 7, "edge")],
        ),
        (
            [T.Resize((24, 32)), T.Grayscale(3), T.ToTensor("NHWC", "uint8")],
            [V.Resize((24, 32)), V.Grayscale(3), V.PILToTensor(), lambda x: x.permute(1, 2, 0)],
        ),
        ([T.Resize((24, 32))], [V.Resize((24, 32)), V.PILToTensor(), lambda x: x.permute(1, 2, 0)]),
        (
            [
                T.CenterCrop(9),
                T.ToTensor(),
                T.Normalize(MEAN, STD),
                T.ConvertImageDtype("float16"),
            ],
            [V.CenterCrop(9), V.ToTensor(), V.Normalize(MEAN, STD)],
        ),
        (
            [T.RandomCrop(20, 500, fill=9), T.RandomVerticalFlip(1), T.ColorJitter(), T.ToTensor()],
            None,
        ),
    ],
)
def test_our_own_transforms(one, ours, theirs):
    with ht.DataLoader(ht.ImageFolder(one, ours), 13) as loader:
        ((images, _),) = loader
    if theirs is None:
        return
    want = V.Compose(theirs)(decoded(f"{one}/ant/z.bmp"))
    if not isinstance(want, torch.Tensor):
        want = V.ToTensor()(want)
    assert torch.equal(images[6], want.to(images.dtype))


def test_one_line_says_so(one, caplog):
    with ht.DataLoader(ht.ImageFolder(one, OURS), 4) as loader:
        for _ in range(2):
            assert len(list(loader)) == 4
    said = [r.getMessage() for r in caplog.records if "decoded by Pillow" in r.getMessage()]
    assert len(said) == 1
    assert "sample 6 " in said[0]
    assert "z.bmp" in said[0]


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("policy", ["raise", "skip", "substitute"])
@pytest.mark.parametrize("rest", [[], [lambda x: x]], ids=["daemon", "Python"])
def test_what_pillow_refuses_is_unreadable(broken, policy, workers, rest):
    transform = V.Compose([V.Resize((24, 32)), V.ToTensor(), *rest])
    options = {"seed": SEED, "shuffle": True, "num_workers": workers}
    with ht.DataLoader(ht.ImageFolder(broken, transform), 4, on_error=policy, **options) as loader:
        if policy == "raise":
            with pytest.raises(errors.SampleError, match=r"z\.bmp") as caught:
                list(loader)
            assert caught.value.sample == 6
            return
        for _ in range(3):
            assert sum(len(labels) for _, labels in loader) == (12 if policy == "skip" else 13)
        (fault,) = loader.report()["faults"]
        assert fault["sample"] == 6


def test_resumes_and_verifies(one):
    def loader():
        return ht.DataLoader(
            ht.ImageFolder(one, SMALL), 2, shuffle=True, seed=SEED, verify=True, epochs=2
        )

    with loader() as whole:
        want = [images for _ in range(2) for images, _ in whole]
    with loader() as first:
        begun = iter(first)
        got = [next(begun)[0] for _ in range(3)]
        state = first.state_dict()
    with loader() as second:
        second.load_state_dict(state)
        got += [images for _ in range(2) for images, _ in second]
    assert all(torch.equal(a, b) for a, b in zip(got, want, strict=True))


def test_larger_than_the_staging_buffer(tmp_path):
    """The file is larger than the buffer, and so waits for memory of its own."""
    root = tmp_path / "data"
    rng = photographs(root)
    for i in range(3):
        picture(rng, 900, 700).save(root / "bee" / f"z{i}.bmp")
    with ht.DataLoader(
        ht.ImageFolder(str(root), SMALL), 3, staging_buffer="1MB", prefetch_batches=4
    ) as loader:
        for _ in range(2):
            images = torch.cat([images for images, _ in loader])
            want = wanted(str(root), SMALL)
            assert all(torch.equal(a, b) for a, b in zip(images, want, strict=True))


def test_where_it_is_not_possible_the_message_says_why(one):
    with ht.DataLoader(ht.ImageFolder(one, SMALL), 4, share="s", seed=1, shuffle=True) as loader:
        with pytest.raises(errors.SampleError, match=r"z\.bmp.*a BMP.*without share="):
            list(loader)
    with hdmlp.data.DataLoader(one, 4, transforms=OURS) as loader:
        with pytest.raises(errors.SampleError, match=r"z\.bmp.*a BMP.*convert the file"):
            list(loader)


def test_openers_of_the_programs(tmp_path):
    """A format for which the program has registered an opener, as pillow_heif does."""
    root = tmp_path / "data"
    photographs(root)
    (root / "bee" / "z.png").write_bytes(b"mine" + bytes(range(48)))

    def opened(file, name):
        return Image.frombytes("RGB", (4, 4), file.read()[4:])

    Image.register_open("MINE", opened, lambda prefix: prefix.startswith(b"mine"))
    try:
        with ht.DataLoader(ht.ImageFolder(str(root), SMALL), 13) as loader:
            ((images, _),) = loader
        assert torch.equal(images[12], SMALL(Image.frombytes("RGB", (4, 4), bytes(range(48)))))
    finally:
        Image.ID.remove("MINE")
        del Image.OPEN["MINE"]
