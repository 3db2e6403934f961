"""Lays out the pages of the docs site: pages.py HDMLP DIRECTORY.

The site has the Markdown of docs/ and some of the root's, side by side in one directory; the
command reference and the table of parameters, which the binary HDMLP prints; and a page per public
module for Sphinx to fill from the docstrings. docs/index.md and docs/decisions/README.md list the
pages, and their lists become the navigation: Sphinx warns about a page that is in none of them.
"""

import html
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable

ROOT = pathlib.Path(__file__).resolve().parents[2]
SOURCE = "https://github.com/hdmlp/hdmlp/blob/main/"

#: Pages outside docs/ which the site has as well, if they are there.
OUTSIDE = ("ARCHITECTURE.md", "CHANGELOG.md", "CODE_OF_CONDUCT.md")
#: Folders whose pages, and pictures, the site has.
FOLDERS = ("docs", "docs/guides", "docs/decisions")
#: Public modules; each page documents what ``__all__`` names.
MODULES = (
    "hdmlp.torch",
    "hdmlp.data",
    "hdmlp.transforms",
    "hdmlp.errors",
    "hdmlp.job",
)

KEYS = """# Configuration keys

A key is an argument of a loader (`memory="10GB"`), a variable (`HDMLP_MEMORY=10GB`), or a line of
a TOML file (`memory = "10GB"`).
Arguments override variables, and variables override the file.
What none of them sets is measured on the machine, or has the default.
`hdmlp config` shows the values in force and where each comes from;
`hdmlp config --example` prints a file with every key.
"""

#: A relative link: its path and its anchor.
LINK = re.compile(r"\]\((?!\w+:|#)([^)#\s]+)(#[^)\s]*)?\)")


def placed(path: str) -> "str | None":
    """Where the site has a file of the repository, both as relative paths; None: it has not."""
    if path in OUTSIDE:
        return path
    folder, name = os.path.split(path)
    if folder in FOLDERS and name.endswith((".md", ".png")):
        return os.path.relpath(path, "docs")
    return None


def moved(path: str) -> str:
    """The text of a page of the repository, with its links as they must be on the site.

    What the site does not have is linked to in the repository.
    """

    def link(match: "re.Match[str]") -> str:
        target = os.path.normpath(os.path.join(os.path.dirname(path), match[1]))
        place = placed(target)
        if place is None:
            return f"]({SOURCE}{target}{match[2] or ''})"
        return f"]({os.path.relpath(place, os.path.dirname(placed(path)) or '.')}{match[2] or ''})"

    return LINK.sub(link, (ROOT / path).read_text())


def printed(hdmlp: str, *arguments: str) -> str:
    """What a command prints, whatever is configured where the site is built."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("HDMLP_")}
    environment.update(HOME="/nonexistent", NO_COLOR="1")
    return subprocess.run(
        [hdmlp, *arguments], env=environment, check=True, stdout=subprocess.PIPE, text=True
    ).stdout


def commands(hdmlp: str, *path: str) -> str:
    """The command reference: what --help prints, of a command and those below it."""
    shown = printed(hdmlp, *path, "--help").strip("\n")
    title = " ".join(["hdmlp", *path]) if path else "Commands"
    text = f"{'#' * (len(path) + 1)} {title}\n\n```text\n{shown}\n```\n\n"
    below = re.search(r"^Available Commands:\n((?:  .*\n)+)", shown, re.MULTILINE)
    for name in re.findall(r"^  (\S+)", below[1], re.MULTILINE) if below else ():
        if name not in ("completion", "help"):  # cobra's own
            text += commands(hdmlp, *path, name)
    return text


def parameters(hdmlp: str) -> str:
    """The table of parameters: their defaults from the example file, the rest as JSON has it."""
    defaults = dict(
        re.findall(r"^#(\w+) = (.*)$", printed(hdmlp, "config", "--example"), re.MULTILINE)
    )
    text = KEYS
    known = json.loads(printed(hdmlp, "config", "--json"))["parameters"]
    for scope, title in (("job", "Keys of a job"), ("daemon", "Keys of the daemon")):
        text += f"\n## {title}\n\n| key, default | meaning |\n| --- | --- |\n"
        for key in known:
            if key["scope"] == scope:
                name, default = key["key"], defaults[key["key"]]
                meaning, allowed = (
                    html.escape(key[part], quote=False).replace("|", "\\|")
                    for part in ("help", "allowed")
                )
                text += f"| `{name}`<br>`{default}` | {meaning}.<br>*Allowed:* {allowed}. |\n"
    return text


def reference(hdmlp: str) -> "dict[str, str]":
    """The pages of the reference by the names of their files, in the order of the navigation."""
    pages = {}
    for module in MODULES:
        title = f"{module}\n{'=' * len(module)}\n"
        pages[f"{module}.rst"] = f"{title}\n.. automodule:: {module}\n   :members:\n"
    # What hdmlp exports is documented where it comes from, in hdmlp.job and hdmlp.errors.
    package = "hdmlp\n=====\n\n.. automodule:: hdmlp\n"
    return {
        "hdmlp.rst": package,
        **pages,
        "commands.md": commands(hdmlp),
        "parameters.md": parameters(hdmlp),
    }


def home(index: str, names: "Iterable[str]") -> str:
    """The index with the reference's pages in their section, and the navigation."""
    listed = "".join(f"- [](reference/{name})\n" for name in names)  # by their titles
    index = re.sub(r"(?<=^## Reference\n\n).*?(?=\n## )", listed, index, flags=re.M | re.S)
    return navigated(index)


def navigated(index: str) -> str:
    """An index with the navigation.

    It is a hidden toctree for each heading, of the pages that are listed below it.
    """
    trees = []
    for section in re.split(r"^## ", index, flags=re.MULTILINE)[1:]:
        pages = re.findall(r"^- \[.*?\]\((?!\w+:)(\S+)\.(?:md|rst)\)", section, re.MULTILINE)
        if pages:
            caption = f":caption: {section.splitlines()[0]}"
            trees.append("\n".join(["```{toctree}", ":hidden:", caption, "", *pages, "```"]))
    return "\n\n".join([index, *trees])


def main(hdmlp: str, directory: str) -> None:
    """Writes all pages, with what HDMLP prints, to a directory, which it makes anew."""
    site, pages = pathlib.Path(directory), reference(hdmlp)
    shutil.rmtree(site, ignore_errors=True)
    made = {f"reference/{name}": text for name, text in pages.items()}
    for pattern in (*OUTSIDE, *(f"{folder}/*.md" for folder in FOLDERS)):
        for page in ROOT.glob(pattern):
            path = str(page.relative_to(ROOT))
            made[placed(path)] = moved(path)
    made["index.md"] = home(made["index.md"], pages)
    made["decisions/README.md"] = navigated(made["decisions/README.md"])
    for name, text in made.items():
        (site / name).parent.mkdir(parents=True, exist_ok=True)
        (site / name).write_text(text)
    for picture in (ROOT / "docs").glob("*.png"):
        shutil.copy(picture, site)


if __name__ == "__main__":
    main(*sys.argv[1:])
