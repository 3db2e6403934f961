"""On an unsupported platform, ``import hdmlp`` fails at once and says what is supported."""

import os
import pathlib
import platform
import shutil
import struct
import subprocess
import sys

import pytest
from hdmlp._lib import platform as _platform

PACKAGE = pathlib.Path(_platform.__file__).parents[1]


def elf(machine):
    """The first bytes of a 64-bit little-endian ELF binary."""
    return b"\x7fELF\x02\x01\x01" + bytes(9) + struct.pack("<HH", 2, machine) + bytes(44)


@pytest.fixture
def binary(monkeypatch, tmp_path):
    """Replaces the binary that the wheel carries."""
    path = tmp_path / "hdmlp"
    monkeypatch.setattr(_platform, "_BINARY", str(path))
    monkeypatch.delenv("HDMLP_BINARY", raising=False)
    return path


def refused():
    with pytest.raises(ImportError) as caught:
        _platform.check()
    assert caught.value.name == "hdmlp"
    return str(caught.value)


@pytest.mark.parametrize(
    "system, machine, name",
    [
        ("darwin", "arm64", "macOS (arm64)"),
        ("win32", "AMD64", "Windows (AMD64)"),
        ("freebsd14", "amd64", "freebsd14 (amd64)"),
        ("sunos5", "", "sunos5 (unknown machine)"),
    ],
)
def test_other_systems_are_refused(monkeypatch, system, machine, name):
    monkeypatch.setattr(sys, "platform", system)
    monkeypatch.setattr(platform, "machine", lambda: machine)
    message = refused()
    assert message.startswith(f"hdmlp cannot be imported on {name}: HDMLP supports 64-bit Linux")
    assert "x86_64" in message
    assert "aarch64" in message
    assert "container" in message


@pytest.mark.parametrize("machine", ["armv7l", "i686", "ppc64le", "riscv64", "s390x"])
def test_other_machines_are_refused(monkeypatch, machine):
    monkeypatch.setattr(platform, "machine", lambda: machine)
    assert f"on Linux on {machine}: HDMLP supports" in refused()


def test_a_32_bit_python_is_refused(monkeypatch):
    """Its kernel may report 64 bits."""
    monkeypatch.setattr(struct, "calcsize", lambda _: 4)
    message = refused()
    assert "by a 32-bit Python" in message
    assert "Install a 64-bit Python" in message


@pytest.mark.parametrize(
    "mine, number, other", [("x86_64", 183, "aarch64"), ("aarch64", 62, "x86_64")]
)
def test_a_wheel_for_another_machine_is_refused(monkeypatch, binary, mine, number, other):
    monkeypatch.setattr(platform, "machine", lambda: mine)
    binary.write_bytes(elf(number))
    message = refused()
    assert f"wheel is for {other}, and this machine is {mine}" in message
    assert str(binary) in message
    assert "--force-reinstall" in message
    monkeypatch.setenv("HDMLP_BINARY", "/another")  # is used in the place of the wheel's
    _platform.check()


@pytest.mark.parametrize("machine, number", [("x86_64", 62), ("aarch64", 183)])
def test_supported_machines_are_accepted(monkeypatch, binary, machine, number):
    monkeypatch.setattr(platform, "machine", lambda: machine)
    _platform.check()  # a source tree before `make build` has no binary
    binary.write_bytes(elf(number))
    _platform.check()
    binary.write_bytes(b"#!/bin/sh\n")
    _platform.check()


def run(code, package_parent):
    return subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(package_parent)},
        capture_output=True,
        text=True,
    )


def test_importing_the_package_checks_first():
    """Modules that exist only on Linux are imported later: on Windows their ImportError would not
    say why."""
    code = "import sys; sys.platform = 'win32'; sys.modules['fcntl'] = None; import hdmlp"
    done = run(code, PACKAGE.parent)
    assert done.returncode == 1
    assert "\nImportError: hdmlp cannot be imported on Windows" in done.stderr


def test_an_installed_wheel_for_another_machine_is_refused(monkeypatch, tmp_path):
    monkeypatch.delenv("HDMLP_BINARY", raising=False)
    copy = tmp_path / "hdmlp"
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("bin", "__pycache__"))
    (copy / "bin").mkdir()
    (copy / "bin/hdmlp").write_bytes(elf(183 if platform.machine() == "x86_64" else 62))
    done = run("import hdmlp", tmp_path)
    assert done.returncode == 1
    assert "\nImportError: the installed hdmlp wheel is for" in done.stderr
