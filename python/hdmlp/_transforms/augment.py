"""Random transforms of images that policies of augmentation are made of, and those policies."""

from __future__ import annotations

from collections.abc import Sequence

from .arguments import (
    InterpolationMode,
    as_angles,
    as_fill,
    as_interpolation,
    as_levels,
    as_probability,
    as_range,
    as_size,
    as_whole_number,
)
from .base import Description, Transform

_MOVING = ("nearest", "bilinear", "bicubic")


def _as_moving(mode: object) -> InterpolationMode:
    """An interpolation of pixels that are moved, which PIL has without antialiasing."""
    found = as_interpolation(mode)
    if found.value not in _MOVING:
        raise ValueError(f"interpolation should be one of {', '.join(_MOVING)}. Got {mode!r}")
    return found


class _Moving(Transform):
    """What moves pixels: it has an interpolation, and a fill for what comes from outside."""

    _draws = True
    _draws_as = "v1"  # of torchvision, or "v2"

    def __init__(self, interpolation: object, fill: float | Sequence[float] | None):
        self.interpolation, self.fill = _as_moving(interpolation), as_fill(fill)

    def _described(self, **arguments: object) -> Description:
        return {
            "name": type(self).__name__,
            **arguments,
            "interpolation": self.interpolation.value,
            "fill": as_levels(self.fill),
            **({} if self._draws_as == "v1" else {"draws": self._draws_as}),
        }

    def __repr__(self) -> str:
        shown = (f"{k}={v!r}" for k, v in self.describe().items() if k in self._shown)
        return f"{type(self).__name__}({', '.join(shown)})"

    #: Arguments that are shown.
    _shown: tuple[str, ...] = ("interpolation", "fill")


class RandAugment(_Moving):
    """Applies random operations of PIL, all of one magnitude (Cubuk et al. 2020).

    Args:
        num_ops: The number of operations for each image. Default: 2.
        magnitude: The index of the magnitude, below ``num_magnitude_bins``. Default: 9.
        num_magnitude_bins: The number of magnitudes of each operation. Default: 31.
        interpolation: Nearest, bilinear or bicubic, where pixels are moved. Default: nearest.
        fill: The level outside of the image, or one for each channel. Default: None, black.

    Raises:
        TypeError: An argument has the wrong type.
        ValueError: An argument is out of range.
    """

    _shown = ("num_ops", "magnitude", "num_magnitude_bins", *_Moving._shown)
    #: The operations with their magnitudes as the installed torch computes them.
    _operations: list[Description] | None = None

    def __init__(
        self,
        num_ops: int = 2,
        magnitude: int = 9,
        num_magnitude_bins: int = 31,
        interpolation: object = InterpolationMode.NEAREST,
        fill: float | Sequence[float] | None = None,
    ):
        super().__init__(interpolation, fill)
        self.num_ops = as_whole_number("num_ops", num_ops)
        self.magnitude = as_whole_number("magnitude", magnitude)
        self.num_magnitude_bins = as_whole_number("num_magnitude_bins", num_magnitude_bins)
        if self.num_ops < 0:
            raise ValueError(
                f"num_ops should be a non-negative integer, but got {num_ops} instead."
            )
        _check_bins(self.num_magnitude_bins)
        if not 0 <= self.magnitude < self.num_magnitude_bins:
            raise ValueError(
                f"magnitude should be from 0 to {self.num_magnitude_bins - 1}, as there are "
                f"num_magnitude_bins={num_magnitude_bins}. Got {magnitude}"
            )

    def describe(self) -> Description:
        return self._described(
            num_ops=self.num_ops,
            magnitude=self.magnitude,
            num_magnitude_bins=self.num_magnitude_bins,
            **({} if self._operations is None else {"operations": self._operations}),
        )


def _check_bins(bins: int) -> None:
    if bins < 2:
        raise ValueError(f"num_magnitude_bins should be at least 2. Got {bins}")


