"""Lightning's Fabric: loaders made before there are ranks, set up with the model; and the rest of
an epoch from a state kept amid it."""

import lightning
import torch
from common import LOADER, OURS, RANKS, folder, plain, served, write

DATA = folder()


def loaders(fabric):
    found = fabric.setup_dataloaders(
        LOADER(DATA, 4, shuffle=True, generator=torch.Generator().manual_seed(3)), LOADER(DATA, 5)
    )
    return found


fabric = lightning.Fabric(
    accelerator="cpu", devices=int(RANKS), strategy="ddp" if RANKS != "1" else "auto"
)
fabric.launch()
fabric.seed_everything(7)
model = torch.nn.Linear(1, 1)
model, optimizer = fabric.setup(model, torch.optim.SGD(model.parameters(), 1e-3))
train, validate = loaders(fabric)
trained, state = [], None
for epoch in range(3):
    trained.append([])
    for step, batch in enumerate(train):
        trained[-1].append(plain(batch))
        fabric.backward(model(batch[0] / 1000).mean())
        if OURS and (epoch, step) == (1, 1):
            fabric.save("kept", {"model": model, "loader": train._dataloader.state_dict()})
write(
    fabric.global_rank,
    trained=trained,
    validated=[plain(x) for x in validate],
    lengths=[len(train), len(validate)],
)
if OURS:
    again, _ = loaders(fabric)
    again._dataloader.load_state_dict(fabric.load("kept")["loader"])
    again._num_iter_calls = 1
    write(
        fabric.global_rank, _resumed=[plain(x) for x in again], _served=[served(train._dataloader)]
    )
