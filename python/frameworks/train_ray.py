"""Ray Train: a TorchTrainer whose workers prepare their loaders with its prepare_data_loader.

Trains with each of several loaders, as Ray takes many seconds to start: those of ``torch,ours``
write to directories of these names.
"""

import os
import pickle
import sys


def train(arguments):
    """What each worker does; ``arguments`` are the script's, which common.py reads."""
    sys.argv = arguments
    import ray.train
    import torch
    from common import LOADER, OURS, RANKS, folder, plain, served, write
    from ray.train.torch import prepare_data_loader

    rank, data = ray.train.get_context().get_world_rank(), folder()
    shared = {"seed": 0, "shard": True, "epochs": 3} if OURS and RANKS != "1" else {}
    torch.manual_seed(3)
    loader = prepare_data_loader(LOADER(data, 4, shuffle=True, **shared))
    trained = []
    for epoch in range(3):
        if RANKS != "1":
            loader.sampler.set_epoch(epoch)
        trained.append([])
        for batch in loader:
            trained[-1].append(plain(batch))
            if OURS and epoch == 1 and len(trained[-1]) == 2:
                state = pickle.dumps(loader._dataloader.state_dict())
    write(rank, trained=trained, length=len(loader))
    if OURS:
        write(
            rank,
            _served=[
                served(loader._dataloader),
                sum(len(x) for batches in trained for x, _ in batches),
            ],
        )
        again = prepare_data_loader(LOADER(data, 4, shuffle=True, **shared))
        again._dataloader.load_state_dict(pickle.loads(state))
        write(rank, _resumed=[plain(batch) for batch in again])
        if (
            RANKS != "1"
        ):  # without shard= it is torch's that reads, which is said: see test_loops.py
            write(
                rank,
                _rebuilt=[
                    plain(batch) for batch in prepare_data_loader(LOADER(data, 4, shuffle=True))
                ],
            )


if __name__ == "__main__":
    script, folder, loaders, out, ranks = sys.argv
    os.environ.update(
        RAY_USAGE_STATS_ENABLED="0", RAY_AUTH_MODE="disabled", RAY_TRAIN_V2_ENABLED="1"
    )
    import ray
    from ray.train import RunConfig, ScalingConfig
    from ray.train.torch import TorchTrainer

    # Its workers are preloaded as well (python/tests/preloaded.py).
    environment = {"py_executable": os.environ["PYTHON_EXEC"]}
    ray.init(num_cpus=int(ranks), include_dashboard=False, runtime_env=environment)
    for which in loaders.split(","):
        os.mkdir(os.path.join(out, which))
        TorchTrainer(
            train,
            train_loop_config=[script, folder, which, os.path.join(out, which), ranks],
            scaling_config=ScalingConfig(num_workers=int(ranks)),
            run_config=RunConfig(storage_path=os.path.join(out, "runs")),
        ).fit()
    ray.shutdown()
