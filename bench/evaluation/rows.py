"""From an attack's result and the referee's verdict to rows of `result`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from bench.api import Attacked, BenchError
from bench.executors import replies
from bench.vault.referee import Verdict


def checked(attacked: Attacked, shape: Sequence[int], parts: Sequence[str]) -> Attacked:
    """An attack's result on images of this shape, in plain arrays; raises BenchError for what could not be stored.

    `parts` are its engine's. Whatever ran the attack may have checked it too: this one does not rely on that.
    """
    found = replies.checked(attacked, shape)
    if found.part is not None and not (found.part < len(parts)).all():
        raise BenchError(
            f"the attack names part {int(np.max(found.part))}; its engine declares {len(parts)} (`Engine.parts`), "
            "which are counted from 0, and −1 is for none of them"
        )
    return found


def rows_of(examples: Sequence[int], labels: np.ndarray, verdict: Verdict, attacked: Attacked) -> list[dict[str, Any]]:
    """One row per example, without the ids of its cell."""
    part = attacked.part if attacked.part is not None else np.full(len(labels), -1)
    return [
        {
            "example_idx": int(example),
            "correct": int(verdict.correct[i]),
            "pred": int(verdict.pred[i]),
            "label": int(labels[i]),
            "margin": float(verdict.margin[i]),
            "distance": float(verdict.distance[i]),
            "source_success": int(attacked.success[i]),
            "source_margin": _finite(attacked.margin[i]),
            "restart": int(attacked.restart[i]),
            "target": int(attacked.target[i]),
            "part": int(part[i]),
            "gradients": int(attacked.gradients[i]),
            "queries": int(attacked.queries[i]),
            "rounded": None if verdict.rounded is None else int(verdict.rounded[i]),
        }
        for i, example in enumerate(examples)
    ]


def _finite(value: float) -> float:
    """JSON and some databases know no NaN or infinity; an unknown margin is 0."""
    return float(value) if np.isfinite(value) else 0.0
