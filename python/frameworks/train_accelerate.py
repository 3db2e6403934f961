"""accelerate: prepare, skip_first_batches, a break, gather_for_metrics, save_state and load_state. argv adds what is asked of the samplers."""

import torch
from accelerate import Accelerator, skip_first_batches
from accelerate.utils import DataLoaderConfiguration, set_seed
from common import LOADER, OURS, REST, folder, plain, served, write

if OURS:
    import accelerate
    import hdmlp.torch as ht
    ht.use_in(accelerate)

KIND, = REST
DATA = folder()
CONFIGURATION = {"random": {}, "seedable": {"use_seedable_sampler": True}, "stateful": {"use_seedable_sampler": True, "use_stateful_dataloader": True},
                 "split": {"split_batches": True}}[KIND]


def prepared(accelerator):
    """What a script does before it trains, after a restart as well."""
    set_seed(3)
    model = torch.nn.Linear(1, 1)
    return accelerator.prepare(model, torch.optim.SGD(model.parameters(), 1e-3), LOADER(DATA, 4, shuffle=True), LOADER(DATA, 6))


def one_epoch(batches, stop=None, given=None):
    given = [] if given is None else given
    for step, batch in enumerate(batches):
        given.append(plain(batch))
        if step == stop:
            break
    return given


def samples(epochs):
    return sum(len(x) for epoch in epochs for x, _ in epoch)


accelerator = Accelerator(cpu=True, dataloader_config=DataLoaderConfiguration(**CONFIGURATION))
rank = accelerator.process_index
model, optimizer, train, validate = prepared(accelerator)
found = {"train": [one_epoch(train)]}
counted = []
if KIND != "stateful":  # of which accelerate asks that its state be loaded instead
    rest = skip_first_batches(train, 2)
    found["train"].append(one_epoch(rest))
    counted.append([served(rest), samples(found["train"][1:])])
found["train"].append(one_epoch(train, stop=1))
found["train"].append(one_epoch(train))
found["gathered"] = [accelerator.gather_for_metrics(x).flatten().tolist() for x, _ in validate]
found["lengths"] = [len(train), len(validate), train.total_batch_size, train.total_dataset_length]
broken = found["train"][-2]  # accelerate takes a batch more than it yields
counted.append([served(train), samples([found["train"][0], broken, broken[:1], found["train"][-1]])])
write(rank, **found, _served=counted)

# A state amid the second epoch: the rest of that epoch, and another one, here and after a restart.
accelerator.free_memory()
model, optimizer, train, validate = prepared(accelerator)
one_epoch(train)
whole = []
for step, batch in enumerate(train):
    whole.append(plain(batch))
    if step == 1:
        accelerator.save_state("kept")
whole = [whole, one_epoch(train)]
accelerator.free_memory()
model, optimizer, train, validate = prepared(accelerator)
accelerator.load_state("kept")
train.set_epoch(1)
resumed = [one_epoch(train if KIND == "stateful" else skip_first_batches(train, 2))]
train.set_epoch(2)
resumed.append(one_epoch(train))
write(rank, whole=whole, resumed=resumed)
if OURS:
    write(rank, _kind=type(train.base_dataloader).__module__.partition(".")[0])
