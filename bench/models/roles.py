"""What a trained model is for, in words: by the zoo's list, or told from the description that it is kept with."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from bench.api import attacker_key
from bench.models import artifacts
from bench.models.artifacts import Artifact
from bench.models.catalogue import ATTACKER

FIRST_KEYS = 100
"""So many of an attacker's keys are told by their number."""
EVERY = "every defence with a key"


def listed() -> dict[str, str]:
    """The names of the zoo's models, such as linac@surrogate:1, by fingerprint."""
    entries = json.loads((artifacts.ZOO / "manifest.json").read_text())
    return {entry["fingerprint"]: entry["name"] for entry in entries}


def role_of(artifact: Artifact, names: Mapping[str, str]) -> str:
    """The defence whose classifier it is, or which source it is and against what; `names` are those of the zoo."""
    defence, at, source = names.get(artifact.fingerprint, "").partition("@")
    role = f"source {source} against {EVERY if defence == 'none' else defence}" if at else _told(artifact.spec)
    return role + (", trained from other weights on" if artifact.spec.get("start") else "")


def _told(spec: Mapping[str, Any]) -> str:
    name, key = spec["defence"]["name"], spec["key"] or ""
    if what := spec.get("what"):
        return f"source {what} against {name}"
    if key.startswith(ATTACKER):
        return f"source against {name}, under the attacker's key {_number(key)}"
    if adversary := spec.get("recipe", {}).get("adversary"):
        return f"source at-{adversary['norm']} against {EVERY}"
    return f"classifier of none; source nominal against {EVERY}" if name == "none" else f"classifier of {name}"


def _number(key: str) -> str:
    """Which of the attacker's keys it is; the key itself where it is none of the first."""
    wanted = key.removeprefix(ATTACKER)
    return next((str(n) for n in range(1, FIRST_KEYS) if str(attacker_key(n)) == wanted), wanted)
