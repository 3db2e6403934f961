"""`hdmlp analyze` on scripts that were not written for it (analysis_scripts)."""

import gzip
import json
import os
import signal
import subprocess
import sys

import preloaded
import pytest
import shards
import waiting
from hdmlp import errors
from hdmlp._daemon import connecting
from torchrun import free_port, torchrun

sys.path.append(
    os.path.join(
        os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))), "bench"
    ),
)
from throttled import Throttled, Unavailable

pytestmark = pytest.mark.ci

torch = pytest.importorskip("torch")

#: An environment of LMDB, and how many records it has.
ENVIRONMENT = os.path.join(
    os.path.dirname(os.path.abspath(__file__)),
    "../../internal/source/formats/lmdb/testdata/deep.mdb.gz",
)
ENVIRONMENT_RECORDS = 402
SCRIPTS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "analysis_scripts")


@pytest.fixture(scope="module")
def binary():
    try:
        return connecting.find_binary()
    except errors.DaemonNotFoundError as error:
        pytest.skip(str(error))


@pytest.fixture
def environment(tmp_path, monkeypatch):
    """Variables of no launcher, and no index beside the data."""
    monkeypatch.delenv("HDMLP_SOCKET", raising=False)
    return {**os.environ, "HDMLP_INDEX_DIR": str(tmp_path / "index")}


def analyzed(
    binary, environment, *command, seconds="4s", stdin=None, flags=(), python=preloaded.PYTHON
):
    """Runs it on a script, which is preloaded; returns how that ended."""
    command = [python, *command] if command[0].endswith(".py") else list(command)
    return subprocess.run(
        [binary, "analyze", "--json", "--time", seconds, *flags, "--", *command],
        env=environment,
        input=stdin,
        stdin=subprocess.DEVNULL if stdin is None else None,
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )


def measured(done):
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["measured"]


class Analyses:
    """Analyses of a script that prints how long its parts take (durations.py). A busy machine makes
    these longer, and what is measured less exact: there is a second and a third analysis, each of
    three times the time, where the first does not hold.

    Args:
        analyze: Takes the environment and the time for the analysis; returns how it ended.
    """

    def __init__(self, environment, tmp_path, analyze):
        self._environment, self._path, self._analyze = environment, tmp_path, analyze

    def until(self, holds, seconds):
        """Returns how the first one ended of which ``holds`` is true, or the third.

        Args:
            holds: Takes what was measured, and the mean seconds of each of the script's parts.
            seconds: The first one's time.
        """
        for number in range(3):
            path = str(self._path / f"durations-{number}")
            done = self._analyze({**self._environment, "DURATIONS": path}, f"{seconds}s")
            parts = {}
            with open(path) as file:
                for line in file:
                    name, took = line.split()
                    parts.setdefault(name, []).append(float(took))
            means = {name: sum(took) / len(took) for name, took in parts.items()}
            if holds(measured(done), means):
                return done
            seconds *= 3
        raise AssertionError((means, measured(done)))


def script(name):
    return os.path.join(SCRIPTS, name)


def odd(binary, environment, kind, **more):
    """Analyzes odd.py; of a kind whose processes must be in one group in a Python of its own."""
    python = sys.executable if kind == "forking" else preloaded.PYTHON
    return analyzed(binary, environment, script("odd.py"), kind, python=python, **more)


