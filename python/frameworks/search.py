"""Runs an example's search, and then its winner alone: python search.py NAME DATA FOLDER. NAME is
optuna or ray. Prints a JSON object.

In trials with a low learning rate the process is killed at its first step.
"""

import functools
import json
import os
import signal
import sys

EXAMPLES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "examples")
sys.path.insert(0, EXAMPLES)

#: Trials with less are killed.
LOW = 1e-3


def kill_if_low(rate):
    """Has the first step of this process's training kill it."""
    import torch

    if rate < LOW:
        torch.optim.SGD.step = lambda *_: os.kill(os.getpid(), signal.SIGKILL)


def optuna_trial(pipe, data, rate, batch):
    """What a process of search_optuna.py does here."""
    import search_optuna

    kill_if_low(rate)
    search_optuna.run(pipe, data, rate, batch)


def with_optuna(data, folder):
    """The counts of trials by how they ended, and the winner's loss and parameters."""
    import search_optuna

    study = search_optuna.search(data, optuna_trial)
    states = [trial.state.name for trial in study.trials]
    best = study.best_trial
    return {
        "whole": states.count("COMPLETE"),
        "stopped": states.count("PRUNED"),
        "killed": states.count("FAIL"),
    }, (best.value, best.params["rate"], best.params["batch"])


def ray_trial(config):
    """What a process of search_ray.py does here."""
    sys.path.append(config["examples"])
    import search_ray

    kill_if_low(config["rate"])
    search_ray.train(config)


def with_ray(data, folder):
    """As with_optuna."""
    import ray
    import search_ray

    # The trials' processes are preloaded as well (python/tests/preloaded.py).
    environment = {"py_executable": os.environ["PYTHON_EXEC"]}
    ray.init = functools.partial(ray.init, runtime_env=environment)
    results = search_ray.search(data, folder, ray_trial)
    whole = [r for r in results if not r.error
             and r.metrics["training_iteration"] == search_ray.EPOCHS]  # fmt: skip
    best = min(whole, key=lambda r: r.metrics["loss"])
    return {
        "whole": len(whole),
        "stopped": len(results) - len(whole) - len(results.errors),
        "killed": len(results.errors),
    }, (best.metrics["loss"], best.config["rate"], best.config["batch"])


def main():
    name, data, folder = sys.argv[1:]
    ended, (loss, rate, batch) = {"optuna": with_optuna, "ray": with_ray}[name](data, folder)
    from trial import losses

    *_, alone = losses(data, rate, batch, 8)
    print(json.dumps({**ended, "loss": loss, "alone": alone}))


if __name__ == "__main__":
    main()
