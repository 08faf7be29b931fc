"""Puts trained classifiers into the package: half-precision weights, measured again on the whole test set.

python tools/zoo.py none block-shuffle jpeg-23 …      (after `bench train --defence …`)
python tools/zoo.py block-shuffle@bypass linac@bypass (after `bench train --defence … --source bypass`)

A bypass belongs to weights of a certain digest: train it in a cache folder that has the images but no classifiers, so that
it is made for those of the package.
"""

from __future__ import annotations

import json
import shutil
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


def ship_source(name: str, what: str) -> None:
    """Copies what was trained against a shipped classifier, as it is."""
    for artifact in artifacts.all_artifacts():
        described = artifact.spec
        if described.get("what") == what and described["defence"]["name"] == name and artifact.path.parent != artifacts.ZOO:
            if described["against"] not in {of_file(path) for path in artifacts.ZOO.glob("*/weights.npz")}:
                continue
            shutil.copytree(artifact.path, artifacts.ZOO / artifact.path.name, dirs_exist_ok=True)
            print(f"{name}@{what}: {100 * artifact.record['clean_accuracy']:.2f} % by itself, {artifact.path.name}")
            return
    sys.exit(f"no {what} was trained against the shipped classifier of {name}")


if __name__ == "__main__":
    devices.configure(training=True)
    for requested in sys.argv[1:]:
        defence_name, at, source = requested.partition("@")
        if at:
            ship_source(defence_name, source)
        else:
            ship(defence_name)
