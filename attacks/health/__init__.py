"""Whether attacks on a source can be believed: checks of the source itself, and of what an attack has given back.

All ask whether the source's gradients lead anywhere, so they make sense on every source that has them, the defended model
itself or not: what counts is success on the source, where the attack computed, and never the defended model.
docs/threat_model.md says which published check each is, and what it costs.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from attacks.health import answers, attacked, descents, gradients
from attacks.health.examples import right, some
from attacks.parts.engine import forward
from attacks.parts.ledger import clean_margin
from bench.api import Attacked, Batch, Finding, HealthBudget, Probe, Source

__all__ = ["AttackProbe", "SourceProbe"]


class SourceProbe(Probe):
    """Checks a source: its answers, its gradients by finite differences, and descents against what must not beat them."""

    def of_source(self, source: Source, batch: Batch, budget: HealthBudget) -> Mapping[str, Finding]:
        logits = forward(source, batch.images)
        found = answers.findings(source, batch, logits)
        rows = right(logits, batch.labels)
        standing = some(batch, rows)
        if not len(rows):
            return found
        begun = gradients.findings(source, standing)
        margin = clean_margin(logits, batch.labels)[rows]
        gone, end = descents.findings(source, standing, margin, budget)
        return {**found, **begun, **gone, **gradients.at_the_end(source, standing, end, begun)}


class AttackProbe(Probe):
    """Checks an attack's result: whether it is as claimed, got anywhere, was at its end, and beats one step and noise."""

    def of_attack(self, source: Source, batch: Batch, attacked_: Attacked) -> Mapping[str, Finding]:
        logits = forward(source, batch.images)
        rows = right(logits, batch.labels)
        if not len(rows):
            return {}
        margin = clean_margin(logits, batch.labels)[rows]
        success = np.asarray(attacked_.success, bool)[rows]
        return attacked.findings(source, some(batch, rows), margin, attacked_.images[rows], success)
