"""Arguments that cannot be honoured: each is refused at once, by its name."""

import errno
import json
import os
import signal

import hdmlp.torch as ht
import pytest
import torch
from hdmlp import Job, data, errors
from hdmlp import transforms as T
from hdmlp._lib.arguments import switch
from hdmlp._records.directory import located
from hdmlp._workers.handle import _advice
from torch.utils.data import DistributedSampler, Sampler, Subset, TensorDataset

np = pytest.importorskip("numpy")


def test_switches_are_true_or_false():
    for value in (True, 1, np.True_, np.int64(1)):
        assert switch("verify", value) is True
    for value in (False, 0, np.False_, np.int64(0)):
        assert switch("verify", value) is False
    for value in ("no", "yes", "", 2, 1.0, None, [], np.zeros(2), object()):
        with pytest.raises(errors.ConfigError, match=r"verify=.*: must be True or False"):
            switch("verify", value)


@pytest.mark.parametrize(
    "name",
    [
        "offload",
        "verify",
        "raw",
        "shard",
        "pin_memory",
        "drop_last",
        "persistent_workers",
        "in_order",
    ],
)
def test_torchs_loader_refuses_text_for_a_switch(folder, name):
    with pytest.raises(errors.ConfigError, match=f"{name}='no': must be True or False"):
        ht.DataLoader(ht.ImageFolder(folder), 4, shuffle=True, **{name: "no"})


@pytest.mark.parametrize(
    "arguments, message",
    [
        (dict(name=3), "name=3: must be text, not int"),
        (dict(config_file=3), "config_file=3: must be a path"),
        (dict(collate_fn=3), "collate_fn=3: must be callable"),
        (dict(timeout=True), "timeout=True: must be 0 or more seconds"),
        (dict(rank="0", world_size="1"), "rank='0': must be a whole number"),
        (dict(shuffle=2), "shuffle=2: must be True, False, 'torch'"),
    ],
)
def test_arguments_of_another_type_are_refused(folder, arguments, message):
    for make in (
        lambda: data.DataLoader(folder, **arguments),
        lambda: ht.DataLoader(ht.ImageFolder(folder), 4, **{"shuffle": True, **arguments}),
    ):
        with pytest.raises(errors.ConfigError, match=message):
            make()


@pytest.mark.parametrize("workers", [{}, {"num_workers": 1}])
@pytest.mark.parametrize(
    "value, message",
    [(0, "=0: must be 1 or more"), (1.5, "=1.5: must be a whole number"), ("2", "='2': must be a")],
)
def test_a_prefetch_factor_that_torch_refuses(real, folder, value, message, workers):
    """torch's loader refuses some when it is made, and the others in its first epoch."""
    for dataset in (ht.ImageFolder(folder), TensorDataset(torch.arange(9))):
        with pytest.raises(errors.ConfigError, match=f"prefetch_factor{message}"):
            ht.DataLoader(dataset, 4, prefetch_factor=value, **workers)


def test_a_timeout_without_anything_to_wait_for(real, folder):
    """torch's loader raises AssertionError in its first epoch."""
    items = TensorDataset(torch.arange(9))
    for options in ({}, {"num_workers": 0, "batch_size": None}):
        with pytest.raises(
            errors.ConfigError,
            match=r"timeout=3: no meaning for a dataset of the class TensorDataset",
        ):
            ht.DataLoader(items, timeout=3, **options)
    with ht.DataLoader(items, 4, timeout=60, num_workers=1) as loader:
        assert len(list(loader)) == 3
    with ht.DataLoader(ht.ImageFolder(folder), 5, timeout=60) as loader:
        assert len(list(loader)) == 5


def test_numpys_numbers_are_numbers(real, folder):
    """As they come from generators and configuration libraries."""
    options = dict(seed=np.int64(7), timeout=np.float32(60), source_threads=np.int64(2))
    dataset, items = ht.ImageFolder(folder), TensorDataset(torch.arange(9))
    sampler = DistributedSampler(dataset, np.int64(1), np.int64(0), seed=np.int64(7))
    orders = []
    for make in (
        lambda: ht.DataLoader(dataset, 4, shuffle=True, seed=7),
        lambda: ht.DataLoader(dataset, 4, shuffle=True, **options),
        lambda: ht.DataLoader(dataset, 4, sampler=sampler),
        lambda: data.DataLoader(folder, 4, **options),
    ):
        with make() as loader:
            orders.append([list(loader.explain(0, step).ids) for step in range(len(loader))])
            assert json.dumps(loader.state_dict())
    assert orders == orders[:1] * 4
    with ht.DataLoader(items, 4, shuffle=True, seed=np.int64(7)) as loader:
        assert len(list(loader)) == 3
        assert json.dumps(loader.state_dict())
    with Job(folder, 4, 1, seed=np.int64(7)) as job:
        assert job.seed == 7


