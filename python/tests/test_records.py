"""Datasets of records: lists of files, and ranges of files.

The oracle is the obvious torch dataset over the same files, in torch's own loader.
"""

import copy
import io
import json
import os
import pickle

import numpy
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torchvision")

import hdmlp.data as hd
import hdmlp.torch as ht
from hdmlp import errors
from PIL import Image
from recordfiles import TENSOR, Pairs, contents, equal, image, write
from torch.utils.data import (
    ConcatDataset,
    DataLoader,
    DistributedSampler,
    Subset,
    WeightedRandomSampler,
    random_split,
)

pytestmark = pytest.mark.usefixtures("real")

BOTH = {"0": TENSOR, "1": TENSOR}


@pytest.fixture
def paths(tmp_path):
    return write(tmp_path / "data")


def pairs(paths, **options):
    return ht.Files([p[:2] for p in paths], list(range(23)), transform=BOTH, **options)


def batches(loader):
    return list(loader)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("rank", [0, 1])
def test_pairs_come_as_from_torch(paths, workers, rank):
    """In DistributedSampler's order, over two epochs; both images are made by the daemon."""
    theirs, ours = Pairs(paths, list(range(23))), pairs(paths)
    samplers = [DistributedSampler(d, 2, rank, seed=3) for d in (theirs, ours)]
    with ht.DataLoader(ours, 4, sampler=samplers[1], num_workers=workers) as loader:
        reference = DataLoader(theirs, 4, sampler=samplers[0])
        for epoch in range(2):
            for sampler in samplers:
                sampler.set_epoch(epoch)
            assert equal(batches(loader), batches(reference))


def test_nothing_is_left_to_python(paths):
    with ht.DataLoader(pairs(paths), 4) as loader:
        assert loader.num_workers == 0
        assert [type(x) for x in next(iter(loader))] == [torch.Tensor] * 3
        made = loader._content.making
    assert made.recipe is None


@pytest.mark.parametrize(
    "labels, expected",
    [
        ([5, -3, 7], torch.tensor([5, -3, 7])),
        ([0.5, 1.5, 2.5], torch.tensor([0.5, 1.5, 2.5], dtype=torch.float64)),
        ([True, False, True], torch.tensor([True, False, True])),
        (["b", "a", "b"], torch.tensor([1, 0, 1])),
        (numpy.array([[1, 2], [3, 4], [5, 6]]), torch.tensor([[1, 2], [3, 4], [5, 6]])),
        (torch.tensor([[1.0, 2], [3, 4], [5, 6]]), torch.tensor([[1.0, 2], [3, 4], [5, 6]])),
        ([None, {"a": 1}, (2,)], [None, {"a": 1}, (2,)]),
    ],
)
@pytest.mark.parametrize("function", [None, lambda label: label])
def test_labels_stay_what_they_are(paths, labels, expected, function):
    files = [p[0] for p in paths[:3]]
    data = ht.Files(files, labels, transform=TENSOR, target_transform=function)
    with ht.DataLoader(data, 3) as loader:
        found = next(iter(loader))[1]
    assert equal(found, expected), found
    known = expected[1]
    assert (numpy.asarray(data[1][1]) == numpy.asarray(known)).all()


def test_texts_are_classes(paths):
    data = ht.Files([p[0] for p in paths], ["cat", "ant"] * 11 + ["bee"], transform=TENSOR)
    assert data.classes == ["ant", "bee", "cat"]
    assert data.class_to_idx == {"ant": 0, "bee": 1, "cat": 2}
    assert data.targets[:3] == [2, 0, 2]
    assert data.samples[1] == (paths[1][0], 0)
    with ht.DataLoader(data, 4, labels="name") as loader:
        assert list(next(iter(loader))[1]) == ["cat", "ant", "cat", "ant"]
    with pytest.raises(errors.ConfigError, match=r"labels\[0\]='cat': it is none of the 2 classes"):
        ht.Files([paths[0][0]], ["cat"], classes=["dog", "ant"])
    with pytest.raises(errors.ConfigError, match=r"labels\[1\]=2: there are 2 classes"):
        ht.Files([p[0] for p in paths[:2]], [0, 2], classes=["dog", "ant"])


