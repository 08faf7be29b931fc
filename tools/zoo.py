"""Puts trained classifiers into the package: half-precision weights, measured again on the whole test set.

python tools/zoo.py none block-shuffle jpeg-23 …      (after `bench train --defence …`)
"""

from __future__ import annotations

import json
import sys

import numpy as np

from bench import artifacts, data, devices, keys, models, registry, spec
from bench.fingerprint import of_file
from bench.training import classify


def ship(name: str) -> None:
    """Writes one defence's classifier, trained for the laptop preset with the published key, to bench/zoo."""
    run, dataset = spec.resolve("laptop"), data.load("cifar10")
    defence = registry.create("defences", name, run.defences.get(name, {}))
    key = keys.load(None) if defence.keyed else None
    wanted = models.spec_for(run, dataset, name, defence, key.id if key else None)
    artifact = artifacts.find(wanted.fingerprint)
    if artifact is None:
        sys.exit(f"{name} is not trained: run 'bench train --defence {name}' first")
    halves = {n: v.astype(np.float16) for n, v in artifacts.read_arrays(artifact.weights).items()}
    folder = artifacts.ZOO / wanted.fingerprint[:16]
    folder.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(folder / "weights.npz", **halves)
    classifier = models.load_file(wanted, folder / "weights.npz")
    value = key.reveal() if key else None
    logits = classify(classifier.model, lambda x: defence.transform(x, value, classifier.state), dataset.shape)
    accuracy = float(np.mean(logits(dataset.test.unit()).argmax(axis=1) == dataset.test.labels))
    record = {**artifact.record, "clean_accuracy": accuracy, "test_images": len(dataset.test), "precision": "float16",
              "weights_sha256": of_file(folder / "weights.npz")}  # fmt: skip
    content = {"fingerprint": wanted.fingerprint, "spec": wanted.as_json(), "record": record}
    (folder / "artifact.json").write_text(json.dumps(content, indent=1) + "\n")
    size = (folder / "weights.npz").stat().st_size / 2**20
    print(f"{name}: {100 * accuracy:.2f} % of {len(dataset.test)} test images, {size:.2f} MiB, {folder.name}")


if __name__ == "__main__":
    devices.configure(training=True)
    for requested in sys.argv[1:]:
        ship(requested)
