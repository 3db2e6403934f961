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


class _Two:
    """As MoCo's TwoCropsTransform."""

    def __init__(self, base_transform: Callable[[Any], Any]) -> None:
        self.base_transform = base_transform

    def __call__(self, x: Any) -> list[Any]:
        q = self.base_transform(x)
        k = self.base_transform(x)
        return [q, k]


class _Ten:
    """As DINO's DataAugmentationDINO: two large crops and eight small ones."""

    def __init__(self, first: Any, second: Any, local: Any) -> None:
        self.global_transfo1 = first
        self.global_transfo2 = second
        self.local_crops_number = 8
        self.local_transfo = local

    def __call__(self, image: Any) -> list[Any]:
        crops = []
        crops.append(self.global_transfo1(image))
        crops.append(self.global_transfo2(image))
        for _ in range(self.local_crops_number):
            crops.append(self.local_transfo(image))
        return crops


def _view(size: int, least: float, most: float) -> Any:
    from torchvision import transforms as t

    return t.Compose(
        [
            t.RandomResizedCrop(size, scale=(least, most)),
            t.RandomHorizontalFlip(),
            t.RandomApply([t.ColorJitter(0.4, 0.4, 0.2, 0.1)], 0.8),
            t.RandomGrayscale(0.2),
            t.ToTensor(),
            t.Normalize(mean=MEAN, std=STD),
        ]
    )


def _moco() -> Any:
    return _Two(_view(224, 0.2, 1.0))


def _dino() -> Any:
    large = _view(224, 0.4, 1.0)
    return _Ten(large, large, _view(96, 0.05, 0.4))


#: By name: what is shown of a recipe, and what makes it.
RECIPES: dict[str, tuple[str, Callable[[], Any]]] = {
    "preset": ("torchvision's preset without a policy", _preset("")),
    "trivial": (
        "torchvision's preset with TrivialAugmentWide, RandomErasing(0.1)",
        _preset("TrivialAugmentWide"),
    ),
    "rand": ("torchvision's preset with RandAugment, RandomErasing(0.1)", _preset("RandAugment")),
    "timm": ("timm's create_transform with rand-m7-mstd0.5-inc1, re_prob 0.25", _timm),
    "moco": ("2 views: crop, flip, jitter, grayscale", _moco),
    "dino": ("10 views of two sizes: crop, flip, jitter, grayscale", _dino),
    "simclr": ("SimCLR: crop, flip, jitter, grayscale, GaussianBlur(23)", _simclr),
}

#: The same on tensors, where torchvision has it.
ON_TENSORS: dict[str, Callable[[], Any]] = {
    "preset": _on_tensors(""),
    "trivial": _on_tensors("TrivialAugmentWide"),
    "rand": _on_tensors("RandAugment"),
}
