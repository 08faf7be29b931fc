"""The keys that attackers train models of their own under: public numbers, never a secret."""

from __future__ import annotations

PAPER_KEYS = (
    1383227977468296715,
    -3328443931658504707,
    -127094507362684985,
    -7808219206569127925,
    -8772667224621836765,
    -70640792831170485,
    8263151932495004089,
    -4594861196100637268,
    -6520968232434877967,
    -8722766234183220599,
)
"""The keys that the paper trained its surrogates with: the ten best of its key search (its table 4)."""


def attacker_key(number: int) -> int:
    """The attacker's key of this number, from 1: the paper's ten, then any others."""
    import numpy as np

    if number <= len(PAPER_KEYS):
        return PAPER_KEYS[number - 1]
    bounds = np.iinfo(np.int64)
    return int(np.random.default_rng(number).integers(bounds.min, bounds.max, endpoint=True))
