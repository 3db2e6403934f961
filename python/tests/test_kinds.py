"""The kinds that Python has are those of the binary."""

import json
import subprocess

import pytest
from hdmlp import data, errors, transforms
from hdmlp._daemon import connecting
from hdmlp._launch import launchers
from hdmlp._lib import arguments


@pytest.fixture(scope="module")
def program():
    try:
        binary = connecting.find_binary()
    except errors.DaemonNotFoundError as error:
        pytest.skip(str(error))

    def ask(*words):
        return json.loads(
            subprocess.run([binary, *words, "--json"], stdout=subprocess.PIPE, check=True).stdout
        )

    return ask


def test_configuration_keys_in_python_are_the_programs(program):
    rows = program("config")["parameters"]
    for scope, keys in ("job", arguments.KEYS), ("daemon", arguments.DAEMON_KEYS):
        assert {row["key"] for row in rows if row["scope"] == scope} == set(keys)
    assert {row["key"] for row in rows if row["allowed"].startswith("an absolute path")} == set(
        arguments._PATHS
    )


def test_sources_in_python_are_kinds_of_the_program(program):
    kinds = {source["name"] for source in program("kinds")["sources"]}
    mine = {
        cls.kind
        for cls in vars(data).values()
        if isinstance(cls, type) and issubclass(cls, data.Folder)
    }
    assert mine
    assert mine <= kinds


def test_transforms_in_python_are_those_of_the_program(program):
    mine = {
        name
        for name in transforms.__all__
        if isinstance(getattr(transforms, name), type)
        and issubclass(getattr(transforms, name), transforms.Transform)
    } - {"Transform", "Compose"}
    known = set(program("kinds")["transforms"])
    # Those of other libraries and of scripts, Ragged and Pixels are made of what a program gives.
    given = {name for name in known if name.startswith(("Timm", "PIL"))}
    assert mine == known - given - {"Ragged", "Pixels"}


def test_variables_of_launchers_are_named_in_their_table_only():
    import pathlib
    import re

    package = pathlib.Path(launchers.__file__).parents[1]
    variables = {
        name
        for launcher in launchers.LAUNCHERS[1:]
        for ranks in launcher.ranks  # torchrun's are torch's own
        for name in (ranks.rank, *ranks.sizes, ranks.local_rank)
    }
    prefixes = {name.partition("_")[0] for name in variables}
    for path in package.rglob("*.py"):
        named = set(re.findall(r'"([A-Z]+)_[A-Z_]+"', path.read_text())) & prefixes
        assert path.name == "launchers.py" or not named, (
            f"{path.name} names variables of launchers: {named}"
        )


@pytest.mark.parametrize("kind", ["folder", "strips"])
def test_samples_of_kinds_without_files_have_names(kind, tmp_path, monkeypatch):
    answers = [
        {"samples": 1, "classes": ["cat"], "fingerprint": "0f", "class_sizes": [1]},
        [["cat/1", 0]],
    ]
    monkeypatch.setattr(data.Folder, "_call", lambda _, *calls: iter(answers[: len(calls)]))
    dataset = type("Dataset", (data.Folder,), {"kind": kind})(tmp_path)
    (tmp_path / "cat").mkdir()
    (tmp_path / "cat/1").write_bytes(b"a sample")
    if kind == "folder":
        assert dataset.samples == [(str(tmp_path / "cat/1"), 0)]
        assert dataset[0] == (b"a sample", 0)
        return
    assert dataset.samples == dataset.imgs == [dataset.sample(0)] == [("cat/1", 0)]
    message = "sample 0 .cat/1. of .*only the daemon reads .*'strips'.*take them from a DataLoader"
    with pytest.raises(errors.ConfigError, match=message):
        dataset[0]
