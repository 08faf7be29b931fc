"""Compiled functions, kept with the source they belong to, so that every shard of a cell uses the same ones."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

import tensorflow as tf

from bench.api import Source


def compiled(source: Source, key: Hashable, function: Callable[..., Any], *arguments: Any) -> Any:
    """`function(*arguments)`, compiled once for any batch size.

    The arguments are tensors in any structure; a scalar stays one, and everything else is batch-first. `key` tells
    apart all that `function` closes over: the engine, its settings, the norm.
    """
    # On the source itself: a cache elsewhere would keep every source alive, since the functions refer to it.
    cache = vars(source).setdefault("_compiled", {})
    arguments = tf.nest.map_structure(tf.convert_to_tensor, arguments)
    shapes = tuple(tuple(tensor.shape[1:]) for tensor in tf.nest.flatten(arguments))
    if (key, shapes) not in cache:
        signature = tf.nest.map_structure(_any_batch, arguments)
        cache[key, shapes] = tf.function(function, input_signature=signature).get_concrete_function()
    return cache[key, shapes](*arguments)


def _any_batch(tensor: tf.Tensor) -> tf.TensorSpec:
    shape = tensor.shape
    return tf.TensorSpec([None, *shape[1:]] if len(shape) else shape, tensor.dtype)