@pytest.mark.limit(900)
@pytest.mark.parametrize("workers", [0, 2])
def test_known_rates_are_found(binary, environment, tmp_path, workers):
    """5 ms per sample, 20 ms per batch of 8: P about 200/s for each worker, G 400/s."""
    for number in range(300):
        (tmp_path / "data").mkdir(exist_ok=True)
        (tmp_path / "data" / f"{number}.bin").write_bytes(os.urandom(5000))

    def analyze(environment, seconds):
        directory = str(tmp_path / "data")
        return analyzed(
            *(binary, environment, script("sleeping.py"), directory, str(workers)),
            seconds=seconds,
            python=sys.executable,
        )

    def holds(found, means):
        # A busy machine may make it slower, but not faster: steps are no shorter than 20 ms.
        by_number = {point["n"]: point["samples_per_s"] for point in found["preparation"]}
        numbers = {1, max(workers, 1)}
        return (
            by_number.keys() >= numbers
            and 8 / means["step"] / 4 < found["training"]["samples_per_s"] < 400 * 1.1
            and all(1 / means["item"] / 4 < by_number[n] / n < 200 * 1.1 for n in numbers)
        )

    done = Analyses(environment, tmp_path, analyze).until(holds, 12)
    found = measured(done)
    assert found["dataset"]["samples"] == 300
    assert found["dataset"]["mb"] == pytest.approx(1.5)
    assert found["dataset"]["path"] == str(tmp_path / "data")
    assert found["loader"]["name"] == "torch"
    assert found["loader"]["workers"] == workers
    assert found["batch_samples"] == 8
    assert found["source"]
    assert 0 < found["source_processor_s"] < 0.005  # of a read of 5 kB
    assert found["memory"]["samples_per_s"] > 1000
    assert "epoch 0" in done.stderr  # what the script prints


@pytest.mark.limit(900)
def test_reading_is_no_preparation(binary, environment, tmp_path):
    """Of a file system that the page cache keeps nothing of: 30 ms per open, 5 ms to prepare."""
    for number in range(300):
        (tmp_path / "data").mkdir(exist_ok=True)
        (tmp_path / "data" / f"{number}.bin").write_bytes(os.urandom(5000))

    def holds(found, means):
        by_number = {point["n"]: point["samples_per_s"] for point in found["preparation"]}
        return 1 / means["item"] / 3 < by_number[1] < 200 * 1.5  # with the reads it is 28

    try:
        with Throttled(str(tmp_path / "data"), 0, latency=0.03) as source:

            def analyze(environment, seconds):
                return analyzed(
                    binary, environment, script("sleeping.py"), source.path, "1", seconds=seconds
                )

            done = Analyses(environment, tmp_path, analyze).until(holds, 12)
    except Unavailable as error:
        pytest.skip(str(error))
    found = measured(done)
    assert found["loader"]["cache_mb"] == 0
    assert any("no file in memory" in note["text"] for note in found["notes"])
    assert json.loads(done.stdout)["now"]["limit"] == "source"


def test_the_files_of_a_sample_count_together(binary, environment, tmp_path):
    for number in range(300):
        (tmp_path / f"{number}.bin").write_bytes(os.urandom(5000))
        (tmp_path / f"{number}.mask").write_bytes(os.urandom(1000))
    found = measured(
        analyzed(binary, environment, script("sleeping.py"), str(tmp_path), "0", "pairs")
    )
    assert found["dataset"]["samples"] == 300
    assert found["dataset"]["mb"] == pytest.approx(300 * 6000 / 1e6)
    assert found["source"]


def test_a_sample_that_is_drawn_again_has_one_file(binary, environment, tmp_path):
    for number in range(10):
        (tmp_path / f"{number}.bin").write_bytes(os.urandom(5000))
    found = measured(
        analyzed(binary, environment, script("sleeping.py"), str(tmp_path), "0", "replacement")
    )
    assert found["dataset"]["mb"] == pytest.approx(300 * 5000 / 1e6)
    assert found["source"]


@pytest.fixture
def images(tmp_path):
    pytest.importorskip("torchvision")
    image = pytest.importorskip("PIL.Image")
    for number in range(60):
        directory = tmp_path / "images" / "ab"[number % 2]
        directory.mkdir(parents=True, exist_ok=True)
        image.effect_noise((200, 150), 50).convert("RGB").save(directory / f"{number}.jpg")
    return str(tmp_path / "images")


