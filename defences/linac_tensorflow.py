"""LINAC's fit, and its gradient, in TensorFlow and XLA: the path for GPUs, and the CPU path's independent check.

Images go through in buckets of one size, padded, so that an image always meets the same compiled kernels; each has
weights of its own in batched matmuls, and the whole fit is one compiled loop.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from defences.linac_plan import BETA1, BETA2, EPSILON

if TYPE_CHECKING:
    from defences.linac import LinacConfig
    from defences.linac_plan import Plan

LARGEST_BUCKET = 256
State = list[list[tf.Tensor]]
"""θ, and Adam's two moments: each a matrix (B×in×out) and a bias (B×1×out) for every layer."""


def bucket_size(bytes_an_image: int, memory: int) -> int:
    """How many images to fit at once: the largest power of two that takes at most half of the memory."""
    size = LARGEST_BUCKET
    while size > 1 and size * bytes_an_image > memory // 2:
        size //= 2
    return size


def device_memory() -> int:
    """Bytes of the first GPU, or of what the CPU may spend."""
    from tensorflow.python.client import device_lib

    limits = [device.memory_limit for device in device_lib.list_local_devices() if device.device_type == "GPU"]
    return limits[0] if limits else 2**31


class TensorFlowFitter:
    """Fits images bucket by bucket. Takes and gives tensors, in eager mode and inside a `tf.function`."""

    def __init__(
        self, plan: Plan, config: LinacConfig, dtype: tf.DType = tf.float32, memory: int | None = None
    ) -> None:
        self._plan, self._config, self._dtype = plan, config, dtype
        self._steps = len(plan.order)
        self._steps_an_epoch = self._steps // config.epochs
        network = sum(matrix.size + matrix.shape[1] for matrix in plan.weights) * dtype.size
        memory = device_memory() if memory is None else memory
        self.fit_bucket = bucket_size(8 * network, memory)
        self.gradient_bucket = bucket_size((3 * config.epochs + 8 * self._steps_an_epoch) * network, memory)
        self._fit = tf.function(self._fit_bucket, jit_compile=True)
        self._gradient = tf.function(self._gradient_bucket, jit_compile=True)

    def fit(self, images: tf.Tensor, layers: Sequence[int]) -> tuple[list[tf.Tensor], tf.Tensor]:
        """Standardised images (B×I×J×3): what each of `layers` gives (B×I×J×channels), and losses (B×steps)."""
        images = tf.convert_to_tensor(images, self._dtype)
        chosen = tuple(layers)
        signature = ([self._dtype] * len(chosen), self._dtype)
        outputs, losses = self._in_buckets(lambda x: self._fit(x, chosen), [images], self.fit_bucket, signature)
        grid = tf.shape(images)[:3]
        return [tf.reshape(part, tf.concat([grid, [part.shape[-1]]], 0)) for part in outputs], losses

    def gradient(self, images: tf.Tensor, layer: int, upstream: tf.Tensor) -> tf.Tensor:
        """The gradient of the sum of upstream (B×I×J×channels) times `fit`'s output at `layer`, like images."""
        tensors = [tf.convert_to_tensor(tensor, self._dtype) for tensor in (images, upstream)]
        return self._in_buckets(lambda x, u: self._gradient(x, u, layer), tensors, self.gradient_bucket, self._dtype)

    def _in_buckets(
        self, function: Callable[..., Any], tensors: list[tf.Tensor], size: int, signature: object
    ) -> tf.Tensor:
        """`function` on buckets of so many images, the last one padded, and what it gives put together again (B×…)."""
        count = tf.shape(tensors[0])[0]
        buckets = -(-count // size)

        def split(tensor: tf.Tensor) -> tf.Tensor:
            padding = [[0, buckets * size - count]] + [[0, 0]] * (len(tensor.shape) - 1)
            return tf.reshape(tf.pad(tensor, padding), [buckets, size, *tensor.shape[1:]])

        results = tf.map_fn(
            lambda parts: function(*parts), [split(t) for t in tensors], signature, parallel_iterations=1
        )
        return tf.nest.map_structure(lambda part: tf.reshape(part, [-1, *part.shape[2:]])[:count], results)

    def _initial(self, count: int) -> State:
        theta: list[tf.Tensor] = []
        for matrix in self._plan.weights:
            theta.append(tf.tile(tf.constant(matrix, self._dtype)[None], [count, 1, 1]))
            theta.append(tf.zeros([count, 1, matrix.shape[1]], self._dtype))
        return [theta, [tf.zeros_like(part) for part in theta], [tf.zeros_like(part) for part in theta]]

    def _forward(self, theta: list[tf.Tensor], inputs: tf.Tensor, depth: int) -> list[tf.Tensor]:
        """The inputs (pixels×4F) through the first `depth` layers of each network: [inputs, B×pixels×out, …]."""
        units = [inputs]
        for layer in range(depth):
            sums = tf.matmul(units[-1], theta[2 * layer]) + theta[2 * layer + 1]
            units.append(sums if layer == self._config.layers else tf.nn.relu(sums))
        return units

    def _step(self, state: State, targets: tf.Tensor, step: tf.Tensor) -> tuple[State, tf.Tensor]:
        """One step on targets (B×pixels×3); the gradient is written out, so that the fit can be differentiated."""
        batch = tf.gather(tf.constant(self._plan.order), step)
        inputs = tf.gather(tf.constant(self._plan.encoding, self._dtype), batch)
        units = self._forward(state[0], inputs, self._config.layers + 1)
        error = units[-1] - tf.gather(targets, batch, axis=1)
        loss = tf.reduce_sum(error**2, [1, 2]) / self._config.batch_pixels
        delta = error * (2 / self._config.batch_pixels)
        gradient: list[tf.Tensor] = []
        for layer in range(self._config.layers, -1, -1):
            if layer == 0:  # the inputs are shared
                units[0] = tf.broadcast_to(inputs, [delta.shape[0], *inputs.shape])
            gradient = [tf.matmul(units[layer], delta, transpose_a=True), tf.reduce_sum(delta, 1, True), *gradient]
            if layer:
                below = tf.matmul(delta, state[0][2 * layer], transpose_b=True)
                delta = tf.where(units[layer] > 0, below, tf.zeros_like(below))
        rate = tf.gather(tf.constant(self._plan.rates, self._dtype), step)
        return self._adam(state, gradient, rate), loss

    def _adam(self, state: State, gradient: list[tf.Tensor], rate: tf.Tensor) -> State:
        first = [BETA1 * m + (1 - BETA1) * g for m, g in zip(state[1], gradient, strict=True)]
        second = [BETA2 * v + (1 - BETA2) * g**2 for v, g in zip(state[2], gradient, strict=True)]
        theta = []
        for old, m, v in zip(state[0], first, second, strict=True):
            # A second moment of zero has a gradient of zero behind it, but its root has no derivative.
            moved = v > 0
            root = tf.sqrt(tf.where(moved, v * rate[2], tf.ones_like(v)))
            theta.append(tf.where(moved, old - rate[0] * (m * rate[1]) / (root + EPSILON), old))
        return [theta, first, second]

    def _epoch(self, state: State, targets: tf.Tensor, epoch: tf.Tensor) -> tuple[State, tf.Tensor]:
        """All steps of an epoch; losses (steps×B)."""
        length = self._steps_an_epoch

        def body(step: tf.Tensor, state: State, losses: tf.TensorArray) -> tuple[Any, ...]:
            state, loss = self._step(state, targets, epoch * length + step)
            return step + 1, state, losses.write(step, loss)

        losses = tf.TensorArray(self._dtype, length, element_shape=[targets.shape[0]])
        _, state, losses = tf.while_loop(
            lambda step, *_: step < length, body, (0, state, losses), maximum_iterations=length
        )
        return state, losses.stack()

    def _evaluate(self, theta: list[tf.Tensor], layer: int) -> tf.Tensor:
        """What `layer` gives for every pixel (B×pixels×channels)."""
        return self._forward(theta, tf.constant(self._plan.encoding, self._dtype), layer + 1)[-1]

    def _fit_bucket(self, images: tf.Tensor, layers: tuple[int, ...]) -> tuple[list[tf.Tensor], tf.Tensor]:
        targets = tf.reshape(images, [images.shape[0], -1, 3])

        def body(epoch: tf.Tensor, state: State, losses: tf.TensorArray) -> tuple[Any, ...]:
            state, epoch_losses = self._epoch(state, targets, epoch)
            return epoch + 1, state, losses.write(epoch, epoch_losses)

        epochs = self._config.epochs
        shape = [self._steps_an_epoch, images.shape[0]]
        losses = tf.TensorArray(self._dtype, epochs, element_shape=shape)
        _, state, losses = tf.while_loop(
            lambda epoch, *_: epoch < epochs,
            body,
            (0, self._initial(images.shape[0]), losses),
            maximum_iterations=epochs,
        )
        flat = tf.reshape(losses.stack(), [self._steps, images.shape[0]])
        return [self._evaluate(state[0], layer) for layer in layers], tf.transpose(flat)

    def _gradient_bucket(self, images: tf.Tensor, upstream: tf.Tensor, layer: int) -> tf.Tensor:
        """Runs the fit, keeping the state where each epoch begins, then goes back epoch by epoch, running it again."""
        count, epochs = images.shape[0], self._config.epochs
        targets = tf.reshape(images, [count, -1, 3])
        initial = self._initial(count)

        def keep(arrays: list[tf.TensorArray], epoch: tf.Tensor, state: State) -> list[tf.TensorArray]:
            return [a.write(epoch, part) for a, part in zip(arrays, tf.nest.flatten(state), strict=True)]

        def forward(epoch: tf.Tensor, state: State, kept: list[tf.TensorArray]) -> tuple[Any, ...]:
            kept = keep(kept, epoch, state)
            return epoch + 1, self._epoch(state, targets, epoch)[0], kept

        arrays = [tf.TensorArray(self._dtype, epochs, element_shape=p.shape) for p in tf.nest.flatten(initial)]
        _, state, kept = tf.while_loop(
            lambda epoch, *_: epoch < epochs, forward, (0, initial, arrays), maximum_iterations=epochs
        )
        stacked = [array.stack() for array in kept]
        with tf.GradientTape() as tape:
            tape.watch(state[0])
            output = self._evaluate(state[0], layer)
        slopes = tape.gradient(output, state[0], tf.reshape(upstream, output.shape), tf.UnconnectedGradients.ZERO)
        adjoint = [slopes, *[[tf.zeros_like(part) for part in parts] for parts in state[1:]]]

        def backward(epoch: tf.Tensor, adjoint: State, to_images: tf.Tensor) -> tuple[Any, ...]:
            start = tf.nest.pack_sequence_as(initial, [tf.gather(part, epoch) for part in stacked])
            with tf.GradientTape() as tape:
                tape.watch([start, targets])
                end, _ = self._epoch(start, targets, epoch)
            adjoint, change = tape.gradient(end, [start, targets], adjoint, tf.UnconnectedGradients.ZERO)
            return epoch - 1, adjoint, to_images + change

        _, _, to_images = tf.while_loop(
            lambda epoch, *_: epoch >= 0,
            backward,
            (epochs - 1, adjoint, tf.zeros_like(targets)),
            maximum_iterations=epochs,
        )
        return tf.reshape(to_images, images.shape)
