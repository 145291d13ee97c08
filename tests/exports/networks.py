"""Small networks of convolutions, and recurrent ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from architectures import Built, noise
from torch import nn


class ConvNeXtBlock(nn.Module):
    """Depthwise 7x7, layer norm over channels last, and two pointwise layers."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(width, width, 7, padding=3, groups=width)
        self.norm = nn.LayerNorm(width)
        self.widen = nn.Linear(width, 4 * width)
        self.narrow = nn.Linear(4 * width, width)
        self.scale = nn.Parameter(torch.full((width,), 0.5))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
        y = self.narrow(nn.functional.gelu(self.widen(y))) * self.scale
        return x + y.permute(0, 3, 1, 2)


class Residual(nn.Module):
    """ResNet's basic block, with a strided projection."""

    def __init__(self, inside: int, outside: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(inside, outside, 3, 2, 1, bias=False),
            nn.BatchNorm2d(outside),
            nn.ReLU(),
            nn.Conv2d(outside, outside, 3, 1, 1, bias=False),
            nn.BatchNorm2d(outside),
        )
        self.skip = nn.Sequential(
            nn.Conv2d(inside, outside, 1, 2, bias=False), nn.BatchNorm2d(outside)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.body(x) + self.skip(x))


class Inverted(nn.Module):
    """MobileNetV2's block with a squeeze-and-excitation in the middle, as in MobileNetV3."""

    def __init__(self, width: int) -> None:
        super().__init__()
        inner = 4 * width
        self.expand = nn.Sequential(
            nn.Conv2d(width, inner, 1, bias=False), nn.BatchNorm2d(inner), nn.ReLU6()
        )
        self.depthwise = nn.Sequential(
            nn.Conv2d(inner, inner, 3, 1, 1, groups=inner, bias=False),
            nn.BatchNorm2d(inner),
            nn.Hardswish(),
        )
        self.squeeze = nn.Sequential(
            nn.AdaptiveAvgPool2d(1), nn.Conv2d(inner, inner, 1), nn.Hardsigmoid()
        )
        self.project = nn.Sequential(nn.Conv2d(inner, width, 1, bias=False), nn.BatchNorm2d(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.depthwise(self.expand(x))
        return x + self.project(y * self.squeeze(y))


class Recurrent(nn.Module):
    """A recurrent layer that returns its sequence and its last state."""

    def __init__(self, layer: type[nn.Module], **options: Any) -> None:
        super().__init__()
        self.layer = layer(8, 16, batch_first=True, bidirectional=True, num_layers=2, **options)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y, state = self.layer(x)
        return (y, *(state if isinstance(state, tuple) else (state,)))


def cnn(*blocks: nn.Module) -> nn.Sequential:
    head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 5)]
    stem = [nn.Conv2d(3, 16, 3, 2, 1), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    return nn.Sequential(*stem, *blocks, *head)


IMAGE = {"x": noise(2, 3, 32, 32)}
SERIES = {"x": noise(2, 7, 8)}

NETWORKS: dict[str, Callable[[], Built]] = {
    "resnet": lambda: (cnn(Residual(16, 16)), IMAGE),
    "mobilenet": lambda: (cnn(Inverted(16)), IMAGE),
    "convnext": lambda: (cnn(ConvNeXtBlock(16)), IMAGE),
    "lstm": lambda: (Recurrent(nn.LSTM), SERIES),
    "gru": lambda: (Recurrent(nn.GRU), SERIES),
    "rnn": lambda: (Recurrent(nn.RNN, nonlinearity="relu"), SERIES),
}
