"""The contract of a strategy and its sources."""

from __future__ import annotations

import re
import typing
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from bench import registry
from bench.api import Defence, Knowledge, Shape, Source, SourceDescription, Stage, Strategy, kind_of
from bench.testing import comparing, plugins
from bench.testing.contract import Subject, checks
from bench.testing.stand_ins import (
    KeyedStandIn,
    KeylessStandIn,
    QuantisedStandIn,
    StandInWorkshop,
    small_classifier,
    some_images,
)

NAME = re.compile(r"[a-z][a-z0-9.-]*(:[a-z0-9._-]+)?")
OWN_KEY = 7_046_029_254_386_353_131
"""What a strategy gets that computes with a key: the attacker's guess, or the private one, outside the threat model."""


@checks
def check_strategy(
    strategy: Strategy | type[Strategy] | str,
    *,
    defences: Sequence[Defence] = (),
    sources: Sequence[str] = (),
    shape: Shape = (8, 8, 3),
    classes: int = 5,
) -> None:
    """Raises ContractError, in one sentence, if a strategy does not keep to what `bench.api.Strategy` promises.

    It is an instance, a class, or a request such as `"transfer[surrogates=1]"`. Its sources are built against these
    defences (a keyed one, a keyless one and a quantising one unless you give others), without a key, and with models of
    random weights from the workshop. `sources` are further ones that it can build though it does not name them.
    """
    plugin, subject = plugins.made(strategy, "strategy", registry.strategy)
    plugins.check_plugin(plugin, subject)
    chosen = defences or (KeyedStandIn(), KeylessStandIn(), QuantisedStandIn())
    further = (*sources, *(("user:model",) if plugin.user_models else ()))
    built = 0
    for defence in chosen:
        trial = StrategyTrial(plugin, subject, defence, shape, classes)
        for name in dict.fromkeys((*trial.names(), *(one for one in further if plugin.builds(defence, one)))):
            trial.check_description(name)
            trial.check_refusal(name)
            trial.check_source(name)
            built += 1
    against = ", ".join(type(defence).__name__ for defence in chosen)
    subject.require(
        built > 0,
        f"has no source against {against}: give check_strategy a defence that it has one for (defences=[…]), or the name of "
        "a source (sources=[…])",
    )


