"""The driver of a key search: what is attacked, on which images, and every score into the store as it comes.

It knows the private key by name only: the classifier is found by that name, and the defended accuracy is a public
figure that was stored with it.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
from sqlalchemy.engine import Engine as Database

from bench import registry
from bench.api import Defence, UsageError
from bench.data import datasets
from bench.data.datasets import Dataset, Split
from bench.keysearch.guesses import Guess
from bench.keysearch.process import SearchSetup, scores
from bench.keysearch.race import Race
from bench.models import artifacts, brought, catalogue, weights
from bench.models.artifacts import Artifact
from bench.models.brought import Given
from bench.spec import Spec
from bench.store import identity, key_searches, schema, writer
from bench.store.key_searches import KeyGuess, KeySearch
from bench.support.fingerprint import of_file
from bench.support.progress import Reporter, Tracker

PAPER_IMAGES = 100
SECONDS_BETWEEN_WRITES = 1.0
FRESH = 0x66726573
"""The seed of the images that confirm a guess: those that it was scored on are drawn with a user's."""


@dataclasses.dataclass(frozen=True)
class Target:
    """A trained defended classifier, as an attacker knows it."""

    dataset: Dataset
    name: str
    defence: Defence
    classifier_spec: catalogue.ClassifierSpec
    artifact: Artifact

    @property
    def accuracy(self) -> float:
        """With the private key, on test images: published with the classifier."""
        return float(self.artifact.record["clean_accuracy"])


@dataclasses.dataclass(frozen=True)
class Sample:
    """The images that guesses are scored on."""

    images: Split
    split: str  # training, or test
    inside_threat_model: bool


def find_target(spec: Spec, request: str, key_name: str, classifier: Given | None = None) -> Target:
    """The classifier of this defence under the key of this name. It is never trained here: that takes the key.

    One that was made elsewhere (`classifier`) must have been measured with the key, by a run, as its accuracy tells what
    a right key looks like.
    """
    name, defence = spec.defence(request)
    if not defence.keyed:
        raise UsageError(f"{name} has no key to search for: choose a keyed defence, such as linac or block-shuffle")
    dataset = datasets.load(spec.dataset)
    wanted = catalogue.spec_for(spec, dataset, name, defence, key_name)
    if classifier is not None:
        wanted = brought.spec_of(wanted, brought.for_defence(classifier, dataset, defence))
    artifact = artifacts.find(wanted.fingerprint)
    if artifact is None and classifier is not None:
        raise UsageError(
            f"{classifier} was never judged here with the key '{key_name}', and its accuracy tells what a right key looks "
            f"like: give it to 'bench run --defence {request}' once, or name another key with --key-name"
        )
    if artifact is None:
        raise UsageError(
            f"there is no classifier of {request} under the key '{key_name}' (preset {spec.preset}): train it with "
            f"'bench train --defence {request}', or name another key with --key-name ('bench list models' shows them)"
        )
    weights.check_digest(artifact.weights, of_file(artifact.weights), artifact.weights_sha256)
    return Target(dataset, name, defence, wanted, artifact)


def training_sample(dataset: Dataset, count: int, seed: int) -> Sample:
    """Training images drawn with replacement, which is what makes the race's bound exact."""
    training = dataset.training()
    chosen = np.random.default_rng((seed, count)).integers(len(training), size=count)
    return Sample(Split(training.images[chosen], training.labels[chosen]), "training", True)


def paper_sample(dataset: Dataset) -> Sample:
    """The first test images, as the paper used them: more than its own threat model gives an attacker."""
    return Sample(dataset.examples(min(PAPER_IMAGES, len(dataset.test))), "test", False)


def fresh_sample(target: Target, sample: Sample, count: int) -> Sample:
    """Other images than those that a guess was chosen by, drawn with replacement: training images for training images."""
    random, dataset = np.random.default_rng((FRESH, count)), target.dataset
    pool = dataset.training() if sample.split == "training" else dataset.examples(len(dataset.test))
    used = 0 if sample.split == "training" or len(pool) <= PAPER_IMAGES else PAPER_IMAGES
    chosen = random.integers(used, len(pool), size=count)
    return Sample(Split(pool.images[chosen], pool.labels[chosen]), sample.split, sample.inside_threat_model)


def rules(target: Target, sample: Sample, slack: float, error: float) -> Race:
    """The race for this target: no key within `slack` of the defended accuracy may be lost."""
    floor, chance = target.accuracy - slack, 1 / len(target.dataset.classes)
    if floor <= chance:
        raise UsageError(
            f"the defended accuracy of {target.name} is {100 * target.accuracy:.1f} %; less the slack of {100 * slack:.1f} "
            f"points it is no better than chance: lower --slack, or train a better classifier"
        )
    return Race(floor, error, len(sample.images))