def test_switches_of_the_other_loaders(folder):
    for name in ("verify", "drop_last"):
        with pytest.raises(errors.ConfigError, match=f"{name}='no'"):
            data.DataLoader(folder, **{name: "no"})
    with pytest.raises(errors.ConfigError, match="drop_last_batch='no'"):
        Job(folder, 4, 1, drop_last_batch="no")


def test_a_job_refuses_what_it_cannot_use_when_it_is_made(folder):
    with pytest.raises(errors.ConfigError, match=r"config_path='/nowhere.toml': there is no such"):
        Job(folder, 4, 1, config_path="/nowhere.toml")
    with pytest.raises(errors.ConfigError, match="seed=-1"):
        Job(folder, 4, 1, seed=-1)
    with pytest.raises(errors.ConfigError, match="dataset_path=None: must be a path"):
        Job(None, 4, 1)


def test_a_missing_file_of_the_environment_is_named_by_its_variable(folder, monkeypatch):
    monkeypatch.setenv("HDMLP_CONFIG", "/nowhere.toml")
    with pytest.raises(errors.ConfigError, match=r"HDMLP_CONFIG='/nowhere.toml'"):
        data.DataLoader(folder, config_file=None)


def test_a_path_is_not_a_dataset_of_torchs_loader(folder):
    for path in (str(folder), os.fsencode(folder)):
        with pytest.raises(errors.ConfigError, match=r"give hdmlp\.torch\.ImageFolder\("):
            ht.DataLoader(path, 4)


def test_a_subset_with_an_index_outside_its_dataset(daemon, folder):
    dataset = ht.ImageFolder(folder)
    count = len(dataset)
    for index in (count, -count - 1):
        with pytest.raises(errors.ConfigError, match=f"index {index} of the Subset is out of"):
            ht.DataLoader(Subset(dataset, [0, index]), 2)


def test_an_index_outside_the_dataset(daemon, folder):
    dataset = data.Folder(folder)
    count = len(dataset)
    with pytest.raises(IndexError, match=f"sample 99 is out of .* {count} samples, 0 to"):
        dataset[99]


@pytest.mark.parametrize("root", [None, 5, ["a"]])
def test_a_root_that_is_no_path(root):
    for make in (data.Folder, ht.ImageFolder):
        with pytest.raises(errors.ConfigError, match=r"root=.*: must be a path \(str or"):
            make(root)


def test_a_root_that_is_no_directory(tmp_path):
    (tmp_path / "file").touch()
    for name, message in (
        ("file", "it is not a directory: give the directory that holds one subdirectory per"),
        ("file/below", "it is not a directory"),
        ("missing", "there is no such directory: check the path, and that its file system"),
        ("null\0", "null character"),
    ):
        with pytest.raises(errors.DatasetNotFoundError, match=message):
            data.Folder(f"{tmp_path}/{name}")


def test_a_directory_that_does_not_answer_is_left_to_the_loader(tmp_path, monkeypatch):
    def stat(path, *_, **__):
        raise OSError(errno.ETIMEDOUT, "timed out")

    monkeypatch.setattr("hdmlp._records.directory.os.stat", stat)
    assert located(str(tmp_path)) == str(tmp_path)


@pytest.mark.parametrize("extensions", [5, {".png": 1}, [5], [""], b".png"])
def test_extensions_that_are_no_list_of_suffixes(folder, extensions):
    with pytest.raises(errors.ConfigError, match="must be a list of suffixes such as"):
        data.Folder(folder, extensions)


def test_no_extensions_at_all(folder):
    with pytest.raises(errors.ConfigError, match="no file would be a sample"):
        data.Folder(folder, [])
    assert data.Folder(folder, {".b", ".a"}).extensions == (".a", ".b")


def test_what_cannot_be_called(folder):
    with pytest.raises(TypeError, match=r"transforms\[1\] should be callable. Got 5"):
        T.Compose([T.ToTensor(), 5])
    for name in ("target_transform", "loader"):
        with pytest.raises(errors.ConfigError, match=f"{name}=3: must be callable"):
            ht.ImageFolder(folder, **{name: 3})
    dataset = ht.ImageFolder(folder)
    with pytest.raises(errors.ConfigError, match="worker_init_fn=3: must be callable"):
        ht.DataLoader(dataset, worker_init_fn=3)
    with pytest.raises(errors.ConfigError, match="5 is not a transform: it cannot be called"):
        data.DataLoader(folder, transforms=[5])
    job = Job(folder, 4, 1)
    with pytest.raises(errors.ConfigError, match="target_transform=3: must be callable"):
        ht.HDMLPImageFolder(folder, job, target_transform=3)
    with pytest.raises(errors.ConfigError, match="collate_fn=3: must be callable"):
        ht.HDMLPDataLoader(ht.HDMLPImageFolder(folder, job), collate_fn=3)


