"""`bench key`."""

from __future__ import annotations

from pathlib import Path

import click

from bench.commands.options import examples


@click.group()
def key() -> None:
    """Private keys."""


@key.command(
    "new", epilog=examples("bench key new my.key", "bench run --defence block-shuffle --attack all --key-file my.key")
)
@click.argument("path", type=click.Path(path_type=Path))
def key_new(path: Path) -> None:
    """Make a new random key, in a file only you can read."""
    from bench import keys

    click.echo(f"{path}: a new key, called {keys.create(path).id}")
