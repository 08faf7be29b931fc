"""Several models attacked as one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from attacks.sources import ModelSource
from attacks.transfer import ADVERSARIAL, NOMINAL, plain
from bench.api import Defence, Knowledge, Source, Strategy

ENSEMBLE = "ensemble"


def averaged(members: Sequence[Callable[[Any], Any]]) -> Callable[[Any], Any]:
    """The mean of the members' logits."""
    return lambda images: tf.add_n([member(images) for member in members]) / len(members)


class Ensemble(Strategy):
    """Transfer from the nominal and the two adversarially trained models as one: the mean of their logits."""

    def sources(self, defence: Defence) -> Sequence[str]:
        return [ENSEMBLE] if defence.keyed else []

    def build(self, source: str, knowledge: Knowledge) -> Source:
        members = [plain(name, knowledge).logits for name in (NOMINAL, *ADVERSARIAL)]
        return ModelSource(source, averaged(members))
