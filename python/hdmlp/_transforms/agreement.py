"""Whether the installed libraries draw what the daemon draws.

torch promises no stream of random numbers across releases. So before the daemon carries out a
transform of theirs that draws, some draws under one key are compared with the daemon's, once in a
process.
"""

from __future__ import annotations

import functools
import random
import sys
from typing import Any

#: The key under which the draws of :data:`DAEMONS` were made.
KEY = 0x5EEDFACE12345678

#: What the daemon draws; internal/transform's tests compare it with the daemon's code.
DAEMONS: dict[str, list[float]] = {
    "torch": [
        0.5920907855033875,
        0.435149222612381,
        -0.1637270450592041,
        808,
        0.278728187084198,
        0.4294428527355194,
        -0.1805707812309265,
        49,
        0.3040902614593506,
        0.7771711945533752,
        0.22353488206863403,
        722,
        3,
        0,
        1,
        2,
    ],
    "Python": [
        0.0076968846043602435,
        0.10898144528203851,
        557,
        3,
        0.6441240816725378,
        0.10382279616467018,
        745,
        4,
        0.3895399404412144,
        0.39300769302613026,
        999,
        3,
        8.842679071288593,
        1,
        8.502367132963766,
        0,
        1,
        0,
        3,
        2,
    ],
    "numpy": [7, 474, 0, 332, 5, 88],
}


def disagreement() -> str:
    """Returns why a transform that draws may draw something else in Python; empty: it does not.

    The default type and device of torch's tensors count as they are now.
    """
    torch: Any = sys.modules.get("torch")
    numpy = hasattr(sys.modules.get("numpy"), "random")
    if torch is None:
        return _differing(False, numpy)
    if torch.get_default_dtype() is not torch.float32:
        return f"torch's default type is {torch.get_default_dtype()}, and not float32"
    device = torch.empty(0).device
    if device.type != "cpu":
        return f"torch's default device is {device}, whose generator draws, and not the CPU's"
    return _differing(True, numpy)


@functools.cache
def _differing(with_torch: bool, with_numpy: bool) -> str:
    drawn = {"torch": torchs_draws()} if with_torch else {}
    drawn["Python"] = pythons_draws()
    if with_numpy:
        drawn["numpy"] = numpys_draws()
    for name, numbers in drawn.items():
        if numbers != DAEMONS[name]:
            module = sys.modules.get(name)
            version = f" {module.__version__}" if module is not None else ""
            return (
                f"the random numbers of {name}{version} are others than those of the releases "
                "that HDMLP supports, so it would draw others than in Python"
            )
    return ""


def torchs_draws() -> list[float]:
    """Returns draws of torch, which is imported, under the key, from a generator of their own."""
    torch: Any = sys.modules["torch"]
    own = torch.Generator().manual_seed(KEY)
    drawn: list[float] = []
    for _ in range(3):
        drawn.append(torch.rand(1, generator=own).item())
        drawn.append(torch.empty(1).uniform_(0.08, 1.0, generator=own).item())
        drawn.append(torch.empty(1).uniform_(-0.3, 0.3, generator=own).item())
        drawn.append(torch.randint(0, 1000, size=(1,), generator=own).item())
    return drawn + torch.randperm(4, generator=own).tolist()  # type: ignore[no-any-return]


def pythons_draws() -> list[float]:
    """Returns draws of Python's random module under the key, from a generator of their own."""
    own = random.Random(KEY)
    drawn: list[float] = []
    for _ in range(3):
        drawn += [own.random(), own.uniform(0.08, 1.0), own.randint(0, 1000), own.choice(range(7))]
    for _ in range(2):
        drawn += [own.gauss(9, 0.5), *own.choices(range(7))]
    order = list(range(4))
    own.shuffle(order)
    return drawn + order


def numpys_draws() -> list[float]:
    """Returns draws of numpy, which is imported, under the key, from a generator of their own."""
    own: Any = sys.modules["numpy"].random.RandomState(KEY >> 32)
    drawn: list[float] = []
    for _ in range(3):
        drawn += [int(own.choice(15)), int(own.randint(1000))]
    return drawn
