"""Searches for a learning rate and a batch size with Ray Tune: search_ray.py DATA.

The trials train at the same time, each in a process of its own, on batches that are prepared once
for all of them. Tune's scheduler stops those early that do worse than the others did.
"""

import os
import sys
import tempfile

TRIALS, EPOCHS = 8, 8


def train(config):
    """A trial: reports the loss of each epoch."""
    from ray import tune

    sys.path.append(config["examples"])
    from trial import losses

    trial = [config[key] for key in ("data", "rate", "batch")]
    for loss in losses(*trial, EPOCHS, share="ray", share_members=TRIALS):
        tune.report({"loss": loss})


def search(data, folder, train=train):
    """Returns the results of all trials; Tune keeps its files in the folder."""
    import hdmlp.torch as ht
    import ray
    from ray import tune

    # This process starts HDMLP's daemon: Ray kills what a trial that it kills has started.
    keeper = ht.DataLoader(ht.ImageFolder(data), 1)
    next(iter(keeper))
    ray.init(num_cpus=TRIALS, include_dashboard=False)  # so many trials at the same time
    results = tune.Tuner(
        train,
        param_space={
            "data": data,
            "examples": os.path.dirname(os.path.abspath(__file__)),
            "rate": tune.loguniform(1e-4, 1.0),
            "batch": tune.choice([8, 16]),
        },
        tune_config=tune.TuneConfig(
            metric="loss",
            mode="min",
            num_samples=TRIALS,
            scheduler=tune.schedulers.ASHAScheduler(max_t=EPOCHS, reduction_factor=2),
            search_alg=tune.search.basic_variant.BasicVariantGenerator(random_state=0),
        ),
        run_config=tune.RunConfig(storage_path=folder),
    ).fit()
    ray.shutdown()
    keeper.close()
    return results


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        best = search(sys.argv[1], scratch).get_best_result()
        rate, batch = best.config["rate"], best.config["batch"]
        print(f"loss {best.metrics['loss']:.3f} with a rate of {rate:.2g} and batches of {batch}")
