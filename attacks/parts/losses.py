"""What attacks lower. Every loss falls as the attack gains, and gives one number per example.

Logits are B×classes, labels and targets B (int32). Only sums of one example's logits occur.
"""

from __future__ import annotations

import tensorflow as tf

from bench.api import Loss

TINY = 1e-12
DLR_CLASSES = 4
"""The targeted DLR loss reads the fourth largest logit, so it needs this many classes."""


def margin(logits: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
    """z_y − max other z: negative exactly when the example is misclassified."""
    own = _is(logits, labels)
    others = tf.where(own, tf.constant(-float("inf"), logits.dtype), logits)
    return tf.reduce_sum(tf.where(own, logits, 0.0), axis=-1) - tf.reduce_max(others, axis=-1)


def ce(logits: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
    """log p_y: the cross-entropy with its sign changed."""
    return -tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)


def dlr(logits: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
    """The difference-of-logits ratio (z_y − max other z)/(z_π1 − z_π3), with its sign changed."""
    top = tf.math.top_k(logits, k=3).values
    return margin(logits, labels) / (top[:, 0] - top[:, 2] + TINY)


def targeted_margin(logits: tf.Tensor, labels: tf.Tensor, targets: tf.Tensor) -> tf.Tensor:
    """z_y − z_t."""
    return pick(logits, labels) - pick(logits, targets)


def targeted_ce(logits: tf.Tensor, labels: tf.Tensor, targets: tf.Tensor) -> tf.Tensor:
    """−log p_t."""
    return tf.nn.sparse_softmax_cross_entropy_with_logits(labels=targets, logits=logits)


def targeted_dlr(logits: tf.Tensor, labels: tf.Tensor, targets: tf.Tensor) -> tf.Tensor:
    """(z_y − z_t)/(z_π1 − ½(z_π3 + z_π4)), the targeted ratio with its sign changed."""
    top = tf.math.top_k(logits, k=4).values
    return targeted_margin(logits, labels, targets) / (top[:, 0] - 0.5 * (top[:, 2] + top[:, 3]) + TINY)


def pick(logits: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
    """z_y: B×classes and B to B."""
    return tf.reduce_sum(tf.where(_is(logits, labels), logits, 0.0), axis=-1)


def _is(logits: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
    return tf.one_hot(labels, tf.shape(logits)[-1], on_value=True, off_value=False, dtype=tf.bool)


UNTARGETED: dict[str, Loss] = {"margin": margin, "ce": ce, "dlr": dlr}
TARGETED: dict[str, Loss] = {"margin": targeted_margin, "ce": targeted_ce, "dlr": targeted_dlr}
