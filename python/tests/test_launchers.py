"""Real launchers on several hosts: torchrun, Open MPI, MPICH, and a Kubernetes job's manifest.

They start the examples as they are, and every rank must be given what torch's sampler, or a job on
one node, gives it.
"""

import itertools
import json
import os
import re
import shlex
import subprocess
import zlib

import kubernetes_validate
import pytest
import yaml

pytest.importorskip("torch")
pytest.importorskip("torchvision")

from launched import (
    ELASTIC,
    EPOCHS,
    EXAMPLES,
    MPI,
    SAMPLES,
    SEED,
    WORLD,
    alone,  # noqa: F401
    alone_raw,  # noqa: F401
    binary,  # noqa: F401
    check,
    documented,
    folder,  # noqa: F401
    hosts,  # noqa: F401
    mpirun,
    raw,  # noqa: F401
    together,
    work,  # noqa: F401
)
from reference import batches as reference

pytestmark = pytest.mark.slow


def test_torchrun_gives_every_rank_its_samples(hosts, folder, alone, work):
    (line,) = documented("README.md", "torchrun", folder)
    together(hosts, [line, line], work)
    check(work, alone, first=int(work.records()[0]["host"][-1]))  # the rendezvous numbers the hosts


def test_torchrun_continues_the_stream_on_more_nodes(hosts, folder, tmp_path):
    """A second node joins during training: torchrun restarts all ranks, the stream continues, and
    no node reads a sample twice."""
    (tmp_path / "train.py").write_text(ELASTIC)
    line = (
        "torchrun --nnodes=1:2 --nproc_per_node=1 --max_restarts=1 --monitor_interval=0.5 "
        "--rdzv_backend=c10d "
        f"--rdzv_endpoint=node0:29500 --rdzv_conf last_call_timeout=1 train.py "
        f"{shlex.quote(folder)}"
    )
    environment = {
        "HDMLP_LINGER": "300s",  # longer than torchrun takes to start ranks again
        "HDMLP_SOCKET": "elastic",
        # Otherwise torch 2.15's torchrun writes the address of the ranks' store into the first
        # rendezvous only, and a node that joins later waits 60 s for it in vain.
        "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
    }
    processes = []
    for node in range(2):
        processes.append(
            hosts.start(
                node,
                line,
                environment,
                cwd=str(tmp_path),
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
            )
        )
        if node == 0:
            hosts.wait_for(0, f"ls {tmp_path}/state 2>/dev/null", f"{tmp_path}/state")
    ends = [hosts.end(process) for process in processes]
    assert [status for status, _ in ends] == [0, 0], ends

    def given(world):
        ranks = []
        for rank in range(world):
            with open(tmp_path / f"given-{world}-{rank}") as file:
                ranks.append([json.loads(line) for line in file])
        return [sorted(itertools.chain.from_iterable(step)) for step in zip(*ranks)]

    expected = [
        sorted(map(zlib.crc32, samples))
        for epoch in reference(folder, 12, EPOCHS, SEED, False, 0, 1)
        for samples, _ in epoch
    ]
    assert given(1) + given(2) == expected
    read = []
    for rank in range(2):
        with open(tmp_path / f"read-{rank}") as file:
            read.append(json.load(file))
    assert read[0]["source"] == 0
    # The other node gets what it needs from the first, or, where that is predicted to be late and
    # the source is not, from there; each sample once.
    assert read[1]["source"] + read[1]["peer"] <= SAMPLES


@pytest.mark.parametrize(
    "environment",
    [
        {
            "JOB_COMPLETION_INDEX": "%d",
            "MASTER_ADDR": "train-0.train",
            "KUBERNETES_SERVICE_HOST": "10.96.0.1",
        },
        {"HDMLP_NODES": "node0,node1"},
        {"HDMLP_NODES": "train-0.train:7000", "GROUP_RANK": "%d", "GROUP_WORLD_SIZE": "2"},
    ],
    ids=["kubernetes", "names", "port"],
)
def test_ranks_started_by_hand_get_their_samples(hosts, folder, alone_raw, raw, environment):
    """Two on each host, numbered by hand."""

    def line(node):
        said = {
            **environment,
            "WORLD_SIZE": WORLD,
            "LOCAL_WORLD_SIZE": 2,
            "HDMLP_SECRET": "0123456789abcdef" * 4,
        }
        said = " ".join(
            f"{key}={str(value).replace('%d', str(node))}" for key, value in said.items()
        )
        rank = "env RANK={} LOCAL_RANK={} python train.py " + shlex.quote(folder)
        return (
            f"export {said}; {rank.format(2 * node, 0)} & {rank.format(2 * node + 1, 1)} && wait $!"
        )

    together(hosts, [line(0), line(1)], raw)
    check(raw, alone_raw)


@pytest.mark.parametrize("kind", ["openmpi", "mpich"])
def test_mpirun_gives_every_rank_its_samples(hosts, folder, alone, work, kind):
    """The commands of examples/mpi, of which the README has the first."""
    commands = documented("examples/mpi/README.md", "mpirun", folder)
    assert documented("README.md", "mpirun", folder) == commands[:1]
    status, out = mpirun(hosts, kind, work, dict(zip(MPI, commands))[kind])
    assert status == 0, out
    check(work, alone)


