"""DenseNet with bottlenecks and compression by one half (Huang et al., 2017)."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F


def convolution(inside: int, outside: int, size: int) -> nn.Sequential:
    """Return batch norm, ReLU, convolution: in this order, the reverse of ResNet's."""
    filters = nn.Conv2d(inside, outside, size, padding=size // 2, bias=False)
    nn.init.kaiming_normal_(filters.weight)
    return nn.Sequential(nn.BatchNorm2d(inside), nn.ReLU(inplace=True), filters)


class DenseLayer(nn.Module):
    """A layer that adds `growth` channels to those it is given."""

    def __init__(self, inside: int, growth: int) -> None:
        super().__init__()
        self.narrow = convolution(inside, 4 * growth, 1)
        self.grow = convolution(4 * growth, growth, 3)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat((x, self.grow(self.narrow(x))), dim=1)


class DenseNet(nn.Module):
    def __init__(self, *, blocks: tuple[int, ...], growth: int, classes: int) -> None:
        super().__init__()
        channels = 2 * growth
        self.stem = nn.Sequential(
            nn.Conv2d(3, channels, 7, stride=2, padding=3, bias=False),
            nn.BatchNorm2d(channels),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(3, stride=2, padding=1),
        )
        layers: list[nn.Module] = []
        for block, count in enumerate(blocks):
            if block:
                layers += [convolution(channels, channels // 2, 1), nn.AvgPool2d(2, ceil_mode=True)]
                channels //= 2
            for _ in range(count):
                layers.append(DenseLayer(channels, growth))
                channels += growth
        self.layers = nn.Sequential(*layers, nn.BatchNorm2d(channels))
        self.head = nn.Linear(channels, classes)

    def forward(self, pictures: Tensor) -> Tensor:
        return self.head(F.relu(self.layers(self.stem(pictures))).mean(dim=(2, 3)))
