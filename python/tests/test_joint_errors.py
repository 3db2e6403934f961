"""What bad input of joint transforms gets: where, what, and what to do, in the daemon and in
Python alike."""

import json
import shutil

import hdmlp.torch as ht
import numpy
import pytest
import torch
from hdmlp import errors
from hdmlp import transforms as T
from PIL import Image
from triples import KINDS, write

v2 = pytest.importorskip("torchvision.transforms.v2")
tv = pytest.importorskip("torchvision.tv_tensors")

pytestmark = pytest.mark.usefixtures("real")

NATIVE = [v2.RandomCrop(28), v2.ToImage(), v2.SanitizeBoundingBoxes()]
LISTS = {"daemon": NATIVE, "python": [v2.RandomZoomOut(p=0), *NATIVE]}


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    root = tmp_path_factory.mktemp("sound")
    write(root, 6, others=False)
    return root


@pytest.fixture
def paths(sound, tmp_path):
    """Six triples, of which a test spoils one."""
    root = tmp_path / "data"
    shutil.copytree(sound, root)
    names = {"jpg": "", "png": "_mask", "json": ""}
    found = []
    for i in range(6):
        stem = str(root / f"{i:04d}")
        suffix = "jpg" if (root / f"{i:04d}.jpg").exists() else "png"
        ends = {"jpg": suffix, "png": "png", "json": "json"}
        found.append({name: f"{stem}{more}.{ends[name]}" for name, more in names.items()})
    return found


def text(value):
    """Replaces the boxes of a triple."""

    def spoil(paths):
        with open(paths["json"], "w") as file:
            file.write(value)

    return spoil


def boxes(**fields):
    return text(json.dumps(fields))


def of_mask(change):
    def spoil(paths):
        change(Image.open(paths["png"])).save(paths["png"])

    return spoil


def deep(mask):
    return Image.fromarray(numpy.asarray(mask.convert("L")).astype(numpy.uint16))


#: What is wrong with triple 4, and what the error says of it.
SPOILT = {
    "no JSON": (text('{"boxes": '), "field json: boxes are a JSON object such as"),
    "a list": (text("[[1, 2, 3, 4]]"), "field json: boxes are a JSON object such as"),
    "NaN": (text('{"boxes": [[NaN, 1, 2, 3]], "labels": [1]}'), "field json: the boxes have NaN"),
    "key": (boxes(boxes=[], label=[]), "field json: the boxes have the key .label"),
    "no labels": (boxes(boxes=[[0, 1, 2, 3]]), 'field json: "labels" must be a list'),
    "names": (boxes(boxes=[[0, 1, 2, 3]], labels=["a"]), 'field json: "labels".0. = "a": must be'),
    "counts": (boxes(boxes=[[0, 1, 2, 3]], labels=[]), "field json: 1 boxes and 0 labels"),
    "three": (
        boxes(boxes=[[0, 1, 2]], labels=[1]),
        r'field json: "boxes"\[0\] = \[0, 1, 2\] \(XYXY\) does not have four numbers',
    ),
    "text": (boxes(boxes=[["a", 1, 2, 3]], labels=[1]), 'field json: "boxes"'),
    "negative": (boxes(boxes=[[9, 1, 2, 3]], labels=[1]), "negative width or height"),
    "negative width": (
        boxes(boxes=[[9, 1, -2, 3]], labels=[1], format="XYWH"),
        "negative width or height",
    ),
    "outside": (boxes(boxes=[[900, 1, 901, 3]], labels=[1]), "lies outside of its image of"),
    "left of it": (boxes(boxes=[[-9, 1, -2, 3]], labels=[1]), "lies outside of its image of"),
    "huge": (boxes(boxes=[[0, 1, 1e300, 3]], labels=[1]), "finite in float32"),
    "format": (boxes(boxes=[], labels=[], format="YX"), "allowed: XYXY, XYWH, CXCYWH"),
    "size": (
        of_mask(lambda mask: mask.resize((33, 44))),
        "field png: the mask has 33 ?x ?44 pixels.*one crop cannot fit both",
    ),
    "colours": (of_mask(lambda mask: mask.convert("RGB")), "field png: .*a mask has numbers of cl"),
    "16 bits": (of_mask(deep), "field png: .*the first one of the dataset"),
}


