"""What docs/CONTRIBUTING.md says of adding things is true: the tree, with the examples added as it says, passes its own suites and trains."""

import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

import hdmlp

ROOT = pathlib.Path(__file__).parents[2]
EXAMPLES = ROOT / "docs/testdata/contributing"
BLOCKS = re.findall(
    r"^```(\w+) (\S+)\n(.*?)^```$", (ROOT / "docs/CONTRIBUTING.md").read_text(), re.M | re.S
)
#: As `make build` has them: what it has compiled is not compiled again.
FLAGS = ("-trimpath", "-tags", "netgo,osusergo")
GO = os.environ.get("GO") or shutil.which("go") or "/usr/local/go/bin/go"


def changed(text, change):
    """The text with one hunk in it: lines that begin with a minus go, with a plus come, the others stay. How wide columns are does not matter."""
    lines = change.splitlines(keepends=True)
    before = "".join(line[1:] for line in lines if line[0] != "+")
    after = "".join(line[1:] for line in lines if line[0] != "-")
    places = list(re.finditer(re.sub(r"(\\ )+", " +", re.escape(before)), text))
    assert len(places) == 1, f"there are {len(places)} places for\n{change}"
    return text[: places[0].start()] + after + text[places[0].end() :]


@pytest.mark.parametrize(
    "path, quote", [(path, text) for language, path, text in BLOCKS if language != "diff"]
)
def test_quotes_are_what_the_files_say(path, quote):
    where = EXAMPLES / path
    assert quote in (where if where.exists() else ROOT / path).read_text()


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    """A copy of the tree with all examples in it."""
    top = tmp_path_factory.mktemp("tree")
    for name in ("cmd", "internal", "bench", "docs", "python"):
        shutil.copytree(
            ROOT / name, top / name, ignore=shutil.ignore_patterns("bin", "results", "__pycache__")
        )
    for name in ("Makefile", "go.mod", "go.sum", *(p.name for p in ROOT.glob("*_test.go"))):
        shutil.copy(ROOT / name, top / name)
    shutil.copytree(EXAMPLES, top, dirs_exist_ok=True)
    for language, path, text in BLOCKS:
        if language == "diff":
            (top / path).write_text(changed((top / path).read_text(), text))
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


def test_their_suites_and_those_that_count_kinds_pass(tree, program):
    run(tree, GO, "test", *FLAGS, ".", "./internal/dataset/strips", "./internal/storageclass/heap")
    run(tree, GO, "test", *FLAGS, "-run", "Kinds|NamedIn", "./cmd/hdmlp")
    run(tree, GO, "test", *FLAGS, "-run", "^TestConformance$", "./internal/transform")


def test_pythons_suites_pass(tree, program):
    run(
        tree,
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "python/tests/test_kinds.py",
        "python/tests/test_launcher.py",
        "python/tests/test_transforms.py",
    )


def test_a_job_uses_all_of_them(tree, program, tmp_path):
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
