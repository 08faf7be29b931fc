"""How fast a recipe trains the fast network, beside numpy's sgemm in the same run.

    python -m benchmarks.training
    python -m benchmarks.training --widths 64+256+256

Whole steps of `bench train`, input and optimiser and all, on random images. Rounds of the precisions and of sgemm
alternate; the best of each counts, since others use the machine as well. GFLOP/s count two operations per
multiplication of the convolutions and the last layer: forward, to the weights, and to the inputs (but for the first
trained layer, whose inputs need none). Per second of CPU is what one core does, however busy the machine is.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import time
from collections.abc import Callable

import numpy as np

STEPS, ROUNDS = 6, 4
SIDE = 3072  # of the matrices that sgemm multiplies


@dataclasses.dataclass
class PeakRate:
    """The most that was reached, per second on the clock and per second of CPU."""

    clock: float = 0.0
    cpu: float = 0.0

    def take(self, amount: float, work: Callable[[], object]) -> None:
        began, worked = time.perf_counter(), time.process_time()
        work()
        self.cpu = max(self.cpu, amount / (time.process_time() - worked))
        self.clock = max(self.clock, amount / (time.perf_counter() - began))


def operations(model: object, cost: int) -> float:
    """Of a step, per image."""
    import keras

    assert isinstance(model, keras.Model)
    trained = [layer for layer in model.layers if layer.trainable_variables and hasattr(layer, "kernel")]
    counts = {
        layer.name: int(np.prod(layer.kernel.shape)) * int(np.prod(layer.output.shape[1:-1])) for layer in trained
    }
    to_weights = sum(counts.values())
    return 2.0 * (cost + to_weights + to_weights - counts[trained[0].name])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--widths", default="64+128+128")
    parser.add_argument("--slices", type=int, default=4)
    options = parser.parse_args()

    from bench.support import devices

    devices.configure(training=True)
    from bench.data.datasets import Split
    from bench.models import precision
    from bench.models.architecture import Architecture
    from bench.models.recipe import Recipe
    from bench.models.training import Trainer

    network = Architecture.named("fast-cnn", {"widths": options.widths})
    shape, classes, batch = (32, 32, 3), 10, 512
    random = np.random.default_rng(0)
    images = random.integers(0, 256, (batch * STEPS, *shape), np.uint8)
    data = Split(images, random.integers(0, classes, len(images)).astype(np.int32))
    recipe = Recipe(
        network, epochs=1000, batch_size=batch, slices=options.slices, learning_rate=0.01, schedule="linear",
        offset_rate=64.0, label_smoothing=0.2, shift=2, border="reflect", flips="alternating", average=0.95,
        lookahead=5, cutmix=False,
    )  # fmt: skip
    matrix = random.random((SIDE, SIDE), np.float32)
    found: dict[str, PeakRate] = {"sgemm": PeakRate()}
    trainers = {}
    for name in ("float32", *(["bfloat16"] if precision.has_bfloat16() else [])):
        trainers[name] = Trainer(network.build(shape, classes), recipe, data, classes)
        found[name] = PeakRate()

    def epoch(name: str) -> None:
        trainer = trainers[name]
        if name == "float32":
            trainer._run_epoch(lambda progress: None)
        else:
            with precision.bfloat16_convolutions(trainer.model):
                trainer._run_epoch(lambda progress: None)

    for name in trainers:
        epoch(name)  # compiles
    for _ in range(ROUNDS):
        found["sgemm"].take(2e-9 * SIDE**3, lambda: matrix @ matrix)
        for name in trainers:
            found[name].take(len(images), lambda name=name: epoch(name))  # type: ignore[misc]
    each = operations(trainers["float32"].model, network.cost(shape, classes)) / 1e9
    peak = found["sgemm"]
    print(f"{network}, {options.slices} slices, load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    print("| what | images/s | GFLOP/s | of sgemm | images per second of CPU | of sgemm |\n| --- " + "| --- " * 5 + "|")
    print(f"| sgemm | | {peak.clock:.0f} | | ({peak.cpu:.0f} GFLOP/s) | |")
    for name in trainers:
        best = found[name]
        print(
            f"| {name} | {best.clock:.0f} | {each * best.clock:.0f} | {each * best.clock / peak.clock:.0%} "
            f"| {best.cpu:.0f} | {each * best.cpu / peak.cpu:.0%} |"
        )


if __name__ == "__main__":
    main()
