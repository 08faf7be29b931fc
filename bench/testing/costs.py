"""The multiplications of a model, counted in the operations that TensorFlow makes of it."""

from __future__ import annotations

import math
from typing import Any

import keras
import tensorflow as tf

from bench.api import Shape


def multiplications(model: keras.Model, shape: Shape) -> int:
    """Of a forward pass over one input, in convolutions and matrix products; 0 if TensorFlow computes none of them."""
    signature = [tf.TensorSpec((1, *shape), tf.float32)]
    function = tf.function(lambda x: model(x, training=False), input_signature=signature).get_concrete_function()
    graphs = [function.graph, *(inner.graph for inner in function.graph._functions.values() if hasattr(inner, "graph"))]
    return sum(_of(operation) for graph in graphs for operation in graph.get_operations())


def _of(operation: Any) -> int:
    """The multiplications of one operation."""
    if operation.type == "Conv2D":
        rows, columns, channels, _ = operation.inputs[1].shape
        return math.prod([*_sizes(operation.outputs[0]), rows, columns, channels])
    if operation.type == "DepthwiseConv2dNative":
        return math.prod([*_sizes(operation.outputs[0]), *operation.inputs[1].shape[:2]])
    if operation.type == "MatMul":
        before = operation.inputs[0].shape
        inner = before[0] if operation.get_attr("transpose_a") else before[1]
        return math.prod([*_sizes(operation.outputs[0]), inner or 1])
    if operation.type.startswith("BatchMatMul"):
        before = operation.inputs[0].shape
        inner = before[-2] if operation.get_attr("adj_x") else before[-1]
        return math.prod([*_sizes(operation.outputs[0]), inner or 1])
    if operation.type == "Einsum":
        read = operation.get_attr("equation").decode().split("->")[0].split(",")
        sizes = {
            letter: size or 1
            for letters, tensor in zip(read, operation.inputs, strict=True)
            for letter, size in zip(letters, tensor.shape, strict=True)
        }
        return math.prod(sizes.values()) if len(read) > 1 else 0
    return 0


def _sizes(tensor: Any) -> list[int]:
    return [size or 1 for size in tensor.shape]
