"""A vault in this process: for the key that everybody knows, and inside the process that keeps a secret one."""

from __future__ import annotations

from pathlib import Path

from bench import registry
from bench.executors.keyed import KeyedExecutor
from bench.keys import PrivateKey
from bench.models import catalogue, classifier, weights
from bench.models.artifacts import Artifact
from bench.models.catalogue import ClassifierSpec
from bench.support.progress import Say, Track
from bench.vault.base import Defended, Made, Vault
from bench.vault.referee import Referee


class VaultHere(Vault):
    """Computes with the key itself."""

    def __init__(self, key: PrivateKey) -> None:
        super().__init__(key.id, key.published)
        self._key = key

    def train(self, spec: ClassifierSpec, name: str, say: Say, track: Track, notice: str = "") -> Artifact:
        return catalogue.train_once(spec, self._key_of(spec.key is not None), name, say, track, notice)

    def keep(self, made: Made) -> Artifact:
        spec = made.spec
        model = spec.build()
        weights.put_into(model, made.weights, Path("the classifier that was given"))
        state = catalogue.learned_state(spec.defence, spec.dataset.training()) if catalogue.learns(spec.defence) else {}
        return catalogue.keep(spec, model, self._key_of(spec.key is not None), made.origin, made.measured, state)

    def referee(self, defended: Defended) -> Referee:
        defence = registry.defence(defended.defence, defended.settings)
        shape = defence.output_shape(defended.shape)
        found = classifier.load(defended.network, shape, defended.classes, defended.weights, defended.weights_sha256)
        return Referee(defence, found, self._key if defended.keyed else None, defended.shape)

    def executor(self, say: Say) -> KeyedExecutor:
        return KeyedExecutor(self._key, say)

    def holds(self, content: bytes) -> bool:
        return self._key.stands_in(content)

    def close(self) -> None:
        """There is nothing to end."""

    def _key_of(self, keyed: bool) -> int | None:
        return self._key.reveal() if keyed else None
