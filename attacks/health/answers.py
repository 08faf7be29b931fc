"""What a source's answers to clean images say of it."""

from __future__ import annotations

import numpy as np

from attacks.health.examples import counted
from attacks.parts.engine import is_random
from attacks.parts.ledger import flags_of_logits
from bench.api import Batch, Finding, Source, flags


def findings(source: Source, batch: Batch, logits: np.ndarray) -> dict[str, Finding]:
    """Whether it is random, and whether its logits (N×classes, of the clean images) are probabilities or saturated."""
    random = np.full(len(logits), is_random(source, batch.images))
    return {
        flags.RANDOMISED: counted(random),
        **{name: counted(mask) for name, mask in flags_of_logits(logits).items()},
    }
