"""`bench train`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from bench.commands.options import (
    ClassifierOptions,
    SpecOptions,
    classifier_options,
    defences_option,
    examples,
    key_option,
    opened_vault,
    training_options,
)
from bench.errors import UsageError
from bench.support import devices

if TYPE_CHECKING:
    from bench.evaluation.contest import Contest
    from bench.models.artifacts import Artifact
    from bench.support.progress import Say
    from bench.vault.base import Vault


@click.command(
    epilog=examples(
        "bench train --defence none",
        "bench train --defence linac --source all",
        "bench train --defence linac --source bypass --source surrogate:1",
    )
)
@defences_option
@training_options
@click.option(
    "--source",
    "sources",
    multiple=True,
    help="Also a model that attacks on the defence need: bypass, at-linf, surrogate:1, …; again for more; or all.",
)
@classifier_options
@key_option
def train(
    defences: tuple[str, ...],
    spec_options: SpecOptions,
    sources: tuple[str, ...],
    classifier: ClassifierOptions,
    key_file: Path | None,
) -> None:
    """Train the classifiers of defences, and keep them. Interrupted, the same command goes on from the last epoch.

    With --classifier that classifier is kept, and only models for attacks on it are trained.
    """
    with opened_vault(key_file, training=True) as vault:
        _train(vault, defences, spec_options, sources, classifier)


def _train(
    vault: Vault,
    defences: tuple[str, ...],
    spec_options: SpecOptions,
    sources: tuple[str, ...],
    classifier: ClassifierOptions,
) -> None:
    from bench.data import datasets
    from bench.evaluation import contest, session
    from bench.models import artifacts, brought, catalogue
    from bench.support.progress import Reporter, duration

    spec, reporter, given = spec_options.resolve(), Reporter(), classifier.given()
    devices.configure(training=True)
    images, chosen = datasets.load(spec.dataset), session.chosen_defences(defences)
    if (given or classifier.own_weights) and (len(chosen) != 1 or not sources):
        raise UsageError(
            "a classifier that is there already belongs to one --defence; give a --source to train against it"
        )
    for request in chosen:
        name, defence = spec.defence(request)
        if given or classifier.own_weights:
            found = brought.for_defence(given, images, defence) if given else None
            ready = contest.prepare(spec, request, vault, classifier.own_weights, False, reporter.say, brought=found)
            _train_sources(ready, sources, reporter.say)
            continue
        wanted = catalogue.spec_for(spec, images, name, defence, vault.id if defence.keyed else None)
        artifact = artifacts.find(wanted.fingerprint)
        if artifact is None:
            artifact = vault.train(wanted, name, reporter.say, reporter.track)
            reporter.say(f"trained {name} in {duration(artifact.record['seconds'])}")
        click.echo(_line(name, artifact))
        if sources:
            _train_sources(contest.prepare(spec, request, vault, None, False, reporter.say), sources, reporter.say)


def _train_sources(ready: Contest, names: tuple[str, ...], say: Say) -> None:
    """Trains what attackers need against a defended model; whatever is there already is left alone."""
    from bench import plan
    from bench.executors.worker import Attacker
    from bench.models import artifacts

    choice = plan.Choice(strategies=ready.spec.strategies(ready.defence_name))
    attacker, before = Attacker(say), {artifact.fingerprint for artifact in artifacts.all_artifacts()}
    for offer in plan.sources(names, ready.defence_name, ready.defence, choice):
        attacker.source(ready.setup(may_train=True), offer.strategy, offer.source)
        new = [artifact for artifact in artifacts.all_artifacts() if artifact.fingerprint not in before]
        before |= {artifact.fingerprint for artifact in new}
        for artifact in new:
            click.echo(_line(f"{ready.defence_name} {offer.source}", artifact))
        if not new:
            click.echo(f"{ready.defence_name} {offer.source}: there already")


def _line(name: str, artifact: Artifact) -> str:
    return (
        f"{name}: clean accuracy {100 * artifact.record['clean_accuracy']:.2f} % on {artifact.record['test_images']} "
        f"test images, in {artifact.path}"
    )
