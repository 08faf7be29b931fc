"""How images go through a model so that an image's companions change no bit of what is computed for it.

On a CPU they go one at a time. A layer that is much faster on several images at once may ask for batches of one fixed size
(`ask`), if there an image gives the same bits in every place and beside any others: it is given batches of exactly that
size, filled up where there are fewer images.
"""

from __future__ import annotations

import contextvars
import math
import os
import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import tensorflow as tf

_askers: weakref.WeakSet[Any] = weakref.WeakSet()  # layers of this process that may ask
_asked: contextvars.ContextVar[list[int] | None] = contextvars.ContextVar("asked", default=None)


def may_ask(layer: Any) -> None:
    """Declares a layer that calls `ask`: only where there are such layers, functions are looked at for them."""
    _askers.add(layer)


def ask(size: Callable[[], int]) -> None:
    """Called by a layer while it is traced: asks for batches of this size, if somebody wants to know it."""
    asked = _asked.get()
    if asked is not None:
        asked.append(size())


def each_image(function: Callable[..., Any], *tensors: tf.Tensor, signature: Any) -> Any:
    """Applies `function` to B×... tensors one image at a time (as batches of one) and stacks what it gives.

    On a CPU the same image then gives the same bits whatever its companions are, which a convolution over the
    whole batch does not; cores are used by images side by side (docs/performance.md).
    On a GPU the whole batch goes through at once. `signature` is the structure and dtypes of one output.
    """
    import tensorflow as tf

    if tf.config.list_physical_devices("GPU"):
        return function(*tensors)
    size = _batch_size(function, tensors)
    if size > 1:
        return _in_batches(function, tensors, size, signature)

    def one(parts: Sequence[tf.Tensor]) -> Any:
        return tf.nest.map_structure(lambda t: t[0], function(*[part[None] for part in parts]))

    return tf.map_fn(one, tensors, fn_output_signature=signature, parallel_iterations=os.cpu_count() or 1)


def _batch_size(function: Callable[..., Any], tensors: Sequence[tf.Tensor]) -> int:
    """The batch size that the layers in a function ask for: found by tracing it, without computing anything."""
    import tensorflow as tf

    if not _askers:
        return 1
    asked: list[int] = []
    before = _asked.set(asked)
    try:
        parts = [tf.TensorSpec((1, *tensor.shape[1:]), tensor.dtype) for tensor in tensors]
        tf.function(function).get_concrete_function(*parts)
    finally:
        _asked.reset(before)
    return math.lcm(*asked)


def _in_batches(function: Callable[..., Any], tensors: Sequence[tf.Tensor], size: int, signature: Any) -> Any:
    """`function` on batches of a fixed size side by side; the last is filled up with the first image."""
    import tensorflow as tf

    count = tf.shape(tensors[0])[0]
    batches = (count + size - 1) // size

    def cut(tensor: tf.Tensor) -> tf.Tensor:
        missing = [batches * size - count] + [1] * (len(tensor.shape) - 1)
        filled = tf.concat([tensor, tf.tile(tensor[:1], missing)], 0)
        parts = tf.reshape(filled, tf.concat([[batches, size], tf.shape(tensor)[1:]], 0))
        return tf.ensure_shape(parts, (None, size, *tensor.shape[1:]))

    def joined(parts: tf.Tensor) -> tf.Tensor:
        whole = tf.reshape(parts, tf.concat([[batches * size], tf.shape(parts)[2:]], 0))
        return tf.ensure_shape(whole[:count], (tensors[0].shape[0], *parts.shape[2:]))

    def of_a_batch(spec: Any) -> Any:
        return tf.TensorSpec((size, *spec.shape), spec.dtype) if isinstance(spec, tf.TensorSpec) else spec

    done = tf.map_fn(
        lambda parts: function(*parts),
        tuple(map(cut, tensors)),
        fn_output_signature=tf.nest.map_structure(of_a_batch, signature),
        parallel_iterations=os.cpu_count() or 1,
    )
    return tf.nest.map_structure(joined, done)
