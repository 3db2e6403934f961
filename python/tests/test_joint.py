"""One list of transforms for an image, its mask and its boxes: what torchvision's v2 makes of them
with the same random numbers."""

import logging

import hdmlp.torch as ht
import pytest
import torch
from hdmlp import errors
from hdmlp import transforms as T
from triples import KINDS, of_v2, sample_of, write

v2 = pytest.importorskip("torchvision.transforms.v2")
tv = pytest.importorskip("torchvision.tv_tensors")

pytestmark = pytest.mark.usefixtures("real")

SEED = 5
COUNT = 300
TYPES = {tv.Image: torch.float32, tv.Mask: torch.int64, "others": None}
LAST = [v2.ToImage(), v2.ToDtype(TYPES, scale=True)]
FILL = {tv.Mask: 255, "others": 0}


def lists():
    """Lists that the daemon carries out, by name."""
    return {
        "flips": [v2.RandomHorizontalFlip(), v2.RandomVerticalFlip(0.3), v2.Resize((40, 50))],
        "resized": [v2.RandomResizedCrop(48, antialias=True), v2.RandomHorizontalFlip()],
        "crop": [v2.RandomCrop((70, 60), pad_if_needed=True, fill=FILL)],
        "padded": [v2.RandomCrop(50, padding=[3, 0, 7, 20], pad_if_needed=True, fill=9)],
        "centre": [v2.Resize(60), v2.CenterCrop((64, 49))],
        "pad": [v2.Pad([5, 2, 0, 9], fill={tv.Mask: 7, "others": (1, 2, 3)}), v2.Resize((44, 44))],
        "negative": [v2.Pad([-3, 4, -2, -5]), v2.Resize((31, 47))],
        "colours": [
            v2.RandomPhotometricDistort(p=0.7),
            v2.ColorJitter(0.4, 0.4, 0.4, 0.1),
            v2.RandomGrayscale(0.3),
            v2.GaussianBlur(3),
            v2.RandomCrop(29),
        ],
        "nested": [
            v2.RandomApply([v2.RandomHorizontalFlip(1), v2.Resize((80, 90))], p=0.5),
            v2.RandomOrder([v2.RandomVerticalFlip(), v2.RandomInvert()]),
            v2.RandomCrop(28),
        ],
        "boxes": [
            v2.RandomCrop(28),
            v2.ClampBoundingBoxes(),
            v2.ConvertBoundingBoxFormat("CXCYWH"),
            v2.RandomHorizontalFlip(),
            v2.Resize((77, 34)),
            v2.ConvertBoundingBoxFormat("XYWH"),
            v2.SanitizeBoundingBoxes(min_size=3),
            v2.RandomResizedCrop(24),
            v2.ConvertBoundingBoxFormat("XYXY"),
            v2.SanitizeBoundingBoxes(),
        ],
    }


@pytest.fixture(scope="module", params=[8, 16, 1])
def triples(request, tmp_path_factory):
    root = tmp_path_factory.mktemp(f"triples{request.param}")
    return write(root, COUNT if request.param == 8 else 80, request.param, seed=request.param)


def native(dataset):
    """Whether the daemon carries out the whole list."""
    group = dataset._plan(wanted=True, say=False).group
    return group.joined is not None


def items(batches, parts=("jpg", "png", "json")):
    """The items of batches, with the boxes of each."""
    for batch in batches:
        for i in range(len(batch[parts[0]])):
            item = {name: batch[name][i] for name in parts if name != "json"}
            if "json" in parts:
                item.update({name: batch["json"][name][i] for name in ("boxes", "labels")})
            yield item


def check(got, want, close=0.0):
    """Checks that an item is torchvision's, with boxes to the bit."""
    image, target = want
    difference = (got["jpg"].float() - image.float()).abs().max()
    assert difference <= close, f"an image differs by {difference}"
    for name, value in target.items():
        assert got[name].dtype == value.dtype
        assert torch.equal(got[name], value), name


