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
        from bench.models import artifacts

        rows = [
            (
                a.fingerprint[:16],
                f"{a.spec.get('what', 'classifier')} of {a.spec['defence']['name']}, key {a.spec['key'] or '–'}, "
                f"clean {100 * a.record['clean_accuracy']:.2f} %",
            )
            for a in artifacts.all_artifacts()
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
