"""Some examples of a batch."""

from __future__ import annotations

import dataclasses

import numpy as np

from attacks.parts.ledger import clean_margin
from bench.api import Batch, Finding


def some(batch: Batch, rows: np.ndarray) -> Batch:
    """The given examples (n, int) of a batch."""
    return dataclasses.replace(batch, images=batch.images[rows], labels=batch.labels[rows], seeds=batch.seeds[rows])


def right(logits: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """The examples (n, int) that these logits (N×classes) get right: only they can be broken."""
    return np.flatnonzero(clean_margin(logits, labels) >= 0)


def counted(mask: np.ndarray) -> Finding:
    """How many of the examined examples a mask (N, bool) has."""
    return Finding(int(np.sum(mask)), len(mask))