def test_items_have_the_form_of_what_was_given(paths):
    one, two, three = paths[0]
    raw = [contents(p) for p in paths[0]]
    for given, labels, item, batch in [
        (one, None, raw[0], [raw[0]]),
        (one, 4, (raw[0], 4), [[raw[0]], torch.tensor([4])]),
        ((one, three), None, (raw[0], raw[2]), [[raw[0]], [raw[2]]]),
        ((one, three), 4, (raw[0], raw[2], 4), [[raw[0]], [raw[2]], torch.tensor([4])]),
        ({"a": one, "b": None}, None, {"a": raw[0], "b": None}, {"a": [raw[0]], "b": [None]}),
        ({"a": one}, 4, {"a": raw[0], "label": 4}, {"a": [raw[0]], "label": torch.tensor([4])}),
    ]:
        data = ht.Files([given], None if labels is None else [labels])
        assert data[0] == item
        with ht.DataLoader(data, 1) as loader:
            assert equal(next(iter(loader)), batch)
        with ht.DataLoader(data, 1, collate_fn=list, num_workers=0) as loader:
            assert equal(next(iter(loader)), [item])
    assert two


def test_fields_are_decoded_by_their_suffixes(paths, tmp_path):
    array = numpy.arange(24, dtype=numpy.uint16).reshape(2, 3, 4)
    numpy.save(tmp_path / "a.npy", array)
    numpy.save(tmp_path / "f.npy", numpy.asfortranarray(array))
    (tmp_path / "a.txt").write_text("grün")
    given = {
        "x": str(tmp_path / "a.npy"),
        "f": str(tmp_path / "f.npy"),
        "t": str(tmp_path / "a.txt"),
        "j": paths[5][2],
    }
    data = ht.Files([given, given], decode=True)
    with ht.DataLoader(data, 2, num_workers=0) as loader:
        made = next(iter(loader))
    for name in "xf":
        assert made[name].dtype == torch.uint16 if hasattr(torch, "uint16") else True
        assert (numpy.asarray(made[name])[1] == array).all()
    assert made["t"] == ["grün", "grün"]
    assert equal(made["j"], {"n": torch.tensor([5, 5]), "half": torch.tensor([2.5, 2.5]).double()})
    (tmp_path / "a.pt").write_bytes(b"x")
    with pytest.raises(errors.ConfigError, match="is a pickle"):
        ht.Files([str(tmp_path / "a.pt")], decode=True)


def test_views_of_arrays_are_stacked_in_this_process(tmp_path, recwarn):
    """As torch stacks arrays, without its warning of those that cannot be written to."""
    arrays = numpy.random.default_rng(1).normal(size=(4, 2, 3, 5))
    for i, array in enumerate(arrays):
        numpy.save(tmp_path / f"{i}.npy", array)
        numpy.save(tmp_path / f"{i}f.npy", numpy.asfortranarray(array))
    data = ht.Files(
        [(str(tmp_path / f"{i}.npy"), str(tmp_path / f"{i}f.npy")) for i in range(4)],
        [0, 1, 2, 3],
        decode=True,
    )
    warned = torch.is_warn_always_enabled()
    torch.set_warn_always(True)
    try:
        with ht.DataLoader(data, 4, shuffle=False) as loader:
            one, other, labels = next(iter(loader))
            assert loader.num_workers == 0
    finally:
        torch.set_warn_always(warned)
    theirs = torch.utils.data.default_collate([array.copy() for array in arrays])
    for made in (one, other):
        assert torch.equal(made, theirs)
        assert made.dtype == theirs.dtype
        assert made.stride() == theirs.stride()
        made += 1  # it is the program's own
    assert labels.tolist() == [0, 1, 2, 3]
    assert not [w for w in recwarn if "not writable" in str(w.message)]


def test_fields_begin_at_multiples_of_64(paths):
    """Wherever they lie: as they are read, and from the cache in later epochs."""
    data = ht.Files([{"a": p[2], "b": p[0], "c": p[1]} for p in paths])
    with ht.DataLoader(data, 4, shuffle=True, seed=1) as loader:
        for _ in range(3):
            for batch in loader:
                for view in (view for field in batch.values() for view in field):
                    address = numpy.frombuffer(view, numpy.uint8).ctypes.data
                    assert address % 64 == 0


