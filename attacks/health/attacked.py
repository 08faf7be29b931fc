"""What an attack has given back, held against the source's own answers, more steps, one step and noise."""

from __future__ import annotations

import numpy as np

from attacks.health.descents import continued, masked, noise, not_reduced, one_step
from attacks.health.examples import counted, some
from attacks.parts.engine import forward, is_random
from attacks.parts.ledger import clean_margin
from bench.api import Batch, Finding, Source, flags

STEPS = 10
TRIES = 10
CLOSE = 1e-4
"""A margin below this share of the clean one is as good as 0: rounding may decide."""


def findings(
    source: Source, batch: Batch, clean: np.ndarray, images: np.ndarray, success: np.ndarray
) -> dict[str, Finding]:
    """What speaks against an attack's images (N×H×W×C) and its word on its success (N, bool); `clean` are margins (N)."""
    count = len(clean)
    margin = clean_margin(forward(source, images), batch.labels)
    otherwise = (success != (margin < 0)) & (np.abs(margin) > CLOSE * np.abs(clean))
    left = np.flatnonzero(margin >= 0)
    standing = some(batch, left)
    found = {
        flags.NOT_REDUCED: counted((margin >= 0) & not_reduced(margin, clean) & _meant(images, batch.images)),
        flags.UNFINISHED: counted(masked(continued(source, standing, images[left], STEPS), left, count)),
        flags.ONE_STEP_WINS: counted(masked(one_step(source, standing), left, count)),
        flags.NOISE_WINS: counted(masked(noise(source, standing, TRIES), left, count)),
    }
    if not is_random(source, batch.images):
        found[flags.SILENT] = counted(otherwise)
    return found


def _meant(images: np.ndarray, clean: np.ndarray) -> np.ndarray:
    """Which images (N, bool) are an attack's own. Where it has failed, an attack that keeps its first success gives back the
    image it began with; one that gives back nothing else got nowhere, and means it."""
    changed = (images != clean).reshape(len(images), -1).any(axis=1)
    return np.asarray(changed | ~changed.any())