class TrivialAugmentWide(_Moving):
    """Applies one random operation of PIL of a random magnitude (Müller and Hutter 2021).

    Args:
        num_magnitude_bins: As for :class:`RandAugment`. Default: 31.
        interpolation: The same. Default: nearest.
        fill: The same. Default: None.

    Raises:
        TypeError: An argument has the wrong type.
        ValueError: An argument is out of range.
    """

    _shown = ("num_magnitude_bins", *_Moving._shown)
    _operations: list[Description] | None = None  # as RandAugment's

    def __init__(
        self,
        num_magnitude_bins: int = 31,
        interpolation: object = InterpolationMode.NEAREST,
        fill: float | Sequence[float] | None = None,
    ):
        super().__init__(interpolation, fill)
        self.num_magnitude_bins = as_whole_number("num_magnitude_bins", num_magnitude_bins)
        _check_bins(self.num_magnitude_bins)

    def describe(self) -> Description:
        return self._described(
            num_magnitude_bins=self.num_magnitude_bins,
            **({} if self._operations is None else {"operations": self._operations}),
        )


class AutoAugment(_Moving):
    """Applies the two operations of a random sub-policy, each by chance (Cubuk et al. 2019).

    Args:
        policy: ``"imagenet"``, ``"cifar10"`` or ``"svhn"``, or torchvision's ``AutoAugmentPolicy``.
            Default: ``"imagenet"``.
        interpolation: As for :class:`RandAugment`. Default: nearest.
        fill: The same. Default: None.

    Raises:
        TypeError: An argument has the wrong type.
        ValueError: An argument is unknown or out of range.
    """

    _shown = ("policy", *_Moving._shown)
    #: The sub-policies, with magnitudes as the installed torch computes them.
    _policies: list[list[Description]] | None = None

    def __init__(
        self,
        policy: object = "imagenet",
        interpolation: object = InterpolationMode.NEAREST,
        fill: float | Sequence[float] | None = None,
    ):
        super().__init__(interpolation, fill)
        self.policy = str(getattr(policy, "value", policy))
        if self.policy not in ("imagenet", "cifar10", "svhn"):
            raise ValueError(f"policy should be imagenet, cifar10 or svhn. Got {policy!r}")

    def describe(self) -> Description:
        return self._described(
            policy=self.policy,
            **({} if self._policies is None else {"policies": self._policies}),
        )


class RandomRotation(_Moving):
    """Rotates an image counter-clockwise by a random angle.

    Args:
        degrees: (minimum, maximum) of the angle in degrees, or how far it may be from 0.
        interpolation: As for :class:`RandAugment`. Default: nearest.
        expand: If True, images become as large as the rotated ones, each of its own size.
            Default: False.
        center: (x, y) in pixels of the point to rotate around. Default: None, the middle.
        fill: As for :class:`RandAugment`. Default: 0.

    Raises:
        TypeError: An argument has the wrong type.
        ValueError: An argument is out of range.
    """

    def __init__(
        self,
        degrees: float | Sequence[float],
        interpolation: object = InterpolationMode.NEAREST,
        expand: bool = False,
        center: Sequence[float] | None = None,
        fill: float | Sequence[float] | None = 0,
    ):
        super().__init__(interpolation, fill)
        self.degrees, self.expand = as_angles("degrees", degrees, (2,)), bool(expand)
        self.center = None if center is None else as_range("center", center)

    def describe(self) -> Description:
        return self._described(degrees=self.degrees, expand=self.expand, center=self.center)

    def __repr__(self) -> str:
        center = "" if self.center is None else f", center={self.center}"
        return (
            f"RandomRotation(degrees={self.degrees}, interpolation={self.interpolation.value}, "
            f"expand={self.expand}{center}, fill={self.fill})"
        )


