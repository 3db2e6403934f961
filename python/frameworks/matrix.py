"""The frameworks of docs/FRAMEWORKS.md: which test compares each with torch's loader, and with how
many ranks. `make bench SCENARIO=frameworks` makes the page.

Needs no torch: the benchmark imports it with an interpreter of its own.
"""

from typing import NamedTuple


class Framework(NamedTuple):
    """A framework, or a program's way of making its loaders.

    Attributes:
        name: what the page calls it.
        test: the test function that compares what every rank is given with torch's loader, and what
            it is given that goes on from a state kept
            amid an epoch; its parameter ``ranks`` says with how many.
        epochs: the function of time_epochs.py that trains with it.
    """

    name: str
    test: str
    epochs: str


FRAMEWORKS = (
    Framework("Lightning, Trainer", "test_trainer", "lightning_trainer"),
    Framework("Lightning, Fabric", "test_fabric", "lightning_fabric"),
    Framework("accelerate", "test_accelerate", "accelerated"),
    Framework("transformers, Trainer", "test_transformers", "transformers_trainer"),
    Framework("timm, train.py", "test_timm", "timm_train"),
    Framework(
        "torchvision, references/classification", "test_torchvision", "torchvision_reference"
    ),
    Framework("torchdata, stateful protocol", "test_torchdata", "torchdata_stateful"),
    Framework("Ray Train, prepare_data_loader", "test_ray", "ray_train"),
)
