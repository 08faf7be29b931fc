"""What is said to a vault in another process, as plain JSON and back: nothing of it is ever unpickled."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from bench import registry
from bench.api import Batch, BenchError
from bench.data import datasets
from bench.executors.base import AttackTask, Setup
from bench.models.architecture import Architecture
from bench.models.catalogue import ClassifierSpec
from bench.models.recipe import Recipe
from bench.spec import Spec
from bench.vault.base import Defended

Form = dict[str, Any]


def of_spec(spec: ClassifierSpec) -> Form:
    """A classifier's description; its key stays unsaid, as the vault knows it."""
    return {
        "dataset": spec.dataset.name if spec.dataset.path is None else _place(spec.dataset),
        "defence": spec.defence_name,
        "settings": dataclasses.asdict(spec.defence.settings),
        "keyed": spec.key is not None,
        "recipe": spec.recipe.as_json(),
        "start": spec.start,
        "brought": spec.brought,
        "fingerprint": spec.fingerprint,
    }


def _place(dataset: datasets.Dataset) -> str:
    return "cifar10" if dataset.name == "cifar10" else str(dataset.path)


def spec_of(form: Form, key_id: str) -> ClassifierSpec:
    """The same again, where the key of this name is."""
    spec = ClassifierSpec(
        datasets.load(form["dataset"]),
        form["defence"],
        registry.defence(form["defence"], form["settings"]),
        key_id if form["keyed"] else None,
        Recipe.from_json(form["recipe"]),
        form["start"],
        form["brought"],
    )
    if spec.fingerprint != form["fingerprint"]:
        raise BenchError(f"the classifier of {form['defence']} is described in one way here and in another there")
    return spec


def of_defended(defended: Defended) -> Form:
    return {
        **{field.name: getattr(defended, field.name) for field in dataclasses.fields(defended)},
        "settings": dict(defended.settings),
        "network": defended.network.as_json(),
        "weights": str(defended.weights),
    }


def defended_of(form: Form) -> Defended:
    changed = {
        "network": Architecture.read(form["network"]),
        "weights": Path(form["weights"]),
        "shape": tuple(form["shape"]),
    }
    return Defended(**{**form, **changed})


def of_task(task: AttackTask) -> tuple[Form, dict[str, np.ndarray]]:
    """A task of a built-in attack. Models of the user's and guesses at the key are not for those who have it."""
    setup, batch = task.setup, task.batch
    form = {
        "spec": dataclasses.asdict(setup.spec),
        "dataset": setup.dataset,
        "defence": setup.defence_name,
        "settings": dict(setup.defence_settings),
        "network": setup.network.as_json(),
        "weights": str(setup.weights),
        "weights_sha256": setup.weights_sha256,
        "defended": setup.defended,
        "may_train": setup.may_train,
        "command": setup.command,
        "brought": setup.brought,
        "engine": task.engine,
        "engine_settings": dict(task.engine_settings),
        "source": task.source,
        "strategy": task.strategy,
        "probed": task.probed,
        "norm": batch.norm,
        "epsilon": batch.epsilon,
        "batch_size": batch.batch_size,
    }
    return form, {"images": batch.images, "labels": batch.labels, "seeds": batch.seeds}


def task_of(form: Form, arrays: Mapping[str, np.ndarray]) -> AttackTask:
    spec = Spec(**{**form["spec"], **{name: tuple(form["spec"][name]) for name in ("norms", "reference")}})
    setup = Setup(
        spec, form["dataset"], form["defence"], form["settings"], Architecture.read(form["network"]),
        Path(form["weights"]), form["weights_sha256"], form["defended"], {}, None, form["may_train"], form["command"],
        form["brought"],
    )  # fmt: skip
    batch = Batch(
        arrays["images"], arrays["labels"], arrays["seeds"], form["norm"], form["epsilon"], form["batch_size"]
    )
    what = (form["engine"], form["engine_settings"], form["source"], form["strategy"])
    return AttackTask(0, setup, *what, batch, form["probed"])