@pytest.mark.parametrize("workers", [0, 2])
def test_ranges_of_files(tmp_path, workers):
    """Any order of ranges, ranges that overlap, fields that records lack, and values."""
    blob = bytes(range(256)) * 40
    for name in "ab":
        (tmp_path / name).write_bytes(blob + name.encode())
    generator = numpy.random.default_rng(1)
    count = 50
    numbers = generator.integers(0, 2, count)
    offsets = generator.integers(0, 5000, count)
    lengths = generator.integers(1, 3000, count)
    other = numpy.where(numpy.arange(count) % 3 == 0, -1, numbers)
    data = ht.Records(
        [tmp_path / "a", tmp_path / "b"],
        {"x": (numbers, offsets, lengths), "y": (other, offsets + 100, [-2] * count)},
        {"name": [f"r{i}" for i in range(count)]},
        labels=list(range(count)),
    )
    files = [(tmp_path / name).read_bytes() for name in "ab"]
    expected = []
    for i in range(count):
        file = files[numbers[i]]
        y = None if other[i] < 0 else file[offsets[i] + 100 :]
        x = file[offsets[i] : offsets[i] + lengths[i]]
        expected.append({"name": f"r{i}", "x": x, "y": y, "label": i})
    assert list(data) == expected
    seen = []
    options = {"collate_fn": copied} if workers else {}
    with ht.DataLoader(data, 8, shuffle=True, seed=4, num_workers=workers, **options) as loader:
        for batch in loader:
            if workers:
                seen += batch
                continue
            for i, label in enumerate(batch["label"].tolist()):
                values = [batch["name"][i], batch["x"][i], batch["y"][i]]
                seen.append(dict(zip(("name", "x", "y"), values), label=label))
    order = torch.randperm(count, generator=torch.Generator().manual_seed(4)).tolist()
    assert sorted(s["label"] for s in seen) == sorted(order)
    for item in seen:
        assert equal(item, expected[item["label"]])


def copied(items):
    """A collate function of workers, whose memory the items are in."""
    return [{k: bytes(v) if isinstance(v, memoryview) else v for k, v in i.items()} for i in items]


def test_parts_of_the_dataset(paths):
    """Subsets and samplers are served; items are those of the dataset."""
    data = pairs(paths)
    theirs = Pairs(paths, list(range(23)))
    parts = random_split(data, [11, 12], torch.Generator().manual_seed(2))
    weights = [float(target) for target in data.targets]
    for ours, reference, options in [
        (Subset(data, [3, 1, 4]), Subset(theirs, [3, 1, 4]), {}),
        (parts[1], Subset(theirs, parts[1].indices), {}),
        (ConcatDataset([data, data]), ConcatDataset([theirs, theirs]), {}),
        (
            data,
            theirs,
            {
                "sampler": lambda: WeightedRandomSampler(
                    weights, 9, generator=torch.Generator().manual_seed(5)
                )
            },
        ),
    ]:
        made = [{k: v() for k, v in options.items()} for _ in range(2)]
        with ht.DataLoader(ours, 4, **made[0]) as loader:
            assert equal(batches(loader), batches(DataLoader(reference, 4, **made[1])))
            assert loader._content.folder is data


def test_lists_of_one_directory_are_not_one_dataset(paths):
    """Concatenated, each has its own records."""
    halves = [ht.Files([p[0] for p in part]) for part in (paths[:4], paths[4:8])]
    with ht.DataLoader(ConcatDataset(halves), 8) as loader:
        (batch,) = loader
    assert equal(batch, [contents(p[0]) for p in paths[:8]])


@pytest.mark.parametrize("clone", [lambda d: pickle.loads(pickle.dumps(d)), copy.deepcopy])
def test_copies_are_the_same(paths, clone):
    data = clone(pairs(paths))
    with ht.DataLoader(data, 23) as loader:
        assert equal(next(iter(loader))[2], torch.arange(23))


def test_a_run_goes_on_where_it_was(paths):
    def loader():
        return ht.DataLoader(pairs(paths), 4, shuffle=True, seed=9)

    with loader() as first:
        whole = batches(first) + batches(first)
    with loader() as second:
        iterator = iter(second)
        seen = [next(iterator), next(iterator)]
        state = second.state_dict()
    with loader() as third:
        third.load_state_dict(state)
        rest = batches(third) + batches(third)
    assert equal(seen + rest, whole)


