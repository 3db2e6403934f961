"""The recipes that bench/recipes.py compares, as lists of torchvision's and timm's transforms."""

from typing import Any, Callable

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def _preset(policy: str) -> Callable[[], Any]:
    """``ClassificationPresetTrain`` of torchvision's references."""

    def made() -> Any:
        import torch
        from torchvision import transforms as t

        bilinear = t.InterpolationMode.BILINEAR
        steps = [
            t.RandomResizedCrop(224, interpolation=bilinear, antialias=True),
            t.RandomHorizontalFlip(0.5),
        ]
        if policy:
            steps.append(getattr(t, policy)(interpolation=bilinear))
        steps += [
            t.PILToTensor(),
            t.ConvertImageDtype(torch.float),
            t.Normalize(mean=MEAN, std=STD),
        ]
        return t.Compose([*steps, t.RandomErasing(p=0.1)] if policy else steps)

    return made


def _on_tensors(policy: str) -> Callable[[], Any]:
    """The same with ``backend="tensor"`` and v2."""

    def made() -> Any:
        import torch
        from torchvision.transforms import InterpolationMode, v2

        bilinear = InterpolationMode.BILINEAR
        steps = [
            v2.RandomResizedCrop(224, interpolation=bilinear, antialias=True),
            v2.RandomHorizontalFlip(0.5),
        ]
        if policy:
            steps.append(getattr(v2, policy)(interpolation=bilinear))
        steps += [v2.ToDtype(torch.float, scale=True), v2.Normalize(mean=MEAN, std=STD)]
        return v2.Compose([*steps, v2.RandomErasing(p=0.1)] if policy else steps)

    return made


def _timm() -> Any:
    """With m9, magnitudes of 10 leave 0 bits, to which Pillow 13 refuses to posterize."""
    import timm.data

    return timm.data.create_transform(
        224,
        is_training=True,
        color_jitter=None,
        auto_augment="rand-m7-mstd0.5-inc1",
        re_prob=0.25,
        interpolation="bicubic",
    )


def _simclr() -> Any:
    from torchvision import transforms as t

    return t.Compose(
        [
            t.RandomResizedCrop(224),
            t.RandomHorizontalFlip(),
            t.RandomApply([t.ColorJitter(0.8, 0.8, 0.8, 0.2)], 0.8),
            t.RandomGrayscale(0.2),
            t.GaussianBlur(23),
            t.ToTensor(),
        ]
    )


#: By name: what is shown of a recipe, and what makes it.
RECIPES: dict[str, tuple[str, Callable[[], Any]]] = {
    "preset": ("torchvision's preset without a policy", _preset("")),
    "trivial": (
        "torchvision's preset with TrivialAugmentWide, RandomErasing(0.1)",
        _preset("TrivialAugmentWide"),
    ),
    "rand": ("torchvision's preset with RandAugment, RandomErasing(0.1)", _preset("RandAugment")),
    "timm": ("timm's create_transform with rand-m7-mstd0.5-inc1, re_prob 0.25", _timm),
    "simclr": ("SimCLR: crop, flip, jitter, grayscale, GaussianBlur(23)", _simclr),
}

#: The same on tensors, where torchvision has it.
ON_TENSORS: dict[str, Callable[[], Any]] = {
    "preset": _on_tensors(""),
    "trivial": _on_tensors("TrivialAugmentWide"),
    "rand": _on_tensors("RandAugment"),
}
