"""Elastic restarts of jobs whose nodes keep images as coefficients: the daemons stay, and their
coefficients with them; ranks come again on more nodes or fewer, also ones that need files."""

import pytest
from nodes import binary  # noqa: F401
from test_nodes_forms import COUNT
from test_nodes_forms import folder as images  # noqa: F401
from test_nodes_restart import Machines, end, global_batches, said

pytestmark = pytest.mark.slow

GLOBAL, EPOCHS = 24, 8
STEPS = COUNT // GLOBAL
OPTIONS = {"epochs": EPOCHS, "memory": "64MiB", "policy": "lbann_dynamic"}


@pytest.fixture(scope="module")
def reference(binary, images, tmp_path_factory):
    """The global batches of all epochs, of one rank on one node, of images and of files."""
    machines = Machines(binary, 1, tmp_path_factory.mktemp("alone"))
    try:
        got = []
        for decodes in True, False:
            asked = {"state": None, "steps": STEPS * EPOCHS, "decodes": decodes, "forms": "off"}
            ranks = machines.start(str(images), 1, {**OPTIONS, **asked, "batch_size": GLOBAL})
            got.append(global_batches(said(ranks)))
            end(ranks)
        return got
    finally:
        machines.close()


def test_nodes_keep_coefficients(binary, images, reference, tmp_path):
    """Three nodes, two, four: what is still there is not read again, and stays in its form. Then
    three of a job that needs files: of what is kept, progressive ones alone are read again."""
    decoded, files = reference
    machines = Machines(binary, 4, tmp_path)
    try:
        at, state, read = 0, None, []
        for nodes, until in (3, STEPS + 2), (2, 3 * STEPS + 1), (4, EPOCHS * STEPS - 1):
            count = tmp_path / f"count-{nodes}"
            asked = {
                "state": state,
                "steps": until - at,
                "count": str(count),
                "decodes": True,
                "formed": COUNT,
            }
            ranks = machines.start(
                str(images), nodes, {**OPTIONS, **asked, "batch_size": GLOBAL // nodes}
            )
            values = said(ranks)
            assert global_batches(values) == decoded[at:until]
            count.touch()
            read.append([value["read"] for value in said(ranks)])
            end(ranks)
            at, state = until, values[0]["state"]
        assert sum(read[0]) == COUNT
        assert sum(read[1]) <= read[0][2]  # what was on node 2 alone
        assert sum(read[2]) == 0
        ranks = machines.start(
            str(images),
            3,
            {**OPTIONS, "state": None, "steps": 2 * STEPS, "batch_size": GLOBAL // 3},
        )
        assert global_batches(said(ranks)) == files[: 2 * STEPS]
        end(ranks)
    finally:
        machines.close()