def test_all_together(paths):
    """A joint transform gets what torchvision's gives, and runs in Python."""

    def jointly(first, second):
        return TENSOR(second), TENSOR(first)

    data = ht.Files([p[:2] for p in paths], transforms=jointly)
    reference = [Pairs(paths, [0] * 23)[i][1::-1] for i in range(4)]
    with ht.DataLoader(data, 4, num_workers=0) as loader:
        assert equal(next(iter(loader)), [torch.stack(x) for x in zip(*reference)])
    with_label = ht.Files([paths[0][0]], [7], transforms=lambda image, label: (image.size, label))
    assert with_label[0] == ((10, 9), 7)


def test_masks_are_not_converted_without_a_word(paths, tmp_path):
    Image.new("P", (8, 8)).save(tmp_path / "mask.png")
    pair = [(paths[0][0], str(tmp_path / "mask.png"))]
    with pytest.raises(errors.ConfigError, match=r"mode 'P'.*give loader="):
        ht.Files(pair, transform=BOTH)

    def opened(data):
        return Image.open(io.BytesIO(data))

    data = ht.Files(pair, loader={"1": opened}, transform={"0": TENSOR, "1": numpy.asarray})
    with ht.DataLoader(data, 1, num_workers=0) as loader:
        assert next(iter(loader))[1].shape == (1, 8, 8)


def test_tables(paths, tmp_path):
    table = tmp_path / "data" / "train.csv"
    rows = [
        f"{os.path.basename(p[0])},{i % 3},{i / 2},{'dog' if i % 2 else 'ant'}"
        for i, p in enumerate(paths)
    ]
    table.write_text("\n".join(["file,number,weight,kind", *rows]))
    data = ht.Files.from_csv(table, columns="file", label="kind", transform=TENSOR)
    assert (len(data), data.classes, data.table["weight"][3]) == (23, ["ant", "dog"], "1.5")
    assert data.samples[1][0] == paths[1][0]
    numbered = ht.Files.from_csv(table, columns={"image": "file"}, label=["number", "weight"])
    assert numbered.targets[4] == [1.0, 2.0]
    kept = ht.Files.from_csv(table, columns="file", where=lambda row: row["number"] == "2")
    assert len(kept) == 7
    with ht.DataLoader(data, 23) as loader:
        assert next(iter(loader))[1].tolist() == [i % 2 for i in range(23)]
    lines = tmp_path / "data" / "train.jsonl"
    lines.write_text("\n".join(json.dumps({"p": f"{i:03d}", "y": i}) for i in range(23)))
    suffixed = ht.Files.from_csv(lines, columns="p", label="y", suffix=".png")
    assert suffixed.targets == list(range(23))
    assert suffixed[3] == (contents(paths[3][0]), 3)


