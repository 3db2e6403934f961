"""Sphinx's configuration for the docs site; `make docs` builds it from what pages.py laid out."""

import re

from docutils import nodes
from sphinx import addnodes
from sphinx.transforms import SphinxTransform

project = "HDMLP"
author = "the HDMLP project"
copyright = "the HDMLP project, Apache-2.0"
html_title = "HDMLP"
language = "en"
smartquotes = False  # what stands in quotes is often to be typed

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_copybutton"]
myst_heading_anchors = 4  # as GitHub names them
myst_links_external_new_tab = False

# The docstrings are Google's style; types come from the annotations.
suppress_warnings = ["ref.python"]  # napoleon takes words before colons for types
napoleon_numpy_docstring = False
napoleon_use_ivar = True  # what a docstring lists is not documented a second time as a member
napoleon_use_rtype = False
autodoc_inherit_docstrings = False  # a method that only implements its base's is left out
autodoc_member_order = "groupwise"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented_params"
autodoc_default_options = {
    "show-inheritance": True,
    # What private bases define is listed, and what these define is not.
    "inherited-members": "OSError,BaseException,HDMLPError,DataLoader,Dataset,Transform,tuple",
}
autodoc_class_signature = "mixed"
python_maximum_signature_line_length = 80

html_theme = "furo"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_show_sphinx = False
html_use_index = False  # the search finds names
html_domain_indices = False
html_copy_source = False
html_theme_options = {
    "source_repository": "https://github.com/hdmlp/hdmlp",
    "footer_icons": [],
}
pygments_style = "tango"
pygments_dark_style = "monokai"
copybutton_exclude = ".linenos, .gp, .go"


def code_blocks(app, what, name, obj, options, lines):
    """Makes indented lines after a paragraph and a blank line a code block, as in Markdown."""
    at = 0
    for before, blank, line in zip(lines[:], lines[1:], lines[2:]):
        at += 1
        indent = len(before) - len(before.lstrip())
        paragraph = before.strip() and not before.lstrip().startswith((".. ", ":", "- "))
        indented = not blank.strip() and line.startswith(" " * (indent + 4))
        if paragraph and indented and not before.endswith("::"):
            lines[at:at] = ["", " " * indent + "::"]
            at += 2


def public_bases(app, name, obj, options, bases):
    """Shows the public classes that a class derives from, in the place of private ones."""
    bases[:] = dict.fromkeys(
        public
        for base in bases
        for public in (base.__bases__ if base.__name__.startswith("_") else (base,))
    )


def skip(app, what, name, obj, skipped, options):
    """Leaves out a named tuple's fields, which the docstring of the tuple describes."""
    return (obj.__doc__ or "").startswith("Alias for field number") or None


def dashes(app, doctree):
    """Sets a dash between a parameter and its description, which Sphinx writes as two hyphens."""
    for text in list(doctree.findall(nodes.Text)):
        if text == " -- ":
            text.parent.replace(text, nodes.Text(" \N{EN DASH} "))


class PageNames(SphinxTransform):
    """Makes a link of a page's name where the text only says it, as in docs/OPERATIONS.md."""

    default_priority = 500
    name = re.compile(r"\b(?:docs/)?([A-Z][A-Z_]+)\.md\b")

    def apply(self) -> None:
        """Replaces the names in a document's text."""
        for text in list(self.document.findall(nodes.Text)):
            parent = text.parent
            while parent is not None and not isinstance(parent, self.left_alone):
                parent = parent.parent
            if parent is None:
                text.parent.replace(text, [*self.linked(text)])

    left_alone = (
        nodes.literal,
        nodes.literal_block,
        nodes.title,
        nodes.reference,
        addnodes.pending_xref,
    )

    def linked(self, text):
        """Yields the text in pieces, with links in the place of names."""
        at = 0
        for match in self.name.finditer(text):
            if match[1] in self.env.found_docs and match[1] != self.env.docname:
                yield nodes.Text(text[at : match.start()])
                yield addnodes.pending_xref(
                    "",
                    nodes.inline("", match[0]),
                    refdomain="std",
                    reftype="doc",
                    reftarget=f"/{match[1]}",
                    refexplicit=True,
                    refdoc=self.env.docname,
                    refwarn=True,
                )
                at = match.end()
        yield nodes.Text(text[at:])


def setup(app):
    """Registers what this file adds to Sphinx."""
    app.connect("autodoc-process-docstring", code_blocks, priority=400)  # before napoleon
    app.connect("autodoc-process-bases", public_bases)
    app.connect("autodoc-skip-member", skip)
    app.connect("doctree-read", dashes)
    app.add_transform(PageNames)
