"""TensorFlow's convolutions with its oneDNN kernels and without, on the network of the `laptop` preset.

    python -m benchmarks.kernels

Milliseconds of CPU and on the clock per image: gradients and logits one image at a time, as attacks need them, and
training in batches of 100. Each choice in a process of its own, in turn.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable

import numpy as np

IMAGES, STEPS, ROUNDS, REPEATS = 100, 2, 2, 2


def measure() -> None:
    """Prints the times of this process's kernels."""
    from bench.support import devices

    devices.configure()
    import tensorflow as tf

    from attacks.parts import losses
    from bench.api import ModelSource
    from bench.models.architecture import Architecture

    model = Architecture.named("wide-resnet", {"depth": 10, "width": 2}).build((32, 32, 3), 10)
    source = ModelSource("model", lambda images: model(images, training=False))
    generator = np.random.default_rng(0)
    images = generator.random((IMAGES, 32, 32, 3), np.float32)
    labels = generator.integers(0, 10, IMAGES).astype(np.int32)

    def gradients(images: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        return source.gradient(losses.margin, images, labels).gradient

    def logits(images: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        return images + tf.reduce_sum(source.logits(images))

    def training(images: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            value = losses.margin(model(images, training=True), labels)
        return images + tf.add_n([tf.reduce_sum(part) for part in tape.gradient(value, model.trainable_variables)])

    def timed(name: str, function: Callable[..., tf.Tensor]) -> None:
        @tf.function(input_signature=[tf.TensorSpec([None, 32, 32, 3]), tf.TensorSpec([None], tf.int32)])
        def repeated(images: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
            return tf.while_loop(
                lambda step, _: step < STEPS,
                lambda step, now: (step + 1, tf.sign(function(now, labels)) + now),
                (0, images),
            )[1]

        repeated(images[:2], labels[:2])
        spent = []
        for _ in range(REPEATS):
            began, worked = time.perf_counter(), time.process_time()
            repeated(images, labels).numpy()
            spent.append((time.process_time() - worked, time.perf_counter() - began))
        cpu, seconds = (1000 * value / IMAGES / STEPS for value in min(spent))
        print(f"| {name} | {cpu:.2f} | {seconds:.2f} |", flush=True)

    timed("gradients, one image at a time", gradients)
    timed("logits, one image at a time", logits)
    timed("training in batches", training)


def main() -> None:
    for _ in range(ROUNDS):
        for choice in ("1", "0"):
            print(f"\nTF_ENABLE_ONEDNN_OPTS={choice}\n\n| what | CPU ms | ms |\n| --- | --- | --- |", flush=True)
            environment = {**os.environ, "TF_ENABLE_ONEDNN_OPTS": choice}
            subprocess.run([sys.executable, "-m", "benchmarks.kernels", "--measure"], env=environment, check=True)


if __name__ == "__main__":
    measure() if sys.argv[1:] == ["--measure"] else main()
