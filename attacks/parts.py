"""The parts of AutoAttack by name, in their order. Does not import TensorFlow, so that pages can be written without it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

VERSIONS: dict[str, tuple[str, ...]] = {
    "standard": ("apgd-ce", "apgd-t", "fab-t", "square"),
    "plus": ("apgd-ce", "apgd-dlr", "fab", "square", "apgd-t", "fab-t"),
    "rand": ("apgd-ce", "apgd-dlr"),
}
WITHOUT_GRADIENTS = "square"


def of(settings: Mapping[str, Any]) -> tuple[str, ...]:
    """The parts that run under stored settings, as a stored result counts them; none for an engine without parts."""
    return tuple(settings.get("parts") or VERSIONS.get(str(settings.get("version")), ()))
