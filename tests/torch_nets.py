"""Classifiers of PyTorch for the tests, as a user would write them: imported where torch is installed only."""

from __future__ import annotations

import torch
from torch import nn


class Tiny(nn.Sequential):
    """Two convolutions with a batch normalisation, for images of any size."""

    def __init__(self, shape: tuple[int, int, int] = (32, 32, 3), classes: int = 10) -> None:
        super().__init__(
            nn.Conv2d(shape[2], 8, 3, stride=2, padding=1),
            nn.BatchNorm2d(8),
            nn.ReLU(),
            nn.Conv2d(8, 16, 3, stride=2, padding=1),
            nn.GELU(),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(16, classes),
        )


class Dropping(Tiny):
    """The same with dropout."""

    def __init__(self, classes: int) -> None:
        super().__init__(classes=classes)
        self.insert(7, nn.Dropout(0.5))


class Counting(Tiny):
    """Counts its calls in a buffer, also where it does not train, and answers by the count."""

    count: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(()))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        self.count += 1
        return super().forward(images) + self.count


class Last(nn.Module):
    """Reads channels last; its weights are shared between two layers, one buffer is whole numbers, one not in the state."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(3, 8)
        self.second = nn.Linear(3, 8)
        self.second.weight = self.first.weight
        self.logits = nn.Linear(16, 10)
        self.register_buffer("order", torch.arange(15, -1, -1))
        self.register_buffer("scale", torch.full((16,), 2.0), persistent=False)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        pixels = torch.cat([torch.relu(self.first(images)), torch.sigmoid(self.second(images))], -1)
        return self.logits(pixels.mean((1, 2))[:, self.order] * self.scale)


class Block(nn.Module):
    """Two convolutions and the way past them."""

    def __init__(self, before: int, channels: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(before, channels, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        self.past = nn.Sequential()
        if stride > 1 or before != channels:
            self.past = nn.Sequential(nn.Conv2d(before, channels, 1, stride, bias=False), nn.BatchNorm2d(channels))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.bn2(self.conv2(torch.relu(self.bn1(self.conv1(x)))))
        return torch.relu(y + self.past(x))


def resnet18(classes: int = 10) -> nn.Module:
    """The residual network of 18 layers in its form for CIFAR-10."""
    layers: list[nn.Module] = [nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.BatchNorm2d(64), nn.ReLU()]
    before = 64
    for channels, stride in ((64, 1), (64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), (512, 1)):
        layers.append(Block(before, channels, stride))
        before = channels
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, classes))


def probabilities() -> nn.Module:
    return nn.Sequential(Tiny(), nn.Softmax(-1))


def uneven() -> nn.Module:
    """A network whose images begin at odd addresses in memory: their bits depend on their place in a batch."""
    return nn.Sequential(nn.Conv2d(3, 7, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(7 * 15 * 15, 10))


def lazy() -> nn.Module:
    """Its layers learn their sizes from the first image."""
    return nn.Sequential(nn.LazyConv2d(4, 3), nn.LazyBatchNorm2d(), nn.ReLU(), nn.Flatten(), nn.LazyLinear(10))


def half() -> nn.Module:
    return Tiny().half()


def double() -> nn.Module:
    return Tiny().double()


def complex_weights() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(3072, 10, dtype=torch.complex64))


def nothing() -> None:
    return None


def failing() -> nn.Module:
    raise RuntimeError("no weights\nto be found")


def cutting() -> nn.Module:
    """A network through which no gradient goes back."""

    class Cut(Tiny):
        def forward(self, images: torch.Tensor) -> torch.Tensor:
            return super().forward(images.detach())

    return Cut()


not_a_function = 3
