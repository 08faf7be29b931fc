"""How much of an image a linear map that is the same for all images reads from LINAC's representation.

python -m benchmarks.readout
python -m benchmarks.readout 'linac[width=64,layers=3]' 'linac[width=64,learning_rate=5e-3]'

A classifier has to read representations in a way common to all images. Fits whose weights go different ways for
different images are of little use to it, however well each gives its own image back. The settings of the preset
`laptop` were chosen by this number, which takes seconds where an accuracy takes an hour.
"""

from __future__ import annotations

import sys
import time

import numpy as np
import tensorflow as tf

from bench import keys, registry
from bench.data import datasets
from bench.support import devices
from defences.linac import standardise

TRAINED, TESTED, AT_ONCE = 256, 128, 64
RIDGE = 1e-3
SETTINGS = [
    "linac[width=32,epochs=5,learning_rate=0.01]",
    "linac[width=32,epochs=10,learning_rate=0.01]",
    "linac[width=64,epochs=5,learning_rate=0.01]",
    "linac[width=64,epochs=5,learning_rate=0.005]",
    "linac[width=64,epochs=10,learning_rate=0.001]",
    "linac[width=64,epochs=5,learning_rate=0.005,layers=4]",
    "linac[width=64,epochs=5,learning_rate=0.005,layers=3]",
    "linac[width=32,epochs=5,learning_rate=0.01,layers=4]",
    "linac[width=32,epochs=5,learning_rate=0.01,layers=3]",
    "linac[width=32,epochs=5,learning_rate=0.01,layers=3,frequencies=3]",
]


def explained(representations: np.ndarray, images: np.ndarray) -> float:
    """The share of the variance of test images (N×H×W×3) that a ridge regression on the training ones explains."""
    own = representations - representations[:TRAINED].mean(axis=0)
    wanted = images - images[:TRAINED].mean(axis=0)
    inputs, outputs = own[:TRAINED].reshape(-1, own.shape[-1]), wanted[:TRAINED].reshape(-1, 3)
    ridge = RIDGE * len(inputs) * inputs.var() * np.eye(inputs.shape[1])
    weights = np.linalg.solve(inputs.T @ inputs + ridge, inputs.T @ outputs)
    return float(1 - (wanted[TRAINED:] - own[TRAINED:] @ weights).var() / wanted[TRAINED:].var())


def main(requests: list[str]) -> None:
    devices.configure()
    images = datasets.load("cifar10").test.first(TRAINED + TESTED).unit()
    key = keys.PUBLISHED_KEY
    for request in requests:
        name, settings = registry.parse(request)
        defence = registry.defence(name, settings)
        started = time.process_time()
        parts = [
            defence.transform(tf.constant(images[i : i + AT_ONCE]), key, {}) for i in range(0, len(images), AT_ONCE)
        ]
        seconds = time.process_time() - started
        share = explained(np.concatenate([part.numpy() for part in parts]), standardise(images))
        print(
            f"{request}: {share:.3f} of the variance, {len(images) / seconds:.0f} images per second of CPU", flush=True
        )


if __name__ == "__main__":
    main(sys.argv[1:] or SETTINGS)
