"""A thousand random keys and the right one against a small LINAC: what the race saves, and how far the right key stands out.

python -m benchmarks.key_search [--keys 1000] [--to-the-end 100]

The classifier is linear and knows 200 of the shipped images (16×16) by heart under the right key, so nothing is trained.
Every key is raced. The right one and the first `--to-the-end` others are also scored on all images, in the same run.
"""

from __future__ import annotations

import argparse
import os
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import keras
import numpy as np

from bench.data import datasets
from bench.keysearch.guesses import RandomKeys
from bench.keysearch.race import Race
from bench.keysearch.scorer import Score, Scorer
from bench.support import devices
from defences.linac import Linac, LinacConfig

RIGHT = 5550123
IMAGES = 200


def target() -> tuple[Linac, keras.Model, np.ndarray, np.ndarray]:
    """The defence, its classifier, and the images (N×16×16×3) and labels (N) that it knows."""
    import tensorflow as tf

    split = datasets.load("cifar10").test.first(IMAGES)
    images, labels = split.unit()[:, ::2, ::2], split.labels
    defence = Linac(LinacConfig(width=16, epochs=2))
    features = defence.transform(tf.constant(images), RIGHT, {}).numpy().reshape(IMAGES, -1).astype(np.float64)
    centre = features.mean(axis=0)
    centred = features - centre
    kernel = centred.T @ np.linalg.solve(centred @ centred.T + 1e-3 * np.eye(IMAGES), np.eye(10)[labels])
    model = keras.Sequential([keras.Input((16, 16, 16)), keras.layers.Flatten(), keras.layers.Dense(10)])
    model.layers[-1].set_weights([kernel.astype(np.float32), (-centre @ kernel).astype(np.float32)])
    return defence, model, images, labels


def timed(scorer: Scorer, keys: Sequence[int]) -> tuple[dict[int, Score], float, float]:
    """Scores by key, seconds on the clock and of the processor."""
    clock, processor = time.perf_counter(), time.process_time()
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        scores = {score.key: score for score in pool.map(scorer.score, keys)}
    return scores, time.perf_counter() - clock, time.process_time() - processor


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--keys", type=int, default=1000)
    parser.add_argument("--to-the-end", type=int, default=100)
    options = parser.parse_args()
    devices.configure()
    defence, model, images, labels = target()
    race = Race(floor=0.95, error=1e-4, images=IMAGES)
    wrong = [guess.key for guess in RandomKeys(options.keys)]
    racing = Scorer(defence, {}, model, images, labels, race)
    racing.score(wrong[0])  # compiles
    raced, clock, processor = timed(racing, [*wrong, RIGHT])
    spent, whole = sum(score.images for score in raced.values()), len(raced) * IMAGES
    kept = [key for key, score in raced.items() if score.stopped is None]
    print(f"raced: {len(raced)} keys, {spent} of {whole} images ({whole / spent:.1f} times fewer), ", end="")
    print(f"{clock:.1f} s, {processor:.1f} s of processor; kept: {len(kept)}, the right one {RIGHT in kept}")
    sample = [*wrong[: options.to_the_end], RIGHT]
    ended, clock, processor = timed(Scorer(defence, {}, model, images, labels, race, to_the_end=True), sample)
    part = sum(score.raced_seconds for score in ended.values()) / sum(score.seconds for score in ended.values())
    print(f"to the end: {len(ended)} keys, {clock:.1f} s, {processor:.1f} s of processor; ", end="")
    print(f"the race was decided in {part:.1%} of that time ({1 / part:.1f} times less)")
    counts = Counter(min(100 * score.correct // score.images // 5 * 5, 95) for score in ended.values())
    for low in sorted(counts):
        print(f"{low:>4} to {low + 5:<4}% {counts[low]:>5}" + ("  ← the right key" if low == max(counts) else ""))


if __name__ == "__main__":
    main()
