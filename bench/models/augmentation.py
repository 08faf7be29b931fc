"""What is done to training images before they are learned from: crops, flips, CutMix."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from bench.models.recipe import Recipe


def augmented(
    images: tf.Tensor, labels: tf.Tensor, recipe: Recipe, classes: int, seed: tf.Tensor, flips: tf.Tensor | None = None
) -> tuple[tf.Tensor, tf.Tensor]:
    """Shifts, flips and CutMix on images or pictures (B×H×W×C); labels (B) become B×classes weights.

    `flips` (B, bool) says which to mirror; without it that is random.
    """
    seeds = tf.random.split(seed, 6)
    if recipe.crop_and_flip:
        images = _shifted(images, recipe.shift, recipe.border, seeds[0])
        if flips is None:
            flips = tf.random.stateless_uniform((tf.shape(images)[0], 1, 1, 1), seeds[1]) < 0.5
        images = tf.where(tf.reshape(flips, (-1, 1, 1, 1)), tf.reverse(images, axis=[2]), images)
    targets = weights_of(labels, recipe, classes)
    return _cut_and_mixed(images, targets, seeds[2:5]) if recipe.cutmix else (images, targets)


def weights_of(labels: tf.Tensor, recipe: Recipe, classes: int) -> tf.Tensor:
    """Labels (B) as the weights of classes (B×classes), smoothed as the recipe says."""
    targets = tf.one_hot(labels, classes)
    if recipe.label_smoothing:
        targets = (1 - recipe.label_smoothing) * targets + recipe.label_smoothing / classes
    return targets


def alternating(images: int, seed: int, epoch: int) -> np.ndarray:
    """Which of so many images are mirrored in an epoch (bool): half of them at random, and the others in the next."""
    first = np.random.default_rng((seed, 0, 1)).random(images) < 0.5
    return first ^ bool(epoch % 2)


def _shifted(images: tf.Tensor, most: int, border: str, seed: tf.Tensor) -> tf.Tensor:
    """Images (B×H×W×C) moved by up to `most` pixels each way."""
    size = tf.shape(images)
    mode = "REFLECT" if border == "reflect" else "CONSTANT"
    padded = tf.pad(images, ((0, 0), (most, most), (most, most), (0, 0)), mode)
    offsets = tf.random.stateless_uniform((size[0], 2), seed, 0, 2 * most + 1, tf.int32)
    rows = offsets[:, :1] + tf.range(size[1])
    columns = offsets[:, 1:] + tf.range(size[2])
    return tf.gather(tf.gather(padded, rows, batch_dims=1), columns, axis=2, batch_dims=1)


def _cut_and_mixed(images: tf.Tensor, targets: tf.Tensor, seeds: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """One box per image, of an area share uniform in [0,1] (CutMix with alpha = 1), pasted from the next image."""
    size = tf.shape(images)
    batch, height, width = size[0], size[1], size[2]
    side = tf.sqrt(tf.random.stateless_uniform((batch, 1), seeds[0]))
    y, x = (tf.random.stateless_uniform((batch, 1), seeds[i]) for i in (1, 2))

    def inside(centre: tf.Tensor, length: tf.Tensor) -> tf.Tensor:
        positions = tf.cast(tf.range(length), tf.float32)[None] + 0.5
        return tf.abs(positions - centre * tf.cast(length, tf.float32)) <= side * tf.cast(length, tf.float32) / 2

    box = inside(y, height)[:, :, None] & inside(x, width)[:, None, :]
    images = tf.where(box[..., None], tf.roll(images, 1, axis=0), images)
    share = tf.reduce_mean(tf.cast(box, tf.float32), axis=(1, 2))[:, None]
    return images, (1 - share) * targets + share * tf.roll(targets, 1, axis=0)
