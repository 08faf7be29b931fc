"""In which order examples go through the attacks of a run on survivors: what breaks most per second comes first."""

from __future__ import annotations

from collections.abc import Sequence

from bench.plan import Pair


def of(defence: str, norm: str, pairs: Sequence[Pair]) -> list[Pair]:
    """The pairs in the order that examples go through them; what is outside the threat model comes last."""
    return sorted(pairs, key=lambda pair: not pair.inside_threat_model)
