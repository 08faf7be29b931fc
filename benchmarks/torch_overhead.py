"""What a PyTorch classifier costs inside the harness, against a plain loop of torch's autograd on the same images.

python -m benchmarks.torch_overhead [--images 64] [--rounds 12]

A ResNet-18 for CIFAR-10 with random weights: the gradient of the cross-entropy with respect to a batch of images, by
torch alone, on all cores, and through `Source.gradient`, as attacks have it. By turns, so that what else the machine does
meets both alike. Where it does much, the clock favours ours: torch's threads wait for each other at every layer, and a
delay of one is a delay of all. So a third way is timed, torch alone on one thread, and the time of processors compared.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable, Sequence

import numpy as np

from bench.support import devices

FACTORY = "tests.torch_nets:resnet18"
Spent = tuple[float, float]  # seconds by the clock, and of processors


def timed(function: Callable[[], object]) -> Spent:
    wall, cpu = time.perf_counter(), time.process_time()
    function()
    return time.perf_counter() - wall, time.process_time() - cpu


def plain(images: np.ndarray, labels: np.ndarray, threads: int) -> Callable[[], np.ndarray]:
    """The gradient by torch alone, the way one writes it in torch."""
    import torch

    from tests.torch_nets import resnet18

    module = resnet18().eval().requires_grad_(False)
    inputs, wanted = torch.tensor(images).permute(0, 3, 1, 2).contiguous(), torch.tensor(labels).long()

    def gradient() -> np.ndarray:
        torch.set_num_threads(threads)
        leaf = inputs.clone().requires_grad_()
        loss = torch.nn.functional.cross_entropy(module(leaf), wanted, reduction="sum")
        return torch.autograd.grad(loss, leaf)[0].numpy()

    return gradient


def through_harness(images: np.ndarray, labels: np.ndarray) -> Callable[[], np.ndarray]:
    """The gradient as attacks compute it."""
    import tensorflow as tf

    from bench.api import ModelSource
    from bench.models.architecture import Architecture

    model = Architecture.named("torch", {"factory": FACTORY}).build(images.shape[1:], 10)
    source = ModelSource("model", lambda x: model(x, training=False))

    def loss(logits: tf.Tensor, wanted: tf.Tensor) -> tf.Tensor:
        return tf.nn.sparse_softmax_cross_entropy_with_logits(wanted, logits)

    compiled = tf.function(lambda x, y: source.gradient(loss, x, y).gradient)
    inputs, wanted = tf.constant(images), tf.constant(labels)
    return lambda: compiled(inputs, wanted).numpy()


def ratio(found: Sequence[Spent], base: Sequence[Spent], which: int) -> float:
    """The median over rounds of one way's time in units of the other's."""
    return statistics.median(one[which] / other[which] for one, other in zip(found, base, strict=True))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--images", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=12)
    options = parser.parse_args()
    devices.configure()
    random = np.random.default_rng(0)
    images = random.random((options.images, 32, 32, 3), np.float32)
    labels = random.integers(0, 10, options.images).astype(np.int32)
    cores = os.cpu_count() or 1
    ways = {
        f"torch, {cores} threads": plain(images, labels, cores),
        "torch, one thread": plain(images, labels, 1),
        "the harness": through_harness(images, labels),
    }
    for way in ways.values():
        way()  # compiled and warm
    spent: dict[str, list[Spent]] = {name: [] for name in ways}
    for _ in range(options.rounds):
        for name, way in ways.items():
            spent[name].append(timed(way))
    for name, found in spent.items():
        wall, cpu = (statistics.median(one[which] for one in found) for which in (0, 1))
        print(f"{name:<18} {wall:6.2f} s by the clock, {cpu:6.2f} s of processors ({options.images} images)")
    threaded, single, ours = spent.values()
    print(f"the harness against torch on {cores} threads: {ratio(ours, threaded, 0):.2f} × by the clock, "
          f"{ratio(ours, threaded, 1):.2f} × of processors")  # fmt: skip
    print(f"the harness against torch on one thread: {ratio(ours, single, 1):.2f} × of processors")


if __name__ == "__main__":
    main()
