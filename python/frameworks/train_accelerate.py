"""accelerate: prepare, skip_first_batches, a break, gather_for_metrics, save_state and load_state.
argv adds the configurations."""

import torch
from accelerate import Accelerator, skip_first_batches
from accelerate.utils import DataLoaderConfiguration, set_seed
from common import LOADER, OURS, REST, folder, plain, served, write

if OURS:
    import accelerate
    import hdmlp.torch as ht

    ht.use_in(accelerate)

DATA = folder()
CONFIGURATIONS = {
    "random": {},
    "seedable": {"use_seedable_sampler": True},
    "stateful": {"use_seedable_sampler": True, "use_stateful_dataloader": True},
    "split": {"split_batches": True},
}


def prepared(accelerator):
    """What a script does before it trains, after a restart as well."""
    set_seed(3)
    model = torch.nn.Linear(1, 1)
    return accelerator.prepare(
        model,
        torch.optim.SGD(model.parameters(), 1e-3),
        LOADER(DATA, 4, shuffle=True),
        LOADER(DATA, 6),
    )


def one_epoch(batches, stop=None):
    given = []
    for step, batch in enumerate(batches):
        given.append(plain(batch))
        if step == stop:
            break
    return given


def samples(*epochs):
    return sum(len(x) for epoch in epochs for x, _ in epoch)


def trains(accelerator, kind):
    """Whole epochs, one without its beginning, one without its end; and metrics."""
    _, _, train, validate = prepared(accelerator)
    given, counted = [one_epoch(train)], []
    if kind != "stateful":  # of which accelerate asks that its state be loaded instead
        rest = skip_first_batches(train, 2)
        given.append(one_epoch(rest))
        counted.append([served(rest), samples(given[-1])])
    broken = one_epoch(train, stop=1)
    last = one_epoch(train)
    counted.append(
        [served(train), samples(given[0], broken, broken[:1], last)]
    )  # accelerate takes a batch more than it yields
    gathered = [accelerator.gather_for_metrics(x).flatten().tolist() for x, _ in validate]
    return {
        kind: [
            *given,
            broken,
            last,
            gathered,
            len(train),
            len(validate),
            train.total_batch_size,
            train.total_dataset_length,
        ],
        f"_{kind}": counted,
    }


def restarts(accelerator, kind):
    """A state amid the second epoch: the rest of that epoch, and another one, here and after a
    restart."""
    _, _, train, _ = prepared(accelerator)
    one_epoch(train)
    whole = []
    for step, batch in enumerate(train):
        whole.append(plain(batch))
        if step == 1:
            accelerator.save_state(f"kept {kind}")
    whole = [whole, one_epoch(train)]
    accelerator.free_memory()
    _model, _optimizer, train, _validate = prepared(accelerator)
    accelerator.load_state(f"kept {kind}")
    train.set_epoch(1)
    resumed = [one_epoch(train if kind == "stateful" else skip_first_batches(train, 2))]
    train.set_epoch(2)
    resumed.append(one_epoch(train))
    return {
        f"{kind}, whole": whole,
        f"{kind}, resumed": resumed,
        "_module": type(train.base_dataloader).__module__,
    }


for kind in REST[0].split(","):
    accelerator = Accelerator(
        cpu=True, dataloader_config=DataLoaderConfiguration(**CONFIGURATIONS[kind])
    )
    write(accelerator.process_index, **trains(accelerator, kind))
    accelerator.free_memory()
    write(accelerator.process_index, **restarts(accelerator, kind))
    accelerator.free_memory()