@pytest.mark.parametrize("kind", ["torch", "hdmlp", "cached", "plain"])
def test_what_hdmlp_prepares_is_measured(binary, environment, images, kind):
    done = analyzed(
        *(binary, environment, script("served.py"), images, kind),
        seconds="8s",
        python=sys.executable if kind == "torch" else preloaded.PYTHON,
    )
    found = measured(done)
    assert found["loader"]["name"] == ("torch" if kind == "torch" else "hdmlp")
    assert found["dataset"]["samples"] == 60
    assert found["batch_samples"] == 8
    assert found["preparation"]
    assert bool(found.get("preparation_by_hdmlp")) == (kind == "torch")
    assert found["source"]
    assert 0 < found["training"]["samples_per_s"] < 400 * 1.1  # steps are no shorter than 20 ms
    if kind != "torch":
        at = "directory_mb" if kind == "cached" else "cache_mb"
        room = 1.0
        if at == "cache_mb" and "forms" in found:  # memory that files leave is for these
            room = max(4 / 3, 1.05 * found["forms"]["size"])
        assert found["loader"][at] == pytest.approx(room * found["dataset"]["mb"])


@pytest.mark.parametrize("kind", ["items", "some", "breaking"])
def test_the_recommendation_is_tried(binary, environment, images, kind):
    """The script gets from hdmlp's loader what it got from torch's, or it fails."""
    command = [script("served.py"), images, kind]
    done = analyzed(binary, environment, *command, flags=["--validate"])
    assert measured(done)["validation"]["measured_epoch_s"] > 0


@pytest.mark.parametrize("start", ["torchrun", "fork", "spawn"])
def test_ranks_are_measured_together(binary, environment, start):
    """Their gradients are averaged: if they did not change phases at one step, they would hang."""
    command = [script("ranks.py"), "2", start, free_port()]
    if start == "torchrun":
        command = [*torchrun(2, free_port()), script("ranks.py")]
    found = measured(analyzed(binary, {**environment, "PYTHON_EXEC": preloaded.PYTHON}, *command))
    assert found["ranks"] == 2
    assert found["dataset"]["samples"] == 1000
    assert found["loader"]["workers"] == 2
    assert found["preparation"][0]["n"] == 2
    assert found["training"]["samples_per_s"] < 2 * 400 * 1.1


@pytest.mark.parametrize(
    "kind",
    [
        "catching",
        "forking",
        "changing",
        "unbatched",
        "persistent",
        "iterable",
        "resampling",
        "inferring",
        "mapping",
        "object",
        "unsized",
        "counted",
    ],
)
def test_scripts_of_all_kinds_are_measured(binary, environment, tmp_path, kind):
    path = str(tmp_path / "durations")
    done = odd(binary, {**environment, "DURATIONS": path}, kind)
    found = measured(done)
    assert found["training"]["samples_per_s"] > 0
    assert found["as_is"]["samples_per_s"] > 0
    unknown = kind in ("iterable", "unsized")
    assert bool(found.get("preparation")) == (not unknown and kind != "counted")
    about = {note["about"] for note in found["notes"]}
    assert "source" in about  # why it could not be measured
    assert not any("another loader" in note["text"] for note in found["notes"])
    assert "Traceback" not in done.stderr
    assert bool(found["dataset"].get("samples_unknown")) == unknown
    if kind == "counted":
        assert found["dataset"]["samples"] == 60
    if kind == "unbatched":
        assert found["batch_samples"] == 1
    else:  # steps have more than one sample
        with open(path) as file:
            took = [float(line.split()[1]) for line in file if line.startswith("step ")]
        assert found["training"]["samples_per_s"] > len(took) / sum(took)
    if kind == "catching":
        assert "caught Ended" in done.stderr
    # A process that was killed takes a moment to end.
    waiting.until(
        lambda: (
            subprocess.run(["pgrep", "-f", f"odd.py {kind}"], stdout=subprocess.DEVNULL).returncode
        ),
        "the end of the script's processes",
    )


