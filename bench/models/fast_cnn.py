"""The small fast network: three blocks of two convolutions, made to learn CIFAR-10 in minutes on two cores.

Its parts are those of the public speed records on CIFAR-10: a fixed whitening of 2×2 patches in front, convolutions that
begin by handing their input on, batch normalisations with an offset and no scale, the maximum of the last map.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar, Literal, get_args

import keras
import numpy as np

from bench.api import Network, Shape, UsageError

Front = Literal["whitening", "learned", "pixelwise"]
WHITENING = "whitening"
PICTURE = "picture"
PATCH = 2  # pixels on a side of what is whitened
WHITENED_IMAGES = 5000  # the first so many training images say what is to be whitened
WHITENING_FLOOR = 5e-4  # added to the variances, of standardised images, before they are divided by
LEARNED_CHANNELS = 24  # as many as whitening gives for three channels
LOGIT_SCALE = 1 / 9
MOST_BLOCKS = 8


@dataclasses.dataclass(frozen=True)
class FastCNNSettings:
    """Widths of 64, 256 and 256 are the larger one in use."""

    widths: tuple[int, ...] = (64, 128, 128)
    """Channels of the blocks, each of which halves the sides of its input."""
    front: Front = "whitening"
    """What comes first: `whitening` of RGB, fixed, by the training images as they are before any transform; `learned`, a
    3×3 convolution; or `pixelwise`, a few 1×1 convolutions and a 3×3 one that make a picture of many channels."""
    front_widths: tuple[int, ...] = (64, 48, 12, 32)
    """Channels of the pixelwise front: its 1×1 convolutions, the picture, and a 3×3 convolution of the picture."""

    def __post_init__(self) -> None:
        if not 1 <= len(self.widths) <= MOST_BLOCKS or min(self.widths) < 1:
            raise UsageError(f"fast-cnn: widths is {self.widths}; give 1 to {MOST_BLOCKS} numbers of at least 1")
        if self.front not in get_args(Front):
            raise UsageError(f"fast-cnn: front is {self.front!r}; choose {', '.join(get_args(Front))}")
        if not 2 <= len(self.front_widths) <= MOST_BLOCKS or min(self.front_widths) < 1:
            raise UsageError(
                f"fast-cnn: front_widths is {self.front_widths}; give 2 to {MOST_BLOCKS} numbers of at least 1"
            )


@dataclasses.dataclass(frozen=True)
class _Convolution:
    """One of the network's convolutions: of how many channels, how wide, and what follows it."""

    name: str
    channels: int
    kernel: int = 3
    padding: str = "same"
    pooled: bool = False
    normalised: bool = True
    identity: bool = False
    """Whether it begins by handing its input's channels on."""


class FastCNN(Network):
    """A small network that learns fast: three blocks of two convolutions; 92 % on CIFAR-10 in minutes on two cores."""

    Settings = FastCNNSettings
    limits: ClassVar[Mapping[str, float]] = {"widths": 2048, "front_widths": 2048}
    settings: FastCNNSettings

    def build(self, shape: Shape, classes: int) -> keras.Model:
        self._check(shape)
        image = keras.Input(shape)
        x = image
        for convolution in self._convolutions():
            x = _applied(convolution, x)
        x = keras.layers.GlobalMaxPooling2D()(x)
        # A kernel uniform in ±1/√n, as for convolutions that are not the identity.
        logits = keras.layers.Dense(classes, use_bias=False, kernel_initializer=_uniform(), name="logits")(x)
        return keras.Model(image, logits * LOGIT_SCALE)

    def cost(self, shape: Shape, classes: int) -> int:
        self._check(shape)
        (rows, columns, before), total = shape, 0
        for convolution in self._convolutions():
            if convolution.padding == "valid":
                rows, columns = rows - convolution.kernel + 1, columns - convolution.kernel + 1
            total += rows * columns * convolution.kernel**2 * before * convolution.channels
            before = convolution.channels
            if convolution.pooled:
                rows, columns = rows // 2, columns // 2
        return total + before * classes

    def prepare(self, model: keras.Model, images: np.ndarray) -> None:
        if self.settings.front == "whitening":
            model.get_layer(WHITENING).set_weights(_whitening(images[:WHITENED_IMAGES]))

    def picture_layer(self) -> str | None:
        return PICTURE if self.settings.front == "pixelwise" else None

    def _convolutions(self) -> list[_Convolution]:
        """All its convolutions, in their order."""
        return [*self._front(), *(part for i, width in enumerate(self.settings.widths) for part in _block(i, width))]

    def _front(self) -> list[_Convolution]:
        if self.settings.front == "whitening":
            channels = 2 * 3 * PATCH**2  # every direction of a patch, and its negative
            return [_Convolution(WHITENING, channels, PATCH, "valid", normalised=False)]
        if self.settings.front == "learned":
            return [_Convolution("front", LEARNED_CHANNELS)]
        *pixelwise, picture, last = self.settings.front_widths
        return [
            *(_Convolution(f"pixelwise-{i}", width, kernel=1) for i, width in enumerate(pixelwise)),
            _Convolution(PICTURE, picture, normalised=False),
            _Convolution("front", last),
        ]

    def _check(self, shape: Shape) -> None:
        """Raises UsageError for an input that it cannot read."""
        if self.settings.front == "whitening" and shape[2] != 3:
            raise UsageError(
                f"fast-cnn: front is whitening, which reads RGB, and the input has {shape[2]} channels; "
                "choose front=learned or front=pixelwise"
            )
        if min(shape[:2]) - (self.settings.front == "whitening") < 2 ** len(self.settings.widths):
            raise UsageError(
                f"fast-cnn: an input of {shape[0]}×{shape[1]} cannot be halved {len(self.settings.widths)} times; "
                "give fewer widths"
            )


