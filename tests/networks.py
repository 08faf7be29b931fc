"""The built-in network, as tests ask for it."""

from __future__ import annotations

import keras

from bench.api import Shape
from bench.models.architecture import Architecture


def wide(depth: int, width: int) -> Architecture:
    """The wide residual network of this size."""
    return Architecture.named("wide-resnet", {"depth": depth, "width": width})


def wide_resnet(shape: Shape, classes: int, depth: int, width: int) -> keras.Model:
    """The same, built."""
    return wide(depth, width).build(shape, classes)
