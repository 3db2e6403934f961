"""The frameworks of docs/FRAMEWORKS.md: which test compares each with torch's loader, and with how many ranks. `make bench SCENARIO=frameworks` makes the page.

Needs no torch: the benchmark imports it with an interpreter of its own.
"""

from typing import NamedTuple, Tuple


class Framework(NamedTuple):
    """A framework, or a program's way of making its loaders.

    Attributes:
        name: what the page calls it.
        test: the test function that compares what every rank is given with torch's loader; its parameter ``ranks`` says with how many (default 1).
        epochs: the function of time_epochs.py that trains with it.
        resumes: with how many ranks the test also goes on from a state kept amid an epoch.
    """

    name: str
    test: str
    epochs: str
    resumes: Tuple[int, ...] = (1, 2)


FRAMEWORKS = (
    Framework("Lightning, Trainer", "test_trainer", "lightning_trainer"),
    Framework("Lightning, Fabric", "test_fabric", "lightning_fabric"),
    Framework("accelerate", "test_accelerate", "accelerated"),
    Framework("transformers, Trainer", "test_transformers", "transformers_trainer"),
    Framework("timm, train.py", "test_timm", "timm_train", resumes=(2,)),
    Framework("torchvision, references/classification", "test_torchvision", "torchvision_reference", resumes=(2,)),
    Framework("torchdata, stateful protocol", "test_torchdata", "torchdata_stateful", resumes=(1,)),
    Framework("Ray Train, prepare_data_loader", "test_ray", "ray_train", resumes=()),
)
