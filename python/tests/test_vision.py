"""torchvision's VOC, COCO and Cityscapes datasets: the daemon reads and decodes their files, and
items are those of torch's loader."""

import json
import logging
import sys
import types

import hdmlp.torch as ht
import numpy
import pytest
import torch
from byhand import by_hand
from PIL import Image
from reference import picture
from torch.utils.data import DataLoader
from torchvision import datasets
from torchvision import transforms as V
from triples import mask

pytestmark = pytest.mark.usefixtures("real")

SEED = 3
COUNT = 12
NEAREST = V.InterpolationMode.NEAREST

ANNOTATION = """<annotation><filename>{i}.jpg</filename><size><width>{width}</width>
<height>{height}</height></size><object><name>cat</name><bndbox><xmin>3</xmin><ymin>4</ymin>
<xmax>{x}</xmax><ymax>19</ymax></bndbox></object></annotation>"""


@pytest.fixture
def voc(tmp_path):
    """A tree of VOC 2012, whose masks have palettes."""
    base = tmp_path / "VOCdevkit" / "VOC2012"
    for name in ("ImageSets/Segmentation", "ImageSets/Main", "JPEGImages", "SegmentationClass"):
        (base / name).mkdir(parents=True)
    (base / "Annotations").mkdir()
    rng = numpy.random.default_rng(4)
    for i in range(COUNT):
        width, height = rng.integers(40, 90, 2).tolist()
        picture(rng, width, height).save(base / "JPEGImages" / f"{i}.jpg")
        of = mask(rng, width, height, 8).convert("L")
        of = Image.fromarray(numpy.asarray(of) % 21, "P")
        of.putpalette(rng.integers(0, 256, 768).tolist())
        of.save(base / "SegmentationClass" / f"{i}.png")
        text = ANNOTATION.format(i=i, width=width, height=height, x=20 + i)
        (base / "Annotations" / f"{i}.xml").write_text(text)
    names = "".join(f"{i}\n" for i in range(COUNT))
    for name in ("Segmentation", "Main"):
        (base / "ImageSets" / name / "train.txt").write_text(names)
    return str(tmp_path)


@pytest.fixture
def coco(tmp_path, monkeypatch):
    """Images and annotations of COCO, and pycocotools as far as torchvision calls it."""
    rng = numpy.random.default_rng(5)
    images, annotations = [], []
    for i in range(COUNT):
        width, height = rng.integers(40, 90, 2).tolist()
        picture(rng, width, height).save(tmp_path / f"{i:012d}.jpg")
        images.append({"id": 7 * i, "file_name": f"{i:012d}.jpg"})
        for k in range(i % 3):
            box = [1.5, 2.25, 10.0 + k, 20.125]
            annotations.append(
                {"id": len(annotations), "image_id": 7 * i, "bbox": box, "category_id": k}
            )
    path = tmp_path / "instances.json"
    path.write_text(json.dumps({"images": images, "annotations": annotations}))
    module = types.ModuleType("pycocotools.coco")
    module.COCO = COCO
    monkeypatch.setitem(sys.modules, "pycocotools", types.ModuleType("pycocotools"))
    monkeypatch.setitem(sys.modules, "pycocotools.coco", module)
    return str(tmp_path), str(path)


class COCO:
    """What torchvision calls of pycocotools' class."""

    def __init__(self, path):
        with open(path) as file:
            given = json.load(file)
        self.imgs = {image["id"]: image for image in given["images"]}
        self._annotations = {a["id"]: a for a in given["annotations"]}

    def loadImgs(self, id):
        return [self.imgs[id]]

    def getAnnIds(self, id):
        return [k for k, a in self._annotations.items() if a["image_id"] == id]

    def loadAnns(self, ids):
        return [self._annotations[i] for i in ids]


