"""`bench import-checkpoint`."""

from __future__ import annotations

from pathlib import Path

import click

from bench.commands.options import examples, key_option
from bench.support import devices


@click.command(epilog=examples("bench import-checkpoint cifar10_linac_wrn70-16.npy"))
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