#: Boxes and labels that are none, or at the limit of what float32 and int64 hold.
NUMBERS = [
    *(
        f'{{"boxes": [[1, 2, 30, 20]], "labels": [{label}]}}'
        for label in (
            *(str(2**63), str(2**63 - 1), str(-(2**63) - 1), "1" + 400 * "0", "1" * 5000),
            *("1e3", "1.0", "1e400", "true", '"1"', "null", "[1]", "[1, 2]", "-0", str(2**53 + 1)),
        )
    ),
    *(
        f'{{"boxes": [[1, 2, {number}, 20]], "labels": [1]}}'
        for number in (
            *("1e39", "1e400", "-1e400", "1" + 400 * "0", "1" * 5000, "1" + 38 * "0", "NaN"),
            *("3.4028235e38", "3.4028235677973365e38", "3.4028235677973367e38", "-Infinity"),
            *("true", '"30"', "null", "[3]", "{}", "1e-400", "1.00000001", "0.99999999"),
        )
    ),
    '{"boxes": [1, 2, 30, 20], "labels": [1]}',
    '{"boxes": [[1, 2, 30, 20], 5], "labels": [1, 2]}',
    '{"boxes": [[]], "labels": [1]}',
    '{"boxes": [[1, 2, 30]], "labels": [1]}',
    '{"boxes": [[1, 2, 30, 20, 5]], "labels": [1]}',
    '{"boxes": ["1234"], "labels": [1]}',
    '{"boxes": [null], "labels": [1]}',
    '{"boxes": {}, "labels": [1]}',
    '{"boxes": [[1, 2, 30, 20]], "labels": 1}',
    '{"boxes": [[1, 2, 30, 20]], "labels": [1], "format": null}',
    '{"boxes": [[1, 2, 30, 20]], "labels": [1], "labels": [2]}',
    '{"boxes": [[1e38, 2, 3e38, 20]], "labels": [1], "format": "XYWH"}',
    '{"boxes": [[0, 2, 3.4e38, 20]], "labels": [1], "format": "CXCYWH"}',
    '\ufeff{"boxes": [[1, 2, 30, 20]], "labels": [1]}',
]


@pytest.mark.parametrize("given", NUMBERS, ids=lambda text: text[:60])
def test_numbers_are_checked_alike(paths, given):
    """By the daemon, in Python, and for items: the same boxes, or the same error."""
    Image.new("RGB", (64, 48)).save(paths[4]["jpg"])
    Image.new("L", (64, 48)).save(paths[4]["png"])
    with open(paths[4]["json"], "w") as file:
        file.write(given)
    found = []
    for offload in (True, False):
        dataset = ht.Files(paths[4:5], kinds=KINDS, transform=[v2.ToImage()])
        with ht.DataLoader(dataset, 1, num_workers=0, offload=offload) as loader:
            try:
                (batch,) = loader
            except errors.SampleError as error:
                where, _, why = str(error).partition("field json: ")
                found.append((paths[4]["json"] in where, why))
                continue
        values = {name: value[0].tolist() for name, value in batch["json"].items()}
        found.append((True, values))
    assert found[0] == found[1]
    assert all(found[0])


@pytest.mark.parametrize("where", sorted(LISTS))
@pytest.mark.parametrize("name", sorted(SPOILT))
def test_bad_files(paths, name, where):
    spoil, says = SPOILT[name]
    spoil(paths[4])
    dataset = ht.Files(paths, kinds=KINDS, transform=LISTS[where])
    with ht.DataLoader(dataset, 3, shuffle=False, num_workers=0) as loader:
        with pytest.raises(errors.SampleError, match=says) as caught:
            list(loader)
    assert caught.value.sample == 4
    assert paths[4]["json"] in str(caught.value)


@pytest.mark.parametrize("where", sorted(LISTS))
def test_bad_files_may_be_left_out(paths, where):
    SPOILT["size"][0](paths[4])
    dataset = ht.Files(paths, kinds=KINDS, transform=LISTS[where])
    with ht.DataLoader(dataset, 3, shuffle=False, num_workers=0, on_error="skip") as loader:
        assert [len(batch["png"]) for batch in loader] == [3, 2]


