"""Names of files and jobs are escaped in messages and logs, so that they do nothing to
terminals."""

import json
import os
import pathlib
import pty
import re
import subprocess
import xml.etree.ElementTree

import hdmlp.data as data
import pytest
from hdmlp import errors, transforms
from hdmlp._daemon import connecting
from PIL import Image

REPOSITORY = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

EVIL = "z\x1b]0;title\a\x1b[31m\nERROR forged line\n"
SAID = r"z\x1b]0;title\a\x1b[31m\nERROR forged line\n"


def test_unprintable_names_of_samples_are_escaped(real, folder):
    path = os.path.join(folder, "cat", EVIL + ".jpg")
    open(path, "w").close()
    with data.DataLoader(data.Folder(folder), batch_size=5, epochs=1, shuffle=False) as loader:
        with pytest.raises(errors.SampleError) as caught:
            list(loader)
    assert caught.value.path == path
    assert f'("{folder}/cat/{SAID}.jpg")' in str(caught.value)
    assert str(caught.value).isprintable()


def test_unprintable_names_of_datasets_are_escaped(real, tmp_path):
    root = tmp_path / EVIL
    (root / "class").mkdir(parents=True)
    with pytest.raises(errors.DatasetError) as caught:
        len(data.Folder(str(root)))
    assert caught.value.details["path"] == str(root)
    assert f'"{tmp_path}/{SAID}"' in str(caught.value)
    assert str(caught.value).isprintable()


def test_unprintable_names_of_jobs_are_escaped(real, folder):
    open(os.path.join(folder, "cat", EVIL + ".jpg"), "w").close()
    with data.DataLoader(
        data.Folder(folder), batch_size=5, epochs=1, name=EVIL, on_error="skip"
    ) as loader:
        list(loader)
        for command in ("stats", "stats --job title", "top --once --interval 100ms"):
            shown = subprocess.run(
                [connecting.find_binary(), *command.split()],
                capture_output=True,
                text=True,
                timeout=60,
                check=True,
            ).stdout
            assert f'/{SAID}"' in shown, command
            assert 'job "' in shown, command
            assert all(line.isprintable() for line in shown.split("\n")), command


HOSTILE = "e\x1b[35mvil\x1b]0;t\a\nforged\x7f\u009b2J\u202e\U000e0001<&\"'>"

# What is kept of the terminal's own: bold, faint, a colour, and none.
STYLE = re.compile(r"\x1b\[[0-9]+m")


def unprintable(text):
    """The characters of a text that a terminal acts on or does not show, and forged lines."""
    lines = [line for line in text.split("\n") if line.startswith("forged")]
    return {c for c in text if not (c.isprintable() or c == "\n")}.union(lines)


def toml(text):
    """A string of TOML, all of it in escapes."""
    return '"' + "".join(f"\\U{ord(c):08x}" for c in text) + '"'


@pytest.fixture
def job(real, tmp_path, monkeypatch):
    """A running job whose name, dataset, cache and file are named as an attacker would."""
    place = tmp_path / HOSTILE
    root, cache = place / "data", place / "cache"
    for label in ("a" + HOSTILE, "b"):
        (root / label).mkdir(parents=True)
        for i in range(8):
            Image.new("RGB", (20, 20), (i, 0, 0)).save(root / label / f"{i}.png")
    (root / "b" / (HOSTILE + ".png")).write_bytes(b"no image")
    monkeypatch.setenv("HDMLP_CACHE_DIR", str(cache))
    monkeypatch.setenv("HDMLP_CACHE_SIZE", "10MB")
    with data.DataLoader(
        data.Folder(str(root)),
        batch_size=4,
        epochs=2,
        name=HOSTILE,
        on_error="skip",
        memory="10MB",
        transforms=[transforms.Resize(8), transforms.CenterCrop(8), transforms.ToTensor()],
    ) as loader:
        report = None
        for _ in loader:
            report = loader.report()
        (tmp_path / "report.json").write_text(json.dumps(report))
        yield place


def scenario(path):
    """A scenario whose title and storage class are hostile."""
    text = pathlib.Path(REPOSITORY, "scenarios", "thesis-3.toml").read_text()
    name = f"name = {toml(HOSTILE)}"
    assert 'name = "ram"' in text
    path.write_text(text.replace('name = "ram"', name))
    return str(path)


FAIL = {
    "stats --job, none",
    "stats --what-if, wrong",
    "config, wrong",
    "config --set",
    "dataset, none",
    "dataset --kind",
    "cache check",  # the daemon uses it
    "cache rm",
    "probe, none",
    "simulate, wrong",
    "transform, wrong",
    "transform, none",
    "analyze",
    "analyze --from",
    "dev exec",
    "dev link",
    "unknown",
}


