"""A complete network of a third party: patches, then convolutions that mix places and channels by turns."""

from dataclasses import dataclass

import keras

from bench.api import Network, UsageError


@dataclass(frozen=True)
class ConvMixerSettings:
    channels: int = 64
    depth: int = 4
    kernel: int = 5
    patch: int = 2

    def __post_init__(self):
        for name in ("channels", "depth", "kernel", "patch"):
            if getattr(self, name) < 1:
                raise UsageError(f"convmixer: {name} is {getattr(self, name)}; it must be at least 1")


class ConvMixer(Network):
    """ConvMixer: patches of the image, then depthwise and pointwise convolutions by turns."""

    Settings = ConvMixerSettings
    limits = {"channels": 2048, "depth": 64, "kernel": 31, "patch": 32}  # noqa: RUF012 (nobody changes it)

    def build(self, shape, classes):
        settings, layers = self.settings, keras.layers
        image = keras.Input(shape)
        x = layers.Conv2D(settings.channels, settings.patch, settings.patch, name="patches")(image)
        x = _activated(x, "patches")
        for block in range(settings.depth):
            mixed = layers.DepthwiseConv2D(settings.kernel, padding="same", name=f"places-{block}")(x)
            x = layers.Add(name=f"sum-{block}")([x, _activated(mixed, f"places-{block}")])
            x = layers.Conv2D(settings.channels, 1, name=f"channels-{block}")(x)
            x = _activated(x, f"channels-{block}")
        x = layers.GlobalAveragePooling2D(name="mean")(x)
        return keras.Model(image, layers.Dense(classes, name="logits")(x))

    def cost(self, shape, classes):
        settings = self.settings
        places = (shape[0] // settings.patch) * (shape[1] // settings.patch)
        first = settings.patch**2 * shape[2] * settings.channels
        block = settings.kernel**2 * settings.channels + settings.channels**2
        return places * (first + settings.depth * block) + settings.channels * classes


def _activated(x, name):
    return keras.layers.BatchNormalization(name=f"{name}-batchnorm")(keras.activations.gelu(x))