@pytest.mark.parametrize(
    "text, message",
    [
        ("a,a\n1,2", "two columns have the name 'a'"),
        ("a,b\n1", "line 2: 1 values, and there are 2 columns"),
        ("a,b", "the table has no rows"),
        ("b\nx.png", "there is no column 'path'; there are b"),
        ('path\n"x', "line"),
        ("path\n\n\nx\n,", "line 5"),
    ],
)
def test_bad_tables(tmp_path, text, message):
    (tmp_path / "t.csv").write_text(text)
    with pytest.raises(errors.ConfigError, match=message):
        hd.Files.from_csv(tmp_path / "t.csv")


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda p: hd.Files([]), "the list is empty"),
        (lambda p: hd.Files([p, 5]), r"paths\[1\]=5: must be a path"),
        (lambda p: hd.Files([(p, p), p]), r"paths\[1\]=.*must have 2 paths"),
        (lambda p: hd.Files([{"a": p}, {"b": p}]), r"paths\[1\] has \['b'\]"),
        (lambda p: hd.Files([(None, None)]), r"paths\[0\] names no file"),
        (lambda p: hd.Files([p], [1, 2]), "labels has 2 entries, and there are 1 records"),
        (lambda p: hd.Files([""]), "'' is not the path of a file"),
        (lambda p: ht.Files([(p, p)], transform=TENSOR), "give one for each that needs"),
        (lambda p: ht.Files([(p, p)], transform={"2": TENSOR}), "no field of that name"),
        (lambda p: ht.Files([p], transform=3), "must be callable"),
        (lambda p: hd.Records([p], {}), "at least one field"),
        (lambda p: hd.Records([p], {"a": [1]}), "record 0 is in file 1 of 1"),
        (lambda p: hd.Records([p], {"a": [-1]}), "record 0 has none of the fields a"),
        (lambda p: hd.Records([p], {"a": ([0], [-1], [1])}), "1 bytes from byte -1 on"),
        (lambda p: hd.Records([p], {"a": [0], "b": [0, 0]}), "has 2 entries, and there are 1"),
        (lambda p: hd.Records([p], {"a": ["x"]}), "as sequences of integers"),
        (lambda p: hd.Files(5), "paths is of type int: give a list or an array"),
        (lambda p: hd.Files(None), "paths is of type NoneType: give a list or an array"),
        (lambda p: hd.Files([p], 5), "labels is of type int: give a list or an array"),
        (lambda p: hd.Records(5, {"a": [0]}), "objects is of type int: give a list"),
        (lambda p: hd.Records([5], {"a": [0]}), r"objects\[0\]=5: must be a path"),
        (lambda p: hd.Records([p], [0]), "ranges: must be a dict by the names of fields"),
        (lambda p: hd.Records([p], {5: [0]}), "ranges: must be a dict by the names of fields"),
        (lambda p: hd.Records([p], {"a": [0]}, [1]), "values: must be a dict by the names of"),
        (lambda p: hd.Records([p], {"a": [0]}, {"v": 1}), r"values\['v'\] is of type int"),
        (lambda p: hd.Records([p], {"a": [0]}, keys=5), "keys is of type int: give a list"),
    ],
)
def test_wrong_arguments(paths, make, message):
    with pytest.raises(errors.ConfigError, match=message):
        make(paths[0][0])


def test_files_that_are_not_there(paths):
    os.remove(paths[3][1])
    os.remove(paths[7][1])
    with pytest.raises(
        errors.DatasetError, match=r"record 3, field 1: .*003_mask.png.*missing.*2 of"
    ):
        ht.DataLoader(pairs(paths), 4)
    with pytest.raises(errors.SampleError, match=r"record 3 .*003_mask.png"):
        pairs(paths)[3]


def test_a_range_outside_of_its_file(tmp_path):
    (tmp_path / "a").write_bytes(b"0123456789")
    data = hd.Records([tmp_path / "a"], {"x": ([0, 0], [0, 5], [5, 6])})
    with pytest.raises(errors.DatasetError, match="record 1, field x: 6 bytes from byte 5 on of a"):
        hd.DataLoader(data, 1)


def test_a_file_that_is_written_meanwhile(paths):
    """Its new bytes come from a new dataset; one that was used before raises that it changed."""
    data = ht.Files([p[0] for p in paths])
    with ht.DataLoader(data, 23) as loader:
        next(iter(loader))
    with open(paths[4][0], "wb") as file:
        file.write(image(77))
    os.utime(paths[4][0], (1, 1))
    with pytest.raises(errors.MismatchError, match="a file was written"):
        ht.DataLoader(data, 23)
    with ht.DataLoader(ht.Files([p[0] for p in paths]), 23) as loader:
        assert bytes(next(iter(loader))[4]) == image(77)


def test_names_are_those_of_the_system(tmp_path):
    root = os.fsencode(tmp_path)
    names = [b"a b", "ä".encode(), b"\xff\xfe", b"new\nline", b"-x", b"a"]
    for name in names:
        with open(os.path.join(root, name), "wb") as file:
            file.write(name * 3)
    os.symlink(os.path.join(root, b"a"), os.path.join(root, b"link"))
    os.makedirs(os.path.join(root, b"sub"))
    given = [os.path.join(root, name) for name in names]
    given += [
        os.path.join(root, b"link"),
        os.path.join(root, b"sub/../a"),
        os.path.join(root, b"./a"),
    ]
    data = ht.Files(given)
    expected = [name * 3 for name in [*names, b"a", b"a", b"a"]]
    assert list(data) == expected
    with ht.DataLoader(data, len(given)) as loader:
        assert list(map(bytes, next(iter(loader)))) == expected


