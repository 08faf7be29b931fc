"""The wide residual network of the paper: pre-activation blocks, swish, batch normalisation without an offset.

Layer names follow the published checkpoint, so that its arrays can be carried over by name.
"""

from __future__ import annotations

import keras

from bench.api import Shape, UsageError

BASE_WIDTHS = (16, 32, 64)


def blocks_per_group(depth: int) -> int:
    if depth < 10 or (depth - 4) % 6:
        raise UsageError(
            f"network depth is {depth}; a wide residual network has 6·n + 4 layers: 10, 16, 22, … 70, … 106"
        )
    return (depth - 4) // 6


def wide_resnet(shape: Shape, classes: int, depth: int, width: int) -> keras.Model:
    """Transformed images (B×H×W×C) to logits (B×classes)."""
    blocks = blocks_per_group(depth)
    if width < 1:
        raise UsageError(f"network width is {width}; it must be at least 1")
    image = keras.Input(shape)
    x = _conv(16, "init_conv")(image)
    for group, base in enumerate(BASE_WIDTHS):
        for block in range(blocks):
            stride = 2 if group > 0 and block == 0 else 1
            x = _block(x, base * width, stride, project=block == 0, name=f"resnet_lay_{group}_block_{block}")
    x = keras.ops.mean(_normalised(x, "batchnorm"), axis=(1, 2))
    return keras.Model(image, keras.layers.Dense(classes, name="logits")(x))


def products(shape: Shape, classes: int, depth: int, width: int) -> int:
    """The multiplications of a forward pass of `wide_resnet` over one image: of its convolutions and its last layer."""
    (rows, columns, before), blocks = shape, blocks_per_group(depth)
    total = rows * columns * 9 * before * 16
    before = 16
    for group, base in enumerate(BASE_WIDTHS):
        channels = base * width
        if group > 0:
            rows, columns = -(-rows // 2), -(-columns // 2)
        first = 9 * before * channels + before * channels  # the shortcut of a group's first block is a convolution too
        total += rows * columns * (first + (2 * blocks - 1) * 9 * channels**2)
        before = channels
    return total + before * classes


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
