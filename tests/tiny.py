"""A world small enough to train everything in it in seconds: a few CIFAR-10 images, a small network, weak budgets."""

from __future__ import annotations

from pathlib import Path

import numpy as np

TOML = """
examples = 4
norms = ["linf"]

[epsilon]
linf = "8/255"

[training]
depth = 10
width = 1
epochs = 1
batch_size = 64
learning_rate = 0.05
cutmix = false

[recipes.at-linf]
start = "nominal"
adversary = { norm = "linf", epsilon = 0.03, steps = 2, step = 0.5 }

[recipes.at-l2]
start = "nominal"
adversary = { norm = "l2", epsilon = 0.5, steps = 1, step = 1.25 }

[recipes."surrogate:linac"]
start = "defended"
copies = 1

[recipes.linac]
copies = 2

[recipes.bypass]
weight_decay = 0.0

[defences.linac]
width = 16
layers = 3
representation_layer = 1
epochs = 1
learning_rate = 0.01

[engines.pgd]
steps = 2
restarts = 1

[engines.mt]
steps = 2
restarts = 1
targets = 2

[engines.square]
queries = 5
restarts = 1

[engines.aa]
steps = 2
queries = 5
targets = 2

[engines.boosted]
steps = 2
"""


def make(folder: Path) -> list[str]:
    """Writes the images and the preset to a folder; returns the options of `bench run` that use them."""
    sample = np.load(Path(__file__).parents[1] / "bench" / "data" / "embedded" / "cifar10_test_500.npz")
    images, labels = sample["x_test"], sample["y_test"]
    np.savez(
        folder / "mine.npz", x_train=images[:128], y_train=labels[:128], x_test=images[128:140], y_test=labels[128:140]
    )
    (folder / "tiny.toml").write_text(TOML)
    return ["--preset", "tiny.toml", "--dataset", "mine.npz"]
