"""`bench train` and `bench import-checkpoint`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from bench.commands.options import chosen_defences, defences_option, examples, key_option, preset_option
from bench.support import devices

if TYPE_CHECKING:
    from bench.evaluation.contest import Contest
    from bench.models.artifacts import Artifact


@click.command(
    epilog=examples(
        "bench train --defence none",
        "bench train --defence linac --source all",
        "bench train --defence linac --source bypass --source surrogate:1",
    )
)
@defences_option
@preset_option
@click.option("--dataset", help="cifar10, or the path of an .npz with x_train, y_train, x_test and y_test.")
@click.option(
    "--source",
    "sources",
    multiple=True,
    help="Also a model that attacks on the defence need: bypass, at-linf, surrogate:1, …; again for more; or all.",
)
@key_option
def train(
    defences: tuple[str, ...], preset: str, dataset: str | None, sources: tuple[str, ...], key_file: Path | None
) -> None:
    """Train the classifiers of defences, and keep them. Interrupted, the same command goes on from the last epoch."""
    from bench import keys, spec
    from bench.data import datasets
    from bench.evaluation import contest
    from bench.models import artifacts, catalogue
    from bench.support.progress import Reporter, duration

    key, reporter = keys.load(key_file), Reporter()
    resolved = spec.resolve(preset, dataset=dataset)
    devices.configure(training=True)
    images = datasets.load(resolved.dataset)
    for request in chosen_defences(defences):
        name, defence = resolved.defence(request)
        own = key if defence.keyed else None
        wanted = catalogue.spec_for(resolved, images, name, defence, own.id if own else None)
        artifact = artifacts.find(wanted.fingerprint)
        if artifact is None:
            artifact = catalogue.train(wanted, own.reveal() if own else None, name, reporter.track)
            reporter.say(f"trained {name} in {duration(artifact.record['seconds'])}")
        click.echo(_line(name, artifact))
        if sources:
            _train_sources(contest.prepare(resolved, request, key, None, False, reporter.say), sources, reporter.say)


def _train_sources(ready: Contest, names: tuple[str, ...], say: Callable[[str], None]) -> None:
    """Trains what attackers need against a defended model; whatever is there already is left alone."""
    from bench import plan
    from bench.executors.worker import Attacker
    from bench.models import artifacts

    requests = ["pgd"] if "all" in names else [f"pgd@{name}" for name in names]
    choice = plan.Choice(strategies=ready.spec.strategies(ready.defence_name))
    attacker, before = Attacker(say), {artifact.fingerprint for artifact in artifacts.all_artifacts()}
    for pair in plan.pairs(requests, ready.defence_name, ready.defence, choice):
        attacker.source(ready.setup(may_train=True), pair.strategy, pair.source)
        new = [artifact for artifact in artifacts.all_artifacts() if artifact.fingerprint not in before]
        before |= {artifact.fingerprint for artifact in new}
        for artifact in new:
            click.echo(_line(f"{ready.defence_name} {pair.source}", artifact))
        if not new:
            click.echo(f"{ready.defence_name} {pair.source}: there already")


def _line(name: str, artifact: Artifact) -> str:
    return (
        f"{name}: clean accuracy {100 * artifact.record['clean_accuracy']:.2f} % on {artifact.record['test_images']} "
        f"test images, in {artifact.path}"
    )


@click.command("import-checkpoint", epilog=examples("bench import-checkpoint cifar10_linac_wrn70-16.npy"))
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--defence", default="linac[key_bits=32]", show_default=True, help="The defence it was trained with.")
@click.option("--preset", default="paper", show_default=True, help="Whose network and training it stands for.")
@click.option("--check", default=100, show_default=True, type=click.IntRange(min=1), help="Test images to classify.")
@key_option
def import_checkpoint(file: Path, defence: str, preset: str, check: int, key_file: Path | None) -> None:
    """Take over the classifier the paper's authors published, in place of training it, and see how well it does."""
    from bench import keys, spec
    from bench.data import datasets
    from bench.models import catalogue, haiku_checkpoint
    from bench.support.fingerprint import of_file

    arrays = haiku_checkpoint.load(file)
    key, resolved = keys.load(key_file), spec.resolve(preset)
    devices.configure()
    name, chosen = resolved.defence(defence)
    own = key if chosen.keyed else None
    images = datasets.load(resolved.dataset)
    wanted = catalogue.spec_for(resolved, images, name, chosen, own.id if own else None)
    model = haiku_checkpoint.network(wanted.recipe.network, wanted.input_shape, len(images.classes), arrays)
    origin = {"imported_from": file.name, "imported_sha256": of_file(file)}
    artifact = catalogue.keep(wanted, model, own.reveal() if own else None, origin, check)
    click.echo(
        f"{name}: clean accuracy {100 * artifact.record['clean_accuracy']:.2f} % on the first "
        f"{artifact.record['test_images']} test images, in {artifact.path}"
    )
