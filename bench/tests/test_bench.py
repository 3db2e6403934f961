"""The tools of the benchmark measure correctly."""

import itertools
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))

import clusters
import make_dataset
import namespaces
import preloaded
import rounds
import run
from throttled import Throttled, Unavailable

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def blobs(tmp_path_factory):
    """20 files of 50,000 bytes in 10 classes."""
    folder = str(tmp_path_factory.mktemp("data") / "blobs")
    made = make_dataset.make("blobs", folder, 20, 50_000)
    assert made["bytes"] == 20 * 50_000
    return folder


def mounted(*args):
    try:
        return Throttled(*args).__enter__()
    except Unavailable as error:
        pytest.skip(f"no throttled mount here: {error}")


def test_datasets_are_the_same_every_time(tmp_path):
    Image = pytest.importorskip("PIL.Image")
    for kind, mean in (
        ("photos", 113_000),
        ("tiny", 3_000),
        ("gratings", 0),
        ("pngs", 0),
        ("webps", 0),
    ):
        for name in ("one", "two"):
            make_dataset.make(kind, str(tmp_path / kind / name), 12, mean)
        one, two = (
            {
                os.path.relpath(os.path.join(folder, file), str(tmp_path / kind / name)): Path(
                    folder, file
                ).read_bytes()
                for folder, _, files in os.walk(str(tmp_path / kind / name))
                for file in files
            }
            for name in ("one", "two")
        )
        assert one == two
        assert len(one) == 12
        assert len(set(one.values())) == 12
        for path in one:
            Image.open(str(tmp_path / kind / "one" / path)).load()
        if mean:
            assert 0.7 * mean < sum(map(len, one.values())) / 12 < 1.3 * mean


def test_a_dataset_is_made_once_and_replaced_if_it_differs(tmp_path):
    folder = str(tmp_path / "blobs")
    make_dataset.make("blobs", folder, 10, 100)
    first = os.stat(os.path.join(folder, "class0", "0000000.jpg")).st_mtime_ns
    make_dataset.make("blobs", folder, 10, 100)
    assert os.stat(os.path.join(folder, "class0", "0000000.jpg")).st_mtime_ns == first
    assert make_dataset.make("blobs", folder, 10, 200)["bytes"] == 2000
    os.remove(folder + ".json")
    with pytest.raises(FileExistsError):
        make_dataset.make("blobs", folder, 10, 200)


def test_the_mount_counts_reads_and_is_unmounted(blobs):
    mount = mounted(blobs, 100_000_000, 0.001)
    try:
        path = Path(mount.path, "class3", "0000003.jpg")
        for number in (1, 2):
            assert len(path.read_bytes()) == 50_000
            counters = mount.counters()
            assert (counters["opens"], counters["bytes"]) == (number, number * 50_000)
        mount.set(fail="class3/*")
        with pytest.raises(OSError, match="Input/output error"):
            path.read_bytes()
        with pytest.raises(ValueError, match="unknown key"):
            mount.set(speed=1)
    finally:
        mount.__exit__(None, None, None)
    assert not os.path.exists(mount.path)


def test_a_round_of_plain_reading_reports_its_figures(blobs):
    mount = mounted(blobs, 10_000_000)
    try:
        result = rounds.run(
            {"contender": "plain", "workers": 0},
            {
                "path": mount.path,
                "batch_size": 4,
                "epochs": 3,
                "seed": 1,
                "step": 0.01,
                "world_size": 2,
            },
            mount,
        )
    finally:
        mount.__exit__(None, None, None)
    assert [source["opens"] for source in result["source"]][-1] == 60
    assert result["source"][-1]["bytes"] == 60 * 50_000
    for rank in result["ranks"]:
        assert [epoch["samples"] for epoch in rank["epochs"]] == [10, 10, 10]
        assert rank["epochs"][0]["bytes"] == 10 * 50_000
        for epoch in rank["epochs"]:
            assert epoch["compute"] == pytest.approx(0.025)
            assert 0 < epoch["stall"] < epoch["end"] - epoch["begin"] - epoch["compute"] + 0.001
    # Both ranks together read 1 MB per epoch at 10 MB/s, minus what a pause may save.
    assert sum(epoch["stall"] for epoch in result["ranks"][0]["epochs"]) > 0.15
    assert result["errors"] == []


def several_nodes(count, *args):
    try:
        return namespaces.Nodes(count, *args).__enter__()
    except Unavailable as error:
        pytest.skip(f"no nodes here: {error}")


def test_nodes_have_addresses_and_variables_and_end():
    hosts = several_nodes(2, "1gbit")
    try:
        said = [
            subprocess.run(
                [*hosts.command(node), "hostname", "-I"],
                env=dict(os.environ, **hosts.environment(node)),
                capture_output=True,
                text=True,
                check=True,
            ).stdout.strip()
            for node in range(2)
        ]
        assert said[0] == hosts.environment(1)["MASTER_ADDR"]
        assert said[0] != said[1]
        assert [hosts.environment(node)["RANK"] for node in range(2)] == ["0", "1"]
        command = hosts.command(0)
    finally:
        hosts.__exit__(None, None, None)
    assert subprocess.run([*command, "true"], capture_output=True).returncode == 2