@pytest.fixture
def cityscapes(tmp_path):
    """A tree of Cityscapes."""
    images = tmp_path / "leftImg8bit" / "train" / "aachen"
    targets = tmp_path / "gtFine" / "train" / "aachen"
    images.mkdir(parents=True)
    targets.mkdir(parents=True)
    rng = numpy.random.default_rng(6)
    for i in range(COUNT):
        picture(rng, 64, 48).save(images / f"aachen_{i:06d}_leftImg8bit.png")
        name = f"aachen_{i:06d}_gtFine"
        mask(rng, 64, 48, 8).convert("L").save(targets / f"{name}_labelIds.png")
        mask(rng, 64, 48, 16).save(targets / f"{name}_instanceIds.png")
        picture(rng, 64, 48).convert("RGBA").save(targets / f"{name}_color.png")
        (targets / f"{name}_polygons.json").write_text(json.dumps({"objects": [i]}))
    return str(tmp_path)


def same(a, b):
    """Whether two items are equal."""
    if isinstance(a, torch.Tensor):
        return type(a) is type(b) and a.dtype == b.dtype and torch.equal(a, b)
    if isinstance(a, Image.Image):
        return a.mode == b.mode and numpy.array_equal(numpy.asarray(a), numpy.asarray(b))
    if isinstance(a, (tuple, list)):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    return a == b


def check(make, native, caplog, workers=0):
    """Checks that items are those of torch's loader; native: the daemon reads the files."""
    caplog.clear()
    want = [item for batch in DataLoader(make(), 4, collate_fn=list) for item in batch]
    with ht.DataLoader(
        make(), 4, shuffle=False, collate_fn=list, num_workers=workers, seed=SEED
    ) as loader:
        got = [item for batch in loader for item in batch]
        read = loader.report()["tiers"] if native else None
    assert len(got) == len(want)
    for index, (a, b) in enumerate(zip(got, want)):
        assert same(a, b), index
    assert read or not native
    return [r.message for r in caplog.records]


SIZED = V.Compose([V.Resize((32, 40)), V.ToTensor()])
OF_MASK = V.Compose([V.Resize((32, 40), NEAREST), V.PILToTensor()])


def kinds(target):
    """A function of a target."""
    return [type(part).__name__ for part in (target if isinstance(target, tuple) else [target])]


def both(image, target):
    """A joint function of a script."""
    return V.functional.pil_to_tensor(image.resize((30, 20))), target


@pytest.mark.parametrize("workers", [0, 1])
def test_voc_segmentation(voc, workers, caplog):
    caplog.set_level(logging.WARNING, "hdmlp")
    for options in (
        {},
        {"transform": SIZED},
        {"transform": SIZED, "target_transform": OF_MASK},
        {"target_transform": numpy.array},
        {"transforms": both},
    ):

        def make(options=options):
            made = datasets.VOCSegmentation(voc, image_set="train", **options)
            return made

        if "target_transform" in options and options["target_transform"] is numpy.array:
            options["target_transform"] = lambda m: torch.as_tensor(numpy.array(m).astype("int64"))
        said = check(make, True, caplog, workers)
        if "transforms" in options:
            assert sum("VOCSegmentation run in Python" in m for m in said) == 1


def test_voc_pairs_are_stacked_by_the_daemon(voc):
    """With transforms of both that the daemon has, Python does nothing; random numbers of the
    target's list follow those of the image's."""
    image = V.Compose([V.RandomCrop(30), V.RandomHorizontalFlip(), V.ToTensor()])
    target = V.Compose([V.RandomCrop(30), V.PILToTensor()])
    dataset = datasets.VOCSegmentation(voc, image_set="train", transform=image)
    dataset.transforms.target_transform = dataset.target_transform = target
    plain = datasets.VOCSegmentation(voc, image_set="train")
    with ht.DataLoader(dataset, 4, shuffle=False, seed=SEED) as loader:
        found = [pair for batch in loader for pair in zip(*batch)]
    for index, (got, of_mask) in enumerate(found):
        assert torch.equal(got, by_hand(image, plain[index][0], SEED, 0, index))
        made = plain[index][1]
        for position, step in enumerate(target.transforms, 3):
            with ht.seeded(SEED, 0, index, 0, position):
                made = step(made)
        assert torch.equal(of_mask, made)


@pytest.mark.parametrize("workers", [0, 1])
def test_voc_detection(voc, workers, caplog):
    for options in ({}, {"transform": SIZED, "target_transform": str}, {"transforms": both}):

        def make(options=options):
            return datasets.VOCDetection(voc, image_set="train", **options)

        check(make, True, caplog, workers)


