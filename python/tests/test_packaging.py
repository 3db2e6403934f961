"""The contents of a wheel and of a source distribution, and what a build reports if something is
missing."""

import email
import os
import pathlib
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile

import hdmlp
import pytest

ROOT = pathlib.Path(__file__).parents[2]
MACHINE = platform.machine()
GO = shutil.which(os.environ.get("GO", "go"))


def run(*command, **options):
    """Runs a command, and returns its exit status and output."""
    done = subprocess.run(
        [str(part) for part in command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        **options,
    )
    return done.returncode, done.stdout


def build(kind, out, source=ROOT, **environment):
    """Builds with the installed backend, as `make wheel` and `make sdist` do."""
    return run(
        *(sys.executable, "-m", "build", "--no-isolation", f"--{kind}", "--outdir", out, source),
        env={**os.environ, **environment},
    )


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """A wheel with the binary that `make build` has made."""
    pytest.importorskip("build")
    pytest.importorskip("hatchling")
    if GO is None:
        pytest.skip("no Go, which the licences of the modules come from")
    binary = ROOT / "python/hdmlp/bin/hdmlp"
    if not binary.exists():
        pytest.skip("no binary: run make build")
    out = tmp_path_factory.mktemp("wheel")
    status, said = build("wheel", out, HDMLP_WHEEL_BINARY=str(binary))
    assert status == 0, said
    (path,) = out.iterdir()
    return path


@pytest.fixture(scope="module")
def sdist(tmp_path_factory):
    pytest.importorskip("build")
    pytest.importorskip("hatchling")
    out = tmp_path_factory.mktemp("sdist")
    status, said = build("sdist", out)
    assert status == 0, said
    (path,) = out.iterdir()
    with tarfile.open(path) as archive:
        archive.extractall(out)
    return out / f"hdmlp-{hdmlp.__version__}"


@pytest.mark.slow
def test_the_wheel_is_for_any_linux_of_its_machine(wheel):
    platforms = f"manylinux_2_17_{MACHINE}.manylinux2014_{MACHINE}.musllinux_1_1_{MACHINE}"
    assert wheel.name == f"hdmlp-{hdmlp.__version__}-py3-none-{platforms}.whl"


@pytest.mark.slow
def test_the_wheel_carries_the_package_the_binary_and_all_licences(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        info = f"hdmlp-{hdmlp.__version__}.dist-info"
        sources = {
            str(path.relative_to(ROOT / "python")) for path in (ROOT / "python/hdmlp").rglob("*.py")
        }
        assert names == sources | {
            "hdmlp/py.typed",
            "hdmlp/bin/hdmlp",
            "hdmlp/bin/THIRD_PARTY_LICENSES",
            *(f"{info}/{name}" for name in ("METADATA", "WHEEL", "RECORD", "entry_points.txt")),
            f"{info}/licenses/LICENSE",
            f"{info}/licenses/NOTICE",
        }
        assert archive.getinfo("hdmlp/bin/hdmlp").external_attr >> 16 & 0o111
        assert archive.read(f"{info}/licenses/LICENSE") == (ROOT / "LICENSE").read_bytes()
        licenses = archive.read("hdmlp/bin/THIRD_PARTY_LICENSES").decode()
    status, said = run(GO, "version", "-m", ROOT / "python/hdmlp/bin/hdmlp")
    modules = re.findall(r"^\tdep\t(\S+)\t(\S+)", said, re.M)
    assert status == 0
    assert len(modules) > 20
    for module, version in modules:
        assert f"\n{module}@{version}: " in licenses


@pytest.mark.slow
def test_the_metadata_is_complete(wheel):
    with zipfile.ZipFile(wheel) as archive:
        text = archive.read(f"hdmlp-{hdmlp.__version__}.dist-info/METADATA").decode()
    metadata = email.message_from_string(text)
    assert metadata["Name"] == "hdmlp"
    assert metadata["Version"] == hdmlp.__version__
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata["Author"] == "The HDMLP project"
    assert metadata["Requires-Python"] == ">=3.9"
    assert metadata.get_all("Requires-Dist") is None
    assert "Typing :: Typed" in metadata.get_all("Classifier")
    assert metadata["Description-Content-Type"] == "text/markdown"
    description = metadata.get_payload()
    assert description.strip().startswith("# HDMLP")
    targets = re.findall(r"\]\(([^)\s]+)\)", description)
    assert len(targets) > 5
    assert all(target.startswith("https://") for target in targets)
    pictures = re.findall(r"!\[[^\]]*\]\(([^)\s]+)\)", description)
    assert pictures == ["https://raw.githubusercontent.com/hdmlp/hdmlp/main/docs/overview.svg"]
    urls = dict(line.split(", ") for line in metadata.get_all("Project-URL"))
    assert set(urls) == {"Homepage", "Source", "Issues", "Documentation", "Changelog"}
    assert all(url.startswith("https://github.com/hdmlp/hdmlp") for url in urls.values())


def test_the_version_is_written_in_one_place():
    """Among what is built: documents and tests may name versions."""
    assert re.fullmatch(r"\d+\.\d+\.\d+", hdmlp.__version__)
    found = [
        str(path.relative_to(ROOT))
        for pattern in ("pyproject.toml", "Makefile", "scripts/**/*", "hatch_build.py")
        for path in ROOT.glob(pattern)
        if path.is_file() and hdmlp.__version__ in path.read_text()
    ]
    found += [
        str(path.relative_to(ROOT))
        for directory, suffix in (("cmd", "*.go"), ("internal", "*.go"), ("python/hdmlp", "*.py"))
        for path in (ROOT / directory).rglob(suffix)
        if f'"{hdmlp.__version__}"' in path.read_text() and not path.name.endswith("_test.go")
    ]
    assert found == ["python/hdmlp/_lib/version.py"]


def test_the_changelog_has_the_version():
    status, said = run(ROOT / "scripts/release-notes", hdmlp.__version__)
    assert status == 0
    assert "### Added" in said
    assert "## [" not in said
    status, said = run(ROOT / "scripts/release-notes", "99.0.0")
    assert status == 1
    assert f"the tag is for 99.0.0, but the package has version {hdmlp.__version__};" in said


@pytest.mark.slow
def test_the_source_distribution_has_what_builds_the_binary(sdist):
    for name in (
        *("LICENSE", "NOTICE", "README.md", "CHANGELOG.md", "go.mod", "go.sum", "hatch_build.py"),
        *("scripts/build", "scripts/check-go", "scripts/licenses", "cmd/hdmlp/main.go"),
        *("internal/transform/codec/jpeg_cgo.go", "python/hdmlp/py.typed"),
    ):
        assert (sdist / name).is_file(), name
    assert not (sdist / "python/hdmlp/bin").exists()
    if GO is None:
        pytest.skip("no Go")
    # Every file that the Go tool compiles or embeds is there.
    status, said = run(
        GO, "list", "-deps", "-f", "{{.ImportPath}} {{.Error}}", "./cmd/hdmlp", cwd=sdist
    )
    assert status == 0, said
    ours = f"{ROOT}/scripts/build"
    assert os.access(sdist / "scripts/build", os.X_OK) == os.access(ours, os.X_OK)


@pytest.fixture
def path(tmp_path):
    """A directory for PATH with the few programs that every system has."""
    directory = tmp_path / "path"
    directory.mkdir()
    for name in ("sh", "dirname", "sed", "sort", "head", "tail", "mktemp", "rm", "grep", "cat"):
        os.symlink(shutil.which(name), directory / name)
    return directory


def program(directory, name, script):
    (directory / name).write_text(f"#!/bin/sh\n{script}\n")
    (directory / name).chmod(0o755)


def required():
    return re.search(r"^go (\d+\.\d+)", (ROOT / "go.mod").read_text(), re.M).group(1)


def script_build(path, tmp_path, **environment):
    return run(ROOT / "scripts/build", tmp_path / "out", env={"PATH": str(path), **environment})


def test_a_build_without_go_says_so(path, tmp_path):
    status, said = script_build(path, tmp_path)
    assert status == 1
    assert said == (
        "Go is missing (go: not found), and the hdmlp binary is built with it. "
        f"Install Go {required()} or newer from https://go.dev/dl,\n"
        "or set GO to the path of its go command.\n"
    )


@pytest.mark.parametrize("version", ["go1.9.7", "go1.19.8", "go1.25"])
def test_a_build_with_an_old_go_names_both_versions(path, tmp_path, version):
    program(path, "go", f"echo {version}")
    status, said = script_build(path, tmp_path)
    assert status == 1
    assert said.startswith(f"Go {required()} or newer is required; {path}/go is {version}. ")


def test_a_build_with_a_go_that_fails_shows_its_message(path, tmp_path):
    """For example, one that cannot download a newer toolchain."""
    program(path, "go", "echo 'go: download go1.26: no route to host' >&2; exit 1")
    status, said = script_build(path, tmp_path)
    assert status == 1
    assert said.startswith("go: download go1.26: no route to host\ngo failed (")
    assert f"Install Go {required()} or newer" in said


@pytest.mark.parametrize("version", ["go1.26.0", "go1.27rc1", "go2.0"])
def test_a_build_without_a_c_compiler_says_so(path, tmp_path, version):
    program(path, "go", f"echo {version}")
    status, said = script_build(path, tmp_path)
    assert status == 1
    assert said.startswith("A C compiler is missing (gcc: not found)")
    assert "apt-get install gcc libc6-dev libjpeg-dev libdeflate-dev libwebp-dev" in said
    assert "dnf install gcc" in said
    status, said = script_build(path, tmp_path, CC="my-cc -m64")
    assert said.startswith("A C compiler is missing (my-cc -m64: not found)")


@pytest.mark.parametrize(
    "without, named",
    [
        ("jpeg", "libjpeg-turbo (jpeglib.h and libjpeg.a)"),
        ("deflate", "libdeflate (libdeflate.h and libdeflate.a)"),
        ("webp", "libwebp (webp/decode.h and libwebp.a)"),
        ("-lm", "the static C library (libc.a and libm.a)"),
    ],
)
def test_a_build_without_a_library_names_it(path, tmp_path, without, named):
    program(path, "go", "echo go1.99.0")
    program(path, "gcc", f'case "$*" in *{without}*) echo "cannot find it" >&2; exit 1 ;; esac')
    status, said = script_build(path, tmp_path)
    assert status == 1
    assert f"Libraries are missing that the hdmlp binary is linked with:\n  {named}\n" in said
    assert "Install them:\n  Debian, Ubuntu:  apt-get install" in said
    assert "What gcc said:\ncannot find it\n" in said
    assert said.count(".a)") == 1


@pytest.mark.slow
def test_pip_shows_what_a_build_lacks_and_no_traceback(sdist, path, tmp_path):
    """Immediately, and as the last line."""
    status, said = build("wheel", tmp_path / "out", sdist, PATH=str(path))
    assert status == 1
    assert "Go is missing (go: not found)" in said
    assert "pip install --only-binary hdmlp hdmlp" in said
    assert "Traceback" not in said.partition("Go is missing")[2]


@pytest.mark.slow
@pytest.mark.parametrize(
    "head, words",
    [
        (b"#!/bin/sh\n", "is not a Linux binary for x86_64 or aarch64"),
        (None, "run `make build` first"),
    ],
)
def test_a_wheel_without_a_valid_binary_is_refused(tmp_path, head, words):
    pytest.importorskip("build")
    pytest.importorskip("hatchling")
    binary = tmp_path / "hdmlp"
    if head is not None:
        binary.write_bytes(head)
    status, said = build("wheel", tmp_path / "out", HDMLP_WHEEL_BINARY=str(binary))
    assert status == 1
    assert words in said


SCRIPT = """
import hdmlp
import hdmlp.data

reveal_type(hdmlp.__version__)
dataset = hdmlp.data.Folder("/data")
reveal_type(dataset)
wrong: int = hdmlp.__version__
"""


@pytest.mark.slow
def test_a_users_mypy_sees_the_types(wheel, tmp_path):
    """In an environment with only the wheel, checked from outside the tree."""
    pytest.importorskip("mypy")
    environment = tmp_path / "venv"
    status, said = run(sys.executable, "-m", "venv", "--without-pip", environment)
    assert status == 0, said
    python = environment / "bin/python"
    _, where = run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(where.strip())
    (tmp_path / "script.py").write_text(SCRIPT)
    clean = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "MYPYPATH")}
    _, said = run(
        *(
            sys.executable,
            "-m",
            "mypy",
            "--python-executable",
            python,
            "--cache-dir",
            tmp_path / "m",
        ),
        "script.py",
        cwd=tmp_path,
        env=clean,
    )
    lines = [line for line in said.splitlines() if line.startswith("script.py:")]
    assert [line.partition(": ")[2] for line in lines] == [
        'note: Revealed type is "str"',
        'note: Revealed type is "hdmlp.data.Folder"',
        "error: Incompatible types in assignment "
        '(expression has type "str", variable has type "int")  [assignment]',
    ], said
    assert "py.typed" not in said