def test_a_round_over_nodes_reports_its_figures(blobs):
    """HDMLP's count of bytes read from the source is the mount's, and less than all epochs'
    samples."""
    pytest.importorskip("torch")
    mount = mounted(blobs, 10_000_000, 0.02)
    hosts = several_nodes(2)
    try:
        result = rounds.run(
            {"contender": "hdmlp"},
            {
                "path": mount.path,
                "batch_size": 2,
                "epochs": 4,
                "seed": 1,
                "step": 0.01,
                "world_size": 2,
                "memory": 600_000,
            },
            mount,
            hosts,
        )
    finally:
        hosts.__exit__(None, None, None)
        mount.__exit__(None, None, None)
    read = result["source"][-1]["bytes"]
    counted = sum(rank["report"]["source"]["bytes"] for rank in result["ranks"])
    assert (
        counted <= read <= counted + 2 * 20 * 4096
    )  # each node also reads excerpts, which tell which dataset it is
    assert 20 * 50_000 <= read < 4 * 20 * 50_000
    assert [sum(epoch["samples"] for epoch in rank["epochs"]) for rank in result["ranks"]] == [
        40,
        40,
    ]
    assert result["cpu"]["daemon"] > 0
    assert result["resident"] > 0


def test_samples_from_a_peer_are_counted():
    if not os.path.exists(clusters.EXCHANGE):
        pytest.skip("run `make exchange`")
    several_nodes(1).__exit__(None, None, None)
    scenario = clusters.Exchange(0.1)
    scenario.paths = {"veth": []}
    result = scenario.measure(scenario.contenders[0])
    assert all(result["figures"][f"veth, {size}"] > 1 for size in ("110 KB", "3 KB"))
    assert 0 <= result["others"] <= 1
    slower = {key: value / 2 for key, value in result["figures"].items()}
    said = scenario.conclusions({"HDMLP": result["figures"], "gRPC": slower})
    assert said == [
        "veth, 110 KB: HDMLP is 2.00 times as fast as gRPC (wanted: 4)",
        "veth, 3 KB: HDMLP is 2.00 times as fast as gRPC (wanted: 10)",
    ]


def test_a_rank_that_fails_is_reported(tmp_path):
    with pytest.raises(rounds.RoundFailed, match="missing"):
        rounds.run(
            {"contender": "plain", "workers": 0},
            {
                "path": str(tmp_path / "missing"),
                "batch_size": 4,
                "epochs": 1,
                "seed": 1,
                "step": 0,
                "world_size": 1,
            },
        )


def test_processor_time_of_a_process_is_measured():
    burner = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import time\nwhile time.process_time() < 0.3: pass\nprint(flush=True)\ninput()",
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        before = rounds.machine_cpu()["used"]
        burner.stdout.readline()
        assert 0.25 <= rounds.process_cpu(burner.pid) <= 0.5
        assert rounds.machine_cpu()["used"] >= before
        assert rounds.resident(burner.pid) > 1 << 20
    finally:
        burner.communicate(b"\n")
    assert rounds.process_cpu(None) == 0.0


def test_medians_and_wanted_scenarios_are_found():
    assert run.middle([{"a": 3, "b": "x"}, {"a": 1, "b": "y"}, {"a": 2, "b": "z"}]) == {
        "a": 2,
        "b": "x",
    }
    assert [scenario.key for scenario in run.find("d,a", quick=True)] == ["a", "d"]
    assert (
        " ".join(scenario.key for scenario in run.find(None, quick=False))
        == "a b c d e f g m n o p q h i j k l frameworks"
    )
    cells = [scenario.key for scenario in run.find("grid/disk/40,streams", quick=True)]
    assert cells == [
        "grid/disk/40/40",
        "grid/disk/40/200",
        "grid/disk/40/unthrottled",
        "streams/latency",
        "streams/loss",
    ]
    assert len(run.find("grid", quick=False)) == 9 + 2 * 4 * 3 + (3 + 1) * 3
    for unknown in ("x", "grid/disk/4"):
        with pytest.raises(ValueError, match=f"'{unknown}'"):
            run.find(unknown, quick=False)


def test_figures_of_other_scenarios_are_kept(tmp_path):
    def report(at, **found):
        return {
            "at": at,
            "machine": {"commit": f"c{at}"},
            "busy": [f"({key}) busy {at}" for key in found],
            "scenarios": {key: {"title": title} for key, title in found.items()},
        }

    path = tmp_path / "performance.json"
    first = report(1, a="one", c="one")
    assert run.kept(first, str(path)) == first
    path.write_text(json.dumps(first))
    both = run.kept(report(2, b="two", c="two"), str(path))
    assert both["at"] == 2
    assert list(both["scenarios"]) == ["a", "b", "c"]
    assert both["scenarios"]["a"] == {"title": "one", "at": 1, "commit": "c1"}
    assert both["scenarios"]["c"]["title"] == "two"
    assert both["busy"] == ["(a) busy 1", "(b) busy 2", "(c) busy 2"]


