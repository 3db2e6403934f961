"""docs/CONTRIBUTING.md is correct about adding kinds.

The tree, with the examples added as it says, passes what it says to run, and trains.
"""

import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys

import hdmlp
import pytest

ROOT = pathlib.Path(__file__).parents[2]
EXAMPLES = ROOT / "docs/testdata/contributing"
DOCUMENT = (ROOT / "docs/CONTRIBUTING.md").read_text()
#: Quotes of files and changes to files: (language, path, text).
BLOCKS = re.findall(r"^```(\w+) (\S+)\n(.*?)^```$", DOCUMENT, re.M | re.S)
#: What each section says to run: (title, commands).
RUN = [
    (title, commands)
    for title, section in re.findall(r"^## (An? [^\n]*)\n(.*?)(?=^## |\Z)", DOCUMENT, re.M | re.S)
    for commands in re.findall(r"^```sh\n(.*?)^```$", section, re.M | re.S)
]
POLICY = "internal/plan/policytest/example/hashed.go"
#: As `make build` has them: what it has compiled is not compiled again.
FLAGS = ("-trimpath", "-tags", "netgo,osusergo")
GO = os.environ.get("GO") or shutil.which("go") or "/usr/local/go/bin/go"


def changed(text, change):
    """Return the text after one hunk of a diff.

    In its context ``...`` stands for a part of a line, and any number of spaces for any other. In a
    new line it stands for the same part of the line that it replaces, one after the other.
    """
    lines = change.splitlines(keepends=True)
    pattern = ""
    for line in lines:
        if line[0] != "+":
            spaced = re.sub(r"(\\ )+", " +", re.escape(line[1:]))
            pattern += "(" + spaced.replace(re.escape("..."), "(.*)") + ")"
    places = list(re.finditer(f"^{pattern}", text, re.M))
    assert len(places) == 1, f"there are {len(places)} places for\n{change}"
    found = iter(places[0].groups())
    after = ""
    parts: list[str] = []
    for line in lines:
        if line[0] == "+":
            for part in parts:
                line = line.replace("...", part, 1)
            after += line[1:]
            continue
        before = next(found)
        parts = [next(found) for _ in range(line.count("..."))]
        after += before if line[0] == " " else ""
    return text[: places[0].start()] + after + text[places[0].end() :]


def test_a_hunk_keeps_the_lines_around_it():
    text = "| a | one |\n| b |  two |\n"
    assert changed(text, " | a | ... |\n+| c | |\n-| b | ... |\n") == "| a | one |\n| c | |\n"
    text = "| a | one, two, three |\n"
    change = "-| a | ...two... |\n+| a | ...two, new... |\n"
    assert changed(text, change) == "| a | one, two, new, three |\n"
    with pytest.raises(AssertionError, match="there are 0 places"):
        changed(text, " | one |\n+| c |\n")


@pytest.mark.parametrize(
    "path, quote", [(path, text) for language, path, text in BLOCKS if language != "diff"]
)
def test_quoted_lines_are_in_the_files(path, quote):
    where = EXAMPLES / path
    assert quote in (where if where.exists() else ROOT / path).read_text()


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    """A copy of the tree with all examples in it."""
    top = tmp_path_factory.mktemp("tree")
    for name in ("cmd", "internal", "bench", "docs", "examples", "python", "scenarios"):
        shutil.copytree(
            ROOT / name, top / name, ignore=shutil.ignore_patterns("bin", "results", "__pycache__")
        )
    for name in (
        "ARCHITECTURE.md",
        "Makefile",
        "go.mod",
        "go.sum",
        "pyproject.toml",
        *(p.name for p in ROOT.glob("*_test.go")),
    ):
        shutil.copy(ROOT / name, top / name)
    shutil.copytree(EXAMPLES, top, dirs_exist_ok=True)
    (top / "internal/plan/policies/hashed.go").write_text(
        "package policies" + (ROOT / POLICY).read_text().partition("\npackage example")[2]
    )
    shutil.rmtree((top / POLICY).parent)
    for language, path, text in BLOCKS:
        if language == "diff":
            (top / path).write_text(changed((top / path).read_text(), text))
    for command in ("init", "-q"), ("add", "."):  # the tests of the house ask git for its files
        subprocess.run(["git", *command], cwd=top, check=True)
    return top