@pytest.mark.parametrize("workers", [0, 1])
def test_coco_detection(coco, workers, caplog):
    for options in ({}, {"transform": SIZED}, {"transform": SIZED, "target_transform": len}):

        def make(options=options):
            return datasets.CocoDetection(*coco, **options)

        check(make, True, caplog, workers)
    check(lambda: datasets.CocoDetection(*coco, transforms=both), True, caplog, workers)


@pytest.mark.parametrize("kind", ["semantic", "instance", "polygon", ["semantic", "polygon"]])
def test_cityscapes(cityscapes, kind, caplog):
    for options in ({}, {"transform": SIZED, "target_transform": kinds}, {"transforms": both}):

        def make(options=options):
            return datasets.Cityscapes(cityscapes, target_type=kind, **options)

        check(make, True, caplog)


def test_wrapped_segmentation_is_the_daemons(voc, caplog):
    """After wrap_dataset_for_transforms_v2, a list of v2 is a joint one."""
    v2 = pytest.importorskip("torchvision.transforms.v2")
    wrap = pytest.importorskip("torchvision.datasets").wrap_dataset_for_transforms_v2
    tv = pytest.importorskip("torchvision.tv_tensors")
    types_of = {tv.Image: torch.float32, tv.Mask: torch.int64, "others": None}
    transform = v2.Compose(
        [
            v2.RandomResizedCrop(32, antialias=True),
            v2.RandomHorizontalFlip(),
            v2.ToImage(),
            v2.ToDtype(types_of, scale=True),
        ]
    )

    def make():
        return wrap(datasets.VOCSegmentation(voc, image_set="train", transforms=transform))

    plain = datasets.VOCSegmentation(voc, image_set="train")
    with ht.DataLoader(make(), 4, shuffle=False, seed=SEED) as loader:
        found = [pair for batch in loader for pair in zip(*batch)]
    assert not [r for r in caplog.records if "in Python" in r.message]
    for index, (image, target) in enumerate(found):
        pair = plain[index][0], tv.Mask(plain[index][1])
        for position, step in enumerate(transform.transforms):
            with ht.seeded(SEED, 0, index, 0, position):
                pair = step(*pair)
        assert torch.equal(image, pair[0])
        assert torch.equal(target, pair[1])


@pytest.mark.parametrize("name", ["coco", "voc"])
def test_wrapped_detection(name, request, caplog):
    v2 = pytest.importorskip("torchvision.transforms.v2")
    wrap = pytest.importorskip("torchvision.datasets").wrap_dataset_for_transforms_v2
    pytest.importorskip("torchvision.tv_tensors")
    given = request.getfixturevalue(name)
    transform = v2.Compose([v2.ToImage(), v2.RandomHorizontalFlip(1), v2.Resize((30, 40))])

    def make():
        if name == "coco":
            made = datasets.CocoDetection(*given, transforms=transform)
            return wrap(made, target_keys=("image_id", "boxes", "labels"))
        return wrap(datasets.VOCDetection(given, image_set="train", transforms=transform))

    said = check(make, True, caplog)
    assert any("run in Python" in m for m in said)


def test_subclasses_make_their_items_themselves(voc, caplog, monkeypatch):
    monkeypatch.setattr("hdmlp.torch._engine.content._SAID", [])  # it is said once in a process

    class Own(datasets.VOCSegmentation):
        def __getitem__(self, index):
            return index, index

    with ht.DataLoader(Own(voc, image_set="train"), 4, shuffle=False) as loader:
        assert torch.cat([a for a, _ in loader]).tolist() == list(range(COUNT))
    assert sum("in Python" in r.message for r in caplog.records) == 1


def wrapped(dataset):
    """What v2 makes of a dataset; skipped where there is no v2."""
    pytest.importorskip("torchvision.transforms.v2")
    return pytest.importorskip("torchvision.datasets").wrap_dataset_for_transforms_v2(dataset)


def bare(image, target):
    """A joint function that makes a tensor of the image."""
    return V.functional.pil_to_tensor(image.resize((30, 20))), target


#: By name: the class, its options, and whether items are those after wrapping.
DETECTION = {
    "coco": ("CocoDetection", {"transform": SIZED}, False),
    "coco wrapped": ("CocoDetection", {"transforms": bare}, True),
    "voc": ("VOCDetection", {"transform": SIZED}, False),
    "voc wrapped": ("VOCDetection", {"transforms": bare}, True),
    "polygons": ("Cityscapes", {"transform": SIZED, "target_type": "polygon"}, False),
}


