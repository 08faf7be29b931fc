"""`bench train`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from bench.commands.options import SpecOptions, defences_option, examples, key_option, training_options
from bench.support import devices

if TYPE_CHECKING:
    from bench.evaluation.contest import Contest
    from bench.models.artifacts import Artifact
    from bench.support.progress import Say


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
@key_option
def train(
    defences: tuple[str, ...], spec_options: SpecOptions, sources: tuple[str, ...], key_file: Path | None
) -> None:
    """Train the classifiers of defences, and keep them. Interrupted, the same command goes on from the last epoch."""
    from bench import keys
    from bench.data import datasets
    from bench.evaluation import contest, session
    from bench.models import artifacts, catalogue
    from bench.support.progress import Reporter, duration

    key, spec, reporter = keys.load(key_file), spec_options.resolve(), Reporter()
    devices.configure(training=True)
    images = datasets.load(spec.dataset)
    for request in session.chosen_defences(defences):
        name, defence = spec.defence(request)
        own = key if defence.keyed else None
        wanted = catalogue.spec_for(spec, images, name, defence, own.id if own else None)
        artifact = artifacts.find(wanted.fingerprint)
        if artifact is None:
            artifact = catalogue.train_once(wanted, own.reveal() if own else None, name, reporter.say, reporter.track)
            reporter.say(f"trained {name} in {duration(artifact.record['seconds'])}")
        click.echo(_line(name, artifact))
        if sources:
            _train_sources(contest.prepare(spec, request, key, None, False, reporter.say), sources, reporter.say)


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
