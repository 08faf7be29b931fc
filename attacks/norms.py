"""The built-in norms. Loading them imports no TensorFlow: what attacks compute with is in `attacks.parts.balls`."""

from __future__ import annotations

import math

import numpy as np

from bench.api import Ball, Norm


class Linf(Norm):
    """The largest change of any value."""

    name = "linf"
    label = "L∞"
    latex = r"$L_\infty$"
    order = math.inf
    place = 0

    def distance(self, images: np.ndarray, adversarial: np.ndarray) -> np.ndarray:
        return np.abs(self.changes(images, adversarial)).max(axis=1)

    def ball(self) -> Ball:
        from attacks.parts.balls import LinfBall

        return LinfBall(self)


class L2(Norm):
    """The Euclidean length of the change."""

    name = "l2"
    label = "L2"
    latex = "$L_2$"
    order = 2.0
    place = 1

    def distance(self, images: np.ndarray, adversarial: np.ndarray) -> np.ndarray:
        return np.sqrt((self.changes(images, adversarial) ** 2).sum(axis=1))

    def ball(self) -> Ball:
        from attacks.parts.balls import L2Ball

        return L2Ball(self)
