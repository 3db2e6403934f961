"""Names and links in the documents are valid."""

import pathlib
import pkgutil
import re

import pytest

ROOT = pathlib.Path(__file__).parents[2]
PAGES = ["README.md", "ARCHITECTURE.md"]
PAGES += [str(page.relative_to(ROOT)) for page in sorted((ROOT / "docs").rglob("*.md"))]


@pytest.mark.parametrize("name", PAGES)
def test_names_of_the_package_in_documents_exist(name):
    for dotted in re.findall(r"`(hdmlp(?:\.[A-Za-z_]\w*)+)[`(]", (ROOT / name).read_text()):
        if dotted.startswith("hdmlp.torch"):
            pytest.importorskip("torch")
        pkgutil.resolve_name(dotted)


def anchors(page):
    """The anchors that GitHub gives a page's headings."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading).lower().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("name", PAGES)
def test_links_in_documents_lead_somewhere(name):
    """Each relative link of a page leads to a file of the tree, and to one of its headings."""
    page = ROOT / name
    for path, anchor in re.findall(r"\]\((?!\w+:)([^)#\s]*)(?:#([^)\s]+))?\)", page.read_text()):
        target = (page.parent / path) if path else page
        assert target.exists(), path
        assert not anchor or anchor in anchors(target), f"{path}#{anchor}"
