"""accelerate: prepare, skip_first_batches in the second epoch, gather_for_metrics."""

import torch
from accelerate import Accelerator, skip_first_batches
from accelerate.utils import set_seed
from common import DATA, LOADER, REST, write

set_seed(3)
accelerator = Accelerator(cpu=True)
train, validate = LOADER(DATA, 4, shuffle=True), LOADER(DATA, 5)
model = torch.nn.Linear(1, 1)
model, optimizer, train, validate = accelerator.prepare(model, torch.optim.SGD(model.parameters(), 1e-3), train, validate)
trained = []
for epoch in range(3):
    batches = skip_first_batches(train, 2) if epoch == 1 and REST == ["skip"] else train
    trained.append([(x.flatten().tolist(), y.tolist()) for x, y in batches])
gathered = [accelerator.gather_for_metrics(x).flatten().tolist() for x, _ in validate]
write(accelerator.process_index, [len(train), trained, len(validate), gathered])
