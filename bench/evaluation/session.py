"""An evaluation from what is asked for to stored results: checked and planned first, and only then run and written.

This is what `bench run` and `bench.evaluate` call, and what any other way to start an evaluation should.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from bench import order, plan, registry
from bench.api import UsageError
from bench.data import datasets
from bench.evaluation import contest, guessed, images
from bench.evaluation.run import Options, Run, Summary
from bench.executors.base import Executor, Say
from bench.keys import PrivateKey
from bench.models.architecture import Architecture
from bench.models.brought import Brought, Given, for_defence
from bench.plan import Pair
from bench.spec import Spec
from bench.store.database import opened
from bench.store.schema import SURVIVORS
from bench.support import devices
from bench.support.progress import Reporter
from bench.vault.base import Vault


@dataclasses.dataclass(frozen=True)
class Request:
    """Which defences are attacked with what, and everything besides the preset that decides the results."""

    spec: Spec
    defences: tuple[str, ...]
    """NAME or NAME[setting=value,…] of each, or `all`."""
    attacks: tuple[str, ...]
    vault: Vault
    """Who has the key."""
    weights: Path | None = None
    """Of the defended classifier, instead of the trained one."""
    own_models: tuple[str, ...] = ()
    """Models the user brings as sources: FILE.keras, torch:package.module:factory@FILE, or a network's name."""
    guess: PrivateKey | None = None
    """A key the attacker has found, by a search that is stored."""
    outside_threat_model: bool = False
    classifier: Given | None = None
    """The defended classifier, made elsewhere, in place of one that is trained here."""

    @property
    def own_sources(self) -> dict[str, Given]:
        """The user's models by the names of their sources: user: and the model's own name."""
        given = [Given(text, option="--source") for text in self.own_models]
        return {f"user:{one.name}": one for one in given}


@dataclasses.dataclass(frozen=True)
class Planned:
    """A defence, and every attack on it that was asked for."""

    defence: str
    pairs: Sequence[Pair]
    brought: Brought | None = None
    """The classifier behind it, if it was made elsewhere."""


def planned(request: Request) -> list[Planned]:
    """What the request comes to; whatever cannot be asked for is refused here, before anything is written."""
    chosen = chosen_defences(request.defences)
    for option, given in (("--weights", request.weights), ("--classifier", request.classifier)):
        if given is not None and len(chosen) != 1:
            raise UsageError(f"{option} belongs to one defence: give exactly one --defence")
    own = request.own_sources
    for source in own.values():
        source.require_file()
        if source.is_network:
            Architecture.read(source.model)  # an unknown one is refused
    if len(own) < len(request.own_models):
        raise UsageError("two --source models have the same name: rename one, results are told apart by it")
    has_guess, outside = request.guess is not None, request.outside_threat_model
    plans = [
        Planned(defence, plan.requested(request.spec, defence, request.attacks, tuple(own), has_guess, outside))
        for defence in chosen
    ]
    for defence in chosen:
        plan.required(request.spec, *request.spec.defence(defence))  # is stored too, so that it is refused here too
    if request.classifier is None:
        return plans
    return [dataclasses.replace(one, brought=_brought(request, request.classifier, one.defence)) for one in plans]


def _brought(request: Request, classifier: Given, defence: str) -> Brought:
    """The classifier that was brought for a defence, read and checked."""
    _, plugin = request.spec.defence(defence)
    return for_defence(classifier, datasets.load(request.spec.dataset), plugin)


def require_examples(spec: Spec) -> None:
    """Refuses, before anything is written, what has fewer test images than were asked for."""
    datasets.load(spec.dataset).examples(spec.examples)


def chosen_defences(requests: Sequence[str]) -> list[str]:
    """The defences that were asked for, each once."""
    if "all" in requests:
        return [name for name, entry in registry.entries("defences").items() if entry.load().in_all]
    return list(dict.fromkeys(requests))


@contextlib.contextmanager
def recorded(run: Run, spec: Spec, order: Mapping[str, Mapping[str, Sequence[str]]] | None = None) -> Iterator[Run]:
    """Writes down that a run begins, in which order, and that it ends, and gives back what it holds, come what may."""
    try:
        run.start(spec, order)
        yield run
        run.finish()
    finally:
        run.close()


def run(
    request: Request,
    db: str,
    options: Options,
    start: Callable[[Say], AbstractContextManager[Executor]],
    reporter: Reporter,
) -> Summary:
    """The whole way: what cannot be is refused before anything is written, what is left to do is run and stored in `db`.

    `start` starts the executor.
    """
    if request.classifier is not None:
        devices.configure()  # it is tried before anything is written
    require_examples(request.spec)
    if request.guess is not None:
        guessed.require_found(request.guess, request.spec, chosen_defences(request.defences), request.vault.id, db)
    plans = planned(request)
    with start(reporter.say) as executor, opened(db, create=True) as database:
        devices.configure()
        return evaluate(request, plans, Run(database, images.folder_of(db), options, reporter, executor))


def orders(spec: Spec, plans: Sequence[Planned]) -> dict[str, dict[str, list[str]]] | None:
    """The names of the attacks in their order, by defence and norm; None where every attack is shown everything."""
    if spec.scope != SURVIVORS:
        return None
    return {
        one.defence: {norm: [pair.name for pair in order.of(one.defence, norm, one.pairs)] for norm in spec.norms}
        for one in plans
    }


def evaluate(request: Request, plans: Sequence[Planned], run: Run) -> Summary:
    """Runs what is planned, one defended model after the other; whatever is stored already is not run again."""
    own = {name: given.resolved() for name, given in request.own_sources.items()}
    with recorded(run, request.spec, orders(request.spec, plans)):
        for one in plans:
            ready = contest.prepare(
                request.spec, one.defence, request.vault, request.weights, run.options.may_train, run.reporter.say,
                own, request.guess, brought=one.brought,
            )  # fmt: skip
            if request.guess is not None:
                guessed.require_same_model(request.guess, ready, run.database)
            if notice := plan.reference_notice(one.pairs):
                run.reporter.say(f"{one.defence}: {notice}")
            run.execute(ready, one.pairs)
    return run.summary
