"""Shared by the tests of launchers: hosts on one machine, a working directory with the examples,
and records of what ranks received."""

import glob
import hashlib
import json
import os
import re
import shutil
import subprocess

import pytest

pytest.importorskip("torch")
pytest.importorskip("torchvision")

from hdmlp import errors
from hdmlp._daemon import connecting
from hosts import Hosts
from reference import batches as reference
from reference import jpegs

_HERE = os.path.dirname(os.path.abspath(__file__))
EXAMPLES = os.path.join(os.path.dirname(os.path.dirname(_HERE)), "examples")
WORLD, EPOCHS, BATCH_SIZE, SEED = 4, 4, 32, 42  # the last three as in examples/train.py
SAMPLES = 300

#: A script without torch: samples' bytes.
RAW = """
import sys
from recorded import DataLoader, ImageFolder

with DataLoader(ImageFolder(sys.argv[1]), batch_size=32, seed=42, epochs=4) as loader:
    for epoch in range(4):
        for samples, labels in loader:
            pass
"""

#: A script that goes on from its state: alone up to a step in the middle of the second epoch, with
#: another to the end.
ELASTIC = """
import json, os, signal, sys, zlib
from hdmlp.data import DataLoader, Folder

rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
if world == 1 and os.path.exists("state"):
    signal.pause()  # torchrun has begun again, and the other node came too late for that
loader = DataLoader(Folder(sys.argv[1]), batch_size=12 // world, seed=42, epochs=4)
with loader, open(f"given-{world}-{rank}", "w") as given:
    if os.path.exists("state"):
        with open("state") as file:
            loader.load_state_dict(json.load(file))
    for epoch in range(loader.state_dict()["epoch"], 4):
        for step, (samples, _) in enumerate(loader):
            given.write(json.dumps([zlib.crc32(sample) for sample in samples]) + "\\n")
            if (world, epoch, step) == (1, 1, 9):
                given.close()
                with open("state.new", "w") as file:
                    json.dump(loader.state_dict(), file)
                os.rename("state.new", "state")
                signal.pause()  # until torchrun ends it
    with open(f"read-{rank}", "w") as file:
        json.dump({tier["tier"]: tier["samples"] for tier in loader.report()["tiers"]}, file)
"""