def commands(place, tmp_path):
    """Every command that shows names, by what it is called with."""
    root, cache, out = str(place / "data"), str(place / "cache"), str(place / "out")
    config = place / "config.toml"
    config.write_text(f"cache_dir = {toml(cache)}\n")
    broken = place / "broken.toml"
    broken.write_text(f"{toml(HOSTILE)} = {toml(HOSTILE)}\n")
    image = str(place / "data" / "b" / "0.png")
    once = scenario(place / "scenario.toml")
    quick = ["--set", "job.epochs=2", "--policy", "frequency,perfect"]
    return {
        "stats": ["stats"],
        "stats --json": ["stats", "--json"],
        "stats --prometheus": ["stats", "--prometheus"],
        "stats --job": ["stats", "--job", HOSTILE],
        "stats --job, none": ["stats", "--job", HOSTILE + HOSTILE],
        "stats --what-if": ["stats", "--job", HOSTILE, "--what-if", "memory=1GB"],
        "stats --what-if, wrong": ["stats", "--job", HOSTILE, "--what-if", HOSTILE],
        "top": ["top", "--once", "--interval", "100ms"],
        "config": ["config", "--file", str(config), "--dataset", root],
        "config --json": ["config", "--json", "--file", str(config)],
        "config, wrong": ["config", "--file", str(broken)],
        "config --set": ["config", "--set", f"interface={HOSTILE}"],
        "dataset": ["dataset", root, "--classes"],
        "dataset --json": ["dataset", root, "--json"],
        "dataset, none": ["dataset", root + HOSTILE],
        "dataset --kind": ["dataset", root, "--kind", HOSTILE],
        "cache ls": ["cache", "ls", cache],
        "cache ls --json": ["cache", "ls", cache, "--json"],
        "cache check": ["cache", "check", cache],
        "cache rm": ["cache", "rm", cache, "--store", HOSTILE],
        "probe": ["probe", root, "--time", "2s", "--cache", str(place), "--out", out + ".toml"],
        "probe, none": ["probe", root + HOSTILE],
        "simulate": ["simulate", once, *quick],
        "simulate --json": ["simulate", once, *quick, "--json"],
        "simulate --out": ["simulate", once, *quick, "--out", out],
        "simulate --from-run": ["simulate", "--from-run", str(tmp_path / "report.json")],
        "simulate, wrong": ["simulate", once, "--set", f"job.{HOSTILE}=1"],
        "transform": [
            "transform",
            image,
            "--transforms",
            "Resize((8, 8))",
            "--out",
            out + "-sheets",
        ],
        "transform, wrong": ["transform", image, "--transforms", HOSTILE, "--out", out],
        "transform, none": ["transform", image + HOSTILE, "--transforms", "Resize((8, 8))"],
        "analyze": ["analyze", "--", str(place / "none")],
        "analyze --from": ["analyze", "--from", str(broken)],
        "dev exec": ["dev", "exec", "0", "--run", HOSTILE, "--", "true"],
        "dev link": ["dev", "link", "0", "--run", HOSTILE, "--down"],
        "unknown": [HOSTILE],
    }


def on_a_terminal(arguments):
    """What a command prints to a terminal, which shows colours."""
    ours, its = pty.openpty()
    process = subprocess.Popen(
        [connecting.find_binary(), *arguments],
        stdin=subprocess.DEVNULL,
        stdout=its,
        stderr=its,
        env={**os.environ, "TERM": "xterm"},
    )
    os.close(its)
    shown = b""
    while True:
        try:
            part = os.read(ours, 1 << 16)
        except OSError:  # EIO: all writers have closed it
            break
        if not part:
            break
        shown += part
    os.close(ours)
    process.wait(60)
    return shown.decode().replace("\r\n", "\n")


def test_no_command_prints_what_a_terminal_acts_on(job, tmp_path):
    found = {}
    for name, arguments in commands(job, tmp_path).items():
        done = subprocess.run(
            [connecting.find_binary(), *arguments], capture_output=True, timeout=120
        )
        for stream, said in (("stdout", done.stdout), ("stderr", done.stderr)):
            text = said.decode()
            if unprintable(text):
                found[name, stream] = text
            if stream == "stdout" and "--json" in arguments and done.returncode == 0:
                json.loads(text)
        assert done.returncode in ((1, 2) if name in FAIL else (0,)), (name, done.stderr)
    assert not found


@pytest.mark.parametrize(
    "command", ["config", "simulate", "stats", "stats --job", "top", "dataset"]
)
def test_colours_are_all_that_reaches_a_terminal(job, tmp_path, command):
    shown = on_a_terminal(commands(job, tmp_path)[command])
    assert "vil" in shown, shown
    assert "\x1b[35m" not in shown
    assert not unprintable(STYLE.sub("", shown)), shown


def test_pages_and_plots_are_markup_whatever_the_names(job, tmp_path):
    out = str(job / "out")
    arguments = commands(job, tmp_path)["simulate --out"]
    subprocess.run([connecting.find_binary(), *arguments], check=True, capture_output=True)
    page = pathlib.Path(out, "index.html").read_text()
    assert "vil" in page
    assert not unprintable(page) - {"\t"}
    assert "<&" not in page
    drawings = list(pathlib.Path(out).glob("*.svg"))
    assert any("vil" in drawing.read_text() for drawing in drawings), drawings
    for drawing in drawings:
        xml.etree.ElementTree.parse(drawing)
