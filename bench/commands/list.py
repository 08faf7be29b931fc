"""`bench list`."""

from __future__ import annotations

import click

from bench.commands.options import examples


@click.command(epilog=examples("bench list defences", "bench list attacks", "bench list presets"))
@click.argument(
    "what", type=click.Choice(["defences", "attacks", "probes", "networks", "norms", "executors", "presets", "models"])
)
def list(what: str) -> None:
    """What there is: defences, attacks (engines and strategies), probes, networks, norms, executors, presets, models."""
    from bench import registry, spec

    if what == "presets":
        rows = [(name, spec.read_preset(name).get("description", "")) for name in spec.preset_names()]
    elif what == "models":
        from bench.models import artifacts, roles

        names = roles.listed()
        found = sorted((roles.role_of(a, names), a.fingerprint, a) for a in artifacts.all_artifacts())
        rows = [
            (a.fingerprint[:16], f"{role}, {_key(a.spec['key'])}clean {100 * a.record['clean_accuracy']:.2f} %")
            for role, _, a in found
        ]
    elif what == "norms":
        from bench import norms

        rows = [(name, norms.entries()[name].description) for name in norms.names()]
    elif what == "executors":
        from bench.executors import base

        rows = [(name, executor.description) for name, executor in base.entries().items()]
    else:
        rows = [(name, entry.description) for name, entry in registry.entries(what).items()]
    width = max((len(name) for name, _ in rows), default=0)
    for name, description in rows:
        click.echo(f"{name:<{width}}  {description}")


def _key(name: str | None) -> str:
    """The name of a defence's own key; attackers' are told by the source's number."""
    return "" if name is None or name.startswith("attacker:") else f"key {name}, "
