"""Sums over an example that give the same bits whatever the batch around it, and a choice between examples.

TensorFlow may sum a row of a batch in another order than the same row on its own, and an attack turns a difference in
the last bit into another image. These sums fold the halves on each other by plain additions, so the order is fixed.
"""

from __future__ import annotations

import tensorflow as tf


def fold_sum(values: tf.Tensor) -> tf.Tensor:
    """B×n×... to B×...: the sum over the second axis, whose length is known when the graph is built."""
    length = values.shape[1]
    while length > 1:
        half = (length + 1) // 2
        upper = values[:, half:length]
        if length % 2:  # the middle one has no partner
            upper = tf.pad(upper, [[0, 0], [0, 1]] + [[0, 0]] * (len(values.shape) - 2))
        values = values[:, :half] + upper
        length = half
    return values[:, 0]


def image_sum(images: tf.Tensor) -> tf.Tensor:
    """B×H×W×C to B: the sum over each image."""
    return fold_sum(tf.reshape(images, [-1, images.shape[1] * images.shape[2] * images.shape[3]]))


def choose(wanted: tf.Tensor, images: tf.Tensor, others: tf.Tensor) -> tf.Tensor:
    """The images where they are wanted (B, bool), else the others: B×H×W×C each.

    `tf.where` would broadcast the condition value by value, which on a CPU is far slower than copying whole images.
    """
    return tf.raw_ops.Select(condition=wanted, x=images, y=others)


def spread(values: tf.Tensor) -> tf.Tensor:
    """B to B×1×1×1: one number per image, ready to multiply images."""
    return values[:, None, None, None]
