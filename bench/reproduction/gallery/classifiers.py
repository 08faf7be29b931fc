"""The models whose decisions Figure 4 maps: LINAC's defended one, and an attacker's."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np

from bench import keys, plan, registry
from bench.api import Batch, Source
from bench.data.datasets import Split
from bench.evaluation import contest
from bench.evaluation.contest import Contest
from bench.executors.worker import Attacker
from bench.plan import Pair
from bench.reproduction.gallery.keyring import is_public
from bench.spec import Spec
from bench.vault.base import Vault
from bench.vault.here import VaultHere

DEFENDED, NOMINAL, SURROGATE, BYPASS, ADVERSARIAL = "linac", "nominal", "surrogate:1", "bypass", "at-l2"

Predict = Callable[[np.ndarray], np.ndarray]
"""Images (N×H×W×3, float32, [0,1]) to the classes that a model gives them (N)."""


TITLES = {
    NOMINAL: "A  nominal",
    SURROGATE: "B  LINAC, another key",
    DEFENDED: "C  LINAC, private key",
    BYPASS: "D  bypass of C",
    ADVERSARIAL: "E  trained in L2",
}
"""The paper's five models by the names of their sources, with its letters."""


class Models:
    """LINAC's defended model and an attacker's sources against it, built when they are asked for.

    A model that is neither there nor may be trained raises `bench.models.catalogue.NotTrained`.
    """

    def __init__(self, spec: Spec, key: Vault | None, may_train: bool, say: Callable[[str], None]) -> None:
        own = key or VaultHere(keys.published())
        self.contest: Contest = contest.prepare(spec, "linac", own, None, may_train, say)
        self.shows_defended = is_public(key)
        """Whether anybody may see how the defended model answers: under a secret key nobody may."""
        self._may_train, self._attacker = may_train, Attacker(say)

    def identity(self, name: str) -> str:
        """What a model is, without building it."""
        row = self.contest.defence_row if name == DEFENDED else self.contest.source_row(self._pair(name))
        return str(row["fingerprint"])

    def engine(self, name: str) -> str:
        """What the PGD is that leads to a model's errors."""
        return str(self.contest.attack_row(self._pair(name))["fingerprint"])

    def source(self, name: str) -> Source:
        """A model of the attacker's."""
        pair = self._pair(name)
        return self._attacker.source(self.contest.setup(self._may_train), pair.strategy, pair.source)

    def predict(self, name: str) -> Predict:
        """Of the defended model by its referee, who alone has the key; of another by its logits."""
        if name == DEFENDED:
            return self._judged
        import tensorflow as tf

        shape = self.contest.examples.images.shape[1:]
        logits = tf.function(self.source(name).logits, input_signature=[tf.TensorSpec([None, *shape], tf.float32)])
        return lambda images: logits(tf.constant(images)).numpy().argmax(axis=1)

    def direction(self, name: str, examples: Split, epsilon: float) -> np.ndarray:
        """Where PGD leads from each example to make a model err (N×H×W×3, each of size 1 in L2)."""
        pair, images = self._pair(name), examples.unit()
        # One restart: it is a direction that is wanted, no evaluation.
        engine = registry.engine(pair.engine, {**dataclasses.asdict(pair.settings), "restarts": 1})
        seeds = plan.example_seeds(self.contest.spec.seed, self.identity(name), range(len(examples)))
        attacked = engine.run(
            self.source(name), Batch(images, examples.labels, seeds, "l2", epsilon), lambda done: None
        )
        moved = attacked.images - images
        return np.asarray(moved / np.maximum(np.sqrt(np.square(moved).sum(axis=(1, 2, 3), keepdims=True)), 1e-12))

    def _judged(self, images: np.ndarray) -> np.ndarray:
        assert self.shows_defended
        nothing = np.zeros(len(images), np.int32)
        return self.contest.referee.judge(images, nothing, images, "l2", 0.0).pred

    def _pair(self, name: str) -> Pair:
        ready = self.contest
        choice = plan.Choice(ready.spec.engines, ready.spec.budgets, ready.spec.strategies(ready.defence_name))
        (pair,) = plan.pairs([f"pgd@{name}"], ready.defence_name, ready.defence, choice)
        return pair