def test_a_reader_that_goes_away_leaves_nothing(binary, environment, tmp_path):
    """The analysis ends, and removes its directory."""
    environment = {**environment, "TMPDIR": str(tmp_path)}
    running = subprocess.Popen(
        [binary, "analyze", "--", sys.executable, script("odd.py"), "forking"],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    while b"the job as it is" not in running.stderr.readline():
        assert running.poll() is None
    assert list(tmp_path.glob("hdmlp-analyze-*"))
    running.stderr.close()
    assert running.wait() != 0
    assert not list(tmp_path.glob("hdmlp-analyze-*"))


def test_a_program_before_the_training_is_passed_over(binary, environment):
    run = f"{preloaded.PYTHON} {script('odd.py')}"
    command = f"{run} short; {run} two"
    found = measured(analyzed(binary, environment, "sh", "-c", command))
    assert found["training"]
    assert any("too early to be measured" in note["text"] for note in found["notes"])


def test_a_second_training_is_named(binary, environment, tmp_path):
    os.mkfifo(meeting := tmp_path / "meeting")
    command = (
        f"{sys.executable} {script('odd.py')} forking {meeting} r & "
        f"{preloaded.PYTHON} {script('odd.py')} two {meeting} w"
    )
    found = measured(analyzed(binary, environment, "sh", "-c", command))
    named = [note["text"] for note in found["notes"] if "and is not measured" in note["text"]]
    assert any("odd.py" in text and "DataLoader" in text for text in named)


def test_an_interrupted_analysis_prints_what_was_measured(binary, environment):
    running = subprocess.Popen(
        [binary, "analyze", "--time", "8s", "--", preloaded.PYTHON, script("odd.py"), "two"],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    while "training with" not in running.stderr.readline():
        assert running.poll() is None
    running.send_signal(signal.SIGINT)
    _, said = running.communicate(timeout=100)
    assert running.returncode == 130
    assert "the job as it is" in said
    assert "cut short: interrupted" in said


def test_an_interrupted_validation_prints_what_was_measured(binary, environment, images):
    command = [preloaded.PYTHON, script("served.py"), images, "torch"]
    running = subprocess.Popen(
        [binary, "analyze", "--time", "4s", "--validate", "--", *command],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    while "running the script again" not in running.stderr.readline():
        assert running.poll() is None
    running.send_signal(signal.SIGINT)
    _, said = running.communicate(timeout=100)
    assert running.returncode == 130
    assert "preparation by hdmlp" in said
    assert "validation: cut short: interrupted" in said


def test_a_job_of_several_nodes_without_a_process_group_is_refused(binary, environment):
    place = {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "1"}
    done = odd(binary, {**environment, **place}, "short")
    assert done.returncode == 2
    assert "the job has 2 nodes" in done.stderr
    assert "init_process_group" in done.stderr


def test_input_and_output_are_the_scripts(binary, environment):
    done = odd(binary, environment, "reading", stdin="a line")
    assert measured(done)["training"]
    assert "read a line" in done.stderr
    text = subprocess.run(
        [binary, "analyze", "--time", "4s", "--", preloaded.PYTHON, script("odd.py"), "reading"],
        env=environment,
        input="a line",
        capture_output=True,
        text=True,
        check=False,
        timeout=400,
    )
    assert text.stdout == "read a line\n"
    assert "training (G)" in text.stderr


@pytest.mark.parametrize("kind", ["two", "peeking"])
def test_the_loader_of_the_training_is_measured(binary, environment, kind):
    found = measured(odd(binary, environment, kind))
    assert found["dataset"]["samples"] == 64
    others = [note["text"] for note in found["notes"] if "another loader" in note["text"]]
    assert len(others) == 1
    assert "of 32 samples, is iterated as well" in others[0]
    assert not any("too early to be measured" in note["text"] for note in found["notes"])


@pytest.mark.limit(900)
@pytest.mark.parametrize("kind, others", [("together", 1), ("twice", 0)])
def test_of_iterators_in_turn_the_first_is_measured(binary, environment, tmp_path, kind, others):
    def analyze(environment, seconds):
        return odd(binary, environment, kind, seconds=seconds)

    def holds(found, means):  # steps are no shorter than 5 ms, and have 8 samples
        return all(
            8 / means["step"] / 4 < found[rate]["samples_per_s"] < 8 / 0.005 * 1.1
            for rate in ("as_is", "training")
        )

    found = measured(Analyses(environment, tmp_path, analyze).until(holds, 4))
    assert found["batch_samples"] == 8
    assert sum("another loader" in note["text"] for note in found["notes"]) == others


def test_an_evaluation_with_the_same_loader_is_not_measured(binary, environment):
    found = measured(odd(binary, environment, "evaluating"))
    for rate in ("as_is", "training"):  # steps are no shorter than 20 ms
        assert 0 < found[rate]["samples_per_s"] < 400 * 1.1
    assert not any("another loader" in note["text"] for note in found["notes"])


@pytest.mark.parametrize(
    "kind, status, words",
    [
        ("none", 2, "iterated no loader"),
        ("failing", 1, "exit status 1 before it iterated a loader"),
        ("failing_late", 1, "exit status 1 before everything was measured"),
        ("short", 1, "exit status 0 before everything was measured"),
        ("few", 1, "too few iterations"),
    ],
)
def test_scripts_that_end_early_are_named(binary, environment, kind, status, words):
    done = odd(binary, environment, kind)
    assert done.returncode == status
    assert words in done.stderr
    if kind in ("failing_late", "short"):  # what was measured until then
        assert json.loads(done.stdout)["measured"]["as_is"]


@pytest.mark.parametrize(
    "arguments, words",
    [
        (["analyze"], "takes the command of a training script after --"),
        (["analyze", "python3", "x.py"], 'put -- before "python3"'),
        (["analyze", "x", "--", "python3"], "comes before --"),
        (["analyze", "--", "no-such-command"], "no-such-command"),
        (["analyze", "--time", "1s", "--", "true"], "allowed: 2s to 1h"),
        (["analyze", "--cache", "/nowhere", "--", "true"], "--cache"),
        (["analyze", "--", "true"], "must start Python"),
        (["analyze", "--", sys.executable, "-I", "-c", "pass"], "must start Python"),
    ],
)
def test_wrong_input_is_named(binary, environment, arguments, words):
    done = subprocess.run(
        [binary, *arguments],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert done.returncode == 2
    assert words in done.stderr


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """Pairs of files, shards of the same, and an environment; and the mean bytes of a pair."""
    root = tmp_path_factory.mktemp("recorded")
    (root / "pairs").mkdir()
    (root / "shards").mkdir()
    for shard in range(4):
        samples = []
        for n in range(50 * shard, 50 * shard + 50):
            fields = {"image": os.urandom(6000 + n), "mask": os.urandom(900)}
            samples.append((f"{n:04d}", fields))
            for name, data in fields.items():
                (root / "pairs" / f"{n:04d}.{name}").write_bytes(data)
        shards.write(root / "shards" / f"{shard}.tar", samples)
    (root / "lmdb").mkdir()
    with gzip.open(ENVIRONMENT) as packed:
        (root / "lmdb" / "data.mdb").write_bytes(packed.read())
    return root


@pytest.mark.parametrize(
    "kind, samples, least, most",
    [
        # Bytes of a sample; in shards with the header between the two members.
        ("Files", 200, 6999.5, 6999.5),
        ("Records", 200, 6099.5, 6099.5),
        ("WebDataset", 200, 6999.5 + 512, 6999.5 + 1024),
        ("torch", 200, 6999.5 + 512, 6999.5 + 1024),
        ("Own", 200, 6999.5, 6999.5),
        ("FileDataset", 200, 6999.5, 6999.5),
        ("LMDB", ENVIRONMENT_RECORDS, 1, 5e4),
    ],
)
def test_the_source_is_measured_by_the_ranges_of_records(
    binary, environment, recorded, kind, samples, least, most
):
    """Whole shards are no samples."""
    found = measured(analyzed(binary, environment, script("records.py"), str(recorded), kind))
    assert found["dataset"]["samples"] == samples
    assert least <= found["dataset"]["mb"] * 1e6 / samples <= most + 1e-6
    assert found["dataset"]["path"].startswith(str(recorded))
    assert found["source"]
    assert found["training"]
    notes = [note["text"] for note in found["notes"]]
    assert not any("which file" in text for text in notes), notes