def run(tree, *command, **environment):
    done = subprocess.run(
        command,
        cwd=tree,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "PYTHONPATH": str(tree / "python"), **environment},
    )
    assert done.returncode == 0, done.stdout[-4000:]
    return done.stdout


@pytest.fixture(scope="module")
def program(tree):
    if not os.path.exists(GO):
        pytest.skip("no Go")
    version = f"-X main.version={hdmlp.__version__}"
    run(
        tree,
        GO,
        "build",
        *FLAGS,
        "-ldflags",
        version,
        "-o",
        "python/hdmlp/bin/hdmlp",
        "./cmd/hdmlp",
    )
    return tree / "python/hdmlp/bin/hdmlp"


def test_every_section_has_commands_to_run():
    assert len(RUN) == len(re.findall("^## An? ", DOCUMENT, re.M)) == 6
    assert DOCUMENT.count("**Run.**") == 6


def merged(commands):
    """The commands without repetitions: those that differ only in their packages or files, as one.

    Returns:
        Lists of words: the ones before the packages or files, and these.
    """
    found: dict[tuple[str, ...], dict[str, None]] = {}
    for words in map(shlex.split, commands):
        start = {"go": 2, ".venv/bin/python": 3}.get(words[0], len(words))
        if any(word.startswith("-") for word in words[start:]):
            start = len(words)
        found.setdefault(tuple(words[:start]), {}).update(dict.fromkeys(words[start:]))
    return [(list(before), list(names)) for before, names in found.items()]


def test_commands_that_differ_in_packages_or_files_are_merged():
    commands = [
        "go test . ./a",
        "make build",
        "go test ./b ./a",
        "go test ./a -run X",
        "make build",
    ]
    assert merged(commands) == [
        (["go", "test"], [".", "./a", "./b"]),
        (["make", "build"], []),
        (["go", "test", "./a", "-run", "X"], []),
    ]


def go_test(tree, words):
    """Run a ``go test`` of the document; that of the engine must run the added policy, and runs
    only this one."""
    # Short: what takes longest does not depend on the examples, and is run with the tree itself.
    own = os.environ.get("GOFLAGS", "")
    flags = {"GOFLAGS": f"{own} -short -trimpath -tags=netgo,osusergo"}
    if "./internal/node" in words:
        words = [f"({word})/^hashed$" if "|" in word else word for word in words]
        assert "/hashed/" in run(tree, GO, *words, "-v", **flags)
    else:
        run(tree, GO, *words, **flags)


@pytest.mark.slow
@pytest.mark.ci  # it compiles the whole tree and runs suites that run with the tree anyway
@pytest.mark.limit(1200)  # they compile and run whole suites, beside others
def test_the_commands_pass_with_the_examples(tree, program):
    """All of all sections, each suite once: one test, as each worker of pytest that runs some of
    them has a tree of its own."""
    commands = [line for _, commands in RUN for line in commands.splitlines()]
    for words, names in merged(commands):
        if words[:2] == ["go", "test"]:
            go_test(tree, [*words[1:], *names])
        elif words[:3] == [".venv/bin/python", "-m", "pytest"]:
            run(tree, sys.executable, *words[1:], "-q", "-p", "no:cacheprovider", *names)
        elif words[0] == "python/hdmlp/bin/hdmlp":
            run(tree, *words)
        else:
            assert words == ["make", "build"], words  # which the fixture program has done


@pytest.mark.slow
def test_a_job_uses_all_examples(tree, program, tmp_path):
    (tmp_path / "strips").mkdir()
    run(
        tree,
        sys.executable,
        "python/train_with_them.py",
        str(tmp_path / "strips"),
        str(tmp_path / "config.toml"),
        HDMLP_SOCKET=f"hdmlp-test-{os.getpid()}-contributing",
        HDMLP_LINGER="0s",
        HDMLP_INDEX_DIR=str(tmp_path),
    )
    assert (
        run(tree, program, "largest", str(tmp_path / "strips"), "--kind", "strips").count("\n")
        == 10
    )
