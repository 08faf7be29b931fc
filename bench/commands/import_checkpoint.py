"""`bench import-checkpoint`."""

from __future__ import annotations

from pathlib import Path

import click

from bench.commands.options import examples, key_option, opened_vault
from bench.support import devices


@click.command(epilog=examples("bench import-checkpoint cifar10_linac_wrn70-16.npy"))
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--defence", default="linac[key_bits=32]", show_default=True, help="The defence it was trained with.")
@click.option("--preset", default="paper", show_default=True, help="Whose network and training it stands for.")
@click.option("--check", default=100, show_default=True, type=click.IntRange(min=1), help="Test images to classify.")
@key_option
def import_checkpoint(file: Path, defence: str, preset: str, check: int, key_file: Path | None) -> None:
    """Take over the classifier the paper's authors published, in place of training it, and see how well it does."""
    from bench import spec
    from bench.data import datasets
    from bench.models import catalogue, haiku_checkpoint, weights
    from bench.support.fingerprint import of_file
    from bench.vault.base import Made

    with opened_vault(key_file) as vault:
        arrays, resolved = haiku_checkpoint.load(file), spec.resolve(preset)
        devices.configure()
        name, chosen = resolved.defence(defence)
        images = datasets.load(resolved.dataset)
        wanted = catalogue.spec_for(resolved, images, name, chosen, vault.id if chosen.keyed else None)
        model = haiku_checkpoint.network(wanted.recipe.network, wanted.input_shape, len(images.classes), arrays)
        origin = {"imported_from": file.name, "imported_sha256": of_file(file)}
        artifact = vault.keep(Made(wanted, weights.arrays_of(model, {}), origin, check))
    click.echo(
        f"{name}: clean accuracy {100 * artifact.record['clean_accuracy']:.2f} % on the first "
        f"{artifact.record['test_images']} test images, in {artifact.path}"
    )
