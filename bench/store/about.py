"""What an attack or a source says of itself, for people: kept beside its row as JSON, and no part of its fingerprint."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from bench.api import BenchError
from bench.support.fingerprint import canonical

About = Mapping[str, str | float | Sequence[str]]
LONGEST = 2**16  # characters of JSON


def to_json(about: About | None) -> str | None:
    """The text of the column; raises BenchError for what it cannot hold."""
    if about is None:
        return None
    if reason := problem(about):
        raise BenchError(f"a description holds strings, numbers and lists of strings; {reason}")
    return canonical(about)


def from_json(text: str | None) -> dict[str, Any]:
    """What the column says; nothing where nothing was stored yet."""
    return {} if text is None else dict(json.loads(text))


def problem(about: Any) -> str | None:
    """What makes a value no description, or None."""
    if not isinstance(about, Mapping):
        return f"this one is of type {type(about).__name__}"
    for name, value in about.items():
        if not isinstance(name, str):
            return f"one of its names is {name!r}"
        if isinstance(value, str) or (isinstance(value, int | float) and math.isfinite(value)):
            continue
        if not isinstance(value, list | tuple) or not all(isinstance(item, str) for item in value):
            return f"its '{name}' is {value!r:.80}"
    if len(canonical(about)) > LONGEST:
        return f"this one has over {LONGEST} characters"
    return None
