"""Jobs of several ranks, on one node and on two, that share what they prepare: each rank is a
process, and gets what it gets in a job of its own."""

import json

import pytest

pytest.importorskip("torchvision")

from items import PATH
from nodes import binary, run_script  # noqa: F401
from reference import jpegs

pytestmark = pytest.mark.slow

MEMBERS, RANKS = 3, 2  # jobs in the group; ranks of a node
ALONE = {"loader": {}}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return jpegs(tmp_path_factory.mktemp("jpegs") / "data", {"ant": 14, "bee": 13, "cat": 10})


@pytest.fixture
def run(binary, folder, tmp_path):
    """Runs jobs, and a last one that is in no group. Returns what their ranks said, by job and
    rank, and the log."""

    def start(nodes, jobs):
        said, done = run_script(
            binary,
            tmp_path,
            "import members_of_nodes; members_of_nodes.main()",
            folder,
            json.dumps([*jobs, ALONE]),
            nodes=nodes,
            HDMLP_MEMORY="16MiB",
            PYTHONPATH=PATH,
        )
        log = done.stdout[-3000:] + done.stderr[-6000:]
        return {(line["job"], line["rank"]): line for line in said}, log

    return start


def member(announced=MEMBERS, **job):
    """A job of the group, whose first batch waits for so many members."""
    return {"loader": {"share": "s", "share_members": announced}, **job}


@pytest.mark.parametrize("nodes", [1, 2])
def test_members_get_what_they_get_alone(run, nodes):
    said, log = run(nodes, [member()] * MEMBERS)
    for rank in range(nodes * RANKS):
        want = said[MEMBERS, rank]
        assert want["alone"] > 0
        assert not want["group"]
        for job in range(MEMBERS):
            got = said.get((job, rank), {})
            assert got.get("batches") == want["batches"], (got, log)
            assert got["group"], log
            assert got["alone"] == 0, log


@pytest.mark.parametrize("nodes", [1, 2])
def test_members_that_are_killed_or_leave_cost_others_nothing(run, nodes):
    """All ranks of a job, one rank of another; a third ends early."""
    world = nodes * RANKS
    killed = [list(range(world)), [world - 1]]
    said, log = run(
        nodes,
        [member(4, killed=killed[0]), member(4, killed=killed[1]), member(4, steps=5), member(4)],
    )
    for rank in range(world):
        want = said[4, rank]["batches"]
        assert said.get((3, rank), {}).get("batches") == want, log
        assert said[2, rank]["batches"] == want[:5], log
        assert (0, rank) not in said
        if rank not in killed[1]:
            assert said[1, rank]["batches"] == want, log


def test_batch_sizes_of_members_may_differ(run):
    sizes = {0: 4, 1: 2, 2: 6}
    said, log = run(2, [member(batch=n) for n in sizes.values()])
    for rank in range(4):
        want = [label for _, labels in said[3, rank]["batches"] for label in labels]
        for job in sizes:
            got = [label for _, labels in said[job, rank]["batches"] for label in labels]
            assert got == want, log
            assert said[job, rank]["alone"] == 0, log


def test_a_killed_daemon_ends_its_own_ranks_only(run):
    """Ranks 0 and 1 go on in the group, ranks 2 and 3 are notified."""
    said, log = run(2, [member(2, daemon=[2], bereft=[3]), member(2, bereft=[2, 3])])
    private = said[2, 0]["batches"], said[2, 1]["batches"]
    for job in range(2):
        for rank in range(2):
            assert said[job, rank]["batches"] == private[rank], log
        for rank in range(2, 4):
            assert "DaemonDiedError" in said[job, rank]["error"], log


def test_a_member_that_differs_is_refused_on_both_nodes(run):
    other = {"loader": {"share": "s", "drop_last": True}}
    said, log = run(2, [member(1), other])
    refused = {job for (job, _), line in said.items() if "drop_last is" in line.get("error", "")}
    assert refused in ({0}, {1}), log
    for rank in range(4):
        assert "MismatchError" in said[min(refused), rank]["error"], log


@pytest.mark.parametrize("nodes", [1, 2])
def test_a_late_member_joins_in_the_groups_epoch_on_all_ranks(run, nodes):
    steps = -(-37 // (4 * nodes * RANKS))
    late = member(1, late=True)
    late["loader"]["share_join"] = True
    said, log = run(nodes, [member(1, pause=steps + 2), late])
    for rank in range(nodes * RANKS):
        want = said[2, rank]["batches"]
        assert said[0, rank]["batches"] == want, log
        assert said[1, rank]["epoch"] == 1, log
        assert said[1, rank]["batches"] == want[steps:], log
