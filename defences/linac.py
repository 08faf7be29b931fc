"""LINAC (the paper's defence): the classifier reads the hidden units of a small network fitted to the image.

For every image a network is fitted, from an initialisation and in an order of pixels that come from the key, to map a
pixel's position to its colour. What hidden layer K then gives for all pixels is the transformed image. Numbers follow
the released code where the paper differs from it: docs/performance.md says how they are computed and how fast.
"""

from __future__ import annotations

import dataclasses
import math
import operator
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import keras
import numpy as np
import tensorflow as tf

from bench.api import BenchError, Defence, Shape, UsageError
from defences import colour, linac_plan


@dataclasses.dataclass(frozen=True)
class LinacConfig:
    """The paper's settings, by its symbols: F, L, H, K, N, M, mu, alpha; and how many bits of the key count."""

    frequencies: int = 5
    layers: int = 5
    width: int = 256
    representation_layer: int = 2  # 0-based, into the hidden layers; `layers` itself is the output: the reconstruction
    epochs: int = 10
    batch_pixels: int = 32
    learning_rate: float = 1e-3
    decay_floor: float = 1e-4
    key_bits: int = 64  # 32 is what the released code used, and the published classifier was trained with

    def __post_init__(self) -> None:
        for name in ("frequencies", "layers", "width", "epochs", "batch_pixels"):
            value = getattr(self, name)
            if not _is_integer(value) or value < 1:
                raise UsageError(f"linac: {name} is {value!r}; it must be a whole number of at least 1")
        if not _is_integer(self.representation_layer) or not 0 <= self.representation_layer <= self.layers:
            raise UsageError(
                f"linac: representation_layer is {self.representation_layer!r}; choose 0 to {self.layers - 1} for a "
                f"hidden layer, or {self.layers} for the reconstruction"
            )
        if not (_is_number(self.learning_rate) and self.learning_rate > 0):
            raise UsageError(f"linac: learning_rate is {self.learning_rate!r}; it must be a finite number above 0")
        if not (_is_number(self.decay_floor) and 0 <= self.decay_floor <= 1):
            raise UsageError(f"linac: decay_floor is {self.decay_floor!r}; it must be between 0 and 1")
        if self.key_bits not in (32, 64):
            raise UsageError(f"linac: key_bits is {self.key_bits!r}; choose 64 (the paper) or 32 (the released code)")


@dataclasses.dataclass(frozen=True)
class Fit:
    """What fitting B images gave, float32."""

    representation: np.ndarray  # B×I×J×H; B×I×J×3 if the representation is the reconstruction
    reconstruction: np.ndarray  # B×I×J×3
    losses: np.ndarray  # B×steps: each mini-batch's loss, before its step


def fit(images: np.ndarray | tf.Tensor, key: int | np.integer[Any], config: LinacConfig | None = None) -> Fit:
    """Fits standardised images (B×I×J×3). An image's result does not depend on its companions, to the last bit."""
    config = config or LinacConfig()
    images = np.asarray(images, np.float32)
    fitter = _fitter(images.shape, key, config)
    outputs, losses = fitter.fit(images, sorted({config.representation_layer, config.layers}))
    arrays = [np.asarray(part) for part in (*outputs, losses)]
    _check_finite(images, arrays, "the fit")
    return Fit(arrays[0], arrays[-2], arrays[-1])


def standardise(images: np.ndarray) -> np.ndarray:
    """Images in [0,1] (B×I×J×3) to what is fitted.

    As `colour.standardise`, in numpy: TensorFlow rounds it differently in and out of a graph, and a fit tells.
    """
    return (images - np.array(colour.MEAN, np.float32)) / np.array(colour.STD, np.float32)


