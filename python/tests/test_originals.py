"""Functions of torch, torchvision and PIL that the program replaced are called, as by torch's own
loader: before and after HDMLP is imported, and in ``sitecustomize``."""

import json
import os
import subprocess
import sys

import preloaded
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torchvision")

import patches
from PIL import Image

#: Applies each patch in a process of its own, which then runs the program.
SITECUSTOMIZE = """
import os, sys
if sys.argv[-1:] == ["sitecustomize"] or "sitecustomize" in sys.orig_argv:
    sys.path[:0] = {paths!r}
    import gc, patches
    gc.freeze()
    for name in patches.of_each_loader():
        if os.fork() == 0:
            os.environ["PATCHED_WITH"] = name
            patches.PATCHES[name][0]()
            break
        os.wait()
    else:
        os._exit(0)
"""


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    """10 lossless images of different sizes in 2 classes."""
    root = tmp_path_factory.mktemp("data")
    for number in range(10):
        path = root / "ab"[number // 6] / f"{number}.png"
        path.parent.mkdir(exist_ok=True)
        image = Image.linear_gradient("L").resize((12 + number, 11))
        colours = (
            image,
            image.rotate(90, expand=True).resize(image.size),
            Image.new("L", image.size, number * 20),
        )
        Image.merge("RGB", colours).save(path)
    return str(root)


@pytest.fixture(scope="module")
def results(pictures, tmp_path_factory):
    """For when they are applied: what differs with each patch; each is computed when asked for."""
    found = {}
    here = os.path.dirname(__file__)

    def of(when):
        if when in found:
            return found[when]
        environment, python = dict(os.environ), preloaded.PYTHON
        if when == "sitecustomize":  # before torch is imported
            python = sys.executable
            site = tmp_path_factory.mktemp("site")
            (site / "sitecustomize.py").write_text(
                SITECUSTOMIZE.format(paths=[here, *environment["PYTHONPATH"].split(os.pathsep)])
            )
            environment["PYTHONPATH"] = os.pathsep.join([str(site), environment["PYTHONPATH"]])
        done = subprocess.run(
            [python, os.path.join(here, "patched.py"), pictures, when],
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        lines = map(json.loads, done.stdout.splitlines())
        found[when] = {line["name"]: line["differs"] for line in lines}
        return found[when]

    return of


@pytest.mark.limit(900)  # a process for each patch
@pytest.mark.parametrize("when", ["after", "before", "sitecustomize"])
def test_what_the_program_replaced_is_called(real, results, when):
    """In ``sitecustomize``, which is before HDMLP is imported as well, a patch of each loader."""
    differing = {name: how for name, how in results(when).items() if how}
    assert not differing
    expected = patches.of_each_loader() if when == "sitecustomize" else list(patches.PATCHES)
    assert sorted(results(when)) == sorted(expected)
