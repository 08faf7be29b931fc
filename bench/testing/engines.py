"""The contract of an attack engine."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from bench import norms, registry
from bench.api import Attacked, Batch, Engine, ModelSource, Shape, UsageError
from bench.testing import comparing, plugins
from bench.testing.contract import ContractError, Subject, checks
from bench.testing.stand_ins import LinearModel, WatchedSource, small_classifier, some_images

COLUMNS = {
    "success": np.bool_,
    "margin": np.float32,
    "restart": np.int32,
    "target": np.int32,
    "gradients": np.int64,
    "queries": np.int64,
}
"""What `Attacked` has one number of per example, and its type."""
EXAMPLES = 5
REACH = 2.0
"""So many times as far as the nearest boundary of a linear model, every gradient attack must cross it."""
ROUNDING = 1e-6
MARGIN_ROUNDING = 1e-3
UNCOUNTED = 2
"""Forward passes over an example by which an engine, and each part of one, may be off: to see that the source is no random
one, say, or one pass that several parts share."""


@checks
def check_engine(
    engine: Engine | type[Engine] | str,
    *,
    shape: Shape = (8, 8, 3),
    classes: int = 5,
    in_norms: Sequence[str] = ("linf", "l2"),
) -> None:
    """Raises ContractError, in one sentence, if an engine does not keep to what `bench.api.Engine` promises.

    It is an instance (give it few steps: it attacks some dozens of examples), a class, or a request such as
    `"pgd[steps=10]"`. A norm that it refuses with a UsageError is left out; one of `in_norms` it must work in.
    """
    plugin, subject = plugins.made(engine, "engine", registry.engine)
    plugins.check_plugin(plugin, subject)
    check_parts(plugin, subject)
    source, refused = watched(shape, classes, plugin.needs_gradient), []
    for norm in in_norms:
        trial = EngineTrial(plugin, subject, source, shape, norm)
        try:
            whole = trial.run(trial.batch)
        except ContractError as error:
            if not isinstance(error.__cause__, UsageError):
                raise
            refused.append(str(error.__cause__))
            continue
        trial.check_result(whole, trial.batch)
        trial.check_books()
        trial.check_seeds(whole)
        if plugin.needs_gradient:
            trial.check_known_answer(classes)
        trial.check_defended()
        trial.check_edges()
    subject.require(
        len(refused) < len(in_norms), f"refuses every norm ({'; '.join(refused)}): it must work in one at least"
    )


@functools.cache  # with it goes what engines have compiled for it
def watched(shape: Shape, classes: int, has_gradient: bool) -> WatchedSource:
    """A small network as a source that counts."""
    model = small_classifier(shape, classes)
    return WatchedSource("watched", lambda images: model(images, training=False), has_gradient=has_gradient)


@functools.cache
def linear(shape: Shape, classes: int) -> tuple[LinearModel, ModelSource]:
    """A linear model, and it as a source."""
    model = LinearModel(shape, classes)
    return model, ModelSource("linear", model)


def check_parts(engine: Engine, subject: Subject) -> None:
    """Raises ContractError unless the parts it declares are engines by name."""
    for name, part in engine.parts.items():
        subject.require(
            isinstance(name, str) and isinstance(part, Engine),
            f"has a part {name!r} that is {type(part).__name__}: parts must be engines by name",
        )
    amount = engine.work(3)
    subject.require(
        isinstance(amount, int) and amount > 0,
        f"has {amount!r} work in 3 examples: work must give a whole number above 0",
    )


class EngineTrial:
    """One engine on a source, in one norm."""

    def __init__(self, engine: Engine, subject: Subject, source: WatchedSource, shape: Shape, norm: str) -> None:
        self.engine, self.subject, self.source, self.shape, self.norm = engine, subject, source, shape, norm
        self.values = int(np.prod(shape))
        self.batch = self.labelled(some_images(shape, EXAMPLES, seed=1), self.size(0.03), batch_size=EXAMPLES)

    def size(self, per_value: float) -> float:
        """The epsilon whose ball holds changes of so much of every value."""
        order = norms.named(self.norm).order
        return per_value if order in (None, np.inf) else per_value * self.values ** (1 / order)

    def labelled(self, images: np.ndarray, epsilon: float, batch_size: int) -> Batch:
        """The images as the source sees them: at first nothing is misclassified."""
        labels = np.argmax(self.logits(images), axis=1).astype(np.int32)
        seeds = np.random.default_rng(11).integers(-(2**31), 2**31, size=(len(images), 2)).astype(np.int32)
        return Batch(images, labels, seeds, self.norm, epsilon, batch_size)

    def logits(self, images: np.ndarray) -> np.ndarray:
        return np.asarray(ModelSource.logits(self.source, tf.constant(images)))

    def run(self, batch: Batch, source: ModelSource | None = None) -> Attacked:
        with self.subject.must(f"attack {len(batch.labels)} examples in {self.norm}"):
            return self.engine.run(source or self.source, batch, _ignored)

    def check_result(self, found: Attacked, batch: Batch) -> None:
        """The rules that the referee holds an attack to, and what it says of its own result."""
        require, count = self.subject.require, len(batch.labels)
        require(isinstance(found, Attacked), f"gives {type(found).__name__}: run must give an Attacked")
        images = found.images
        require(
            isinstance(images, np.ndarray) and images.shape == batch.images.shape and images.dtype == np.float32,
            f"gives images of {np.shape(images)}, {getattr(images, 'dtype', type(images).__name__)}: they must be a numpy "
            f"array of {batch.images.shape}, float32",
        )
        for name, kind in COLUMNS.items():
            column = getattr(found, name)
            require(
                isinstance(column, np.ndarray) and column.shape == (count,) and column.dtype == kind,
                f"gives {name} as {getattr(column, 'dtype', type(column).__name__)} of {np.shape(column)} for {count} "
                f"examples: it must be a numpy array of {kind.__name__}, one per example",
            )
        require(bool(np.isfinite(images).all()), "gives NaN or infinity in an image: images must be finite")
        require(bool(images.min() >= 0 and images.max() <= 1), "gives values outside [0,1]: images must stay in it")
        far = float(norms.named(self.norm).distance(batch.images, images).max())
        require(
            far <= batch.epsilon + ROUNDING,
            f"leaves the {self.norm} ball of {batch.epsilon:.6g} (it goes to {far:.6g}): every image must stay in it",
        )
        self._check_verdicts(found, batch)
        self._check_part(found)

    def _check_verdicts(self, found: Attacked, batch: Batch) -> None:
        logits = np.array(self.logits(found.images))
        own = np.take_along_axis(logits, batch.labels[:, None], axis=1)[:, 0]
        np.put_along_axis(logits, batch.labels[:, None], -np.inf, axis=1)
        margin = own - logits.max(axis=1)
        scale = max(float(np.abs(margin).max()), 1.0)
        self.subject.require(
            bool((np.abs(found.margin - margin) <= MARGIN_ROUNDING * scale).all()),
            "gives a margin that is not that of its images on the source: it must be z_y − max other z at the images given",
        )
        self.subject.require(
            bool((found.success == (found.margin < 0)).all()),
            "says success where its margin is not negative, or the other way round: success must be margin < 0",
        )

    def _check_part(self, found: Attacked) -> None:
        parts = len(self.engine.parts)
        if not parts:
            self.subject.require(found.part is None, "names parts and declares none: declare them in Engine.parts")
            return
        part = found.part
        self.subject.require(
            isinstance(part, np.ndarray) and part.dtype == np.int32 and bool(((part >= -1) & (part < parts)).all()),
            f"names part {part!r} of {parts}: part must be int32, from 0, or −1 for none of them",
        )

    def check_seeds(self, whole: Attacked) -> None:
        """Seeds belong to examples: repetition, batch size, order and company change nothing."""
        must = "an example's result must depend on its image, label and seed alone"
        everything = np.arange(EXAMPLES)
        for batch_size, rows, how in (
            (EXAMPLES, everything, "when it runs again"),
            (2, everything[::-1], "in batches of another size and order"),
            (EXAMPLES, np.array([3, 0]), "in other company"),
        ):
            some = dataclasses.replace(
                self.batch, images=self.batch.images[rows], labels=self.batch.labels[rows],
                seeds=self.batch.seeds[rows], batch_size=batch_size,
            )  # fmt: skip
            again = self.run(some)
            for name in ("images", *COLUMNS, *(("part",) if self.engine.parts else ())):
                self.subject.require(
                    comparing.same(getattr(again, name), getattr(whole, name)[rows]),
                    f"gives other {name} {how}: {must}",
                )

    def check_edges(self) -> None:
        """Images at the edges of the range, in a small ball and in one that holds every image."""
        edges = np.array([0.0, 1.0, 2.0**-24, 1 - 2.0**-24, 0.5, 1 / 255], np.float32)
        images = np.random.default_rng(2).choice(edges, size=(2, *self.shape))
        for epsilon in (self.size(2 / 255), self.size(1.0)):
            batch = self.labelled(images, epsilon, batch_size=2)
            self.check_result(self.run(batch), batch)

    def check_defended(self) -> None:
        """On the defended model itself an attack may stop at a success; what it says must still be true."""
        self.source.exact = True
        try:
            whole = self.run(self.batch)
            self.check_result(whole, self.batch)
            self.check_seeds(whole)
        finally:
            self.source.exact = False

    def check_books(self) -> None:
        """Work, gradients and queries, on an example that withstands: it is attacked to the end."""
        batch = self.labelled(self.batch.images[:1], self.size(1e-6), batch_size=1)
        reported: list[int] = []
        self.source.reset()
        with self.subject.must(f"attack one example in {self.norm}"):
            found = self.engine.run(self.source, batch, reported.append)
        work = self.engine.work(1)
        self.subject.require(
            sum(reported) == work and all(amount > 0 for amount in reported),
            f"reports {sum(reported)} units of work for one example, of {work} that work(1) says: all must be reported, "
            "in amounts above 0",
        )
        gradients, queries = int(self.source.gradient_count.numpy()), int(self.source.query_count.numpy())
        self.subject.require(
            self.engine.needs_gradient or gradients == 0,
            f"has needs_gradient = False and asks for {gradients} gradients: it must ask for none",
        )
        self.subject.require(
            int(found.gradients[0]) == gradients,
            f"says it spent {int(found.gradients[0])} gradients on an example, and asked for {gradients}: it must count "
            "each of them",
        )
        self.subject.require(
            abs(queries - int(found.queries[0])) <= UNCOUNTED * max(1, len(self.engine.parts)),
            f"says it spent {int(found.queries[0])} queries on an example, and asked for {queries}: it must count each "
            "forward pass without a gradient",
        )

    def check_known_answer(self, classes: int) -> None:
        """A linear model, in a ball that reaches well beyond the nearest boundary."""
        order = norms.named(self.norm).order
        if order is None or order < 2:
            return  # how far the boundary is, or whether [0,1] is in the way, is not known
        model, source = linear(self.shape, classes)
        generator = np.random.default_rng(4)
        images = generator.uniform(0.48, 0.52, size=(3, *self.shape)).astype(np.float32)
        radii = model.radius(images, order)
        labels = np.argmax(model(tf.constant(images)), axis=1).astype(np.int32)
        seeds = generator.integers(0, 2**31, size=(3, 2)).astype(np.int32)
        batch = Batch(images, labels, seeds, self.norm, float(REACH * radii.max()), batch_size=3)
        found = self.run(batch, source)
        self.subject.require(
            bool(found.success.all()),
            f"leaves {int((~found.success).sum())} of 3 images standing on a linear model, in a {self.norm} ball {REACH:g} "
            "times as large as the way to the nearest boundary: an attack with gradients must cross it",
        )


def _ignored(amount: int) -> None:
    """A report that nobody reads."""