def test_a_state_names_its_wrong_entry(daemon, folder):
    with data.DataLoader(folder, 4, seed=1) as loader:
        state = loader.state_dict()
        for entry, value, message in (
            ("epoch", -1, r"state\['epoch'\]=-1: must be 0 or more"),
            ("step", None, r"state\['step'\]=None: must be a whole number"),
            ("step", 999, r"state\['step'\]=999: out of range, an epoch of this loader has"),
        ):
            with pytest.raises(errors.ConfigError, match=message):
                loader.load_state_dict({**state, entry: value})


def test_a_worker_that_ended():
    assert "OOM killer" in _advice(-signal.SIGKILL)
    assert "PYTHONFAULTHANDLER" in _advice(-signal.SIGSEGV)
    assert "num_workers=0" in _advice(1)


def test_sizes_and_directories_that_have_no_effect(real, folder, tmp_path):
    for keys, message in (
        (dict(cache_size="1GB"), "cache_size = .* has no effect without cache_dir"),
        (dict(disk_reserve="1GB"), "disk_reserve = .* has no effect without cache_dir"),
        (dict(index_dir=tmp_path / "a/b"), "its parent directory .*/a does not exist"),
        (dict(cache_dir=folder), "cache_dir = .* is not an HDMLP cache: it contains"),
    ):
        with pytest.raises(errors.ConfigError, match=message):
            data.DataLoader(folder, **keys)
    assert not (tmp_path / "a").exists()


@pytest.mark.parametrize(
    "key, value", [("memory", 1.5), ("memory", "1.5"), ("decode_memory", 20.5)]
)
def test_a_size_with_a_fraction_and_no_unit(real, folder, key, value):
    """The user means another unit than bytes."""
    message = rf'{key} = .* not a whole number of bytes: add a unit, as in "{value}GB"'
    with pytest.raises(errors.ConfigError, match=message):
        ht.DataLoader(ht.ImageFolder(folder), 4, **{key: value})
    for whole in (1e8, 1e8 + 0.5, "0.1GB"):  # of a computed number it is no mistake
        with ht.DataLoader(ht.ImageFolder(folder), 4, **{key: whole}) as loader:
            assert len(list(loader)) == 7


def test_drop_last_leaves_nothing(real, folder):
    with pytest.raises(errors.ConfigError, match="with drop_last nothing would be delivered: a st"):
        data.DataLoader(folder, 1000, drop_last=True)


@pytest.mark.parametrize("kind", ["folder", "tensors", "sampler"])
def test_torchs_drop_last_leaves_nothing_and_says_so_once(real, folder, caplog, kind):
    """torch's loader raises nothing. A sampler without a length may yield any number."""
    dataset = ht.ImageFolder(folder) if kind == "folder" else TensorDataset(torch.arange(6))
    sampler = NoLength(6) if kind == "sampler" else None
    size = len(dataset) + 1
    with ht.DataLoader(dataset, size, sampler=sampler, drop_last=True) as loader:
        for epoch in range(2):  # as in a loop over epochs
            loader.set_epoch(epoch)
            assert list(loader) == []
    said = [r.getMessage() for r in caplog.records if "drop_last" in r.getMessage()]
    if sampler is not None:
        assert said == []
        return
    assert len(loader) == 0
    (message,) = said
    assert f"batch_size={size} " in message
    assert f" {len(dataset)} samples" in message


EMPTY = {
    "seed": {"shuffle": True, "seed": 3},
    "drawn": {"shuffle": True},
    "in order": {},
    "feistel": {"shuffle": "feistel", "seed": 3},
    "workers": {"shuffle": True, "seed": 3, "num_workers": 1},
    "sampler": {"sampler": range(25)},
    "shared": {"shuffle": True, "seed": 3, "shard": True},
    "whole": {"shuffle": True, "seed": 3, "shard": True, "scheme": "whole"},
    "uniform": {"shuffle": True, "seed": 3, "shard": True, "scheme": "uniform"},
    "rank": {"shuffle": True, "seed": 3, "shard": True, "rank": 1, "world_size": 2},
    "replicas": {"replicas": True},
}


