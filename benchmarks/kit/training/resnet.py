"""ResNet with bottlenecks (He et al., 2015), the stride in the 3 x 3 convolution."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F


def convolution(inside: int, outside: int, size: int, stride: int = 1) -> nn.Sequential:
    """Return convolution and batch norm, each channel's variance kept on the way back."""
    filters = nn.Conv2d(inside, outside, size, stride, padding=size // 2, bias=False)
    nn.init.kaiming_normal_(filters.weight, mode="fan_out")
    return nn.Sequential(filters, nn.BatchNorm2d(outside))


class Bottleneck(nn.Module):
    def __init__(self, inside: int, width: int, stride: int) -> None:
        super().__init__()
        outside = 4 * width
        self.narrow = convolution(inside, width, 1)
        self.middle = convolution(width, width, 3, stride)
        self.widen = convolution(width, outside, 1)
        # from 1 the gradients grow with every block, in ResNet-152 out of fp16's range; from 0, as
        # some train, the loss of the first steps would feel no block
        nn.init.constant_(self.widen[1].weight, 0.25)
        changes = stride != 1 or inside != outside
        self.shortcut = convolution(inside, outside, 1, stride) if changes else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        inner = F.relu(self.middle(F.relu(self.narrow(x))))
        return F.relu(self.widen(inner) + self.shortcut(x))


class ResNet(nn.Module):
    def __init__(self, *, blocks: tuple[int, ...], width: int, classes: int) -> None:
        super().__init__()
        self.stem = convolution(3, width, 7, stride=2)
        stages: list[nn.Module] = []
        inside = width
        for stage, count in enumerate(blocks):
            for block in range(count):
                stride = 2 if stage and not block else 1
                stages.append(Bottleneck(inside, width << stage, stride))
                inside = 4 * (width << stage)
        self.stages = nn.Sequential(*stages)
        self.head = nn.Linear(inside, classes)

    def forward(self, pictures: Tensor) -> Tensor:
        x = F.max_pool2d(F.relu(self.stem(pictures)), 3, stride=2, padding=1)
        return self.head(self.stages(x).mean(dim=(2, 3)))
