"""An evaluation from what is asked for to stored results: checked and planned first, and only then run and written.

This is what `bench run` calls, and what any other way to start an evaluation should.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path

from bench import plan, registry
from bench.api import UsageError
from bench.data import datasets
from bench.evaluation import contest
from bench.evaluation.run import Run, Summary
from bench.keys import PrivateKey
from bench.plan import Pair
from bench.spec import Spec


@dataclasses.dataclass(frozen=True)
class Request:
    """Which defences are attacked with what, and everything besides the preset that decides the results."""

    spec: Spec
    defences: tuple[str, ...]
    """NAME or NAME[setting=value,…] of each, or `all`."""
    attacks: tuple[str, ...]
    key: PrivateKey
    weights: Path | None = None
    """Of the defended classifier, instead of the trained one."""
    own_models: tuple[Path, ...] = ()
    """Models the user brings as sources."""
    guess: PrivateKey | None = None
    """A key the attacker has found."""
    outside_threat_model: bool = False

    @property
    def own_sources(self) -> dict[str, Path]:
        """The user's models by the names of their sources: user: and the file's name."""
        return {f"user:{path.stem}": path.resolve() for path in self.own_models}


@dataclasses.dataclass(frozen=True)
class Planned:
    """A defence, and every attack on it that was asked for."""

    defence: str
    pairs: Sequence[Pair]


def planned(request: Request) -> list[Planned]:
    """What the request comes to; whatever cannot be asked for is refused here, before anything is written."""
    chosen = chosen_defences(request.defences)
    if request.weights is not None and len(chosen) != 1:
        raise UsageError("--weights belongs to one defence: give exactly one --defence")
    for path in request.own_models:
        if not path.exists():
            raise UsageError(f"--source {path} does not exist")
    own = tuple(request.own_sources)
    if len(own) < len(request.own_models):
        raise UsageError("two --source files have the same name: rename one, results are told apart by it")
    guessed, outside = request.guess is not None, request.outside_threat_model
    return [
        Planned(defence, plan.requested(request.spec, defence, request.attacks, own, guessed, outside))
        for defence in chosen
    ]


def require_examples(spec: Spec) -> None:
    """Refuses, before anything is written, what has fewer test images than were asked for."""
    datasets.load(spec.dataset).examples(spec.examples)


def chosen_defences(requests: Sequence[str]) -> list[str]:
    """The defences that were asked for, each once."""
    if "all" in requests:
        return [name for name, entry in registry.entries("defences").items() if entry.load().in_all]
    return list(dict.fromkeys(requests))


@contextlib.contextmanager
def recorded(run: Run, spec: Spec) -> Iterator[Run]:
    """Writes down that a run begins and ends, and gives back what it holds, come what may."""
    try:
        run.start(spec)
        yield run
        run.finish()
    finally:
        run.close()


def evaluate(request: Request, plans: Sequence[Planned], run: Run) -> Summary:
    """Runs what is planned, one defended model after the other; whatever is stored already is not run again."""
    guess = None if request.guess is None else request.guess.reveal()
    with recorded(run, request.spec):
        for one in plans:
            ready = contest.prepare(
                request.spec, one.defence, request.key, request.weights, run.options.may_train, run.reporter.say,
                request.own_sources, guess,
            )  # fmt: skip
            run.execute(ready, one.pairs)
    return run.summary
