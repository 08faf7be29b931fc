"""Settings that can grow: a field carries the version it came with, and does not count where it is at its default.

What is fingerprinted is the JSON of the fields. A field of the first version is always in it; one that came later is
left out at its default, so that everything made before it came keeps its fingerprint.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

FIRST = 1


def since(version: int) -> dict[str, int]:
    """The metadata of a dataclass field that came with this version; its default is what was done before it came."""
    return {"since": version}


def version_of(field: dataclasses.Field[Any]) -> int:
    """The version that a field came with."""
    return int(field.metadata.get("since", FIRST))


def as_json(settings: DataclassInstance) -> dict[str, Any]:
    """The fields that count, in their order; dataclasses among them by the same rule."""
    counted = {}
    for field in dataclasses.fields(settings):
        value = getattr(settings, field.name)
        if version_of(field) == FIRST or value != field.default:
            nested = dataclasses.is_dataclass(value) and not isinstance(value, type)
            counted[field.name] = as_json(value) if nested else value
    return counted
