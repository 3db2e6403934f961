"""A model whose gradients are averaged over ranks, with a DistributedSampler. Steps take 20 ms.

Start it with torchrun, and perhaps a directory of files to read; or with the number of processes to
fork or spawn, how, and a port.
"""

import os
import sys
import time

import torch
import torch.distributed as dist
from sleeping import Files
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Numbers(Dataset):
    def __len__(self):
        return 1000

    def __getitem__(self, index):
        time.sleep(0.001)
        return torch.full((3,), float(index))


def train(rank=0, world=1, port=0, root=None):
    if port:
        os.environ.update(
            RANK=str(rank), WORLD_SIZE=str(world), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port)
        )
    dist.init_process_group("gloo")
    dataset = Numbers() if root is None else Files(root)
    sampler = DistributedSampler(dataset)
    loader = DataLoader(dataset, batch_size=8, sampler=sampler, num_workers=1)
    model = DistributedDataParallel(torch.nn.Linear(3, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-9)
    for epoch in range(1000):
        sampler.set_epoch(epoch)
        for batch in loader:
            loss = model(batch).sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            time.sleep(0.02)


if __name__ == "__main__":
    if len(sys.argv) < 3:
        train(root=sys.argv[1] if len(sys.argv) > 1 else None)
    else:
        import torch.multiprocessing as mp

        mp.start_processes(
            train, (int(sys.argv[1]), int(sys.argv[3])), int(sys.argv[1]), start_method=sys.argv[2]
        )
        print("all ranks ended")