class SearchDriver:
    """One call of `bench keysearch`."""

    def __init__(
        self, database: Database, target: Target, sample: Sample, race: Race, command: str, to_the_end: bool
    ) -> None:
        self._db, self._target, self._sample = database, target, sample
        self._race, self._command, self._to_the_end = race, command, to_the_end
        artifact, key_name = target.artifact, target.classifier_spec.key
        description = registry.entry("defences", target.name).description
        defence = identity.defence_row(target.name, target.defence, artifact.weights_sha256, key_name, description)
        row = identity.key_search_row(
            defence,
            dataset=target.dataset.name,
            split=sample.split,
            n_images=len(sample.images),
            images_sha256=sample.images.fingerprint,
            inside_threat_model=sample.inside_threat_model,
            defended_accuracy=target.accuracy,
            defended_images=int(artifact.record["test_images"]),
            race_floor=race.floor,
            race_error=race.error,
        )
        defence_id = writer.ensure(database, schema.defence, defence)
        self.id = key_searches.start(database, {**row, "defence_id": defence_id}, command)
        self._waiting: list[KeyGuess] = []
        self._unscored: dict[int, tuple[int, str]] = {}
        self.found_at: dict[int, int] = {}  # guesses that break the defence, and which of the guesses it was

    def stored(self) -> KeySearch:
        """The search with every guess so far."""
        (search,) = key_searches.found(self._db, only=self.id)
        return search

    def run(self, guesses: Iterable[Guess], count: int, reporter: Reporter, stop_when_found: bool) -> int:
        """Scores the guesses that are not stored yet; gives how many it scored. What is scored is kept, come what may."""
        before = self._with_confirmed(self.stored(), reporter)
        if stop_when_found and before.found:
            return 0
        scored, last = 0, time.monotonic()
        candidates, numbers = list[KeyGuess](), dict[int, int]()
        self._unscored.clear()
        setup = self._setup(self._sample, self._race, self._to_the_end)
        try:
            with reporter.track(f"key search on {self._target.name}", count) as tracker:
                for score in scores(setup, self._missing(guesses, before, tracker)):
                    number, origin = self._unscored.pop(score.key)
                    guess = KeyGuess(
                        score.key,
                        origin,
                        score.correct,
                        score.images,
                        score.stopped,
                        score.seconds,
                        score.raced_seconds,
                    )
                    self._waiting.append(guess)
                    scored += 1
                    tracker.advance(1)
                    candidate = before.is_candidate(guess)
                    if candidate or time.monotonic() - last > SECONDS_BETWEEN_WRITES:
                        self._flush()
                        last = time.monotonic()
                    if candidate:
                        numbers[guess.guess] = number
                        candidates.append(guess)
                    found = candidate and stop_when_found and self._confirmed([guess], numbers, reporter)
                    if found:
                        break
        finally:
            self._flush()
        if not stop_when_found:
            self._confirmed(candidates, numbers, reporter)
        return scored

    def _with_confirmed(self, before: KeySearch, reporter: Reporter) -> KeySearch:
        """The search with fresh images for every candidate: one that was stopped in between has some without."""
        self._confirmed([guess for guess in before.candidates if guess.fresh_images is None], {}, reporter)
        return self.stored()

    def _confirmed(self, candidates: Sequence[KeyGuess], numbers: Mapping[int, int], reporter: Reporter) -> bool:
        """Scores stored guesses that did well on fresh images; whether one of them breaks the defence."""
        if not candidates:
            return False
        search, known = self.stored(), {guess.guess: guess for guess in candidates}
        fresh = fresh_sample(self._target, self._sample, search.fresh_images_needed)
        count = len(fresh.images)
        setup = self._setup(fresh, Race(self._race.floor, self._race.error, count), to_the_end=True)
        with reporter.track("trying fresh images", len(candidates)) as tracker:
            for score in scores(setup, list(known)):
                key_searches.confirm(self._db, self.id, score.key, score.correct, count)
                guess = dataclasses.replace(known[score.key], fresh_correct=score.correct, fresh_images=count)
                reporter.say(
                    f"{guess.origin}: right on {guess.correct} of {guess.images} images, and on {score.correct} of {count} "
                    "fresh ones"
                )
                known[score.key] = guess
                tracker.advance(1)
        found = [guess.guess for guess in known.values() if search.reached(guess)]
        self.found_at |= {guess: numbers[guess] for guess in found if guess in numbers}
        return bool(found)

    def _missing(self, guesses: Iterable[Guess], before: KeySearch, tracker: Tracker) -> Iterator[int]:
        """The guesses to score: not those that are stored, or that came before."""
        done = {g.guess for g in before.guesses if g.images == before.n_images or not (g.survived or self._to_the_end)}
        found = {guess.guess for guess in before.found}
        for number, guess in enumerate(guesses, start=1):
            if guess.key in found:
                self.found_at[guess.key] = number
            if guess.key in done:
                tracker.skip(1)
            else:
                done.add(guess.key)
                self._unscored[guess.key] = (number, guess.origin)
                yield guess.key

    def _flush(self) -> None:
        if self._waiting:
            key_searches.record(self._db, self.id, self._command, self._waiting)
            self._waiting = []

    def _setup(self, sample: Sample, race: Race, to_the_end: bool) -> SearchSetup:
        target = self._target
        return SearchSetup(
            target.name,
            dataclasses.asdict(target.defence.settings),
            target.classifier_spec.recipe.network,
            len(target.dataset.classes),
            target.artifact.weights,
            target.artifact.weights_sha256,
            sample.images.unit(),
            sample.images.labels,
            race,
            to_the_end,
        )
