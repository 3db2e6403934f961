"""HDMLP's datasets in other loaders: the right samples, and one warning per process that reads them
so or makes workers that do."""

import io
import os
import subprocess
import sys
import types

import preloaded
import pytest

torch = pytest.importorskip("torch")

import hdmlp.torch as ht
from hdmlp import errors
from hdmlp.torch._data import foreign
from torch.utils.data import DataLoader, Subset

pytestmark = [pytest.mark.usefixtures("real"), pytest.mark.slow]

SAYS = "a loader other than hdmlp.torch.DataLoader reads samples"

SCRIPT = """
import sys, torch
import hdmlp.torch as ht
from hdmlp.torch._data import foreign
from torch.utils.data import ConcatDataset, DataLoader, Subset

def length(data):
    return torch.tensor([float(len(data))])

class Wrapper(torch.utils.data.Dataset):
    def __init__(self, data):
        self.data = data
    def __len__(self):
        return len(self.data)
    def __getitem__(self, i):
        return self.data[i]

if __name__ == "__main__":
    data, other = (ht.ImageFolder(sys.argv[1], loader=length) for _ in range(2))
    parts = [Subset(data, range(9)), Subset(data, range(9, 25))]
    datasets = {"itself": data, "part": Subset(data, range(25)), "parts": ConcatDataset(parts),
                "wrapper": Wrapper(data)}
    for case in sys.argv[2:]:
        name, method = case.split(",")
        dataset = datasets[name]
        foreign.NOTICE._said[0] = 0  # as in a new process
        print("case", file=sys.stderr, flush=True)
        data[3], [dataset[i] for i in range(len(dataset))]
        list(ht.DataLoader(dataset, 4)), list(ht.DataLoader(Wrapper(data), 4, num_workers=2))
        print("by hand, and with ours", file=sys.stderr, flush=True)
        more = {"multiprocessing_context": method, "num_workers": 2} if method else {}
        for epoch in range(2):
            lengths = [int(n) for x, _ in DataLoader(dataset, 4, **more) for n in x.flatten()]
            print(lengths, flush=True)
        list(DataLoader(other, 4, **more))
"""


@pytest.mark.parametrize(
    "cases",
    [
        ("itself,", "part,", "wrapper,", "itself,fork", "parts,fork", "wrapper,fork"),
        ("itself,spawn",),
        ("part,forkserver",),
    ],
)
def test_torchs_loader_gives_the_right_samples_and_warns_once(folder, tmp_path, cases):
    (tmp_path / "script.py").write_text(SCRIPT)
    done = subprocess.run(
        [preloaded.PYTHON, str(tmp_path / "script.py"), folder, *cases],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "PYTHONPATH": os.path.dirname(os.path.dirname(ht.__path__[0]))},
    )
    assert done.returncode == 0, done.stderr
    lengths = [
        os.path.getsize(os.path.join(folder, name, file))
        for name in sorted(os.listdir(folder))
        for file in sorted(os.listdir(os.path.join(folder, name)))
    ]
    assert done.stdout.splitlines() == [str(lengths)] * 2 * len(cases)
    said = done.stderr.split("case\n")[1:]
    assert [
        [part.count(SAYS) for part in case.split("by hand, and with ours")] for case in said
    ] == [[0, 1]] * len(cases)


def test_the_warning_names_the_remedy(folder, caplog, monkeypatch):
    notice = foreign.Notice()
    monkeypatch.setattr(foreign, "NOTICE", notice)
    dataset = ht.ImageFolder(folder, loader=len)
    dataset._notice = notice
    for _ in range(2):
        assert sum(len(x) for x, _ in DataLoader(Subset(dataset, range(10)), 4)) == 10
    said = [r.getMessage() for r in caplog.records if SAYS in r.getMessage()]
    assert len(said) == 1
    assert "make the loader with hdmlp.torch.DataLoader" in said[0]
    assert "hdmlp.torch.use_in(accelerate)" in said[0]


def test_use_in_refuses_other_modules():
    with pytest.raises(
        errors.ConfigError,
        match=r"use_in\(lightning\): must be accelerate or transformers; Lightning and Fabric "
        r"need no such call",
    ):
        ht.use_in("lightning")
    with pytest.raises(errors.ConfigError, match=r"use_in\(io\)"):
        ht.use_in(io)


def test_use_in_refuses_an_older_accelerate(monkeypatch):
    """Before 0.34, its loaders were subclasses of torch's."""
    package, module = types.ModuleType("accelerate"), types.ModuleType("accelerate.data_loader")
    package.__version__, module.DataLoader = "0.20.3", DataLoader
    monkeypatch.setitem(sys.modules, "accelerate", package)
    monkeypatch.setitem(sys.modules, "accelerate.data_loader", module)
    with pytest.raises(
        errors.ConfigError,
        match=r"use_in\(transformers\): accelerate 0.20.3 makes loaders in a way that HDMLP does "
        r"not know",
    ):
        ht.use_in("transformers")
    assert module.DataLoader is DataLoader