class Linac(Defence):
    """LINAC: the hidden units of a keyed implicit network fitted to the image (the paper's defence)."""

    Settings = LinacConfig
    keyed = True
    settings: LinacConfig

    def __init__(self, settings: LinacConfig | None = None) -> None:
        super().__init__(settings)
        if self._reconstructs:
            self.gradient = "bpda"  # type: ignore[misc]

    @property
    def _reconstructs(self) -> bool:
        return self.settings.representation_layer == self.settings.layers

    def transform(self, images: tf.Tensor, key: int | None, state: Mapping[str, np.ndarray]) -> tf.Tensor:
        if key is None:
            raise UsageError("linac needs a key")
        fitter = _fitter(images.shape, key, self.settings)
        layer = self.settings.representation_layer

        @tf.custom_gradient
        def keyed(x: tf.Tensor) -> tuple[tf.Tensor, Callable[[tf.Tensor], tf.Tensor]]:
            def backward(upstream: tf.Tensor) -> tf.Tensor:
                # The reconstruction's stand-in is the identity, in standardised units.
                slope = upstream if self._reconstructs else _gradient(fitter, layer, x, upstream)
                return slope / tf.constant(colour.STD, tf.float32)

            return _representation(fitter, layer, self.output_shape(tuple(x.shape[1:])), x), backward

        return keyed(images)

    def output_shape(self, shape: Shape) -> Shape:
        return (*shape[:2], 3 if self._reconstructs else self.settings.width)

    def fitted(self, images: np.ndarray, key: int) -> Fit:
        """The networks fitted to images in [0,1] (B×I×J×3) under a key, in standardised units: to look at, no defence."""
        return fit(standardise(images), key, self.settings)

    def standardise(self, images: np.ndarray) -> np.ndarray:
        """Images in [0,1] (B×I×J×3) to the units of `fitted`."""
        return standardise(images)

    def as_images(self, standardised: np.ndarray) -> np.ndarray:
        """The inverse of `standardise`, not cut off to [0,1]."""
        return colour.as_images(standardised)

    def bypass(self, shape: Shape) -> keras.Model:
        """One 3×3 convolution of the standardised image, with biases (the paper's PBA for this defence)."""
        image = keras.Input(shape)
        standardised = keras.layers.Lambda(colour.standardise)(image)
        channels = self.output_shape(shape)[2]
        return keras.Model(image, keras.layers.Conv2D(channels, 3, padding="same", name="bypass")(standardised))

    def transform_and_reconstruction(self, images: np.ndarray, key: int | None) -> tuple[np.ndarray, np.ndarray]:
        if key is None:
            raise UsageError("linac needs a key")
        fitted = self.fitted(images, key)
        return fitted.representation, fitted.reconstruction

    def reconstruction(self) -> Mapping[str, Any] | None:
        return dataclasses.asdict(dataclasses.replace(self.settings, representation_layer=self.settings.layers))


class Fitter(Protocol):
    """A fit compiled for one key, configuration and image size: `linac_cpu`'s or `linac_tensorflow`'s."""

    def fit(self, images: Any, layers: Sequence[int]) -> tuple[list[Any], Any]:
        """Standardised images (B×I×J×3) to what each of `layers` gives (B×I×J×channels), and losses (B×steps)."""

    def gradient(self, images: Any, layer: int, upstream: Any) -> Any:
        """The gradient of the sum of upstream (B×I×J×channels) times the output at `layer`, like images."""


def _on_gpu() -> bool:
    return bool(tf.config.list_physical_devices("GPU"))


def _fitter(shape: Sequence[int | None], key: int | np.integer[Any], config: LinacConfig) -> Fitter:
    """Checks the request, and draws the key's numbers."""
    _check_key(key)
    if len(shape) != 4 or shape[3] != 3 or shape[1] is None or shape[2] is None:
        raise UsageError(f"linac: images are {'×'.join(map(str, shape))}; give B×height×width×3, of a fixed size")
    height, width = shape[1], shape[2]
    if config.batch_pixels > height * width:
        raise UsageError(
            f"linac: batch_pixels is {config.batch_pixels}, more than the {height * width} pixels of a "
            f"{height}×{width} image; lower it"
        )
    plan = linac_plan.make(operator.index(key), config, height, width)
    if _on_gpu():
        from defences import linac_tensorflow

        return linac_tensorflow.TensorFlowFitter(plan, config)
    from defences import linac_cpu

    return linac_cpu.CpuFitter(
        plan, config, tf.config.threading.get_inter_op_parallelism_threads() or os.cpu_count() or 1
    )


