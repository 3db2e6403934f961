"""`hdmlp learn` on scripts that were not written for it (learned.py)."""

import json
import os
import subprocess
import sys

import pytest
from hdmlp import errors
from hdmlp._daemon import connecting

torch = pytest.importorskip("torch")

import hdmlp.torch as ht
import learned
import owndata
import preloaded
from declaredfiles import only_served

SCRIPT = learned.__file__


@pytest.fixture(scope="module")
def binary():
    try:
        return connecting.find_binary()
    except errors.DaemonNotFoundError as error:
        pytest.skip(str(error))


@pytest.fixture
def directory(tmp_path):
    return owndata.write(tmp_path / "data")


def run(binary, *command, flags=("--json",)):
    environment = {k: v for k, v in os.environ.items() if k != "HDMLP_SOCKET"}
    return subprocess.run(
        [binary, "learn", *flags, "--", *map(str, command)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def learn(binary, name, directory, workers=0, kind="torch"):
    """What follows for the dataset of the script."""
    done = run(binary, preloaded.PYTHON, SCRIPT, name, directory, workers, kind)
    assert done.returncode == 0, done.stderr
    (answer,) = json.loads(done.stdout)["datasets"]
    return answer


def proposed(answer, dataset):
    """The value of files= that is proposed."""
    name, _, text = answer["proposal"].partition("=")
    assert name == "files", answer
    return eval(text, {"os": os, "dataset": dataset})


def paths(named):
    if isinstance(named, (str, os.PathLike)):
        named = [named]
    return sorted(os.path.abspath(path) for path in named)


def why(answer):
    """Why files are not served: how many, by a part of the reason."""
    return {left["why"]: left["files"] for left in answer["left"]}


# The proposal.


@pytest.mark.parametrize(
    "name, workers, kind",
    [
        ("Table", 2, "torch"),
        ("Masks", 0, "torch"),
        ("Annotated", 2, "torch"),
        ("Rows", 2, "spawn"),
        ("Coco", 0, "torch"),
        ("Coco", 2, "hdmlp"),
        ("Batched", 0, "torch"),
        ("Views", 2, "torch"),
    ],
)
def test_the_proposal_names_the_files_of_all_items(binary, directory, name, workers, kind):
    answer = learn(binary, name, directory, workers, kind)
    dataset = learned.DATASETS[name](directory)
    files = proposed(answer, dataset)
    for i in range(len(dataset)):
        assert paths(files(i)) == paths(dataset.files(i))
    assert answer["length"] == answer["items"] == answer["verifiable"] == len(dataset)
    assert answer["verified"] == len(dataset)
    assert answer["files"]["served"] == answer["files"]["all"] > 0
    assert answer["left"] == []


def test_the_proposal_names_files_of_a_column_of_pandas(binary, directory):
    pytest.importorskip("pandas")
    test_the_proposal_names_the_files_of_all_items(binary, directory, "Frame", 0, "torch")


def test_numbers_in_the_path_of_a_dataset_are_no_items(binary, tmp_path):
    """Also where items are made in batches, and a file may be any item's."""
    directory = owndata.write(tmp_path / "0-1-2-3-4-5-6-7-8-9")
    answer = learn(binary, "Batched", directory)
    assert answer["verified"] == answer["verifiable"] == owndata.COUNT
    assert answer["left"] == []


def test_what_cv2_reads_is_seen(binary, directory):
    pytest.importorskip("cv2")
    answer = learn(binary, "Pictures", directory)
    files = proposed(answer, learned.Pictures(directory))
    assert paths(files(3)) == paths(directory / "03.png")
    assert answer["verified"] == owndata.COUNT


def test_the_proposal_is_what_a_loader_takes(binary, directory, real):
    answer = learn(binary, "Masks", directory, 2)
    dataset = owndata.Masks(directory)
    files = proposed(answer, dataset)
    with ht.DataLoader(dataset, 4, shuffle=True, seed=1, epochs=1, files=files) as loader:
        for _ in loader:
            pass
        only_served(loader)


def test_parts_of_a_dataset(binary, directory):
    answer = learn(binary, "part", directory)
    dataset = learned.part(directory)
    files = proposed(answer, dataset)
    assert [paths(files(i)) for i in range(4)] == [
        paths(dataset.dataset.files(i)) for i in dataset.indices
    ]


@pytest.mark.parametrize("workers", [2])
def test_datasets_of_several_classes_one_after_the_other(binary, directory, workers):
    answer = learn(binary, "parts", directory, workers)
    dataset = learned.parts(directory)
    files = proposed(answer, dataset)
    first, second, third = dataset.datasets
    assert list(map(paths, files)) == [
        paths(each.files(i))
        for each, items in ((first, range(23)), (second.dataset, range(9)), (third, range(23)))
        for i in items
    ]
    assert answer["verified"] == answer["items"] == len(dataset)


def test_what_varies_is_said(binary, directory):
    answer = learn(binary, "Views", directory)
    assert answer["varies"]["of"] == 21
    assert 0 < answer["varies"]["items"] <= 21
    assert [e["names"] for e in answer["expressions"]] == [3]
    assert learn(binary, "Table", directory)["varies"]["items"] == 0


def test_an_expression_that_raises_for_an_item_is_not_proposed(binary, directory):
    """The loader calls the function for all items."""
    answer = learn(binary, "Partly", directory)
    files = proposed(answer, learned.Partly(directory))
    assert [paths(files(i)) for i in range(23)] == [
        paths(directory / f"{i:02d}.png") for i in range(23)
    ]
    assert answer["verified"] == 12
    assert answer["verifiable"] == 23
    assert why(answer) == {"named by no attribute of the dataset": 22}


# What is not served.


def test_a_file_that_all_items_read(binary, tmp_path):
    """It is left to the file system if so many items read it that files= would refuse it."""
    directory = owndata.write(tmp_path / "data")
    for i in range(owndata.COUNT, 70):
        (directory / f"{i:02d}.png").write_bytes((directory / "00.png").read_bytes())
    answer = learn(binary, "Reread", directory)
    assert paths(proposed(answer, learned.Reread(directory))(2)) == paths(directory / "02.png")
    assert why(answer) == {"read by 70 of 70 items": 140}


@pytest.mark.parametrize(
    "name, reason",
    [
        ("ByNumber", "opened with os.open"),
        ("BelowPython", "read by a library that opens files below Python"),
    ],
)
@pytest.mark.parametrize("workers", [2])
def test_files_that_are_not_opened_with_open(binary, directory, name, reason, workers):
    answer = learn(binary, name, directory, workers)
    assert answer["proposal"] == ""
    assert answer["otherwise"] == "files=lambda i: dataset.paths[i]"
    assert answer["files"] == {"served": 0, "all": 46}
    assert why(answer) == {reason: 46}


def test_a_file_that_was_open_before(binary, directory):
    answer = learn(binary, "Held", directory)
    assert answer["proposal"] == answer["otherwise"] == ""
    assert answer["content"]["served"] == 0
    assert answer["content"]["all"] >= 46 * 8192
    (left,) = answer["left"]
    assert left["why"].startswith("read from files that were open before")
    assert left["example"] == str(directory / "held.bin")


@pytest.mark.parametrize("workers", [1])
def test_items_that_open_nothing(binary, directory, workers):
    answer = learn(binary, "nothing", directory, workers)
    assert answer["proposal"] == answer["otherwise"] == ""
    assert answer["files"] == answer["content"] == {"served": 0, "all": 0}
    assert answer["left"] == []


# The command.


def test_the_script_runs_to_its_end_as_without_it(binary, directory):
    done = run(binary, sys.executable, SCRIPT, "Table", directory, 0, "torch", flags=())
    assert done.returncode == 0
    assert done.stdout == "trained\n"
    assert "Table (23 items), 23 looked at, 46 times" in done.stderr
    assert (
        "proposed    ht.DataLoader(dataset, "
        "files=lambda i: os.path.join(dataset.directory, dataset.rows[i][0]))" in done.stderr
    )
    assert "served      100 % of 46 files" in done.stderr


@pytest.mark.parametrize("workers", [1])
def test_a_script_that_fails(binary, directory, workers):
    done = run(binary, preloaded.PYTHON, SCRIPT, "Failing", directory, workers, "torch")
    assert done.returncode == 1
    assert "ValueError: item 5 is bad" in done.stderr
    result = json.loads(done.stdout)
    assert result["exit_status"] == 1
    (answer,) = result["datasets"]
    assert answer["failed"] == [{"class": "ValueError", "items": 1, "index": 5}]
    assert answer["proposal"] in ("files=lambda i: dataset.paths[i]", "")


@pytest.mark.parametrize(
    "command, note",
    [
        (["true"], "no Python process of the command could be looked into"),
        ([sys.executable, "-S", "-E", "-c", "1"], "no Python process of the command"),
        ([sys.executable, "-c", "1"], "no item of a map-style dataset was made"),
    ],
)
def test_a_script_without_items(binary, command, note):
    done = run(binary, *command)
    assert done.returncode == 0
    result = json.loads(done.stdout)
    assert result["datasets"] == []
    assert note in " ".join(result["notes"])


@pytest.mark.parametrize(
    "arguments, says",
    [
        (["learn"], "learn takes the command of a training script after --"),
        (["learn", "python"], 'put -- before "python"'),
        (["learn", "--", "no such command"], 'command "no such command"'),
        (["learn", "--items", "0", "--", "true"], "--items is 0; allowed: 1 to 1000000"),
    ],
)
def test_wrong_arguments(binary, arguments, says):
    done = subprocess.run(
        [binary, *arguments], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 2
    assert says in done.stderr
