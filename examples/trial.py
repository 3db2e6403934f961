"""A trial of search_optuna.py and search_ray.py: a small net and its training."""

import hdmlp.torch as ht
import torch
from torchvision import transforms


def losses(data, rate, batch, epochs, **sharing):
    """Trains with a learning rate, and yields the mean loss of each epoch; ``sharing``: share= and
    share_members= of the loader."""
    crop = transforms.RandomResizedCrop(96, scale=(0.5, 1.0))
    dataset = ht.ImageFolder(data, transforms.Compose([crop, transforms.ToTensor()]))
    order = {"shuffle": True, "seed": 42, "epochs": epochs}
    loader = ht.DataLoader(dataset, batch, **order, **sharing)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    linear = torch.nn.Linear(48, len(dataset.classes))
    net = torch.nn.Sequential(torch.nn.AdaptiveAvgPool2d(4), torch.nn.Flatten(), linear)
    optimizer = torch.optim.SGD(net.parameters(), rate)
    for _ in range(epochs):
        total = 0.0
        for images, labels in loader:
            loss = torch.nn.functional.cross_entropy(net(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        yield total / len(loader)