def test_a_directory_of_images(paths):
    root = os.path.dirname(paths[0][0])
    data = ht.Files(root)
    assert [p for p, _ in data.samples] == sorted(p for three in paths for p in three[:2])
    with pytest.raises(errors.ConfigError, match=r"no file below it ends with \.xyz"):
        ht.Files(root, suffixes=[".xyz"])
    with pytest.raises(errors.ConfigError, match="there is no directory"):
        ht.Files(root + "/none")


def test_without_torch(paths):
    import hdmlp.transforms as T

    data = hd.Files([p[:2] for p in paths], list(range(23)))
    crop = [T.CenterCrop(8), T.ToTensor()]
    with hd.DataLoader(data, 5, shuffle=False, epochs=1, transforms={"0": crop}) as loader:
        first = next(iter(loader))
    assert first.samples[0].shape == (5, 3, 8, 8)
    assert [bytes(x) for x in first.samples[1]] == [contents(p[1]) for p in paths[:5]]
    assert first.labels.tolist() == [0, 1, 2, 3, 4]
    with pytest.raises(errors.ConfigError, match="no field of that name; the records have 0, 1"):
        hd.DataLoader(data, 5, transforms={"x": crop})


@pytest.mark.parametrize("workers", [0, 2])
def test_damaged_files_follow_the_policy(paths, workers):
    """Whether the daemon or Pillow finds it; the message names the file and the field."""
    with open(paths[5][1], "wb") as file:
        file.write(b"no image" * 5)
    with open(paths[9][0], "r+b") as file:
        file.truncate(40)
    asked = {"num_workers": workers}
    if workers:
        asked["collate_fn"] = collate
    expected = [i for i in range(23) if i not in (5, 9)]
    with ht.DataLoader(pairs(paths), 4, on_error="skip", **asked) as loader:
        assert [i for batch in loader for i in batch[2].tolist()] == expected
    message = r"sample 5 .*005\.png, .*005_mask\.png\).*field 1: "
    with ht.DataLoader(pairs(paths), 4, **asked) as loader:
        with pytest.raises(errors.SampleError, match=message):
            list(loader)


def collate(items):
    return [torch.utils.data.default_collate(list(column)) for column in zip(*items)]


def test_reports_and_audits(paths):
    data = pairs(paths)
    with ht.DataLoader(data, 8, shuffle=True, seed=1, verify=True) as loader:
        list(loader)
        explained = loader.explain(0, 0)
        report = loader.report()
    assert explained.labels == explained.ids
    assert explained.paths[0] == f"{explained.ids[0]:03d}.png"
    names = [transform["name"] for transform in report["preprocessing"]["transforms"]]
    assert {"0: ImgDecode", "1: ImgDecode"} <= set(names)
    assert report["ranks"][0]["epochs"][0]["samples"] == 23


def test_jobs_share_what_is_prepared(paths):
    def loaders():
        return [
            ht.DataLoader(pairs(paths), size, shuffle=True, seed=3, share="group")
            for size in (4, 6)
        ]

    one, two = loaders()
    with one, two:
        mine, theirs = list(one), list(two)
    for i in range(3):
        columns = (torch.cat([batch[i] for batch in batches]) for batches in (mine, theirs))
        assert torch.equal(*columns)


@pytest.mark.parametrize("buffer", ["64KiB", "64MiB"])
def test_batches_do_not_depend_on_the_buffer(tmp_path, buffer):
    """Results of one size, results of different sizes and bytes together, in little memory."""
    from torchvision import transforms

    paths = write(tmp_path / "data", 40)
    given = [dict(zip("abc", three)) for three in paths]
    data = ht.Files(given, transform={"a": TENSOR, "b": transforms.ToTensor()})
    with ht.DataLoader(data, 16, staging_buffer=buffer, num_workers=0) as loader:
        made = list(loader)
    position = 0
    for batch in made:
        for i in range(len(batch["a"])):
            for name, value in data[position].items():
                assert equal(batch[name][i], value)
            position += 1
    assert position == 40