@pytest.fixture
def made(voc, coco, cityscapes):
    """Makes one of the datasets by the name of its class."""

    def make(name, **options):
        if name == "CocoDetection":
            return datasets.CocoDetection(*coco, **options)
        if name == "Cityscapes":
            return datasets.Cityscapes(cityscapes, **options)
        return getattr(datasets, name)(voc, image_set="train", **options)

    return make


@pytest.mark.parametrize("name", sorted(DETECTION))
@pytest.mark.parametrize("how", ["daemon", "python", "called"])
def test_targets_of_several_parts_are_lists(made, name, how):
    """As with a collate_fn that makes lists, in the daemon and in Python."""
    of, options, wraps = DETECTION[name]
    dataset = made(of, **options)
    dataset = wrapped(dataset) if wraps else dataset
    want = [dataset[i] for i in range(COUNT)]
    options = {"offload": False} if how == "python" else {}
    if how == "called":
        dataset.__getitems__ = lambda indices: [want[i] for i in indices]
    with ht.DataLoader(dataset, 4, shuffle=False, **options) as loader:
        batches = list(loader)
        assert (loader._content.folder is None) == (how == "called")
    for k, (images, targets) in enumerate(batches):
        assert type(targets) is list
        assert same(targets, [target for _, target in want[4 * k : 4 * k + 4]])
        assert type(images) is torch.Tensor
        assert len(images) == 4


def test_several_targets_are_several_lists(made):
    dataset = made("Cityscapes", target_type=["polygon", "semantic"], transform=SIZED)
    with ht.DataLoader(dataset, 4, shuffle=False) as loader:
        _, (polygons, masks) = next(iter(loader))
    assert polygons == [dataset[i][1][0] for i in range(4)]
    assert [type(mask).__name__ for mask in masks] == ["PngImageFile"] * 4


@pytest.mark.parametrize("name", ["CocoDetection", "VOCDetection"])
def test_what_functions_make_of_targets_is_collated_as_by_torch(made, name):
    """A function makes of targets what torch's loader collates."""

    def make():
        return made(name, transform=SIZED, target_transform=lambda t: {"n": len(t), "two": [1, 2]})

    with ht.DataLoader(make(), 4, shuffle=False, num_workers=0) as loader:
        got = list(loader)
    assert all(same(a, b) for a, b in zip(got, DataLoader(make(), 4)))


def of_masks():
    """Lists for a mask, which are given it as a PIL image."""
    lists = [
        [V.Resize((20, 30), NEAREST), V.PILToTensor()],
        [V.Pad(3, 7), V.CenterCrop(50), V.PILToTensor()],
        [V.Resize((20, 30)), V.PILToTensor()],
        [V.Grayscale(), V.PILToTensor()],
        [V.RandomApply([V.Resize((20, 30))], 1), V.PILToTensor()],
        [V.Resize((20, 30), NEAREST), V.ToTensor()],
    ]
    try:
        from torchvision import tv_tensors
        from torchvision.transforms import v2
    except ImportError:
        return lists
    fill = {tv_tensors.Mask: 255, "others": 3}
    return [
        *lists,
        [v2.Resize((20, 30), NEAREST), v2.PILToTensor()],
        [v2.Resize((20, 30), V.InterpolationMode.NEAREST_EXACT), v2.PILToTensor()],
        [v2.RandomHorizontalFlip(1), v2.Pad(3, fill=fill), v2.PILToTensor()],
        [v2.CenterCrop(20), v2.PILToTensor(), v2.ToDtype(torch.int64)],
        [v2.ToImage()],
    ]


@pytest.mark.parametrize("number", range(len(of_masks())))
def test_masks_have_torchvisions_types(made, number, caplog):
    """A list for targets is given a PIL image: of it v2 makes a plain tensor, and no mask."""

    def make():
        options = {"transform": SIZED, "target_transform": V.Compose(of_masks()[number])}
        return made("VOCSegmentation", **options)

    check(make, True, caplog)


def new(*_):
    return Image.new("RGB", (30, 20), (1, 2, 3))


