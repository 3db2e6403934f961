"""Puts the static binary into the wheel, and says which machines the wheel is for."""

import os

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

BINARY = "python/hdmlp/bin/hdmlp"


class BinaryHook(BuildHookInterface):
    """Takes what ``make build`` has built; an editable install does without it."""

    def initialize(self, version, build_data):
        path = os.path.join(self.root, BINARY)
        if not os.path.isfile(path):
            if version == "editable":
                return
            raise FileNotFoundError(f"{path} is missing: run `make build` first")
        with open(path, "rb") as file:
            if file.read(4) != b"\x7fELF":
                raise ValueError(f"{path} is not a Linux binary")
        build_data["pure_python"] = False
        build_data["tag"] = "py3-none-manylinux_2_17_x86_64"
        build_data["force_include"][path] = "hdmlp/bin/hdmlp"