@pytest.mark.parametrize("name", sorted(lists()))
def test_triples_are_torchvisions(triples, name, caplog):
    caplog.set_level(logging.WARNING, "hdmlp")
    steps = lists()[name]
    transform = v2.Compose([*steps, *LAST])
    dataset = ht.Files(triples, kinds=KINDS, transform=transform)
    assert native(dataset)
    blurred = 1.01 / 255 if name == "colours" else 0
    with ht.DataLoader(dataset, 16, shuffle=True, seed=SEED, num_workers=0) as loader:
        order = loader_order(len(dataset))
        for index, got in zip(order, items(loader), strict=True):
            check(got, of_v2(transform, triples[index], SEED, 0, index), blurred)
    assert not [r for r in caplog.records if "run in Python" in r.message]


def loader_order(count):
    """The order of epoch 0."""
    sampler = torch.utils.data.DistributedSampler(range(count), 1, 0, shuffle=True, seed=SEED)
    return list(sampler)


def test_masks_keep_numbers(triples):
    """Without a type for masks, they have torchvision's; a batch of images of one size is stacked,
    also where the list leaves sizes alone, and else a list."""
    transform = v2.Compose([v2.ToImage(), v2.RandomHorizontalFlip(1)])
    dataset = ht.Files(triples[:40], kinds=KINDS, transform=transform)
    assert native(dataset)
    with ht.DataLoader(dataset, 8, shuffle=False, seed=SEED) as loader:
        batches = list(loader)
    assert all(isinstance(batch["png"], list) for batch in batches)
    for index, got in enumerate(items(batches)):
        check(got, of_v2(transform, triples[index], SEED, 0, index))
    with ht.DataLoader(dataset, 1, shuffle=False, seed=SEED) as loader:
        first = next(iter(loader))
    assert torch.equal(first["png"], batches[0]["png"][0][None])
    assert first["png"].dtype == sample_of(triples[0])[1]["png"].dtype


def test_to_image_first(triples):
    """Resizes of a tensor are those of the image, within a level."""
    transform = v2.Compose([v2.ToImage(), v2.RandomResizedCrop(40, antialias=True)])
    dataset = ht.Files(triples[:80], kinds=KINDS, transform=transform)
    assert native(dataset)
    with ht.DataLoader(dataset, 16, shuffle=False, seed=SEED) as loader:
        for index, got in enumerate(items(loader)):
            check(got, of_v2(transform, triples[index], SEED, 0, index), 1)


@pytest.mark.parametrize("workers", [0, 2])
def test_items_have_torchvisions_types(triples, workers):
    transform = v2.Compose([v2.RandomCrop(30, pad_if_needed=True), *LAST])
    dataset = ht.Files(triples[:24], kinds=KINDS, transform=transform)
    with ht.DataLoader(
        dataset, 8, shuffle=False, seed=SEED, collate_fn=list, num_workers=workers
    ) as loader:
        got = [item for batch in loader for item in batch]
    for index, item in enumerate(got):
        image, target = of_v2(transform, triples[index], SEED, 0, index)
        assert torch.equal(item["jpg"], image)
        assert type(item["jpg"]) is type(image)
        assert type(item["png"]) is tv.Mask
        assert torch.equal(item["png"], target["png"])
        boxes = item["json"]["boxes"]
        assert (type(boxes), boxes.format, boxes.canvas_size) == (
            tv.BoundingBoxes,
            target["boxes"].format,
            target["boxes"].canvas_size,
        )
        assert torch.equal(boxes, target["boxes"])


#: What the detection presets have and the daemon does not carry out.
PRESETS = {
    "ssd": [
        v2.RandomPhotometricDistort(),
        v2.RandomZoomOut(fill={tv.Image: (123.0, 117.0, 104.0), "others": 0}),
        v2.RandomIoUCrop(),
        v2.RandomHorizontalFlip(),
    ],
    "lsj": [v2.ScaleJitter((60, 60), antialias=True), v2.RandomCrop((60, 60), pad_if_needed=True)],
    "multiscale": [v2.RandomShortestSize([40, 50, 60], max_size=90), v2.RandomHorizontalFlip()],
}


