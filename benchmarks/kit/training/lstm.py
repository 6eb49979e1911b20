"""A stack of LSTM layers that reads a sequence and names its class after the last vector."""

from __future__ import annotations

from torch import Tensor, nn


class LSTM(nn.Module):
    def __init__(self, *, features: int, width: int, layers: int, classes: int) -> None:
        super().__init__()
        self.layers = nn.LSTM(features, width, layers, batch_first=True)
        self.head = nn.Linear(width, classes)
        for matrix in self.layers.parameters():
            if matrix.dim() == 2:  # torch's own beginnings fade from layer to layer: then the loss
                nn.init.normal_(matrix, std=2 / matrix.shape[1] ** 0.5)  # would feel only the head

    def forward(self, sequences: Tensor) -> Tensor:
        outputs, _ = self.layers(sequences)
        return self.head(outputs[:, -1])