class RandomAffine(_Moving):
    """Rotates, moves, scales and shears an image at random.

    Args:
        degrees: As for :class:`RandomRotation`.
        translate: (horizontal, vertical) largest moves, as fractions of the edges.
            Default: None, no move.
        scale: (minimum, maximum) of a factor. Default: None, 1.
        shear: (minimum, maximum) of an angle along x, or how far it may be from 0; or four numbers,
            of which the last two are those of an angle along y. Default: None, no shear.
        interpolation: As for :class:`RandAugment`. Default: nearest.
        fill: The same. Default: 0.
        center: As for :class:`RandomRotation`. Default: None.

    Raises:
        TypeError: An argument has the wrong type.
        ValueError: An argument is out of range.
    """

    _shown = ("degrees", "translate", "scale", "shear", "center", *_Moving._shown)

    def __init__(
        self,
        degrees: float | Sequence[float],
        translate: Sequence[float] | None = None,
        scale: Sequence[float] | None = None,
        shear: float | Sequence[float] | None = None,
        interpolation: object = InterpolationMode.NEAREST,
        fill: float | Sequence[float] | None = 0,
        center: Sequence[float] | None = None,
    ):
        super().__init__(interpolation, fill)
        self.degrees = as_angles("degrees", degrees, (2,))
        self.translate = None if translate is None else as_range("translate", translate)
        if self.translate is not None and not all(0 <= t <= 1 for t in self.translate):
            raise ValueError("translation values should be between 0 and 1")
        self.scale = None if scale is None else as_range("scale", scale)
        if self.scale is not None and min(self.scale) <= 0:
            raise ValueError("scale values should be positive")
        self.shear = None if shear is None else as_angles("shear", shear, (2, 4))
        self.center = None if center is None else as_range("center", center)

    def describe(self) -> Description:
        return self._described(
            degrees=self.degrees,
            translate=self.translate,
            scale=self.scale,
            shear=self.shear,
            center=self.center,
        )


class RandomPerspective(_Moving):
    """Moves the corners of an image at random, with a probability.

    Args:
        distortion_scale: How far each corner may move, as a fraction of half the edge.
            Default: 0.5.
        p: The probability, in [0, 1]. Default: 0.5.
        interpolation: As for :class:`RandAugment`. Default: bilinear.
        fill: The same. Default: 0.

    Raises:
        TypeError: An argument has the wrong type.
        ValueError: An argument is out of range.
    """

    _shown = ("p",)

    def __init__(
        self,
        distortion_scale: float = 0.5,
        p: float = 0.5,
        interpolation: object = InterpolationMode.BILINEAR,
        fill: float | Sequence[float] | None = 0,
    ):
        super().__init__(interpolation, fill)
        if not 0 <= distortion_scale <= 1:
            raise ValueError("Argument distortion_scale value should be between 0 and 1")
        self.distortion_scale, self.p = distortion_scale, as_probability(p)

    def describe(self) -> Description:
        return self._described(distortion_scale=float(self.distortion_scale), p=float(self.p))


class GaussianBlur(Transform):
    """Blurs an image with a Gaussian kernel of a random deviation, within 1 level of torchvision's.

    Args:
        kernel_size: (width, height) of the kernel in pixels, odd; or one number for both.
        sigma: (minimum, maximum) of the deviation in pixels, or one number. Default: (0.1, 2.0).

    Raises:
        TypeError: An argument has the wrong type.
        ValueError: An argument is out of range.
    """

    _draws = True
    _draws_as = "v1"  # of torchvision, or "v2"
    _same_on_levels = True

    def __init__(
        self, kernel_size: int | Sequence[int], sigma: float | Sequence[float] = (0.1, 2.0)
    ):
        self.kernel_size = as_size(kernel_size)
        if any(k % 2 == 0 for k in self.kernel_size):
            raise ValueError("Kernel size value should be an odd and positive number.")
        self.sigma = as_range("sigma", (sigma, sigma) if isinstance(sigma, (int, float)) else sigma)
        if not 0.0 < self.sigma[0] <= self.sigma[1]:
            raise ValueError(
                f"sigma values should be positive and of the form (min, max). Got {self.sigma}"
            )

    def describe(self) -> Description:
        return {
            "name": "GaussianBlur",
            "kernel_size": list(self.kernel_size),
            "sigma": self.sigma,
            **({} if self._draws_as == "v1" else {"draws": self._draws_as}),
        }

    def __repr__(self) -> str:
        return f"GaussianBlur(kernel_size={self.kernel_size}, sigma={self.sigma})"