@pytest.mark.parametrize("name", sorted(PRESETS))
@pytest.mark.parametrize("workers", [0, 2])
def test_presets_run_in_python(tmp_path, name, workers, caplog):
    caplog.set_level(logging.WARNING, "hdmlp")
    paths = write(tmp_path, 16)
    transform = v2.Compose([*PRESETS[name], *LAST, v2.SanitizeBoundingBoxes()])
    dataset = ht.Files(paths, kinds=KINDS, transform=transform)
    assert not native(dataset)
    with ht.DataLoader(dataset, 4, shuffle=False, seed=SEED, num_workers=workers) as loader:
        for epoch in range(2):
            for index, got in enumerate(items(loader)):
                check(got, of_v2(transform, paths[index], SEED, epoch, index))
    said = [r.message for r in caplog.records if "run in Python" in r.message]
    assert len(said) == 1
    assert type(PRESETS[name][1 if name == "ssd" else 0]).__name__ in said[0]


def test_items_by_index_are_those_of_the_loader(tmp_path):
    paths = write(tmp_path, 6)
    transform = v2.Compose([v2.Resize((32, 32)), *LAST])
    dataset = ht.Files(paths, kinds=KINDS, transform=transform)
    with ht.DataLoader(dataset, 3, shuffle=False) as loader:
        for index, got in enumerate(items(loader)):
            item = dataset[index]
            assert torch.equal(item["jpg"], got["jpg"])
            assert torch.equal(item["png"], got["png"])
            assert torch.equal(item["json"]["boxes"], got["boxes"])


def test_pairs(tmp_path):
    """Tuples of paths have the fields "0" and "1"; a label may follow."""
    paths = write(tmp_path, 10)
    pairs = [(p["jpg"], p["png"]) for p in paths]
    transform = v2.Compose([v2.RandomResizedCrop(24), *LAST])
    kinds = {"0": "image", "1": "mask"}
    dataset = ht.Files(pairs, list(range(10)), kinds=kinds, transform=transform)
    assert native(dataset)
    with ht.DataLoader(dataset, 5, shuffle=False, seed=SEED) as loader:
        found = [item for batch in loader for item in zip(*batch, strict=True)]
    for index, (image, mask, label) in enumerate(found):
        pair = {"jpg": pairs[index][0], "png": pairs[index][1]}
        want, target = of_v2(transform, pair, SEED, 0, index)
        assert torch.equal(image, want)
        assert torch.equal(mask, target["png"])
        assert label == index


def test_several_masks_and_other_fields(tmp_path):
    """Masks of one image move together, and fields that are of no kind come as they are."""
    paths = write(tmp_path, 8)
    records = [{"a": p["png"], "txt": p["json"], "jpg": p["jpg"], "b": p["png"]} for p in paths]
    kinds = {"jpg": "image", "a": "mask", "b": "mask"}
    transform = v2.Compose([v2.RandomCrop(28), *LAST])
    dataset = ht.Files(records, kinds=kinds, transform=transform)
    assert native(dataset)
    with ht.DataLoader(dataset, 4, shuffle=False, seed=SEED) as loader:
        batches = list(loader)
    for i, batch in enumerate(batches):
        assert list(batch) == ["a", "txt", "jpg", "b"]
        assert torch.equal(batch["a"], batch["b"])
        for j, text in enumerate(batch["txt"]):
            with open(paths[4 * i + j]["json"], "rb") as file:
                assert bytes(text) == file.read()
            pair = {k: v for k, v in paths[4 * i + j].items() if k != "json"}
            want, target = of_v2(transform, pair, SEED, 0, 4 * i + j)
            assert torch.equal(batch["jpg"][j], want)
            assert torch.equal(batch["a"][j], target["png"])


def test_boxes_that_are_values(tmp_path):
    """Boxes of the process: its transforms run in Python, on what the daemon decodes."""
    import json

    paths = write(tmp_path, 8)
    values = []
    for p in paths:
        with open(p["json"]) as file:
            values.append(json.load(file))
    objects = [p["jpg"] for p in paths] + [p["png"] for p in paths]
    ranges = {"jpg": list(range(8)), "png": list(range(8, 16))}
    transform = v2.Compose([v2.RandomCrop(28), *LAST])
    dataset = ht.Records(objects, ranges, {"json": values}, kinds=KINDS, transform=transform)
    with ht.DataLoader(dataset, 4, shuffle=False, seed=SEED, num_workers=0) as loader:
        for index, got in enumerate(items(loader)):
            check(got, of_v2(transform, paths[index], SEED, 0, index))


