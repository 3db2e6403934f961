"""What the demo prints of its figures, how it shows its progress, and how it installs packages."""

import io
import os
import pty
import queue
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, os.path.dirname(HERE))

import demo_plot
import demo_summary


def results(ours, theirs, accuracy=(0.5, 0.9)):
    """Two epochs of both loaders, of (times, stalls, bytes)."""
    return {
        name: [
            {"time": t, "stall": s, "read": r, "utilisation": 0.5, "accuracy": a}
            for t, s, r, a in zip(*figures, accuracy)
        ]
        for name, figures in (("HDMLP", ours), ("torch", theirs))
    }


NONE = (None, None)


@pytest.mark.parametrize(
    "ours, theirs, said",
    [
        (
            ((9, 2), (5, 0.01), (42e6, 0)),
            ((11, 12.1), (6, 8), (42e6, 126e6)),
            "2.1 times as fast; 4.0 times fewer bytes; "
            "800 times less waiting from the second epoch on",
        ),
        (
            ((10, 10), (5, 5), (4e6, 4e6)),
            ((10, 10.5), (9, 5.1), (4e6, 4.1e6)),
            "as fast; as many bytes; as much waiting from the second epoch on",
        ),
        (
            ((10, 20), (5, 6), (8e6, 4e6)),
            ((10, 10), (0, 4), (4e6, 4e6)),
            "takes 1.5 times as long; 1.5 times as many bytes; "
            "1.5 times as much waiting from the second epoch on",
        ),
        # The source is not a mount that counts: bytes are left out.
        (
            ((5, 5), (1, 0.5), NONE),
            ((5, 5.1), (1, 1), NONE),
            "as fast; 2.0 times less waiting from the second epoch on",
        ),
        # No ratio to next to nothing.
        (
            ((5, 5), (1, 0.0009), NONE),
            ((6, 6.7), (1, 3.2), NONE),
            "1.3 times as fast; no waiting from the second epoch on, instead of 3.2 s",
        ),
        (
            ((5, 5), (1, 0.9), NONE),
            ((4, 4), (1, 0), NONE),
            "takes 1.2 times as long; 0.9 s of waiting from the second epoch on, instead of none",
        ),
        (
            ((5, 5), (1, 0.0), NONE),
            ((5, 5), (1, 0.0005), NONE),
            "as fast; neither waits from the second epoch on",
        ),
        # The first epoch's waiting does not count, whichever way it goes.
        (
            ((99.6, 0.1), (90, 0.5), (1e6, 0)),
            ((4000, 5990), (1, 62.4), (1e6, 1e12)),
            "100 times as fast; more than 10,000 times fewer bytes; "
            "120 times less waiting from the second epoch on",
        ),
    ],
)
def test_the_closing_sentence(ours, theirs, said):
    assert demo_summary.sentence(results(ours, theirs)) == f"HDMLP, compared with torch: {said}."


def test_the_line_on_accuracies():
    figures = ((1, 1), (0, 0), (1, 1))
    both = results(figures, figures)
    assert "equal: both loaders gave the same images" in demo_summary.accuracies(both, True)
    assert "shuffles by random numbers of its own" in demo_summary.accuracies(both, False)
    both["torch"][1]["accuracy"] = 0.91
    assert "differ although the order is the same" in demo_summary.accuracies(both, True)


def test_the_table_has_a_line_per_epoch_and_the_totals():
    both = results(((9, 2), (5, 0), (42e6, 0)), ((11, 12), (6, 8), NONE))
    lines = demo_summary.table(both, 42_000_000)
    assert len(lines) == 1 + 2 * 3
    rows = [" ".join(line.split()) for line in lines]
    assert rows[1] == "HDMLP 0 9.00 s 5.000 s 50.0% 42.0 MB 50.0%"
    assert rows[3] == "all 11.00 s 5.000 s 42.0 MB, 1.00x"
    assert rows[4] == "torch 0 11.00 s 6.000 s 50.0% not counted 50.0%"
    assert rows[6] == "all 23.00 s 14.000 s"


