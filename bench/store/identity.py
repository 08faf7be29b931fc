"""What a defence's, a board's, an attack's, a source's, a cell's and a key search's row is, and its fingerprint.

The only place that says so. Every setting that makes a number is in a fingerprint, and every fingerprint is computed
from the columns of its own row: a run makes rows here, and a verification finds here whether a stored row was changed.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

from bench.api import BenchError, Defence
from bench.store.about import About, to_json
from bench.store.coverage import Required
from bench.store.schema import CLEAN
from bench.support.fingerprint import canonical, fingerprint

Row = dict[str, Any]


def defence_row(name: str, defence: Defence, weights_sha256: str, key_id: str | None, description: str) -> Row:
    """A defended model: the algorithm and its settings, the classifier's weights, and the name of the key."""
    row = {
        "name": name,
        "version": defence.version,
        "params_json": canonical(dataclasses.asdict(defence.settings)),
        "keyed": defence.keyed,
        "key_id": key_id,
        "weights_sha256": weights_sha256,
        "description": description,
    }
    return {**row, "fingerprint": of_defence(row)}


def board_row(
    defence: Mapping[str, Any],
    dataset: str,
    examples_sha256: str,
    n_examples: int,
    norm: str,
    epsilon: float,
    required: Required | None = None,
) -> Row:
    """A defended model on examples in a norm; `defence_id` is for whoever stores it to add.

    `required` are the cells that it must have: no part of the fingerprint.
    """
    row = {
        "dataset": dataset,
        "examples_sha256": examples_sha256,
        "norm": norm,
        "epsilon": epsilon,
        "n_examples": n_examples,
    }
    said = None if required is None else required.to_json()
    return {**row, "fingerprint": of_board(row, defence["fingerprint"]), "required_json": said}


def attack_row(engine: str, version: str, settings: Mapping[str, Any], seed: int, about: About | None = None) -> Row:
    """An engine with its settings and the run's seed. `about` is what it says of itself: no part of the fingerprint."""
    if engine == CLEAN:
        raise BenchError(f"an engine is called '{CLEAN}', which is what the unperturbed images are called: rename it")
    if "seed" in settings:
        raise BenchError(f"engine {engine} has a setting called 'seed', which is the run's: call it something else")
    row = {"name": engine, "version": version, "params_json": canonical({**settings, "seed": seed})}
    return {**row, "fingerprint": of_attack(row), "about_json": to_json(about)}


def source_row(
    name: str,
    version: str,
    *,
    strategy: str,
    settings: Mapping[str, Any],
    training: Mapping[str, Any],
    recipes: Mapping[str, Mapping[str, Any]],
    training_images: str | None,
    against: Mapping[str, Any],
    given: Mapping[str, Any],
    about: About | None = None,
) -> Row:
    """A source is what it is by its strategy, the attacker's training, and the defended model it was made against.

    `recipes` are those it may have been trained by, `against` is the defence's row, and `given` is what the user
    brought for it: the sha256 of a model, a guessed key. `about` is what it says of itself: no part of the fingerprint.
    """
    made_of = {
        "strategy": strategy,
        "settings": settings,
        "training": training,
        "recipes": recipes,
        "training_images": training_images,
        "against": against["fingerprint"],
        **given,
    }
    row = {"name": name, "version": version, "params_json": canonical(made_of)}
    return {**row, "fingerprint": of_source(row), "about_json": to_json(about)}


def clean_row() -> Row:
    """The attack, and the source, of the unperturbed images."""
    return {"name": CLEAN, "version": "1", "params_json": "{}", "fingerprint": fingerprint(CLEAN)}


def key_search_row(
    defence: Mapping[str, Any],
    *,
    dataset: str,
    split: str,
    n_images: int,
    images_sha256: str,
    inside_threat_model: bool,
    defended_accuracy: float,
    defended_images: int,
    race_floor: float,
    race_error: float,
) -> Row:
    """A search for a defended model's key on certain images by certain rules; `defence_id` is for whoever stores it."""
    row = {
        "dataset": dataset,
        "split": split,
        "n_images": n_images,
        "images_sha256": images_sha256,
        "inside_threat_model": inside_threat_model,
        "defended_accuracy": defended_accuracy,
        "defended_images": defended_images,
        "race_floor": race_floor,
        "race_error": race_error,
    }
    return {**row, "fingerprint": of_key_search(row, defence["fingerprint"])}


def cell(board: Mapping[str, Any], attack: Mapping[str, Any], source: Mapping[str, Any]) -> str:
    """A cell's fingerprint from its rows: also the seed of its examples, and its images' folder."""
    return fingerprint([board["fingerprint"], attack["fingerprint"], source["fingerprint"]])


def of_defence(row: Mapping[str, Any]) -> str:
    """The fingerprint of a defence's row, from its own columns."""
    return fingerprint(
        {
            "name": row["name"],
            "version": row["version"],
            "settings": json.loads(row["params_json"]),
            "weights": row["weights_sha256"],
            "key": row["key_id"],
        }
    )


def of_board(row: Mapping[str, Any], defence: str) -> str:
    """The fingerprint of a board's row, from its own columns and its defence's fingerprint."""
    return fingerprint(
        {"defence": defence, "examples": row["examples_sha256"], "norm": row["norm"], "epsilon": row["epsilon"]}
    )


def of_attack(row: Mapping[str, Any]) -> str:
    """The fingerprint of an attack's row, from its own columns."""
    if row["name"] == CLEAN:
        return fingerprint(CLEAN)
    settings = json.loads(row["params_json"])
    seed = settings.pop("seed", None)
    return fingerprint({"name": row["name"], "version": row["version"], "settings": settings, "seed": seed})


def of_source(row: Mapping[str, Any]) -> str:
    """The fingerprint of a source's row, from its own columns."""
    if row["name"] == CLEAN:
        return fingerprint(CLEAN)
    return fingerprint({"name": row["name"], "version": row["version"], **json.loads(row["params_json"])})


def of_key_search(row: Mapping[str, Any], defence: str) -> str:
    """The fingerprint of a key search's row, from its own columns and its defence's fingerprint."""
    own = ("dataset", "split", "n_images", "images_sha256", "inside_threat_model")
    rules = ("defended_accuracy", "defended_images", "race_floor", "race_error")
    return fingerprint({"defence": defence, **{name: row[name] for name in (*own, *rules)}})