def _block(number: int, width: int) -> tuple[_Convolution, _Convolution]:
    return (
        _Convolution(f"block-{number}-conv-0", width, pooled=True, identity=True),
        _Convolution(f"block-{number}-conv-1", width, identity=True),
    )


def _applied(convolution: _Convolution, x: keras.KerasTensor) -> keras.KerasTensor:
    """A convolution and what follows it: the maximum of 2×2, batch normalisation, GELU."""
    fixed = convolution.name == WHITENING
    x = keras.layers.Conv2D(
        convolution.channels,
        convolution.kernel,
        padding=convolution.padding,
        use_bias=fixed,
        kernel_initializer=_Identity() if convolution.identity else _uniform(),
        trainable=not fixed,
        name=convolution.name,
    )(x)
    if convolution.pooled:
        x = keras.layers.MaxPooling2D(2, name=f"{convolution.name}-maximum")(x)
    if convolution.normalised:
        x = keras.layers.BatchNormalization(
            momentum=0.9, epsilon=1e-5, scale=False, name=f"{convolution.name}-batchnorm"
        )(x)
    return x if convolution.name == PICTURE else keras.activations.gelu(x, approximate=True)


def _uniform() -> keras.initializers.Initializer:
    """Uniform in ±1/√n, n the number of inputs."""
    return keras.initializers.VarianceScaling(scale=1 / 3, mode="fan_in", distribution="uniform")


class _Identity(keras.initializers.Initializer):
    """As many outputs as there are inputs hand them on (Dirac); further ones are random."""

    def __call__(self, shape: tuple[int, int, int, int], dtype: Any = None) -> Any:
        rows, columns, inputs, outputs = shape
        same = np.arange(min(inputs, outputs))
        kernel = np.zeros(shape, np.float32)
        kernel[rows // 2, columns // 2, same, same] = 1
        return kernel + _uniform()(shape, dtype=dtype) * (np.arange(outputs) >= inputs).astype(np.float32)


def _whitening(images: np.ndarray) -> list[np.ndarray]:
    """The kernel (2×2×3×24) and biases that whiten the patches of images (N×H×W×3, uint8), standardised by channel."""
    unit = images.astype(np.float64) / 255
    mean, deviation = unit.mean(axis=(0, 1, 2)), unit.std(axis=(0, 1, 2)) + 1e-6
    windows = np.lib.stride_tricks.sliding_window_view((unit - mean) / deviation, (PATCH, PATCH), axis=(1, 2))
    patches = windows.transpose(0, 1, 2, 4, 5, 3).reshape(-1, PATCH * PATCH * 3)  # rows, columns, channels of a patch
    variances, directions = np.linalg.eigh(patches.T @ patches / len(patches))
    half = (directions / np.sqrt(variances + WHITENING_FLOOR)).reshape(PATCH, PATCH, 3, -1)
    kernel = np.concatenate([half, -half], axis=-1) / deviation[:, None]
    return [kernel.astype(np.float32), -np.einsum("ijco,c->o", kernel, mean).astype(np.float32)]
