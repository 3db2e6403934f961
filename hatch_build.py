"""Puts the static ``hdmlp`` binary into the wheel, and names the platforms that the wheel is for.

By default the binary is built, with Go, from the source beside this file, so that pip can install a
source distribution or a clone. ``make wheel`` sets the variable ``HDMLP_WHEEL_BINARY`` to a binary
that it has built, which may be for another machine.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

REPOSITORY = "https://github.com/hdmlp/hdmlp"
FILES = "https://raw.githubusercontent.com/hdmlp/hdmlp"

#: A relative link of a Markdown document, and a relative address of a picture.
LINK = re.compile(r"\]\((?!\w+:|#)([^)\s]+)\)")
PICTURE = re.compile(r"(!\[[^\]]*)\]\((?!\w+:)([^)\s]+)\)")

#: The machines that there are wheels for, by the ``e_machine`` of their ELF binaries.
MACHINES = {62: "x86_64", 183: "aarch64"}

#: The binary is linked statically: neither glibc nor musl matters, nor their versions.
PLATFORMS = "manylinux_2_17_{0}.manylinux2014_{0}.musllinux_1_1_{0}"

INSTEAD = (
    "Or install a wheel, which carries the binary and needs none of this: "
    "pip install --only-binary hdmlp hdmlp (Linux on x86-64 or aarch64)."
)


class ReadmeHook(MetadataHookInterface):
    """Makes the README the package's description, with links that work outside the repository."""

    def update(self, metadata):
        with open(os.path.join(self.root, "README.md"), encoding="utf-8") as file:
            text = PICTURE.sub(rf"\1]({FILES}/main/\2)", file.read())
        text = LINK.sub(rf"]({REPOSITORY}/blob/main/\1)", text)
        metadata["readme"] = {"content-type": "text/markdown", "text": text}


class BinaryHook(BuildHookInterface):
    """Adds the binary to a wheel; an editable install uses the one that ``make build`` makes."""

    def initialize(self, version, build_data):
        if version == "editable":
            return
        if not sys.platform.startswith("linux"):
            sys.exit(f"hdmlp runs on Linux only, on x86-64 and aarch64; this is {sys.platform}.")
        self.scratch = tempfile.mkdtemp(prefix="hdmlp-wheel-")
        binary = os.environ.get("HDMLP_WHEEL_BINARY")
        if binary:
            binary = os.path.join(self.root, binary)
        else:
            binary = os.path.join(self.scratch, "hdmlp")
            self._run("scripts/build", binary)
        licenses = os.path.join(self.scratch, "THIRD_PARTY_LICENSES")
        with open(licenses, "wb") as file:
            self._run("scripts/licenses", binary, stdout=file)
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{PLATFORMS.format(machine(binary))}"
        build_data["force_include"][binary] = "hdmlp/bin/hdmlp"
        build_data["force_include"][licenses] = "hdmlp/bin/THIRD_PARTY_LICENSES"

    def finalize(self, version, build_data, artifact_path):
        if hasattr(self, "scratch"):
            shutil.rmtree(self.scratch, ignore_errors=True)

    def _run(self, script, *arguments, **options):
        """Runs a script, which says itself what it misses: a traceback would only hide that."""
        command = ["sh", os.path.join(self.root, script), *arguments]
        sys.stdout.flush()
        if subprocess.run(command, stdin=subprocess.DEVNULL, **options).returncode:
            shutil.rmtree(self.scratch, ignore_errors=True)
            sys.exit(f"hdmlp: {script} failed; the reason is above. {INSTEAD}")


def machine(path):
    """The machine that a binary is for, by its ELF header."""
    try:
        with open(path, "rb") as file:
            head = file.read(20)
    except FileNotFoundError:
        sys.exit(f"hdmlp: there is no binary at {path}: run `make build` first.")
    name = MACHINES.get(int.from_bytes(head[18:20], "little"))
    if not head.startswith(b"\x7fELF") or name is None:
        sys.exit(f"hdmlp: {path} is not a Linux binary for {' or '.join(MACHINES.values())}.")
    return name