def nothing(*_):
    return []


def one(index):
    return new(), index


def several(indices):
    return list(map(one, indices))


#: By class: attributes of an object, or of the class, that make its items otherwise.
REPLACED = {
    "CocoDetection": {"_load_image": new, "_load_target": nothing, "__getitems__": several},
    "VOCDetection": {"parse_voc_xml": nothing, "__getitems__": several},
    "VOCSegmentation": {"__getitems__": several},
    "Cityscapes": {"_load_json": nothing, "__getitems__": several},
}
CASES = [(name, attribute) for name, of in REPLACED.items() for attribute in of]


def given(made, name):
    options = {"target_type": "polygon"} if name == "Cityscapes" else {}
    return made(name, **options)


def noticed(make, caplog):
    """Checks that items are those of torch's loader, made in Python, which is said once."""
    check(make, False, caplog)
    said = [r.message for r in caplog.records if "its items are made in Python" in r.message]
    assert len(said) == 1
    return said[0]


@pytest.mark.parametrize("name, attribute", CASES)
@pytest.mark.parametrize("wraps", [False, True])
def test_attributes_of_an_object_are_called(made, name, attribute, wraps, caplog):
    if wraps and (name == "Cityscapes" or attribute in ("parse_voc_xml", "_load_target")):
        pytest.skip("the wrapper takes no such targets")

    def make():
        dataset = given(made, name)
        setattr(dataset, attribute, REPLACED[name][attribute])
        return wrapped(dataset) if wraps and attribute != "__getitems__" else dataset

    assert attribute in noticed(make, caplog)


@pytest.mark.parametrize(
    "name, attribute", [*CASES, *((n, "__getitem__") for n in REPLACED), ("VOC", "images")]
)
def test_methods_of_a_class_are_called(made, name, attribute, caplog, monkeypatch):
    if name == "VOC":
        name, function = "VOCDetection", property(lambda self: self.targets[::-1])
        monkeypatch.setattr(datasets.VOCDetection, "annotations", function)
    elif attribute == "__getitem__":
        monkeypatch.setattr(getattr(datasets, name), attribute, lambda self, index: one(index))
    else:
        function = REPLACED[name][attribute]
        if attribute == "parse_voc_xml":
            function = staticmethod(function)
        elif attribute == "__getitems__":
            function = lambda self, indices: several(indices)  # noqa: E731
        monkeypatch.setattr(getattr(datasets, name), attribute, function, raising=False)
    assert "was replaced" in noticed(lambda: given(made, name), caplog)


def test_what_wraps_a_dataset_may_be_replaced(made, caplog, monkeypatch):
    """The class, the object that wraps it, the function that it applies, and derived datasets."""
    v2 = pytest.importorskip("torchvision.transforms.v2")
    tv = pytest.importorskip("torchvision.tv_tensors")
    steps = v2.Compose([v2.Resize((20, 30)), v2.ToImage()])

    def make(of="VOCSegmentation"):
        return wrapped(made(of, transforms=steps))

    def own_items():
        dataset = make()
        dataset.__getitems__ = several
        return dataset

    assert "__getitems__" in noticed(own_items, caplog)

    def own_wrapper():
        dataset = make()
        dataset._wrapper = lambda index, item: (item[0], tv.Mask(torch.full((1, 9, 9), index)))
        return dataset

    assert "_wrapper" in noticed(own_wrapper, caplog)

    class Derived(datasets.VOCSegmentation):
        def __getitem__(self, index):
            image, target = super().__getitem__(index)
            return image.rotate(90), target

    monkeypatch.setattr(datasets, "Derived", Derived, raising=False)
    assert "Derived" in noticed(lambda: make("Derived"), caplog)
    known = sys.modules["torchvision.tv_tensors._dataset_wrapper"]
    monkeypatch.setattr(known, "pil_image_to_mask", lambda image: tv.Mask(torch.ones(1, 5, 5)))
    assert "pil_image_to_mask" in noticed(make, caplog)
    monkeypatch.undo()
    wrapper = known.VisionDatasetTVTensorWrapper
    monkeypatch.setattr(wrapper, "__getitem__", lambda self, index: one(index))
    assert "__getitem__" in noticed(make, caplog)
