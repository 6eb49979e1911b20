"""VGG without batch norm (Simonyan and Zisserman, 2015); no dropout, so that a loss repeats."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

EDGE = 7  # of what the classifier sees: with 224 pixels the pictures have shrunk to that


def means(edge: int, like: Tensor) -> Tensor:
    """Return a matrix; its row i takes the mean over the i-th of `EDGE` overlapping stretches of an
    edge."""
    matrix = torch.zeros(EDGE, edge, dtype=like.dtype, device=like.device)
    for row in range(EDGE):
        begin, end = row * edge // EDGE, math.ceil((row + 1) * edge / EDGE)
        matrix[row, begin:end] = 1 / (end - begin)
    return matrix


def pool(x: Tensor) -> Tensor:
    """Pool adaptively by two products: torch's own adds its gradients in any order on a GPU."""
    if x.shape[-1] == EDGE:
        return x
    mean = means(x.shape[-1], x)
    return mean @ x @ mean.T


class VGG(nn.Module):
    """A VGG network; `blocks`: 3 x 3 convolutions between two poolings."""

    def __init__(self, *, blocks: tuple[int, ...], width: int, hidden: int, classes: int) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        inside = 3
        for block, count in enumerate(blocks):
            outside = width << min(block, 3)
            for _ in range(count):
                filters = nn.Conv2d(inside, outside, 3, padding=1)
                nn.init.kaiming_normal_(filters.weight, mode="fan_out")
                layers += [filters, nn.ReLU(inplace=True)]
                inside = outside
            layers.append(nn.MaxPool2d(2))
        self.features = nn.Sequential(*layers)
        self.classifier = nn.Sequential(
            nn.Linear(inside * EDGE * EDGE, hidden),
            nn.ReLU(inplace=True),
            nn.Linear(hidden, hidden),
            nn.ReLU(inplace=True),
            nn.Linear(hidden, classes),
        )

    def forward(self, pictures: Tensor) -> Tensor:
        return self.classifier(pool(self.features(pictures)).flatten(1))