class StrategyTrial:
    """One strategy against one defence."""

    def __init__(self, strategy: Strategy, subject: Subject, defence: Defence, shape: Shape, classes: int) -> None:
        self.strategy, self.subject, self.defence, self.classes = strategy, subject, defence, classes
        self.images, self.against = some_images(shape, 3, seed=1), type(defence).__name__
        self.labels = np.zeros(3, np.int32)
        workshop = StandInWorkshop(defence, shape, classes)
        state = defence.fit(some_images(shape, 40))
        classifier = small_classifier(defence.output_shape(shape), classes, seed=2)
        guess = OWN_KEY if strategy.needs_guess or strategy.needs_key else None
        self.knowledge = Knowledge(
            defence, workshop.defence_name, state, classifier, shape, classes, workshop, guess=guess
        )

    def names(self) -> list[str]:
        with self.subject.must(f"name its sources against {self.against} (an empty list where it has none)"):
            names = list(self.strategy.sources(self.defence))
        for name in names:
            self.subject.require(
                isinstance(name, str) and NAME.fullmatch(name) is not None,
                f"names a source {name!r}: it must be 'kind' or 'kind:number', of small letters, digits and hyphens",
            )
            self.subject.require(
                bool(self.strategy.builds(self.defence, name)),
                f"names the source {name} against {self.against} and says that it cannot build it: builds must be True "
                "for every source that it names",
            )
        self.subject.require(
            len(set(names)) == len(names), f"names a source twice ({', '.join(names)}): each must be one"
        )
        return names

    def check_description(self, name: str) -> None:
        with self.subject.must(f"describe its source {name}"):
            found = self.strategy.describe(name, self.defence)
        require = self.subject.require
        require(
            isinstance(found, SourceDescription),
            f"describes {name} by {type(found).__name__}: describe must give a SourceDescription",
        )
        require(
            found.kind == kind_of(name),
            f"describes {name} as one of kind {found.kind!r}: its kind must be what its name begins with, {kind_of(name)!r}",
        )
        stages = typing.get_args(Stage)
        odd = [stage for stage in found.through if stage not in stages]
        require(not odd, f"describes {name} as going through {odd}: choose from {', '.join(stages)}, or nothing")
        texts = (found.label, found.meaning, *found.members, *(found.recipes or ()))
        require(
            all(isinstance(text, str) for text in texts) and isinstance(found.place, int),
            f"describes {name} by {found}: labels, meanings, members and recipes must be text, places whole numbers",
        )

    def check_refusal(self, name: str) -> None:
        reason = self.strategy.refusal(self.defence, name)
        self.subject.require(
            reason is None or (isinstance(reason, str) and reason.strip() != ""),
            f"refuses {name} with {reason!r}: refusal must give a reason in words, or None",
        )
        self.subject.require(
            reason is not None or not (self.strategy.needs_key and self.defence.keyed),
            f"computes {name} with the private key of {self.against} and calls it inside the threat model: refusal must say "
            "why it is outside",
        )

    def check_source(self, name: str) -> None:
        known = (
            "without a key, from what Knowledge has"
            if self.knowledge.guess is None
            else "with the key in Knowledge.guess"
        )
        with self.subject.must(f"build {name} against {self.against} {known}"):
            source = self.strategy.build(name, self.knowledge)
        require = self.subject.require
        require(isinstance(source, Source), f"builds {type(source).__name__} for {name}: build must give a Source")
        require(source.name == name, f"builds a source called {source.name!r} for {name}: its name must be {name!r}")
        require(
            not (source.exact and self.defence.keyed and not self.strategy.needs_key),
            f"calls its source {name} exact against {self.against}: the defended model of a keyed defence must not be had "
            "without the private key",
        )
        require(
            source.has_gradient == self.strategy.has_gradient,
            f"has has_gradient = {self.strategy.has_gradient} and builds {name} with {source.has_gradient}: they must agree",
        )
        self._check_logits(name, source)
        if source.has_gradient:
            self._check_gradients(name, source)

    def _check_logits(self, name: str, source: Source) -> None:
        signature = [tf.TensorSpec((None, *self.images.shape[1:]), tf.float32)]
        with self.subject.must(f"give the logits of {name} inside a tf.function, for any batch size"):
            logits = tf.function(source.logits, input_signature=signature)
            first, again, other, alone = (
                np.asarray(logits(tf.constant(images)))
                for images in (self.images, self.images, self._company(), self.images[:1])
            )
        self.subject.require(
            first.shape == (3, self.classes) and first.dtype == np.float32 and bool(np.isfinite(first).all()),
            f"gives {first.dtype} logits of {first.shape} from {name} for 3 images and {self.classes} classes: they must be "
            f"finite float32 of {(3, self.classes)}",
        )
        self.subject.require(
            comparing.same(first, again),
            f"gives other logits from {name} for the same images: they must be the same bits",
        )
        self._require_alone(name, "logits", first, other, alone)

    def _check_gradients(self, name: str, source: Source) -> None:
        def loss(logits: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
            return tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)

        def slopes(images: tf.Tensor, labels: tf.Tensor) -> tuple[tf.Tensor, ...]:
            found = source.gradient(loss, images, labels)
            return found.loss, found.logits, found.gradient

        signature = [tf.TensorSpec((None, *self.images.shape[1:]), tf.float32), tf.TensorSpec((None,), tf.int32)]
        with self.subject.must(f"give the gradients of {name} inside a tf.function, for any batch size"):
            compiled = tf.function(slopes, input_signature=signature)
            first, other, alone = (
                [np.asarray(part) for part in compiled(tf.constant(images), tf.constant(self.labels[: len(images)]))]
                for images in (self.images, self._company(), self.images[:1])
            )
        found, shapes = [part.shape for part in first], [(3,), (3, self.classes), self.images.shape]
        self.subject.require(
            found == shapes and bool(np.isfinite(first[2]).all()),
            f"gives a loss, logits and gradient of {found} from {name}: they must be finite, of {shapes}",
        )
        self.subject.require(
            bool(np.abs(first[2]).max() > 0),
            f"gives gradients from {name} that are zero everywhere: they must lead somewhere, or has_gradient be False",
        )
        self._require_alone(name, "gradients", first[2], other[2], alone[2])

    def _company(self) -> np.ndarray:
        """The first image with other companions."""
        return np.concatenate([self.images[:1], some_images(self.images.shape[1:], 2, seed=2)])

    def _require_alone(self, name: str, what: str, first: np.ndarray, other: np.ndarray, alone: np.ndarray) -> None:
        self.subject.require(
            comparing.same(first[0], other[0]) and comparing.same(first[:1], alone),
            f"gives other {what} from {name} for an image in other company: they must be the same bits whatever is in the "
            "batch beside it (bench.api.each_image does that)",
        )