def test_a_different_order_is_noticed():
    def results(kind, *orders):
        return [
            {
                "contender": {"contender": kind},
                "ranks": [{"epochs": [{"order": order}]} for order in orders],
            }
        ]

    assert (
        "the same"
        in run.agreement({"HDMLP": results("hdmlp", 1, 2), "torch": results("torch", 1, 2)})[0]
    )
    assert (
        "DIFFERENT"
        in run.agreement({"HDMLP": results("hdmlp", 1, 2), "torch": results("torch", 2, 1)})[0]
    )
    assert run.agreement({"HDMLP": results("hdmlp", 1)}) == []


def test_the_examples_differ_in_three_lines():
    """The torch script and HDMLP's: three lines, beside the sentence that names the file."""
    folder = os.path.join(os.path.dirname(os.path.dirname(HERE)), "examples")
    torch, ours = (
        Path(folder, name).read_text(encoding="utf-8").splitlines()
        for name in ("train_torch.py", "train.py")
    )
    assert len(torch) == len(ours)
    assert sum(a != b for a, b in zip(torch[1:], ours[1:])) == 3


@pytest.mark.parametrize("name", ["train_torch.py", "train.py"])
@pytest.mark.parametrize("arguments", [[], ["one", "two"]])
def test_an_example_without_a_folder_says_how_it_is_used(name, arguments):
    pytest.importorskip("torchvision")
    root = os.path.dirname(os.path.dirname(HERE))
    ran = subprocess.run(
        [preloaded.PYTHON, os.path.join(root, "examples", name), *arguments],
        env=dict(os.environ, PYTHONPATH=os.path.join(root, "python")),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ran.returncode == 1
    assert ran.stderr.startswith("usage: ")
    assert ran.stderr.endswith(f"{name} DATA, a directory that has one subdirectory per class\n")


def test_the_example_trains(tmp_path):
    pytest.importorskip("torchvision")
    folder = str(tmp_path / "gratings")
    make_dataset.make("gratings", folder, 40)
    examples = os.path.join(os.path.dirname(os.path.dirname(HERE)), "examples")
    environment = dict(
        os.environ,
        HDMLP_SOCKET=f"hdmlp-example-{os.getpid()}",
        HDMLP_LINGER="0s",
        HDMLP_INDEX_DIR=str(tmp_path / "index"),
        PYTHONPATH=os.path.join(os.path.dirname(examples), "python"),
        MASTER_PORT=str(rounds.free_port()),
    )
    ran = subprocess.run(
        [preloaded.PYTHON, os.path.join(examples, "train.py"), folder],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ran.returncode == 0, ran.stderr
    assert [line.split(":")[0] for line in ran.stdout.splitlines()] == [
        f"epoch {epoch}" for epoch in range(4)
    ]


def test_results_can_be_written(tmp_path):
    """A whole report of a quick run has what the chart needs."""
    pytest.importorskip("matplotlib")
    import chart

    figures = {"rate": 1.0, "1 KB": 2.0, "38 MB": 3.0}
    report = {
        "machine": {"processors": 2, "processor": "x", "torch": None, "commit": None},
        "quick": True,
        "at": "now",
        "scenarios": {
            key: {"rounds": {"HDMLP": [{"figures": figures}]}, "medians": {"HDMLP": figures}}
            for key in ("a", "d")
        },
    }
    chart.draw(report, str(tmp_path / "chart.png"))
    assert (tmp_path / "chart.png").stat().st_size > 1000


def test_texts_are_within_the_chart():
    """No title, label or number of docs/performance.png is cut, or runs into another panel."""
    pytest.importorskip("matplotlib")
    import chart

    with open(os.path.join(HERE, "../../docs/performance.json"), encoding="utf-8") as file:
        figure = chart.figure_of(json.load(file))
    figure.draw_without_rendering()
    height = figure.bbox.y1
    panels = [axes for axes in figure.axes if axes.get_visible()]
    assert len(panels) > 10
    boxes = [axes.get_tightbbox() for axes in panels]
    for axes, box in zip(panels, boxes):
        right = axes.get_window_extent().x1
        assert box.x0 >= 0
        assert box.y1 <= height
        assert box.y0 >= 0
        for text in (axes._left_title, *axes.texts):
            assert text.get_window_extent().x1 <= right + 1, text.get_text()
    assert not any(one.overlaps(other) for one, other in itertools.combinations(boxes, 2))
    chart.pyplot.close(figure)


def test_a_round_that_takes_too_long_is_stopped(blobs):
    spec = {"path": blobs, "batch_size": 4, "epochs": 1000, "seed": 1, "world_size": 1, "step": 1.0}
    plain = {"name": "plain", "contender": "plain", "workers": 0}
    with pytest.raises(rounds.RoundFailed, match="stopped after 1 s"):
        rounds.run(plain, dict(spec, limit=1.0))
