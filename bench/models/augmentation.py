"""What is done to training images before they are learned from: crops, flips, CutMix."""

from __future__ import annotations

import tensorflow as tf

from bench.models.recipe import Recipe


def augmented(
    images: tf.Tensor, labels: tf.Tensor, recipe: Recipe, classes: int, seed: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Crops, flips and CutMix on B×H×W×3 images; labels (B) become B×classes weights."""
    size = tf.shape(images)
    batch, height, width = size[0], size[1], size[2]
    seeds = tf.random.split(seed, 6)
    if recipe.crop_and_flip:
        padded = tf.pad(images, ((0, 0), (4, 4), (4, 4), (0, 0)))
        offsets = tf.random.stateless_uniform((batch, 2), seeds[0], 0, 9, tf.int32)
        rows = offsets[:, :1] + tf.range(height)
        columns = offsets[:, 1:] + tf.range(width)
        images = tf.gather(tf.gather(padded, rows, batch_dims=1), columns, axis=2, batch_dims=1)
        flip = tf.random.stateless_uniform((batch, 1, 1, 1), seeds[1]) < 0.5
        images = tf.where(flip, tf.reverse(images, axis=[2]), images)
    targets = tf.one_hot(labels, classes)
    if recipe.cutmix:
        # One box per image, of an area share uniform in [0,1] (CutMix with alpha = 1), pasted from the next image.
        side = tf.sqrt(tf.random.stateless_uniform((batch, 1), seeds[2]))
        y, x = (tf.random.stateless_uniform((batch, 1), seeds[i]) for i in (3, 4))

        def inside(centre: tf.Tensor, length: tf.Tensor) -> tf.Tensor:
            positions = tf.cast(tf.range(length), tf.float32)[None] + 0.5
            return tf.abs(positions - centre * tf.cast(length, tf.float32)) <= side * tf.cast(length, tf.float32) / 2

        box = inside(y, height)[:, :, None] & inside(x, width)[:, None, :]
        images = tf.where(box[..., None], tf.roll(images, 1, axis=0), images)
        share = tf.reduce_mean(tf.cast(box, tf.float32), axis=(1, 2))[:, None]
        targets = (1 - share) * targets + share * tf.roll(targets, 1, axis=0)
    return images, targets