@pytest.mark.parametrize("kind", ["folder", "files", "subset", "mix", "tensors"])
@pytest.mark.parametrize("name", sorted(EMPTY))
def test_a_loader_without_batches_is_a_loader(real, folder, kind, name):
    """As torchdata's StatefulDataLoader: it can be asked, saved and resumed."""
    options = dict(EMPTY[name])
    root = ht.ImageFolder(folder)
    files = ht.Files([root.sample(i)[0] for i in range(len(root))])
    dataset = {
        "folder": ht.ImageFolder(folder),
        "files": files,
        "subset": Subset(files, range(9)),
        "mix": ht.Mix([files], epoch_size=25),
        "tensors": TensorDataset(torch.arange(6)),
    }[kind]
    if kind == "mix" and name in ("sampler", "replicas", "whole", "uniform"):
        return  # are refused
    if kind == "tensors" and name in ("feistel", "whole", "uniform"):
        return  # are refused
    if name == "sampler":
        options["sampler"] = range(min(len(dataset), 5))
    if options.pop("replicas", False):
        options["sampler"] = DistributedSampler(dataset, 1, 0)

    def made():
        return ht.DataLoader(dataset, 100, drop_last=True, **options)

    with made() as loader:
        assert (len(loader), loader.epoch) == (0, 0)
        first = loader.state_dict()
        for _ in range(2):
            assert list(loader) == []
        loader.set_epoch(5)
        assert loader.epoch == 5
        state = loader.state_dict()
        assert state != first
        if "seed" in options:
            assert loader.seed == 3
        assert loader.stats.batches == 0
        assert loader.report() is not None
    with made() as loader:
        loader.load_state_dict(state)
        assert (loader.epoch, list(loader), len(loader)) == (5, [], 0)


class NoLength(Sampler):
    """A sampler that does not say how much it yields."""

    def __init__(self, samples):
        self.samples = samples

    def __iter__(self):
        return iter(range(self.samples))


@pytest.mark.parametrize("drop_last", [False, True])
def test_a_samplers_drop_last_leaves_nothing(real, folder, caplog, drop_last):
    """On each of more ranks than there are samples."""
    dataset = Subset(ht.ImageFolder(folder), [1, 4])
    sampler = DistributedSampler(dataset, 3, 1, drop_last=True)
    with ht.DataLoader(dataset, sampler=sampler, drop_last=drop_last) as loader:
        assert (len(loader), list(loader), list(loader)) == (0, [], [])
    assert caplog.text.count("the loader delivers no batches") == 1


def test_explain_names_what_is_out_of_range(real, folder):
    with data.DataLoader(folder, 4) as loader:
        with pytest.raises(errors.ConfigError, match=r"^step 999 out of range: an epoch has"):
            loader.explain(0, 999)
        with pytest.raises(
            errors.ConfigError, match=r"^rank 5 out of range: the job's ranks are 0"
        ):
            loader.explain(0, 0, 5)


@pytest.mark.parametrize("shared", [{}, {"rank": 0, "world_size": 1}])
def test_feistels_order_of_single_items_is_refused(folder, shared):
    with pytest.raises(
        errors.ConfigError, match=r"shuffle='feistel' with batch_size=None: .* give a batch_size"
    ):
        ht.DataLoader(ht.ImageFolder(folder), None, shuffle="feistel", seed=1, **shared)


@pytest.mark.parametrize("begun", [False, True])
@pytest.mark.parametrize("name, value", [("batch_size", 8), ("drop_last", True)])
@pytest.mark.parametrize(
    "order",
    [
        {},
        {"shuffle": True, "seed": 1},
        {"shuffle": "feistel"},
        {"shuffle": True, "seed": 1, "rank": 0, "world_size": 1},
    ],
)
def test_batches_that_change_are_refused(real, folder, order, name, value, begun):
    """Where the daemon computes the order, it cannot make other batches afterwards."""
    with ht.DataLoader(ht.ImageFolder(folder), 4, **order) as loader:
        if begun:
            next(iter(loader))
        setattr(loader.batch_sampler, name, value)
        with pytest.raises(
            errors.ConfigError, match=rf"batch_sampler\.{name} is {value} now, .* make a new loader"
        ):
            iter(loader)


def test_batches_that_a_sampler_draws_may_change(real, folder):
    """As in torch."""
    with ht.DataLoader(ht.ImageFolder(folder), 4, shuffle=True) as loader:
        loader.batch_sampler.batch_size = 8
        assert len(loader) == 4
        assert [len(y) for _, y in loader] == [8, 8, 8, 1]
