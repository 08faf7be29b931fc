"""Reads the fields of a frame by type and range: whatever another process sends is held to what was agreed on."""

from __future__ import annotations

from typing import Any

import numpy as np

from bench.executors.channel import Frame, Malformed
from bench.support.text import one_line


class Fields:
    """The fields of a frame, each to be asked for once and by its type; what is left over was not agreed on."""

    def __init__(self, frame: Frame) -> None:
        self._document, self._arrays = dict(frame.document), dict(frame.arrays)

    def has(self, name: str) -> bool:
        return name in self._document

    def text(self, name: str) -> str:
        value = self._take(name)
        if not isinstance(value, str):
            raise Malformed(f"{name} that is no text")
        return value

    def whole(self, name: str, low: int, high: int) -> int:
        value = self._take(name)
        if type(value) is not int or not low <= value <= high:
            raise Malformed(f"{name} that is no whole number from {low} to {high}")
        return value

    def number(self, name: str, low: float, high: float) -> float:
        value = self._take(name)
        if type(value) not in (int, float) or not low <= value <= high:  # NaN is not, either
            raise Malformed(f"{name} that is no number from {low:g} to {high:g}")
        return float(value)

    def mapping(self, name: str) -> dict[str, Any]:
        value = self._take(name)
        if not isinstance(value, dict):
            raise Malformed(f"{name} that is no mapping")
        return value

    def has_array(self, name: str) -> bool:
        return name in self._arrays

    def array(self, name: str, dtype: str, shape: tuple[int, ...]) -> np.ndarray:
        """An array of just this type and shape."""
        if name not in self._arrays:
            raise Malformed(f"a message without {name}")
        value = self._arrays.pop(name)
        if value.dtype.str != dtype or value.shape != shape:
            raise Malformed(f"{name} as {value.dtype} of {value.shape}, not {np.dtype(dtype)} of {shape}")
        return value

    def finish(self) -> None:
        """Refuses what was not asked for."""
        if self._document or self._arrays:
            raise Malformed(f"a message with the unknown field {one_line([*self._document, *self._arrays][0], 40)!r}")

    def _take(self, name: str) -> Any:
        if name not in self._document:
            raise Malformed(f"a message without {name}")
        return self._document.pop(name)