def test_values_of_boxes(paths):
    values = [{"boxes": numpy.array([[1, 2, 3, 4.5]]), "labels": torch.tensor([3])}] * 6
    records = [p["jpg"] for p in paths]

    def made(given):
        return ht.Records(
            records,
            {"image": list(range(6))},
            {"boxes": given},
            kinds={"image": "image", "boxes": "boxes"},
            transform=[v2.ToImage()],
        )

    item = made(values)[0]["boxes"]
    assert item["boxes"].tolist() == [[1, 2, 3, 4.5]]
    assert item["labels"].tolist() == [3]
    with pytest.raises(Exception, match=r'field boxes: "boxes"\[0\].*negative width'):
        made([{"boxes": [[5, 2, 3, 4]], "labels": [1]}] * 6)[0]


LAST = [v2.ToImage()]


@pytest.mark.parametrize(
    "options, says",
    [
        ({"kinds": {"jpg": "picture"}}, "is no kind of field; allowed: image, mask, boxes"),
        ({"kinds": {"img": "image"}}, "no field of that name; there are jpg, png, json"),
        ({"kinds": {}}, "must be a dict"),
        ({"kinds": ["image"]}, "must be a dict"),
        ({"kinds": {"json": "boxes"}}, "boxes need an image or a mask"),
        ({"kinds": {"jpg": "image", "png": "boxes", "json": "boxes"}}, "several fields are boxes"),
        ({"mask": "nearest"}, "allowed: 'tensor', 'pil'"),
        ({"mask": "pil"}, "takes no boxes"),
        ({"kinds": None, "mask": "pil", "transform": None}, "give kinds= as well"),
        ({"transform": {"jpg": LAST}}, "one list is applied to the fields jointly"),
        ({"loader": {"png": bytes}}, "kinds= says what the field is"),
        ({"transforms": print}, "with kinds=, give transform="),
        ({"transform": [T.RandomRotation(9), T.ToTensor()]}, "it is for images alone"),
        ({"transform": [T.ImgDecode(orient=True), T.ToTensor()]}, "would turn images"),
        ({"transform": [T.Pad(3, padding_mode="edge"), T.ToTensor()]}, "boxes with constant only"),
        ({"transform": [T.Pad(3, fill=(1, 2, 3)), T.ToTensor()]}, "masks have one"),
        ({"transform": [T.CenterCrop(9)]}, "no ToTensor or ToImage"),
    ],
)
def test_bad_arguments(paths, options, says):
    options = {"kinds": KINDS, "transform": LAST, **options}
    with pytest.raises(errors.ConfigError, match=says):
        ht.Files(paths, **options)


def test_fields_that_records_lack(paths):
    paths[2]["png"] = None
    with pytest.raises(
        errors.ConfigError, match=r"kinds\['png'\]: some records do not have it|some"
    ):
        ht.Files(paths, kinds=KINDS, transform=LAST)


def test_formats_of_plain_boxes_do_not_mix(paths):
    """Tensors without torchvision's type do not say their format."""
    boxes(boxes=[[1, 2, 3, 4]], labels=[1], format="XYWH")(paths[0])
    boxes(boxes=[[1, 2, 3, 4]], labels=[1], format="XYXY")(paths[1])
    steps = [T.CenterCrop(20), T.ToTensor()]
    dataset = ht.Files(paths[:2], kinds=KINDS, transform=steps)
    with ht.DataLoader(dataset, 2, shuffle=False) as loader:
        with pytest.raises(ValueError, match="XYWH and XYXY: add ConvertBoundingBoxFormat"):
            list(loader)
    steps = [T.ConvertBoundingBoxFormat("XYXY"), *steps]
    dataset = ht.Files(paths[:2], kinds=KINDS, transform=steps)
    with ht.DataLoader(dataset, 2, shuffle=False) as loader:
        (batch,) = loader
    assert all(type(part) is torch.Tensor for part in batch["json"]["boxes"])


def test_functions_that_return_something_else(paths):
    dataset = ht.Files(paths, kinds=KINDS, transform=[lambda image, target: image])
    with ht.DataLoader(dataset, 2, shuffle=False, num_workers=0) as loader:
        with pytest.raises(TypeError, match=r"\(image, target\) is expected"):
            list(loader)
