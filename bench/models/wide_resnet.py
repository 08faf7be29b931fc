"""The wide residual network of the paper: pre-activation blocks, swish, batch normalisation without an offset.

Layer names follow the published checkpoint, so that its arrays can be carried over by name.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import ClassVar

import keras

from bench.api import Network, Shape, UsageError

BASE_WIDTHS = (16, 32, 64)
SHALLOW = 16  # layers: a deeper network is timed by one of these


@dataclasses.dataclass(frozen=True)
class WideResNetSettings:
    """The paper's: WRN-70-16."""

    depth: int = 70
    width: int = 16

    def __post_init__(self) -> None:
        if self.depth < 10 or (self.depth - 4) % 6:
            raise UsageError(
                f"wide-resnet: depth is {self.depth}; a wide residual network has 6·n + 4 layers: "
                "10, 16, 22, … 70, … 106"
            )
        if self.width < 1:
            raise UsageError(f"wide-resnet: width is {self.width}; it must be at least 1")


class WideResNet(Network):
    """A wide residual network of 6·n + 4 layers, with 16, 32 and 64 channels times the width."""

    Settings = WideResNetSettings
    limits: ClassVar[Mapping[str, float]] = {"depth": 200, "width": 32}
    settings: WideResNetSettings

    @property
    def _blocks(self) -> int:
        """How many blocks each of the three groups has."""
        return (self.settings.depth - 4) // 6

    def build(self, shape: Shape, classes: int) -> keras.Model:
        image = keras.Input(shape)
        x = _conv(16, "init_conv")(image)
        for group, base in enumerate(BASE_WIDTHS):
            for block in range(self._blocks):
                stride = 2 if group > 0 and block == 0 else 1
                name = f"resnet_lay_{group}_block_{block}"
                x = _block(x, base * self.settings.width, stride, project=block == 0, name=name)
        x = keras.ops.mean(_normalised(x, "batchnorm"), axis=(1, 2))
        return keras.Model(image, keras.layers.Dense(classes, name="logits")(x))

    def cost(self, shape: Shape, classes: int) -> int:
        rows, columns, before = shape
        total = rows * columns * 9 * before * 16
        before = 16
        for group, base in enumerate(BASE_WIDTHS):
            channels = base * self.settings.width
            if group > 0:
                rows, columns = -(-rows // 2), -(-columns // 2)
            first = 9 * before * channels + before * channels  # the shortcut of a group's first block is a convolution
            total += rows * columns * (first + (2 * self._blocks - 1) * 9 * channels**2)
            before = channels
        return total + before * classes

    def timed_by(self) -> WideResNet:
        """A shallow one of its width: the blocks of a wide residual network are alike."""
        return WideResNet(dataclasses.replace(self.settings, depth=min(self.settings.depth, SHALLOW)))


def _block(x: keras.KerasTensor, channels: int, stride: int, project: bool, name: str) -> keras.KerasTensor:
    """BN, swish, conv, BN, swish, conv; the projection of a group's first block reads the activated input."""
    activated = _normalised(x, f"{name}-batchnorm_0")
    shortcut = _conv(channels, f"{name}-shortcut", kernel=1, stride=stride)(activated) if project else x
    h = _conv(channels, f"{name}-conv_0", stride=stride)(activated)
    return _conv(channels, f"{name}-conv_1")(_normalised(h, f"{name}-batchnorm_1")) + shortcut


def _conv(channels: int, name: str, kernel: int = 3, stride: int = 1) -> keras.layers.Layer:
    return keras.layers.Conv2D(
        channels, kernel, stride, padding="same", use_bias=False, kernel_initializer="he_normal", name=name
    )


def _normalised(x: keras.KerasTensor, name: str) -> keras.KerasTensor:
    normalise = keras.layers.BatchNormalization(momentum=0.99, epsilon=1e-5, center=False, name=name)
    return keras.activations.swish(normalise(x))
