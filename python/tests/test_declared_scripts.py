"""Training scripts as people publish them train the same with ``files=``, by hashes of all that
their models and losses are given."""

import hashlib
import io
import json
import sys
from pathlib import Path

import numpy
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torchvision")

import hdmlp.torch as ht
from declaredfiles import only_served
from filewatch import Opens
from PIL import Image

pytestmark = pytest.mark.usefixtures("real")

HERE = Path(__file__).parent / "declared_scripts"
COUNT = 17

#: By script: the one line that changes, and what it becomes.
CHANGES = {
    "table": (
        "loader = torch.utils.data.DataLoader(data, batch_size=4, shuffle=True)",
        "loader = ht.DataLoader(data, batch_size=4, shuffle=True, files=data.path)",
    ),
    "pairs": (
        "loader = DataLoader(train, batch_size=3, shuffle=True, drop_last=True)",
        "loader = ht.DataLoader(train, batch_size=3, shuffle=True, drop_last=True, "
        "files=lambda i: data.files(train.indices[i]))",
    ),
    "annotations": (
        "loader = torch.utils.data.DataLoader(data, 2, shuffle=True, num_workers=2, "
        "collate_fn=collate)",
        "loader = ht.DataLoader(data, 2, shuffle=True, num_workers=2, collate_fn=collate, "
        "files=lambda i: [f'{data.root}/annotations/{data.names[i]}', "
        "f'{data.root}/images/{data.names[i][:-5]}.jpg'])",
    ),
}


@pytest.fixture
def data(tmp_path):
    """Images, masks, annotations and a table."""
    rng = numpy.random.default_rng(0)
    for name in ("images", "masks", "annotations"):
        (tmp_path / name).mkdir()
    rows = ["id,label"]
    for i in range(COUNT):
        pixels = rng.integers(0, 255, (40 + i, 48, 3), numpy.uint8)
        Image.fromarray(pixels).save(tmp_path / "images" / f"{i:03d}.jpg")
        mask = rng.integers(0, 3, pixels.shape[:2], numpy.uint8)
        Image.fromarray(mask).save(tmp_path / "masks" / f"{i:03d}_mask.png")
        points = rng.integers(0, 40, (1 + i % 2, 2, 2)).tolist()
        annotation = {"imagePath": f"{i:03d}.jpg", "shapes": [{"points": p} for p in points]}
        (tmp_path / "annotations" / f"{i:03d}.json").write_text(json.dumps(annotation))
        rows.append(f"{i:03d},{'abc'[i % 3]}")
    (tmp_path / "train.csv").write_text("\n".join(rows) + "\n")
    return tmp_path


def trained(source, data, monkeypatch):
    """Runs a script; returns the hashes of all tensors that its modules were given, and what it
    has defined."""
    hashes = []

    def note(_, inputs):
        for tensor in inputs:
            if isinstance(tensor, torch.Tensor):  # transforms are modules, too, and get images
                file = io.BytesIO()
                numpy.save(file, tensor.detach().numpy())
                hashes.append(hashlib.sha256(file.getvalue()).hexdigest())

    monkeypatch.setattr(sys, "argv", ["train.py", str(data), "--plain"])
    defined = {"__name__": "__main__", "ht": ht}
    hook = torch.nn.modules.module.register_module_forward_pre_hook(note)
    try:
        exec(compile(source, "train.py", "exec"), defined)
    finally:
        hook.remove()
    return hashes, defined


@pytest.mark.parametrize("name", CHANGES)
def test_a_script_trains_the_same(name, data, monkeypatch):
    source = (HERE / f"{name}.py").read_text()
    line, instead = CHANGES[name]
    assert source.splitlines().count(line) == 1
    theirs, _ = trained(source, data, monkeypatch)
    with Opens(data) as watch:
        ours, defined = trained(source.replace(line, instead), data, monkeypatch)
        assert ours == theirs
        assert len(set(ours)) > COUNT
        loader = defined["loader"]
        only_served(loader)
        watch.take()
        list(loader)  # a later epoch
        assert not watch.take()
        loader.close()