class _Maybe(Transform):
    """What changes an image with a probability.

    Args:
        p: The probability, in [0, 1]. Default: 0.5.

    Raises:
        TypeError: ``p`` is not a number.
        ValueError: ``p`` is outside [0, 1].
    """

    _draws = True
    _argument = ""  # the name of the other one

    def __init__(self, p: float = 0.5):
        self.p = as_probability(p)

    def describe(self) -> Description:
        other = {self._argument: getattr(self, self._argument)} if self._argument else {}
        return {"name": type(self).__name__, **other, "p": float(self.p)}

    def __repr__(self) -> str:
        arguments = list(self.describe().items())[1:]
        return f"{type(self).__name__}({','.join(f'{k}={v}' for k, v in arguments)})"


class RandomInvert(_Maybe):
    __doc__ = "Inverts an image with a probability." + (_Maybe.__doc__ or "").partition(".")[2]
    _same_on_levels = True


class RandomAutocontrast(_Maybe):
    __doc__ = (
        "Stretches the levels of each channel to 0 to 255, with a probability."
        + (_Maybe.__doc__ or "").partition(".")[2]
    )


class RandomEqualize(_Maybe):
    __doc__ = (
        "Equalizes the histogram of each channel, with a probability."
        + (_Maybe.__doc__ or "").partition(".")[2]
    )


class RandomGrayscale(_Maybe):
    """Converts an image to grey with a probability, in as many channels as it has.

    Args:
        p: The probability, in [0, 1]. Default: 0.1.

    Raises:
        TypeError: ``p`` is not a number.
        ValueError: ``p`` is outside [0, 1].
    """

    def __init__(self, p: float = 0.1):
        super().__init__(p)


class RandomPosterize(_Maybe):
    """Keeps the high bits of each level with a probability.

    Args:
        bits: Number of bits, from 1 to 8.
        p: The probability, in [0, 1]. Default: 0.5.

    Raises:
        TypeError: An argument has the wrong type.
        ValueError: An argument is out of range.
    """

    _argument = "bits"
    _same_on_levels = True

    def __init__(self, bits: int, p: float = 0.5):
        super().__init__(p)
        self.bits = as_whole_number("bits", bits)
        if not 1 <= self.bits <= 8:
            raise ValueError(f"bits must be between or equal to 1 and 8. Got {bits}")


class RandomSolarize(_Maybe):
    """Inverts levels from a threshold on, with a probability.

    Args:
        threshold: The level.
        p: The probability, in [0, 1]. Default: 0.5.

    Raises:
        TypeError: An argument has the wrong type.
        ValueError: ``p`` is outside [0, 1].
    """

    _argument = "threshold"
    _same_on_levels = True

    def __init__(self, threshold: float, p: float = 0.5):
        super().__init__(p)
        self.threshold = float(threshold)


class RandomAdjustSharpness(_Maybe):
    """Changes the sharpness of an image with a probability.

    Args:
        sharpness_factor: 0 smooths the image, 1 leaves it as it is, 2 doubles its sharpness.
        p: The probability, in [0, 1]. Default: 0.5.

    Raises:
        TypeError: An argument has the wrong type.
        ValueError: An argument is out of range.
    """

    _argument = "sharpness_factor"

    def __init__(self, sharpness_factor: float, p: float = 0.5):
        super().__init__(p)
        self.sharpness_factor = float(sharpness_factor)
        if self.sharpness_factor < 0:
            raise ValueError(f"sharpness_factor ({sharpness_factor}) is not non-negative.")
