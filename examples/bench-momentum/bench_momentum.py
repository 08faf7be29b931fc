"""A complete attack of a third party: an engine that steps with momentum, and a strategy with a source of its own."""

from dataclasses import dataclass

import numpy as np
import tensorflow as tf

from bench.api import Attacked, Engine, ModelSource, SourceDescription, Strategy, UsageError


def margin(logits, labels):
    """z_y − max other z (B): what an attack wants to be negative."""
    own = tf.one_hot(labels, tf.shape(logits)[-1])
    return tf.reduce_sum(own * logits, axis=-1) - tf.reduce_max(logits - 1e9 * own, axis=-1)


@dataclass(frozen=True)
class MomentumSettings:
    steps: int = 10
    decay: float = 1.0  # how much of the past gradients is kept

    def __post_init__(self):
        if self.steps < 1:
            raise UsageError(f"momentum: steps is {self.steps}; it must be at least 1")


class Momentum(Engine):
    """Gradient steps with momentum, from the image itself (MI-FGSM); keeps the last image."""

    Settings = MomentumSettings
    meaning = "gradient steps that remember the gradients before them"

    def work(self, examples):
        return examples * self.settings.steps

    def run(self, source, batch, report):
        found, attack = [], self.compiled(source, batch)
        for start in range(0, len(batch.labels), batch.batch_size):
            part = slice(start, start + batch.batch_size)
            found.append([np.asarray(tensor) for tensor in attack(batch.images[part], batch.labels[part])])
            report(self.work(len(found[-1][0])))
        images, margins = (np.concatenate(parts) for parts in zip(*found, strict=True))
        none = np.full(len(images), -1, np.int32)
        gradients = np.full(len(images), self.settings.steps, np.int64)
        return Attacked(images, margins < 0, margins, none, none, gradients, queries=np.ones_like(gradients))

    def compiled(self, source, batch):
        """A function of images (B×H×W×3) and labels (B), of any batch size, to adversarial images and margins (B)."""
        ball, epsilon, settings = batch.ball, tf.constant(batch.epsilon, tf.float32), self.settings

        def attack(origin, labels):
            images, velocity = origin, tf.zeros_like(origin)
            for _ in tf.range(settings.steps):
                gradient = source.gradient(margin, images, labels).gradient
                largest = tf.reduce_max(tf.abs(gradient), axis=[1, 2, 3], keepdims=True)
                velocity = settings.decay * velocity + gradient / tf.maximum(largest, 1e-12)
                step = 2 * epsilon / settings.steps
                images = ball.project(images - step * ball.steepest(velocity), origin, epsilon)
            return images, margin(source.logits(images), labels)

        shape = (None, *batch.images.shape[1:])
        return tf.function(attack, input_signature=[tf.TensorSpec(shape), tf.TensorSpec((None,), tf.int32)])


class BothWays(Strategy):
    """A plain network that sees the image and its mirror image: the mean of the two logits."""

    meaning = "attack a network that sees the image from both sides"

    def sources(self, defence):
        return ["both-ways"] if defence.keyed else []

    def describe(self, source, defence):
        return SourceDescription(source, meaning="a plain network on the image and its mirror image", through=())

    def build(self, source, knowledge):
        plain = knowledge.workshop.classifier("none", {})  # the one that the source `nominal` is made of
        return ModelSource(source, lambda images: (plain.logits(images) + plain.logits(images[:, :, ::-1])) / 2)