@tf.autograph.experimental.do_not_convert
def _representation(fitter: Fitter, layer: int, shape: Shape, images: tf.Tensor) -> tf.Tensor:
    """Images (B×I×J×3) in [0,1] to B×shape; no gradient."""

    def on_host(values: np.ndarray) -> np.ndarray:
        outputs, losses = fitter.fit(standardise(values), [layer])
        _check_finite(values, [*outputs, losses], "the fit")
        return outputs[0]

    if not _on_gpu():
        return _in_numpy(on_host, [images], [images.shape[0], *shape])
    (output,), losses = fitter.fit(colour.standardise(images), [layer])
    with tf.control_dependencies([_assert_finite([output, losses], "the fit")]):
        return tf.ensure_shape(output, [images.shape[0], *shape])


@tf.autograph.experimental.do_not_convert
def _gradient(fitter: Fitter, layer: int, images: tf.Tensor, upstream: tf.Tensor) -> tf.Tensor:
    """Exact reverse mode through the fit, with respect to the standardised images: like images."""

    def on_host(values: np.ndarray, slopes: np.ndarray) -> np.ndarray:
        gradient = fitter.gradient(standardise(values), layer, slopes)
        _check_finite(values, [gradient], "the gradient of the fit")
        return gradient

    if not _on_gpu():
        return _in_numpy(on_host, [images, upstream], images.shape)
    gradient = fitter.gradient(colour.standardise(images), layer, upstream)
    with tf.control_dependencies([_assert_finite([gradient], "the gradient of the fit")]):
        return tf.ensure_shape(gradient, images.shape)


def _in_numpy(compute: Callable[..., np.ndarray], tensors: list[tf.Tensor], shape: Any) -> tf.Tensor:
    """`compute` on numpy arrays, now or as an operation of the graph being built."""
    if tf.executing_eagerly():
        return tf.constant(compute(*[tensor.numpy() for tensor in tensors]))
    # Stateless, or the images of a tf.map_fn would wait for each other.
    return tf.ensure_shape(tf.numpy_function(compute, tensors, tf.float32, stateful=False), shape)


def _is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _check_key(key: object) -> None:
    """The message never shows the key."""
    if isinstance(key, bool) or not isinstance(key, int | np.integer) or not -(2**63) <= int(key) < 2**63:
        raise UsageError(
            f"linac: the key ({type(key).__name__}) is no signed 64-bit integer; give one from -2^63 to 2^63 - 1"
        )


def _check_finite(images: np.ndarray, results: Sequence[np.ndarray], what: str) -> None:
    """Raises an error that names the images with a NaN or an infinity, in them or in what came of them."""
    for arrays, message in (
        ([images], "linac: the input has NaN or infinite values in"),
        (results, f"linac: {what} diverged to NaN or infinity for"),
    ):
        bad = sorted({int(i) for array in arrays for i in np.flatnonzero(~_finite(array))})
        if bad:
            named = ", ".join(map(str, bad[:20])) + (f", … ({len(bad)} in all)" if len(bad) > 20 else "")
            advice = "" if arrays[0] is images else "; lower the learning rate"
            raise BenchError(
                f"{message} image{'s' if len(bad) > 1 else ''} {named} of this batch of {len(images)}{advice}"
            )


def _assert_finite(results: list[tf.Tensor], what: str) -> tf.Operation:
    """`_check_finite` as an operation."""
    finite = [tf.reduce_all(tf.math.is_finite(r), axis=list(range(1, len(r.shape)))) for r in results]
    bad = ~tf.reduce_all(tf.stack(finite), axis=0)
    message = f"linac: {what} diverged to NaN or infinity; lower the learning rate. The images:"
    return tf.debugging.Assert(~tf.reduce_any(bad), [message, tf.where(bad)[:, 0]], summarize=20)


def _finite(array: np.ndarray) -> np.ndarray:
    """Which images of B×… are finite throughout (B)."""
    return np.isfinite(array).reshape(len(array), -1).all(1) if array.size else np.ones(len(array), bool)
