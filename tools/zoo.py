"""Trains the models that come with the package from nothing, and puts them into bench/zoo with their manifest.

python tools/zoo.py                      all of them, one after the other; interrupted, it goes on where it was
python tools/zoo.py linac linac@bypass   only these
python tools/zoo.py --preset FILE.toml   by the recipes of another preset than the default
python tools/zoo.py --into FOLDER        into another folder than bench/zoo, which keeps what is to ship later

Each is kept in half precision as soon as it is trained, and what is trained later starts from, or attacks, exactly
what ships. The accuracies of the manifest are of the halves, on all test images.
"""

from __future__ import annotations

import argparse
import functools
import json
import shutil
import sys
from pathlib import Path

import numpy as np

from bench import keys, plan, spec
from bench.api import attacker_key
from bench.data import datasets
from bench.evaluation import zoo
from bench.models import artifacts, catalogue, weights
from bench.models.artifacts import Artifact
from bench.models.transforms import TransformedCopies
from bench.spec import Spec
from bench.support import devices
from bench.support.fingerprint import of_file
from bench.support.progress import progress_lines
from bench.vault.here import VaultHere

VAULT = VaultHere(keys.published())
DEFENCES = ("none", "block-shuffle", "jpeg-23", "jpeg-10", "pca-full", "pca-block", "linac")
TRAINED = ("bypass", "surrogate", "surrogate-warm", "reconstruction")
"""Kinds of sources that are trained against a defence, in that order: one fit gives a surrogate's kept copies and
those of the reconstruction under the same key."""
PLAIN = ("at-linf", "at-l2")
"""Models that are the same for every defence: those of `none`."""


def names(by: Spec) -> list[str]:
    """What the zoo of a preset holds: each defence, its bypass, and what else `all` attacks it from."""
    found = []
    for name in DEFENCES:
        pairs = plan.requested(by, name, ["all"])
        trained = {pair.source: pair.description.kind for pair in pairs if pair.description.kind in TRAINED}
        order = sorted({**trained, "bypass": "bypass"}.items(), key=lambda item: (TRAINED.index(item[1]), item[0]))
        own = PLAIN if name == "none" else [source for source, _ in order]
        found += [name, *(f"{name}@{source}" for source in own)]
    return found


def main(wanted: list[str], preset: str) -> None:
    by = spec.resolve(preset)
    known = names(by)
    if odd := [name for name in wanted if name not in known]:
        sys.exit(f"'{odd[0]}' is not in the zoo; it has {', '.join(known)}")
    devices.configure(training=True)
    found = {entry.name: artifacts.find(entry.fingerprint) for entry in zoo.manifest()}
    for name in known:
        if not wanted or name in wanted:
            keep_both(name, by)
            found[name] = obtained(name, by)
            zoo.write_manifest(known, {name: artifact for name, artifact in found.items() if artifact})
    used = {artifact.path for artifact in found.values() if artifact}
    for path in sorted(artifacts.ZOO.glob("*/artifact.json")):
        if path.parent not in used:
            print(f"{path.parent.name} is in the zoo, but not in the manifest")


def keep_both(name: str, by: Spec) -> None:
    """Before a surrogate is trained: one fit gives its copies of the training images, and those of the reconstruction."""
    defence_name, _, source = name.partition("@")
    kind, _, number = source.partition(":")
    dataset, (_, defence) = datasets.load(by.dataset), by.defence(defence_name)
    if kind != "surrogate" or not catalogue.gives_both(defence):
        return
    key = attacker_key(int(number))
    wanted = catalogue.spec_for(
        by, dataset, defence_name, defence, f"{catalogue.ATTACKER}{key}", (f"{kind}:{defence_name}", kind)
    )
    if wanted.recipe.copies and artifacts.find(wanted.fingerprint) is None:
        data = wanted.recipe.learnt_from(dataset.training())
        both = functools.partial(defence.transform_and_reconstruction, key=key)
        copies = TransformedCopies(wanted, lambda images: defence.transform(images, key, {}), data, both)
        copies.all(progress_lines(print))


def obtained(name: str, by: Spec) -> Artifact:
    """The model of this name in the zoo; trained, put there and measured if need be."""
    identity = zoo.ZooBuilder(by, VAULT, print, may_train=True).fingerprint(name)
    artifact = artifacts.find(identity)
    assert artifact is not None
    if artifact.path.parent != artifacts.ZOO:
        halve(artifact)
    if identity not in {entry.fingerprint for entry in zoo.manifest()}:
        accuracy = zoo.ZooBuilder(by, VAULT, print).accuracy(name)
        _record(identity, clean_accuracy=accuracy)
    artifact = artifacts.find(identity)
    assert artifact is not None
    size = artifact.weights.stat().st_size / 2**20
    print(f"{name}: {100 * artifact.record['clean_accuracy']:.2f} % of the test images, {size:.2f} MiB", flush=True)
    return artifact


def halve(artifact: Artifact) -> None:
    """Moves a trained model from the cache folder into the zoo, in half precision."""
    folder = artifacts.ZOO / artifact.path.name
    folder.mkdir(parents=True, exist_ok=True)
    halves = {name: value.astype(np.float16) for name, value in weights.read_arrays(artifact.weights).items()}
    np.savez_compressed(folder / "weights.npz", **halves)  # type: ignore[arg-type]
    record = {**artifact.record, "precision": "float16", "weights_sha256": of_file(folder / "weights.npz")}
    content = {"fingerprint": artifact.fingerprint, "spec": artifact.spec, "record": record}
    (folder / "artifact.json").write_text(json.dumps(content, indent=1) + "\n")
    shutil.rmtree(artifact.path)  # what is in the cache folder stands before what is in the zoo


def _record(identity: str, **values: float) -> None:
    path = artifacts.ZOO / identity[:16] / "artifact.json"
    content = json.loads(path.read_text())
    content["record"].update(values)
    path.write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Trains the models that come with the package.")
    parser.add_argument("names", nargs="*", help="only these")
    parser.add_argument("--preset", default="laptop", help="whose recipes")
    parser.add_argument("--into", type=Path, default=artifacts.ZOO, help="the folder of the models and their manifest")
    asked = parser.parse_args()
    artifacts.ZOO = asked.into.resolve()
    main(asked.names, asked.preset)
