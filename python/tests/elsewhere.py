"""A transform of torchvision that the daemon does not carry out."""

from torchvision import transforms


def elastic():
    """It draws, and works on images and on tensors of at least 4 pixels."""
    return transforms.ElasticTransform(2.0, 0.3)
