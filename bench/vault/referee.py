"""The referee: outside every attack, the only holder of the private key, and the only one who says what is recorded."""

from __future__ import annotations

import dataclasses

import numpy as np

from bench import norms
from bench.api import BenchError, Defence, Shape
from bench.keys import PrivateKey
from bench.models.classifier import Classifier

TOLERANCE = 1e-6


class RefusedImages(BenchError):
    """Adversarial images that break the rules of the board."""


@dataclasses.dataclass(frozen=True)
class Verdict:
    """What the defended model says of some images, one entry per example."""

    pred: np.ndarray
    correct: np.ndarray
    margin: np.ndarray
    distance: np.ndarray
    rounded: np.ndarray | None = None
    """Whether the image is right when it is rounded to eight bits; None if that was not asked."""


class Referee:
    """Checks and classifies adversarial images with the defended model."""

    def __init__(self, defence: Defence, classifier: Classifier, key: PrivateKey | None, shape: Shape) -> None:
        from bench.models.inference import classify

        value = key.reveal() if key is not None else None
        self.logits = classify(classifier.model, lambda x: defence.transform(x, value, classifier.state), shape)

    def judge(
        self,
        images: np.ndarray,
        labels: np.ndarray,
        adversarial: np.ndarray,
        norm: str,
        epsilon: float,
        rounded: bool = False,
    ) -> Verdict:
        """Images, labels and what an attack made of the images; raises RefusedImages before classifying anything illegal.

        With `rounded` the images are judged a second time as a PNG keeps them, which changes nothing of the rest.
        """
        adversarial = plain_copy(adversarial)
        distance = check(images, adversarial, norm, epsilon)
        logits = self._finite_logits(adversarial)
        pred = logits.argmax(axis=1)
        own = np.take_along_axis(logits, labels[:, None].astype(int), axis=1)[:, 0]
        others = logits.copy()
        np.put_along_axis(others, labels[:, None].astype(int), -np.inf, axis=1)
        survives = self._judged_rounded(labels, adversarial, pred) if rounded else None
        return Verdict(pred, pred == labels, own - others.max(axis=1), distance, survives)

    def _judged_rounded(self, labels: np.ndarray, adversarial: np.ndarray, pred: np.ndarray) -> np.ndarray:
        """Whether each image is right when rounded (N, bool); one that rounding leaves as it is was classified already."""
        rounded, pred = to_eight_bits(adversarial), pred.copy()
        changed = np.flatnonzero((rounded != adversarial).reshape(len(rounded), -1).any(axis=1))
        if len(changed):
            pred[changed] = self._finite_logits(rounded[changed]).argmax(axis=1)
        return np.asarray(pred == labels)

    def _finite_logits(self, images: np.ndarray) -> np.ndarray:
        logits = self.logits(images)
        if not np.isfinite(logits).all():
            bad = np.flatnonzero(~np.isfinite(logits).all(axis=1))
            raise BenchError(f"the defended model gives NaN or infinite logits on example {bad[0]} of the shard")
        return logits


def to_eight_bits(images: np.ndarray) -> np.ndarray:
    """Images in [0,1] (float32) with every value at the nearest multiple of 1/255, as a PNG keeps them.

    They stay in [0,1], and may be half a level (1/510) farther from the clean image in each value.
    """
    return np.rint(images.astype(np.float64) * 255).astype(np.float32) / np.float32(255)


def plain_copy(given: object) -> np.ndarray:
    """What an attack returned, as an array of numpy's own class: another class may say one thing and be another."""
    if not isinstance(given, np.ndarray):
        raise RefusedImages(f"the attack returned an object of type {type(given).__name__}, not an array of images")
    return np.array(given, copy=True, subok=False)


def check(images: np.ndarray, adversarial: np.ndarray, norm: str, epsilon: float) -> np.ndarray:
    """The distance of every adversarial image; raises RefusedImages if one is not of the board."""
    adversarial = plain_copy(adversarial)
    if adversarial.shape != images.shape:
        raise RefusedImages(f"the attack returned {np.shape(adversarial)}, not images of shape {images.shape}")
    if adversarial.dtype != np.float32:
        raise RefusedImages(f"the attack returned {adversarial.dtype} images, not float32")
    if bad := _count(~np.isfinite(adversarial)):
        raise RefusedImages(f"the attack returned NaN or infinite values in {bad} of {len(images)} images")
    if bad := _count((adversarial < 0) | (adversarial > 1)):
        raise RefusedImages(f"the attack returned values outside [0,1] in {bad} of {len(images)} images")
    distance = norms.named(norm).distance(images, adversarial)
    if bad := int((distance > epsilon + TOLERANCE).sum()):
        raise RefusedImages(
            f"the attack left the {norm} ball of {epsilon:.6g} in {bad} of {len(images)} images "
            f"(up to {distance.max():.6g})"
        )
    return distance


def _count(bad: np.ndarray) -> int:
    return int(bad.reshape(len(bad), -1).any(axis=1).sum())
