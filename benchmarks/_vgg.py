"""VGG without batch norm (Simonyan and Zisserman, 2015); no dropout, so that a loss repeats."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F


class VGG(nn.Module):
    """`blocks`: 3 x 3 convolutions between two poolings."""

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
            nn.Linear(inside * 7 * 7, hidden),
            nn.ReLU(inplace=True),
            nn.Linear(hidden, hidden),
            nn.ReLU(inplace=True),
            nn.Linear(hidden, classes),
        )

    def forward(self, pictures: Tensor) -> Tensor:
        x = self.features(pictures)
        if x.shape[-1] != 7:  # it is at 224 pixels
            x = F.adaptive_avg_pool2d(x, 7)
        return self.classifier(x.flatten(1))