def test_the_plot_in_text():
    both = results(((9, 2), (5, 0), NONE), ((11, 12), (6, 8), NONE))
    lines = demo_plot.text(both, width=12)
    bars = [line.replace("█", "#") for line in lines]
    assert bars == [
        "time of an epoch (s)",
        "  epoch 0  HDMLP  ######### 9.0",
        "           torch  ########### 11",
        "  epoch 1  HDMLP  ## 2.0",
        "           torch  ############ 12",
        "waiting for data (s)",
        "  epoch 0  HDMLP  ######## 5.0",
        "           torch  ######### 6.0",
        "  epoch 1  HDMLP   0",
        "           torch  ############ 8.0",
    ]


def test_the_plot_is_drawn(tmp_path):
    pytest.importorskip("matplotlib")
    path = tmp_path / "demo.png"
    both = results(((9, 2), (5, 0), (42e6, 0)), ((11, 12), (6, 8), (42e6, 42e6)))
    demo_plot.draw(both, demo_summary.sentence(both), str(path))
    assert path.read_bytes().startswith(b"\x89PNG")


@pytest.fixture
def demo():
    pytest.importorskip("numpy")
    pytest.importorskip("PIL")
    import demo

    return demo


def test_progress_is_plain_lines_in_a_pipe(demo):
    out = io.StringIO()
    progress = demo.Progress(out)
    progress.at("HDMLP: epoch 0, step 1")
    progress.event("HDMLP: epoch 0 took 1 s")
    progress.clear()
    assert out.getvalue() == "HDMLP: epoch 0 took 1 s\n"


def test_progress_is_one_line_of_a_terminal(demo, monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    outer, inner = pty.openpty()
    with open(inner, "w") as out:
        progress = demo.Progress(out)
        progress.at("HDMLP: epoch 0, step 1")
        progress.event("HDMLP: epoch 0 took 1 s")
        progress.clear()
        shown = ""
        while shown.count("\r\x1b[K") < 3:
            shown += os.read(outer, 1000).decode()
    os.close(outer)
    assert "\n" not in shown
    assert shown.split("\r\x1b[K") == ["", "HDMLP: epoch 0, step 1", "HDMLP: epoch 0 took 1 s", ""]


def test_figures_are_in_the_order_of_ranks_whichever_is_first(demo):
    """A rank's accuracy is its own: batch normalisation has statistics of its rank."""
    say = queue.Queue()
    for said in ((1, 0, "b0"), (1, 1, "b1"), (0, 0, "a0"), (0, 1, "a1")):
        say.put(said)
    listener = demo.Listener(say, [])
    assert listener.hear(0) == ["a0", "b0"]
    assert listener.hear(1) == ["a1", "b1"]


APT = """#!/bin/sh
for n in $(seq 50); do echo "$* line $n"; done
[ "$1" = update ] || {status}
"""


@pytest.mark.parametrize("works", [True, False])
def test_what_is_installed_is_one_line_and_a_log(works, tmp_path):
    programs = tmp_path / "programs"
    programs.mkdir()
    for name, text in (
        ("apt-get", APT.replace("{status}", "true" if works else "exit 1")),
        ("dpkg-query", "#!/bin/sh\nexit 1\n"),
        ("id", "#!/bin/sh\necho 0\n"),
        ("go", "#!/bin/sh\necho go9.9\n"),
    ):
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    shutil.copytree(os.path.join(ROOT, "scripts"), tmp_path / "scripts")
    shutil.copy(os.path.join(ROOT, "go.mod"), tmp_path)
    ran = subprocess.run(
        [tmp_path / "scripts" / "setup", "demo"],
        env={"PATH": f"{programs}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    lines = ran.stderr.splitlines()
    assert lines[0].startswith("installing Debian packages: python3 ")
    assert lines[0].endswith(" (log: build/setup-demo.log)")
    log = Path(tmp_path, "build", "setup-demo.log").read_text().splitlines()
    assert len(log) == 100
    assert ran.stdout == ""
    if works:
        assert (ran.returncode, len(lines)) == (0, 1)
    else:
        assert ran.returncode == 1
        assert lines[1] == "apt-get failed; the end of build/setup-demo.log:"
        assert lines[2:22] == [f"    {line}" for line in log[-20:]]
        assert lines[22].startswith("scripts/setup: packages for demo are missing; as root: ")
