"""`bench show`."""

from __future__ import annotations

import click

from bench.commands.options import examples
from bench.errors import UsageError


@click.command(epilog=examples("bench show linac", "bench show pgd", "bench show laptop"))
@click.argument("name")
def show(name: str) -> None:
    """A defence, an attack or a network with its settings and their defaults, or a preset."""
    import dataclasses

    from bench import registry, spec

    if name in spec.preset_names():
        click.echo((spec.PRESETS / f"{name}.toml").read_text(), nl=False)
        return
    for kind in registry.GROUPS:
        if name in registry.entries(kind):
            entry = registry.entries(kind)[name]
            plugin = entry.load()
            click.echo(f"{name}: {entry.description}\nof package {entry.package}, version {plugin.version}")
            for field in dataclasses.fields(plugin.Settings):
                click.echo(f"  {field.name} = {field.default}")
            return
    known = [*(name for kind in registry.GROUPS for name in registry.entries(kind)), *spec.preset_names()]
    raise UsageError(f"nothing is called '{name}'{registry.did_you_mean(name, known)}")
