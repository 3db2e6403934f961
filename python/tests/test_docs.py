"""Names and links in the documents are valid."""

import pathlib
import pkgutil
import re

import pytest

ROOT = pathlib.Path(__file__).parents[2]
PAGES = ["README.md", "ARCHITECTURE.md", "bench/mutants/README.md"]
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


def test_decisions_are_listed_once_and_have_their_parts():
    folder = ROOT / "docs/decisions"
    files = sorted(page.name for page in folder.glob("[0-9]*.md"))
    listed = re.findall(r"^- \[(\d+)\. .*\]\((\S+)\)$", (folder / "README.md").read_text(), re.M)
    assert sorted(name for _, name in listed) == files
    for number, name in listed:
        text = (folder / name).read_text()
        assert text.startswith(f"# {number}. "), name
        assert name.startswith(f"{int(number):02}-"), name
        assert re.search(r"^Date: \d{4}-\d\d-\d\d", text, re.M), name
        parts = re.findall(r"^## (.*)$", text, re.M)
        order = ["Context", "Choice", "Rejected", "Measured"]
        assert parts == [part for part in order if part in parts], name
        assert "Choice" in parts, name


def test_the_architecture_is_read_in_a_quarter_of_an_hour():
    assert len((ROOT / "ARCHITECTURE.md").read_text().split()) <= 3500
