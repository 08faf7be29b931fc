"""Trains the CIFAR-10 networks that `benchmarks/attacks.py` attacks: a nominal one, an adversarial one, and a wider one.

    bench data fetch
    python -m benchmarks.train_networks --out networks

Small on purpose (about 4 million multiplications per image), so that AutoAttack on a hundred images takes minutes on
two cores. The adversarial ones are trained by a single step of FGSM from a random start (Wong et al., 2020); the wider
one has half as many channels again.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np

EPSILON = 8 / 255
BATCH = 128


class Kind(NamedTuple):
    """A network to train."""

    epochs: int
    adversarial: bool
    width: float = 1.0  # of its channels, in units of the first two networks'


KINDS = {"nominal": Kind(4, False), "adversarial": Kind(7, True), "wide": Kind(4, True, 1.5)}
PEAK_RATE = 0.1
DECAY = 5e-4


def network(width: float = 1.0):  # type: ignore[no-untyped-def]
    """Pre-activation residual blocks with swish behind a stem of stride 2: B×32×32×3 in [0,1] to B×10."""
    import keras
    from keras import layers

    def activated(x: keras.KerasTensor) -> keras.KerasTensor:
        return layers.Activation("swish")(layers.BatchNormalization(momentum=0.9, epsilon=1e-5)(x))

    def convolved(x: keras.KerasTensor, channels: int, kernel: int = 3, stride: int = 1) -> keras.KerasTensor:
        convolution = layers.Conv2D(
            channels, kernel, stride, padding="same", use_bias=False, kernel_initializer="he_normal"
        )
        return convolution(x)

    image = keras.Input((32, 32, 3))
    x = convolved(layers.Rescaling(4.0, offset=-2.0)(image), int(16 * width), stride=2)
    for base, stride in ((16, 1), (40, 2), (80, 2)):
        channels = int(base * width)
        inner = activated(x)
        outer = convolved(activated(convolved(inner, channels, stride=stride)), channels)
        x = layers.Add()([outer, convolved(inner, channels, kernel=1, stride=stride)])
    return keras.Model(image, layers.Dense(10)(layers.GlobalAveragePooling2D()(activated(x))))


def training_step(model, optimizer, adversarial: bool) -> Callable:  # type: ignore[no-untyped-def, type-arg]
    """A compiled function (images in [0,1], labels) that does one step and gives its loss."""
    import tensorflow as tf

    def loss(images: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        logits = model(images, training=True)
        return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits))

    def perturbed(images: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        start = tf.clip_by_value(images + tf.random.uniform(tf.shape(images), -EPSILON, EPSILON), 0.0, 1.0)
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(start)
            value = loss(start, labels)
        moved = start + 1.25 * EPSILON * tf.sign(tape.gradient(value, start))
        return tf.clip_by_value(tf.clip_by_value(moved, images - EPSILON, images + EPSILON), 0.0, 1.0)

    @tf.function
    def step(images: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        shown = perturbed(images, labels) if adversarial else images
        weights = model.trainable_variables
        with tf.GradientTape() as tape:
            value = loss(shown, labels)
        optimizer.apply_gradients(zip(tape.gradient(value, weights), weights, strict=True))
        return value

    return step


def augmented(images: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """Each image (B×32×32×3, uint8) shifted by up to 4 pixels and mirrored half of the time, in [0,1]."""
    count, size = len(images), images.shape[1]
    padded = np.pad(images, [(0, 0), (4, 4), (4, 4), (0, 0)], mode="reflect")
    down, across = generator.integers(0, 9, (2, count, 1)) + np.arange(size)
    mirrored = generator.random((count, 1)) < 0.5
    across = np.where(mirrored, across[:, ::-1], across)
    return padded[np.arange(count)[:, None, None], down[:, :, None], across[:, None, :]].astype(np.float32) / 255


def train(kind: str, path: Path) -> None:
    """Trains one network and keeps it."""
    import keras
    import tensorflow as tf

    from bench.data import datasets

    keras.utils.set_random_seed(0)
    dataset = datasets.load("cifar10")
    training = dataset.training()
    steps = len(training.labels) // BATCH * KINDS[kind].epochs
    rate = keras.optimizers.schedules.CosineDecay(
        PEAK_RATE / 20, steps - steps // 4, warmup_target=PEAK_RATE, warmup_steps=steps // 4
    )
    model = network(KINDS[kind].width)
    optimizer = keras.optimizers.SGD(rate, momentum=0.9, nesterov=True, weight_decay=DECAY)
    step = training_step(model, optimizer, adversarial=KINDS[kind].adversarial)
    generator = np.random.default_rng(0)
    began, values = time.monotonic(), []
    for number in range(steps):
        position = number % (len(training.labels) // BATCH) * BATCH
        if position == 0:
            order = generator.permutation(len(training.labels))
        chosen = order[position : position + BATCH]
        values.append(step(tf.constant(augmented(training.images[chosen], generator)), training.labels[chosen]))
        if number % 100 == 99:
            loss = float(np.mean(values[-100:]))
            print(
                f"{kind}: step {number + 1} of {steps}, loss {loss:.3f}, {time.monotonic() - began:.0f} s", flush=True
            )
    path.parent.mkdir(parents=True, exist_ok=True)
    model.save(path)
    for count in (100, 1000):
        images, labels = dataset.test.unit()[:count], dataset.test.labels[:count]
        right, robust = accuracy(model, images, labels), accuracy(model, attacked(model, images, labels), labels)
        print(f"{path}: {right:.1%} right and {robust:.1%} under PGD at L-inf 8/255 of the first {count} test images")


def accuracy(model, images: np.ndarray, labels: np.ndarray) -> float:  # type: ignore[no-untyped-def]
    """The share that is classified right."""
    return float(np.mean(model.predict(images, verbose=0).argmax(axis=1) == labels))


def attacked(model, images: np.ndarray, labels: np.ndarray, steps: int = 20) -> np.ndarray:  # type: ignore[no-untyped-def]
    """Plain PGD on the cross-entropy: a first look at robustness, not the benchmark."""
    import tensorflow as tf

    @tf.function
    def descend(images: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        moved = images
        for _ in tf.range(steps):
            with tf.GradientTape(watch_accessed_variables=False) as tape:
                tape.watch(moved)
                value = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, model(moved, training=False))
            moved = moved + EPSILON / 5 * tf.sign(tape.gradient(value, moved))
            moved = tf.clip_by_value(tf.clip_by_value(moved, images - EPSILON, images + EPSILON), 0.0, 1.0)
        return moved

    return descend(images, labels).numpy()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--out", type=Path, required=True, help="the folder for nominal.keras, adversarial.keras and wide.keras"
    )
    parser.add_argument("--only", choices=list(KINDS), help="train one of them")
    given = parser.parse_args()
    for kind in [given.only] if given.only else list(KINDS):
        train(kind, given.out / f"{kind}.keras")


if __name__ == "__main__":
    main()
