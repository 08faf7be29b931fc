"""Key search: how good is the defended classifier on images transformed with a guessed key?

The attacker has the classifier's weights and the algorithm, so f(t(x; guess)) can be computed for any guess. Under the
threat model the images are training images: of test images the attacker knows nothing. The right key shows by its
accuracy, which is the defended one.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping

import keras
import numpy as np
import tensorflow as tf

from bench.api import Defence, each_image
from bench.keysearch.race import Race


@dataclasses.dataclass(frozen=True)
class Score:
    """How a guess did. `stopped` is the number of images after which the race drops it; None if it never does."""

    key: int
    correct: int
    images: int
    stopped: int | None
    seconds: float
    raced_seconds: float  # until the race was decided: less than `seconds` if a dropped key is scored to the end


class Scorer:
    """Scores guesses on the same images (N×H×W×3, [0,1]) and labels (N). Called from many threads at once, a key each.

    A key stays on one thread from its first image to its last, so what the defence draws from it is drawn once, and the
    fits of several keys run side by side. A score depends on the key and the images alone.
    """

    def __init__(
        self,
        defence: Defence,
        state: Mapping[str, np.ndarray],
        classifier: keras.Model,
        images: np.ndarray,
        labels: np.ndarray,
        race: Race,
        to_the_end: bool = False,
    ) -> None:
        self._defence, self._state = defence, state
        self._images, self._labels = images, labels
        self._looks, self._cuts, self._to_the_end = race.looks(), race.boundary(), to_the_end
        shape = defence.output_shape(images.shape[1:])
        self._logits = tf.function(
            lambda x: each_image(lambda one: classifier(one, training=False), x, signature=tf.float32),
            input_signature=[tf.TensorSpec((None, *shape), tf.float32)],
        )

    def score(self, key: int) -> Score:
        """Scores a key until the race drops it; to the end, if so wanted, noting where the race would have stopped."""
        began = time.perf_counter()
        correct, start, stopped, raced = 0, 0, None, 0.0
        for stop in self._looks:
            correct += self._right(key, start, stop)
            start = stop
            if stopped is None and correct <= self._cuts.get(stop, -1):
                stopped, raced = stop, time.perf_counter() - began
                if not self._to_the_end:
                    break
        seconds = time.perf_counter() - began
        return Score(key, correct, start, stopped, seconds, seconds if stopped is None else raced)

    def _right(self, key: int, start: int, stop: int) -> int:
        """How many of these images are classified right."""
        transformed = self._defence.transform(tf.constant(self._images[start:stop]), key, self._state)
        predicted = self._logits(transformed).numpy().argmax(axis=1)
        return int((predicted == self._labels[start:stop]).sum())