@pytest.mark.parametrize(
    "kind, order, nodes",
    [
        ("openmpi", "--map-by slot", (0, 0, 1, 1)),
        ("openmpi", "--map-by node", (0, 1, 0, 1)),
        ("mpich", "-ppn 2", (0, 0, 1, 1)),
        ("mpich", "-ppn 1", (0, 1, 0, 1)),
    ],
)
def test_mpirun_without_torch_gives_every_rank_its_samples(
    hosts, folder, alone_raw, raw, kind, order, nodes
):
    """Ranks by node and round-robin; HDMLP_NODES has node 0's address."""
    given = {
        "openmpi": "--hostfile hosts -x HDMLP_NODES=node0",
        "mpich": "-f hosts -genv HDMLP_NODES node0",
    }[kind]
    status, out = mpirun(hosts, kind, raw, f"mpirun {given} -n 4 {order} python train.py {folder}")
    assert status == 0, out
    check(raw, alone_raw, nodes)


# Kubernetes


def manifest():
    with open(os.path.join(EXAMPLES, "kubernetes", "job.yaml")) as file:
        return list(yaml.safe_load_all(file))


@pytest.mark.parametrize("version", ["1.25", "1.37"])
def test_the_kubernetes_manifest_is_valid(version):
    for resource in manifest():
        kubernetes_validate.validate(resource, version, strict=True)
    resource["spec"]["completion_mode"] = "Indexed"
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(resource, version, strict=True)


def test_a_kubernetes_job_gives_every_rank_its_samples(hosts, folder, alone, work):
    """The container's command with the variables of an indexed job, for two pods."""
    service, job = manifest()
    pod = job["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    name = job["metadata"]["name"]
    assert (pod["subdomain"], service["spec"]["selector"]) == (
        service["metadata"]["name"],
        {"job-name": name},
    )
    assert f"--nnodes={job['spec']['completions']}" in container["command"]
    assert job["spec"]["parallelism"] == job["spec"]["completions"]
    assert any(mount["mountPath"] == "/data" for mount in container["volumeMounts"])
    secrets = {"train-hdmlp": {"secret": "0123456789abcdef" * 4}}

    def line(index):
        environment = {"JOB_COMPLETION_INDEX": str(index)}
        for variable in container["env"]:
            reference = variable["valueFrom"]["secretKeyRef"]
            environment[variable["name"]] = secrets[reference["name"]][reference["key"]]
        words = [
            re.sub(r"\$\((\w+)\)", lambda match: environment[match[1]], word)
            for word in container["command"]
        ]
        words = [
            word.replace("/data/train", folder).replace("--nnodes=4", "--nnodes=2")
            for word in words
        ]
        return (
            f"hostname {name}-{index}; export KUBERNETES_SERVICE_HOST=10.96.0.1 "
            + " ".join(f"{key}={value}" for key, value in environment.items())
            + "; "
            + shlex.join(words)
        )

    together(hosts, [line(0), line(1)], work)
    check(work, alone, host="train-{}")


THESIS = """
import json, os, socket, sys
import torch
from hdmlp import Job
from hdmlp.torch import HDMLPDataLoader, HDMLPImageFolder
from torchvision import transforms

data_dir, batch_size, num_epochs, drop_last_batch = sys.argv[1], 8, 2, False
data_transforms = transforms.Compose([transforms.Resize((8, 8)), transforms.ToTensor()])

job = Job(data_dir, batch_size, num_epochs, 'uniform', drop_last_batch, config_path="hdmlp.cfg")
dataset = HDMLPImageFolder(data_dir, job, data_transforms)
dataloader = HDMLPDataLoader(dataset)

model = torch.nn.Linear(3 * 8 * 8, 20)
optimizer = torch.optim.SGD(model.parameters(), 0.01)
epochs = []
for epoch in range(num_epochs):
    labels = []
    for x, y in dataloader:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x.flatten(1)), y).backward()
        optimizer.step()
        labels += y.tolist()
    epochs.append(labels)
nodes, rank = job.get_no_nodes(), job.get_node_id()
with open(f"thesis-{rank}", "w") as file:
    json.dump([socket.gethostname(), nodes, epochs, job.get_metrics()["read_locations"]], file)
job.destroy()
"""

LISTING_4_7 = """
b_c = 1000
b_fs = 200
storage_classes: (
  { capacity: 64; threads: 2; },
  { capacity: 32; backend: "memory"; threads: 2;
    bandwidth: ( { threads = 1; bw = 1655; }, { threads = 2; bw = 2116; } ); }
);
pfs_bandwidth: ( { processes: 1; bw: 66; }, { processes: 2; bw: 86; } );
"""


def test_listings_4_6_and_4_7_train_on_two_nodes(hosts, folder, work):
    for name, text in ("thesis.py", THESIS), ("hdmlp.cfg", LISTING_4_7):
        with open(os.path.join(work.path, name), "w") as file:
            file.write(text)
    given = "--hostfile hosts -x HDMLP_NODES=node0 -n 4 --map-by node"
    line = f"mpirun {given} env -u HDMLP_MEMORY python thesis.py {shlex.quote(folder)}"
    status, out = mpirun(hosts, "openmpi", work, line)
    assert status == 0, out
    ranks = []
    for rank in range(4):
        with open(os.path.join(work.path, f"thesis-{rank}")) as file:
            ranks.append(json.load(file))
    assert [host for host, *_ in ranks] == ["node0", "node1"] * 2
    assert {nodes for _, nodes, *_ in ranks} == {4}
    for epoch in range(2):
        labels = sorted(label for _, _, epochs, _ in ranks for label in epochs[epoch])
        assert labels == sorted(label for label in range(20) for _ in range(SAMPLES // 20))
    # Two epochs without caches would read everything twice. A peer that takes longer than the
    # source, for lack of a processor, may be passed over.
    read = sum(where.get("source", 0) for *_, where in ranks)
    assert read <= 1.4 * SAMPLES, ranks
