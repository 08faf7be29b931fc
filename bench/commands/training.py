"""`bench train` and `bench import-checkpoint`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from bench import devices
from bench.commands.options import chosen_defences, defences_option, examples, key_option, preset_option


@click.command(
    epilog=examples("bench train --defence none", "bench train --defence 'block-shuffle[mode=values]' --preset paper")
)
@defences_option
@preset_option
@click.option("--dataset", help="cifar10, or the path of an .npz with x_train, y_train, x_test and y_test.")
@key_option
def train(defences: tuple[str, ...], preset: str, dataset: str | None, key_file: Path | None) -> None:
    """Train the classifiers of defences, and keep them. Interrupted, the same command goes on from the last epoch."""
    from bench import artifacts, data, keys, models, registry, spec
    from bench.progress import Reporter, duration

    key, reporter = keys.load(key_file), Reporter()
    resolved = spec.resolve(preset, dataset=dataset)
    devices.configure()
    images = data.load(resolved.dataset)
    for request in chosen_defences(defences):
        name, settings = registry.parse(request)
        defence = registry.create("defences", name, {**resolved.defences.get(name, {}), **settings})
        own = key if defence.keyed else None
        wanted = models.spec_for(resolved, images, name, defence, own.id if own else None)
        artifact = artifacts.find(wanted.fingerprint)
        if artifact is None:
            with reporter.track(f"training {name}", wanted.recipe.epochs):
                artifact = models.train(wanted, own.reveal() if own else None, _epochs(reporter, name))
            reporter.say(f"trained {name} in {duration(artifact.record['seconds'])}")
        click.echo(
            f"{name}: clean accuracy {100 * artifact.record['clean_accuracy']:.2f} % on {artifact.record['test_images']} "
            f"test images, in {artifact.path}"
        )


def _epochs(reporter: Any, name: str) -> Any:
    reached = 0.0

    def report(at: Any) -> None:
        nonlocal reached
        done = at.epoch + at.step / at.steps
        reporter.advance(done - reached, f"training {name}, epoch {at.epoch + 1}/{at.epochs}, {at.what}")
        reached = done

    return report


@click.command("import-checkpoint", epilog=examples("bench import-checkpoint cifar10_linac_wrn70-16.npy"))
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--defence", default="linac[key_bits=32]", show_default=True, help="The defence it was trained with.")
@click.option("--preset", default="paper", show_default=True, help="Whose network and training it stands for.")
@click.option("--check", default=100, show_default=True, type=click.IntRange(min=1), help="Test images to classify.")
@key_option
def import_checkpoint(file: Path, defence: str, preset: str, check: int, key_file: Path | None) -> None:
    """Take over the classifier the paper's authors published, in place of training it, and see how well it does."""
    from bench import data, keys, models, registry, spec
    from bench.fingerprint import of_file
    from defences import haiku_checkpoint

    arrays = haiku_checkpoint.load(file)
    key, resolved = keys.load(key_file), spec.resolve(preset)
    devices.configure()
    name, settings = registry.parse(defence)
    chosen = registry.create("defences", name, {**resolved.defences.get(name, {}), **settings})
    own = key if chosen.keyed else None
    wanted = models.spec_for(resolved, data.load(resolved.dataset), name, chosen, own.id if own else None)
    model = wanted.network()
    haiku_checkpoint.import_into(model, arrays)
    origin = {"imported_from": file.name, "imported_sha256": of_file(file)}
    artifact = models.keep(wanted, model, own.reveal() if own else None, origin, check)
    click.echo(
        f"{name}: clean accuracy {100 * artifact.record['clean_accuracy']:.2f} % on the first "
        f"{artifact.record['test_images']} test images, in {artifact.path}"
    )
