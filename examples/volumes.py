"""Trains on volumes in HDF5 files, one per file, as CosmoFlow's: python examples/volumes.py DIR

    torchrun --nproc_per_node=2 examples/volumes.py DIR

Each file has the datasets "full" (edge x edge x edge x 4 channels) and "unitPar" (4 parameters of
the simulated universe, which the model estimates). Without DIR, small random ones are written.
"""

import argparse
import glob
import os
import tempfile

import hdmlp.torch as ht
import torch
from torch import nn


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("dir", nargs="?", help="directory of *.hdf5; default: random volumes")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=4)
    return parser.parse_args()


def write(directory, count=32, edge=16):
    """Writes random volumes whose mean follows from their parameters, uncompressed."""
    import h5py

    generator = torch.Generator().manual_seed(1)
    for i in range(count):
        parameters = torch.rand(4, generator=generator)
        volume = torch.rand(edge, edge, edge, 4, generator=generator) + parameters
        with h5py.File(f"{directory}/{i:04d}.hdf5", "w") as file:
            file["full"] = (volume * 100).to(torch.int16).numpy()
            file["unitPar"] = parameters.numpy()


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv3d(4, 8, 3, padding=1),
            nn.ReLU(),
            nn.AdaptiveAvgPool3d(1),
            nn.Flatten(),
            nn.Linear(8, 4),
        )

    def forward(self, volumes):
        return self.layers(volumes.permute(0, 4, 1, 2, 3).float() / 100)


def train(directory, options):
    files = sorted(glob.glob(f"{directory}/*.hdf5"))
    dataset = ht.HDF5(files, "full", "unitPar", whole=True)
    ranks = int(os.environ.get("WORLD_SIZE", "1"))
    loader = ht.DataLoader(
        dataset,
        options.batch_size,
        shuffle=True,
        seed=42,
        epochs=options.epochs,
        shard=ranks > 1,
    )
    if ranks > 1:
        torch.distributed.init_process_group("gloo")
    torch.manual_seed(1)
    model = Model()
    if ranks > 1:
        model = nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for epoch in range(options.epochs):
        total, count = 0.0, 0
        for volumes, parameters in loader:
            loss = nn.functional.mse_loss(model(volumes), parameters)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total, count = total + loss.item() * len(volumes), count + len(volumes)
        print(f"epoch {epoch}: {count} volumes, loss {total / count:.4f}", flush=True)
    if ranks > 1:
        torch.distributed.destroy_process_group()


def main():
    options = arguments()
    if options.dir is not None:
        train(options.dir, options)
        return
    with tempfile.TemporaryDirectory() as directory:
        write(directory)
        train(directory, options)


if __name__ == "__main__":
    main()
