"""Searches for a learning rate and a batch size with Optuna: search_optuna.py DATA.

The trials train at the same time, each in a process of its own, on batches that are prepared once
for all of them. Optuna's pruner has those stopped early that do worse than the others did; their
processes are killed, which costs the others nothing.
"""

import multiprocessing
import sys
from multiprocessing.connection import wait

import optuna
from trial import losses

TRIALS, EPOCHS = 8, 8
SPACE = {
    "rate": optuna.distributions.FloatDistribution(1e-4, 1.0, log=True),
    "batch": optuna.distributions.CategoricalDistribution([8, 16]),
}


def run(pipe, data, rate, batch):
    """A trial's process: sends the loss of each epoch."""
    for loss in losses(data, rate, batch, EPOCHS, share="optuna", share_members=TRIALS):
        pipe.send(loss)


def search(data, run=run):
    """Returns the study, after all trials."""
    study = optuna.create_study(
        sampler=optuna.samplers.RandomSampler(seed=0),
        pruner=optuna.pruners.SuccessiveHalvingPruner(min_resource=1, reduction_factor=2),
    )
    processes, running = multiprocessing.get_context("spawn"), {}
    for _ in range(TRIALS):
        trial = study.ask(SPACE)
        ours, theirs = processes.Pipe()
        process = processes.Process(target=run, args=(theirs, data), kwargs=trial.params)
        process.start()
        theirs.close()
        running[ours] = trial, process, []
    while running:
        for pipe in wait(list(running)):
            trial, process, told = running[pipe]
            try:
                told.append(pipe.recv())
            except EOFError:
                end = "COMPLETE" if len(told) == EPOCHS else "FAIL"
            else:
                trial.report(told[-1], len(told))
                if len(told) == EPOCHS or not trial.should_prune():
                    continue
                end = "PRUNED"
                process.kill()
            process.join()
            del running[pipe]
            value = told[-1] if end == "COMPLETE" else None
            study.tell(trial, value, state=optuna.trial.TrialState[end])
    return study


if __name__ == "__main__":
    best = search(sys.argv[1]).best_trial
    print(f"loss {best.value:.3f} with {best.params}")