def test_masks_alone(tmp_path):
    paths = write(tmp_path, 8)
    transform = v2.Compose([v2.RandomCrop(28), v2.RandomHorizontalFlip()])
    dataset = ht.Files([p["png"] for p in paths], kinds={"0": "mask"}, transform=transform)
    assert native(dataset)
    with ht.DataLoader(dataset, 4, shuffle=False, seed=SEED) as loader:
        found = torch.cat(list(loader))
    for index, got in enumerate(found):
        mask = sample_of(paths[index])[1]["png"]
        for position, step in enumerate(transform.transforms):
            with ht.seeded(SEED, 0, index, 0, position):
                mask = step(mask)
        assert torch.equal(got, mask)


@pytest.mark.parametrize("depth", [8, 16])
@pytest.mark.parametrize("sized", [False, True])
def test_masks_with_a_list_of_their_own(tmp_path, depth, sized):
    """``ImgDecode(mode="raw")`` keeps the numbers of a mask, whose list draws for itself."""
    paths = write(tmp_path, 12, depth, others=False)
    records = [{"jpg": p["jpg"], "png": p["png"]} for p in paths]
    image = [v2.CenterCrop(20), v2.ToImage()]
    mask = [v2.RandomHorizontalFlip(), *([] if sized else [v2.RandomCrop(28)])]
    transform = {"jpg": image, "png": [T.ImgDecode(mode="raw"), *mask]}
    dataset = ht.Files(records, transform=transform)
    with ht.DataLoader(dataset, 4, shuffle=False, seed=SEED) as loader:
        found = [of for batch in loader for of in batch["png"]]
    for index, got in enumerate(found):
        want = sample_of(paths[index])[1]["png"]
        for position, step in enumerate(mask, len(image)):
            with ht.seeded(SEED, 0, index, 0, position):
                want = step(want)
        assert got.dtype == want.dtype
        assert torch.equal(got, want)


def test_raw_masks_are_for_fields(tmp_path):
    paths = write(tmp_path, 2)
    dataset = ht.Files([p["png"] for p in paths], transform=[T.ImgDecode("raw"), v2.CenterCrop(8)])
    with ht.DataLoader(dataset, 2, shuffle=False) as loader:
        assert next(iter(loader)).shape == (2, 1, 8, 8)
    with pytest.raises(errors.ConfigError, match="it is for images alone"):
        ht.Files([paths[0]["png"]], transform=[T.ImgDecode("raw"), T.RandomRotation(3)])
    with pytest.raises(ValueError, match="is for masks"):
        T.describe([T.ImgDecode("raw"), T.CenterCrop(8), T.ToTensor()])


def test_shards(tmp_path):
    """Tar shards, whose samples have labels beside."""
    import tarfile

    paths = write(tmp_path, 12, others=False)
    shard = str(tmp_path / "0.tar")
    with tarfile.open(shard, "w") as tar:
        for i, p in enumerate(paths):
            for field, path in p.items():
                tar.add(path, f"{i:03d}.{field}")
            label = tmp_path / "label"
            label.write_text(str(i))
            tar.add(label, f"{i:03d}.cls")
    transform = v2.Compose([v2.RandomCrop(28), *LAST])
    dataset = ht.WebDataset(shard, kinds=KINDS, transform=transform)
    assert native(dataset)
    with ht.DataLoader(dataset, 4, shuffle=False, seed=SEED) as loader:
        batches = list(loader)
    assert torch.cat([torch.as_tensor([int(bytes(x)) for x in b["cls"]]) for b in batches]).tolist()
    for index, got in enumerate(items(batches)):
        check(got, of_v2(transform, paths[index], SEED, 0, index))
    tuples = ht.WebDataset(shard, ["jpg", "png", "cls"], kinds={"jpg": "image", "png": "mask"})
    tuples.transform = transform
    with ht.DataLoader(tuples, 4, shuffle=False, seed=SEED) as loader:
        image, mask, _ = next(iter(loader))
    assert torch.equal(image, batches[0]["jpg"])
    assert torch.equal(mask, batches[0]["png"])


def test_the_analysis_does_not_measure_fields(tmp_path):
    from hdmlp.torch._analyzed import transforms_of

    dataset = ht.Files(write(tmp_path, 2), kinds=KINDS, transform=LAST)
    described, why = transforms_of(torch.utils.data.DataLoader(dataset, 2))
    assert described is None
    assert "several fields" in why
