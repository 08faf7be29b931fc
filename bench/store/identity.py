"""What stored rows say they are, computed again from their own columns: a changed setting no longer fits its fingerprint."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from bench.store.schema import CLEAN
from bench.support.fingerprint import fingerprint


def of_defence(row: Mapping[str, Any]) -> str:
    return fingerprint(
        {
            "name": row["name"],
            "version": row["version"],
            "settings": json.loads(row["params_json"]),
            "weights": row["weights_sha256"],
            "key": row["key_id"],
        }
    )


def of_board(row: Mapping[str, Any], defence_fingerprint: str) -> str:
    return fingerprint(
        {
            "defence": defence_fingerprint,
            "examples": row["examples_sha256"],
            "norm": row["norm"],
            "epsilon": row["epsilon"],
        }
    )


def of_attack(row: Mapping[str, Any]) -> str:
    if row["name"] == CLEAN:
        return fingerprint(CLEAN)
    settings = json.loads(row["params_json"])
    seed = settings.pop("seed", None)
    return fingerprint({"name": row["name"], "version": row["version"], "settings": settings, "seed": seed})


def of_source(row: Mapping[str, Any]) -> str:
    if row["name"] == CLEAN:
        return fingerprint(CLEAN)
    return fingerprint({"name": row["name"], "version": row["version"], **json.loads(row["params_json"])})


def of_cell(board: str, attack: str, source: str) -> str:
    """From the fingerprints of its board, attack and source: also the seed of its examples, and its images' folder."""
    return fingerprint([board, attack, source])