@pytest.fixture(scope="module")
def binary():
    try:
        return connecting.find_binary()
    except errors.DaemonNotFoundError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def hosts(binary, tmp_path_factory):
    if os.getuid() != 0:
        pytest.skip("hosts of one machine need root")
    try:
        hosts = Hosts(
            binary, tmp_path_factory.mktemp("hosts"), 2, names=["train-{0}.train train-{0}"]
        )
    except OSError as error:
        pytest.skip(f"no network namespaces here: {error}")
    # Before torch 2.0 torchrun's own defaults of the two are refused by Python 3.11's enumerations.
    # There is no local rank 9.
    hosts.program(
        "torchrun",
        'export PYTHON_EXEC="$(command -v preloaded)"\n'
        'exec preloaded -m torch.distributed.run --redirects 9:1 --tee 9:1 "$@"',
    )
    yield hosts
    hosts.close()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return jpegs(
        tmp_path_factory.mktemp("images") / "train",
        {f"class{i:02d}": SAMPLES // 20 for i in range(20)},
    )


class Work:
    """A working directory with the examples, in which the loader records what it gives."""

    def __init__(self, path, raw):
        self.path = str(path)
        shutil.copytree(EXAMPLES, self.path, dirs_exist_ok=True)
        shutil.copy(os.path.join(_HERE, "recorded.py"), self.path)
        os.mkdir(os.path.join(self.path, "records"))
        if raw:
            open(os.path.join(self.path, "RAW"), "w").close()
        with open(os.path.join(self.path, "train.py")) as file:
            script = file.read()
        assert "from hdmlp.torch import" in script
        with open(os.path.join(self.path, "train.py"), "w") as file:
            file.write(
                RAW if raw else script.replace("from hdmlp.torch import", "from recorded import")
            )

    def records(self):
        """What each rank received."""
        out = {}
        for path in glob.glob(os.path.join(self.path, "records", "*.json")):
            with open(path) as file:
                record = json.load(file)
            out[record["rank"]] = record
        return out


@pytest.fixture
def work(tmp_path):
    return Work(tmp_path, raw=False)


@pytest.fixture
def raw(tmp_path):
    return Work(tmp_path, raw=True)


@pytest.fixture(scope="module")
def alone(hosts, folder, tmp_path_factory):
    """What the ranks receive on one node, which is what torch's sampler gives them."""
    work = Work(tmp_path_factory.mktemp("alone"), raw=False)
    status, out = hosts.run(
        0,
        ["torchrun", "--standalone", f"--nproc_per_node={WORLD}", "train.py", folder],
        cwd=work.path,
    )
    assert status == 0, out
    records = work.records()
    assert records.keys() == set(range(WORLD))
    for rank, record in records.items():
        assert (record["nodes"], record["host"]) == (1, "node0")
        expected = reference(folder, BATCH_SIZE, EPOCHS, SEED, False, rank, WORLD)
        assert [labels for _, labels in record["epochs"]] == [
            [y for _, ys in epoch for y in ys] for epoch in expected
        ]
    return {rank: record["epochs"] for rank, record in records.items()}


@pytest.fixture(scope="module")
def alone_raw(folder):
    """As `alone`, for raw samples: what torch's loader gives, in the form of a record."""
    out = {}
    for rank in range(WORLD):
        out[rank] = []
        for epoch in reference(folder, BATCH_SIZE, EPOCHS, SEED, False, rank, WORLD):
            digest = hashlib.sha256()
            for samples, _ in epoch:
                digest.update(b"".join(samples))
            out[rank].append([digest.hexdigest(), [y for _, labels in epoch for y in labels]])
    return out


def check(work, expected, nodes=(0, 0, 1, 1), first=0, host="node{}"):
    """Checks that every rank received its samples, on the node where it should be.

    Args:
        nodes: of each rank.
        first: the number of the host that is node 0.
        host: what a host is called.
    """
    records = work.records()
    assert records.keys() == set(range(WORLD))
    for rank, record in records.items():
        assert (record["node"], record["nodes"], record["host"]) == (
            nodes[rank],
            2,
            host.format((nodes[rank] + first) % 2),
        )
        assert record["epochs"] == expected[rank]


def together(hosts, lines, work, environment=None):
    """Runs a command on each host at the same time; all must succeed."""
    processes = [
        hosts.start(
            node, line, environment, cwd=work.path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        for node, line in enumerate(lines)
    ]
    ends = [hosts.end(process) for process in processes]
    assert [status for status, _ in ends] == [0] * len(ends), ends


def documented(path, pattern, folder):
    """The command lines in a document, with the test's folder in place of theirs."""
    with open(os.path.join(os.path.dirname(EXAMPLES), path)) as file:
        text = re.sub(r" *\\\n *", " ", file.read())  # a line may go on after a backslash
        return [
            line.replace("/data/train", folder)
            for line in re.findall(rf"^    ({pattern} .*)$", text, re.MULTILINE)
        ]


def needed(*programs):
    """Skips the test if a program is missing, or fails it if scripts/setup can install it."""
    for program in programs:
        if not os.path.exists(program):
            (pytest.fail if shutil.which("apt-get") else pytest.skip)(
                f"no {program}: `scripts/setup test` installs it"
            )


# mpirun

MPI = {"openmpi": "/usr/bin/mpirun.openmpi", "mpich": "/usr/bin/mpirun.mpich"}


def mpirun(hosts, kind, work, command, environment=None):
    """Runs an mpirun command on node0, with the hosts in the file `hosts`."""
    needed(MPI[kind])
    with open(os.path.join(work.path, "hosts"), "w") as file:
        file.write(
            "".join(
                {"openmpi": f"node{node} slots=2\n", "mpich": f"node{node}:2\n"}[kind]
                for node in range(2)
            )
        )
    status, out = hosts.run(
        0,
        f'mpirun() {{ {MPI[kind]} "$@"; }}; {command}',
        {
            "OMPI_ALLOW_RUN_AS_ROOT": "1",
            "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
            "OMPI_MCA_plm_rsh_agent": hosts.ssh,
            "HYDRA_LAUNCHER": "ssh",
            "HYDRA_LAUNCHER_EXEC": hosts.ssh,
            **(environment or {}),
        },
        cwd=work.path,
    )
    return status, out


# Slurm

CONF = """
ClusterName=test
SlurmctldHost=node0
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={0}/munge.socket
StateSaveLocation={0}/state
SlurmdSpoolDir={0}/spool-%n
SlurmctldPidFile={0}/slurmctld.pid
SlurmdPidFile={0}/slurmd-%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
SelectType=select/linear
SchedulerType=sched/builtin
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MessageTimeout=100
SlurmdParameters=config_overrides
NodeName=node[0-1] CPUs=64 RealMemory=512000
PartitionName=all Nodes=ALL Default=YES
"""


@pytest.fixture(scope="module")
def slurm(hosts, tmp_path_factory):
    """A Slurm with its controller on node0 and a slurmd on each host; returns the variables that
    its commands need."""
    needed("/usr/sbin/slurmctld", "/usr/sbin/slurmd", "/usr/bin/sbatch", "/usr/sbin/munged")
    directory = str(tmp_path_factory.mktemp("slurm"))
    os.mkdir(os.path.join(directory, "state"))
    with open(os.path.join(directory, "slurm.conf"), "w") as file:
        file.write(CONF.format(directory))
    with open(
        os.open(os.path.join(directory, "munge.key"), os.O_WRONLY | os.O_CREAT, 0o600), "wb"
    ) as file:
        file.write(os.urandom(1024))
    munged = ["munged", "--foreground", "--force"] + [
        f"--{key}={directory}/munge.{name}"
        for key, name in (
            ("socket", "socket"),
            ("key-file", "key"),
            ("pid-file", "pid"),
            ("log-file", "log"),
            ("seed-file", "seed"),
        )
    ]
    environment = {"SLURM_CONF": os.path.join(directory, "slurm.conf")}
    processes = []
    with open(os.path.join(directory, "log"), "w") as log:

        def start(node, *command):
            processes.append(hosts.start(node, list(command), environment, stdout=log, stderr=log))

        try:
            start(0, *munged)
            hosts.wait_for(
                0, f"munge -S {directory}/munge.socket -n >/dev/null && echo ready", "ready"
            )
            start(0, "slurmctld", "-D")
            for node in range(2):
                start(node, "slurmd", "-D", "-N", f"node{node}")
            hosts.wait_for(
                0, "sinfo -h -N -o %T | sort | uniq -c | tr -s ' '", "2 idle", environment
            )
        except BaseException:
            with open(os.path.join(directory, "log")) as said:
                print(said.read())
            raise
        yield environment
        for process in reversed(processes):
            process.terminate()
            process.wait()
