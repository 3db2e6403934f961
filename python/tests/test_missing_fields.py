"""Records that lack a field which others have, whatever is made of the fields.

The oracle makes items of the files with Pillow and torchvision.
"""

import io
import logging

import pytest

torch = pytest.importorskip("torch")
transforms = pytest.importorskip("torchvision.transforms")

import hdmlp.torch as ht
import hdmlp.transforms
from hdmlp import errors
from hdmlp.torch._data.collated import collate_records
from PIL import Image
from recordfiles import TENSOR, contents, equal, image, write
from test_webdataset import archive
from torch.utils.data import DistributedSampler

pytestmark = pytest.mark.usefixtures("real")

COUNT = 23
CHANGED = transforms.Compose([transforms.CenterCrop(8), transforms.Lambda(lambda p: p.size)])


@pytest.fixture
def paths(tmp_path):
    """Of images, of other images that every third lacks, and of annotations that some lack."""
    found = write(tmp_path / "data", COUNT)
    return [(a if i % 5 else None, b if i % 3 else None, c) for i, (a, b, c) in enumerate(found)]


def plain(value):
    """Values with images as their pixels."""
    if isinstance(value, Image.Image):
        return value.mode, value.size, value.tobytes()
    if isinstance(value, dict):
        return {name: plain(part) for name, part in value.items()}
    return [plain(part) for part in value] if isinstance(value, (list, tuple)) else value


def picture(path):
    return Image.open(path).convert("RGB")


def each(functions, files):
    return tuple(None if f is None else make(f) for make, f in zip(functions, files))


def order(epoch):
    sampler = DistributedSampler(range(COUNT), 1, 0, seed=5)
    sampler.set_epoch(epoch)
    return list(sampler)


def compare(data, item, collate=collate_records, **options):
    """Compares two epochs with what the oracle makes of the same records."""
    assert equal(plain([data[i] for i in range(COUNT)]), plain([item(i) for i in range(COUNT)]))
    with ht.DataLoader(data, 4, shuffle=True, seed=5, epochs=2, **options) as loader:
        for epoch in range(2):
            drawn = order(epoch)
            expected = [[item(i) for i in drawn[k : k + 4]] for k in range(0, COUNT, 4)]
            assert equal(plain(list(loader)), plain(list(map(collate, expected))))


@pytest.mark.parametrize("options", [{}, {"num_workers": 2}, {"on_error": "skip"}])
@pytest.mark.parametrize(
    "second", [None, TENSOR, CHANGED, transforms.ToTensor(), [transforms.ToTensor(), CHANGED]]
)
def test_fields_that_the_daemon_would_transform(paths, second, options):
    """What becomes a tensor of one size, an image of one size or of its own, or stays bytes."""
    given = {"0": TENSOR} if second is None else {"0": TENSOR, "1": second}
    if isinstance(second, list):
        second = None
        given = {"0": transforms.ToTensor(), "1": TENSOR}
        functions = [lambda p: transforms.ToTensor()(picture(p)), lambda p: TENSOR(picture(p))]
    else:
        functions = [lambda p: TENSOR(picture(p))]
        functions.append(contents if second is None else lambda p: second(picture(p)))
    functions.append(contents)
    data = ht.Files(paths, list(range(COUNT)), transform=given)
    options = {"num_workers": 0, **options}
    compare(data, lambda i: (*each(functions, paths[i]), i), **options)


@pytest.mark.parametrize("buffer", ["64KiB", "64MiB"])
def test_a_tensor_that_all_have_stays_the_daemons(paths, buffer):
    """Of the field that some lack, it decodes only."""
    found = [(f"{c[:-5]}.png", b, c) for _, b, c in paths]
    data = ht.Files(found, transform={"0": TENSOR, "1": TENSOR})
    parts = data._plan(True, False).parts
    assert [len(part.described) > 0 for part in parts] == [True, True, False]
    assert [part.native for part in parts] == [True, False, True]
    functions = [lambda p: TENSOR(picture(p))] * 2 + [contents]
    compare(data, lambda i: each(functions, found[i]), num_workers=0, staging_buffer=buffer)


def test_nothing_is_left_to_python_where_a_field_stays_bytes(paths):
    found = [{"x": f"{c[:-5]}.png", "y": b} for _, b, c in paths]
    data = ht.Files(found, transform={"x": TENSOR})

    def item(i):
        x, y = found[i].values()
        return {"x": TENSOR(picture(x)), "y": None if y is None else contents(y)}

    compare(data, item)
    with ht.DataLoader(data, 4) as loader:
        assert loader._content.making.recipe is None


def test_one_line_says_what_runs_in_python(paths, caplog):
    data = ht.Files(paths, transform={"0": TENSOR, "1": CHANGED})
    with caplog.at_level(logging.WARNING, "hdmlp"), ht.DataLoader(data, 4, num_workers=0):
        pass
    said = [r.getMessage() for r in caplog.records if "do not have it" in r.getMessage()]
    assert said == [
        "the field 0 is only decoded by the daemon, and its transforms run in Python: some "
        "samples do not have it"
    ]


def test_our_own_transforms_cannot_run_in_python(paths):
    ours = [hdmlp.transforms.ImgDecode(), hdmlp.transforms.CenterCrop(8)]
    with pytest.raises(errors.ConfigError, match="transform: "):
        ht.Files(paths, transform={"0": ours})


@pytest.mark.parametrize("workers", [0, 2])
def test_shards_of_images_of_several_formats(tmp_path, workers):
    """Items have the fields that their sample has, as webdataset's."""
    pixels = [Image.open(io.BytesIO(image(i))) for i in range(COUNT)]
    members = []
    for i, picked in enumerate(pixels):
        file = io.BytesIO()
        suffix, name = ("png", "PNG") if i % 2 else ("webp", "WEBP")
        picked.save(file, name, **({"lossless": True} if name == "WEBP" else {}))
        members += [(f"{i:03d}.{suffix}", file.getvalue()), (f"{i:03d}.cls", b"%d" % i)]
    archive(tmp_path / "x.tar", members)

    data = ht.WebDataset(tmp_path / "x.tar").decode("pil")

    def item(i):
        has = {"png" if i % 2 else "webp": pixels[i].convert("RGB"), "cls": i}
        fields = {name: has[name] for name in data.fields if name in has}
        return {"__key__": f"{i:03d}", "__url__": str(tmp_path / "x.tar"), **fields}

    compare(data, item, list, collate_fn=list, num_workers=workers)
    renamed = data.rename(image="png;webp").map(lambda s: (TENSOR(s["image"]), s["cls"]))
    compare(renamed, lambda i: (TENSOR(pixels[i].convert("RGB")), i), num_workers=workers)
    one = ht.WebDataset(tmp_path / "x.tar", fields=("png", "cls"), missing=None).decode("pil")
    one = one.map_tuple(TENSOR, None)
    compare(one, lambda i: (TENSOR(pixels[i]) if i % 2 else None, i), num_workers=workers)


def test_a_run_goes_on_where_it_was(paths):
    data = ht.Files(paths, list(range(COUNT)), transform={"0": TENSOR, "1": TENSOR})

    def loader():
        return ht.DataLoader(data, 4, shuffle=True, seed=5, epochs=2, num_workers=0)

    with loader() as first:
        every = list(first)
        position = iter(first)
        next(position)
        state = first.state_dict()
        rest = list(position)
    with loader() as second:
        second.load_state_dict(state)
        assert equal(list(second), rest)
    assert len(every) == 6
