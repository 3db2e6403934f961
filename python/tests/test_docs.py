"""What the documents name exists."""

import pathlib
import pkgutil
import re

import pytest

ROOT = pathlib.Path(__file__).parents[2]


@pytest.mark.parametrize(
    "name",
    ["README.md", "ARCHITECTURE.md", *(f"docs/{p.name}" for p in (ROOT / "docs").glob("*.md"))],
)
def test_names_of_the_package(name):
    for dotted in re.findall(r"`(hdmlp(?:\.[A-Za-z_]\w*)+)[`(]", (ROOT / name).read_text()):
        if dotted.startswith("hdmlp.torch"):
            pytest.importorskip("torch")
        pkgutil.resolve_name(dotted)
