"""Several models as one: means of their logits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

Logits = Callable[[Any], Any]
"""Images (B×H×W×C) to logits (B×classes)."""


def averaged(members: Sequence[Logits]) -> Logits:
    """The mean of the members' logits."""
    return lambda images: tf.add_n([member(images) for member in members]) / len(members)


def evenly_averaged(members: Sequence[Logits]) -> Logits:
    """The mean of the members' logits, each over its own spread, so that no member decides by its confidence alone."""
    return lambda images: tf.add_n([evened(member(images)) for member in members]) / len(members)


def evened(logits: tf.Tensor) -> tf.Tensor:
    """Logits (B×classes) with mean 0 and deviation 1 over the classes: the same margins whatever the logits' scale.

    Of two classes that would leave the sign alone, without a gradient: there they are as they were.
    """
    if logits.shape[-1] is not None and logits.shape[-1] < 3:
        return logits
    centred = logits - tf.reduce_mean(logits, axis=-1, keepdims=True)
    variance = tf.reduce_mean(tf.square(centred), axis=-1, keepdims=True)
    return centred * tf.math.rsqrt(variance + 1e-12)
