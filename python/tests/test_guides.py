"""The code and the commands of docs/guides run as printed, and HDMLP's daemon serves the
samples."""

import os
import pathlib
import re
import shutil
import subprocess
import sys

import preloaded
import pytest
from object_server import ObjectServer

ROOT = pathlib.Path(__file__).parents[2]
BINARY = ROOT / "python/hdmlp/bin/hdmlp"
GUIDES = {page.stem: page.read_text() for page in sorted((ROOT / "docs/guides").glob("*.md"))}
#: Those of the frameworks need the frameworks: python/frameworks/test_readme.py runs them.
PYTHON = {
    f"{name}, {block.splitlines()[0][2:]}": block
    for name, text in GUIDES.items()
    if name != "frameworks"
    for block in re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
}
COMMANDS = [
    (name, line)
    for name, text in GUIDES.items()
    for block in re.findall(r"^```sh\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    for line in block.replace("\\\n", "").splitlines()
]

#: What the guides take for granted.
BEFORE = """
import glob
import os
import sys
import tarfile

from torchvision import transforms

import hdmlp.torch as ht

train = val = sys.argv[1]
cache = sys.argv[2]
tars = os.getcwd()
paths = sorted(glob.glob(f"{train}/*/*.jpg"))
for shard in range(2):
    with tarfile.open(f"train-{shard:03d}.tar", "w") as archive:
        for number, path in enumerate(paths[shard::2]):
            archive.add(path, f"{number}.jpg")
            with open("cls", "w") as cls:
                cls.write("1")
            archive.add("cls", f"{number}.cls")
transform = transforms.Compose([transforms.RandomResizedCrop(64), transforms.ToTensor()])
"""
#: The daemon, and no loop in Python, has served the last loader's samples.
AFTER = """
assert sum(epoch["samples"] for rank in loader.report()["ranks"] for epoch in rank["epochs"])
"""


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    """160 JPEGs in two classes."""
    numpy, image = pytest.importorskip("numpy"), pytest.importorskip("PIL.Image")
    root = tmp_path_factory.mktemp("guides") / "data"
    for number in range(160):
        folder = root / f"class{number % 2}"
        folder.mkdir(parents=True, exist_ok=True)
        pixels = numpy.random.default_rng(number).integers(0, 255, (96, 128, 3), numpy.uint8)
        image.fromarray(pixels).save(folder / f"{number}.jpg")
    return root


def run(command, folder, **variables):
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "python"), "HDMLP_LINGER": "0"}
    environment.update(HDMLP_SOCKET=f"guides-{os.getpid()}", HDMLP_MEMORY="64MiB", **variables)
    done = subprocess.run(
        command,
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout, done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("block", PYTHON)
def test_the_code_of_guides_runs(block, pictures, bucket, tmp_path):
    pytest.importorskip("torchvision")
    if "import datasets" in PYTHON[block]:
        pytest.importorskip("datasets")
    script = tmp_path / "script.py"
    use = "next(iter(loader))" if block.startswith("data,") else ""
    script.write_text("\n".join([BEFORE, PYTHON[block], use, AFTER]))
    run([preloaded.PYTHON, str(script), str(pictures), str(tmp_path / "cache")], tmp_path, **bucket)


@pytest.fixture(scope="module")
def bucket(pictures, tmp_path_factory):
    """Variables by which the pictures are found in the bucket of the guide to object storage."""
    root = tmp_path_factory.mktemp("bucket")
    shutil.copytree(pictures, root / "train")
    with ObjectServer(str(root), "-bucket", "my-bucket") as server:
        yield server.environment()


@pytest.fixture(scope="module")
def cache(pictures, tmp_path_factory):
    """A directory that holds copies of the pictures."""
    folder = tmp_path_factory.mktemp("guides") / "cache"
    script = "import sys, hdmlp.data\nfor _ in hdmlp.data.DataLoader(sys.argv[1], epochs=1): pass"
    command = [sys.executable, "-c", script, str(pictures)]
    run(command, folder.parent, HDMLP_CACHE_DIR=str(folder))
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("guide, line", COMMANDS)
def test_the_commands_of_guides_run(guide, line, pictures, cache, tmp_path):
    """The scenario of the guide to the simulator is the file that its commands name."""
    first, *more = re.findall(r"^```toml\n(.*?)^```$", GUIDES["sizing"], re.MULTILINE | re.DOTALL)
    for scenario in (first, first + "\n".join(more)):
        (tmp_path / "cluster.toml").write_text(scenario)
        name, *arguments = line.replace("/data/train", str(pictures)).split()
        assert name == "hdmlp"
        printed, _ = run(
            [str(BINARY), *arguments], tmp_path, HOME=str(tmp_path), HDMLP_CACHE_DIR=str(cache)
        )
        assert printed
        if "cluster.toml" not in line:
            break


@pytest.mark.slow
def test_the_quoted_warning_is_the_actual_one(pictures, tmp_path):
    """The guide to slow jobs quotes the warning about a lambda."""
    pytest.importorskip("torchvision")
    blocks = re.findall(r"^```text\n(.*?)^```$", GUIDES["slow"], re.MULTILINE | re.DOTALL)
    (quoted,) = [block for block in blocks if "Lambda" in block]
    script = tmp_path / "script.py"
    script.write_text(
        BEFORE
        + """
transform.transforms[1:1] = [transforms.Lambda(lambda image: image)]
loader = ht.DataLoader(ht.ImageFolder(train, transform), batch_size=32)
print(len(next(iter(loader))))
"""
    )
    command = [preloaded.PYTHON, str(script), str(pictures), str(tmp_path / "cache")]
    assert " ".join(quoted.split()) in " ".join(run(command, tmp_path)[1].split())


def test_every_guide_is_tested():
    assert {name.split(",")[0] for name in PYTHON} == GUIDES.keys() - {"frameworks"}
    assert {name for name, _ in COMMANDS} >= {"sizing", "slow", "memory"}
