"""One list of torchvision's v1 for an image and a mask, as its functions are called by training
scripts on two PIL images: with the same parameters, and of masks the nearest pixels."""

import copy

import hdmlp.torch as ht
import pytest
import torch
from byhand import by_hand
from hdmlp import errors
from PIL import Image
from reference import decoded
from torchvision import transforms as V
from torchvision.transforms import functional as F
from triples import write

pytestmark = pytest.mark.usefixtures("real")

SEED = 9
KINDS = {"jpg": "image", "png": "mask"}
NEAREST = V.InterpolationMode.NEAREST


def lists():
    """Lists of v1, by name."""
    return {
        "resized": [V.RandomResizedCrop(40), V.RandomHorizontalFlip()],
        "shorter": [V.Resize(50), V.RandomVerticalFlip(0.4), V.CenterCrop((48, 70))],
        "up": [V.Resize((150, 171)), V.ColorJitter(0.3, 0.3, 0.3, 0.1)],
        "crop": [V.RandomCrop(60, padding=[2, 9], pad_if_needed=True, fill=3)],
        "mirrored": [V.Pad(11, padding_mode="reflect"), V.RandomCrop(50, 3, padding_mode="edge")],
        "symmetric": [V.RandomCrop(20, 5, padding_mode="symmetric"), V.RandomGrayscale(0.5)],
        "order": [
            V.RandomOrder([V.RandomHorizontalFlip(), V.RandomVerticalFlip()]),
            V.Resize((90, 80)),
        ],
    }


def of_v1(transform, paths, index):
    """The image, and the mask by the same transforms with the nearest pixels."""
    image = by_hand(transform, decoded(paths["jpg"]), SEED, 0, index)
    mask = Image.open(paths["png"])
    for position, step in enumerate(transform.transforms):
        with ht.seeded(SEED, 0, index, 0, position):
            mask = nearest(step)(mask)
    return image, mask


def nearest(step):
    """What a transform is for a mask."""
    if isinstance(step, V.ToTensor):
        return F.pil_to_tensor
    if isinstance(step, (V.ColorJitter, V.RandomGrayscale)):
        return lambda mask: mask
    made = copy.copy(step)
    if hasattr(step, "interpolation"):
        made.interpolation = NEAREST
    if isinstance(step, V.RandomOrder):
        made.transforms = [nearest(inner) for inner in step.transforms]
    return made


@pytest.mark.parametrize("depth", [8, 1])
@pytest.mark.parametrize("name", sorted(lists()))
def test_pairs_are_torchvisions(tmp_path, name, depth):
    paths = [
        {k: p[k] for k in KINDS} for p in write(tmp_path, 100 if depth == 8 else 60, depth, seed=1)
    ]
    transform = V.Compose([*lists()[name], V.ToTensor()])
    dataset = ht.Files(paths, kinds=KINDS, mask="pil", transform=transform)
    assert dataset._plan(True, False).group.joined is not None
    with ht.DataLoader(dataset, 20, shuffle=False, seed=SEED, num_workers=0) as loader:
        found = [item for b in loader for item in zip(b["jpg"], b["png"])]
    assert len(found) == len(paths)
    for index, (image, mask) in enumerate(found):
        want, of_mask = of_v1(transform, paths[index], index)
        assert torch.equal(image, want), index
        assert mask.dtype == of_mask.dtype
        assert torch.equal(mask, of_mask), index


def both(image, mask):
    """A joint function of a training script, which draws for both."""
    if torch.rand(1) < 0.5:
        image, mask = F.hflip(image), F.hflip(mask)
    size = int(torch.randint(30, 60, (1,)))
    return F.resize(image, [size, 40]), F.resize(mask, [size, 40], NEAREST)


@pytest.mark.parametrize("workers", [0, 1])
def test_functions_of_two_images(tmp_path, workers, caplog):
    """A function of the program runs in Python, among v1's transforms."""
    paths = [{k: p[k] for k in KINDS} for p in write(tmp_path, 30, seed=2)]
    transform = [both, V.RandomCrop(30, pad_if_needed=True), V.ColorJitter(0.3), V.ToTensor()]
    dataset = ht.Files(paths, kinds=KINDS, mask="pil", transform=transform)
    with ht.DataLoader(dataset, 6, shuffle=False, seed=SEED, num_workers=workers) as loader:
        found = [item for b in loader for item in zip(b["jpg"], b["png"])]
    assert sum("run in Python" in r.message and "both" in r.message for r in caplog.records) == 1
    for index, (image, mask) in enumerate(found):
        with ht.seeded(SEED, 0, index, 0, 0):
            pair = both(decoded(paths[index]["jpg"]), Image.open(paths[index]["png"]))
        for position, step in enumerate(transform[1:], 1):
            with ht.seeded(SEED, 0, index, 0, position):
                one = step(pair[0])
            with ht.seeded(SEED, 0, index, 0, position):
                pair = (one, nearest(step)(pair[1]))
        assert torch.equal(image, pair[0]), index
        assert torch.equal(mask, pair[1]), index


def test_items_by_index_crop_both_alike(tmp_path):
    paths = write(tmp_path, 4, others=False)
    same = [{"jpg": p["png"], "png": p["png"]} for p in paths]
    for record in same:
        Image.open(record["png"]).convert("L").save(record["png"])
    transform = V.Compose([V.RandomCrop(24), V.RandomHorizontalFlip(), V.PILToTensor()])
    dataset = ht.Files(same, kinds=KINDS, mask="pil", transform=transform)
    for i in range(4):
        item = dataset[i]
        assert torch.equal(item["jpg"][:1], item["png"])


def test_transforms_of_one_image_are_refused(tmp_path):
    paths = [{k: p[k] for k in KINDS} for p in write(tmp_path, 2)]
    with pytest.raises(errors.ConfigError, match=r"takes no masks.*mask=."):
        ht.Files(paths, kinds=KINDS, transform=[V.RandomHorizontalFlip(), V.ToTensor()])


def test_masks_that_only_pillow_decodes(tmp_path, caplog):
    """GIFs, as those of Carvana: Pillow decodes them, and the pair has the same numbers."""
    paths = []
    for p in write(tmp_path, 10, others=False):
        gif = p["png"].replace(".png", ".gif")
        Image.open(p["png"]).convert("P").save(gif)
        paths.append({"jpg": p["jpg"], "png": gif})
    transform = V.Compose([V.RandomCrop(28), V.RandomHorizontalFlip(), V.ToTensor()])
    dataset = ht.Files(paths, kinds=KINDS, mask="pil", transform=transform)
    with ht.DataLoader(dataset, 5, shuffle=False, seed=SEED, num_workers=0) as loader:
        found = [item for b in loader for item in zip(b["jpg"], b["png"])]
    assert sum("decoded by Pillow" in r.message for r in caplog.records) == 1
    for index, (image, mask) in enumerate(found):
        want, of_mask = of_v1(transform, paths[index], index)
        assert torch.equal(image, want)
        assert torch.equal(mask, of_mask)
