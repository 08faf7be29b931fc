"""What there is, and what is stored: `bench list`, `show`, `results`."""

from __future__ import annotations

import click

from bench.api import UsageError
from bench.commands.options import db_option, examples


@click.command("list", epilog=examples("bench list defences", "bench list attacks", "bench list presets"))
@click.argument("what", type=click.Choice(["defences", "attacks", "networks", "executors", "presets", "models"]))
def list_(what: str) -> None:
    """What there is: defences, attacks (engines and strategies), networks, executors, presets, trained models."""
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
    elif what == "executors":
        from bench.executors import base

        rows = [(name, executor.description) for name, executor in base.entries().items()]
    else:
        rows = [(name, entry.description) for name, entry in registry.entries(what).items()]
    width = max((len(name) for name, _ in rows), default=0)
    for name, description in rows:
        click.echo(f"{name:<{width}}  {description}")


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


@click.command(
    epilog=examples(
        "bench results", "bench results --format csv --what boards", "bench results --format json > cells.json"
    )
)
@db_option
@click.option("--format", "form", type=click.Choice(["table", "csv", "json"]), default="table", show_default=True)
@click.option(
    "--what",
    type=click.Choice(["cells", "boards", "sources"]),
    default="cells",
    show_default=True,
    help="Rows of csv and json; sources says how the attacks did on the models they attacked.",
)
def results(db: str, form: str, what: str) -> None:
    """The stored results: tables for people, csv and json for programs."""
    from bench.store import queries
    from bench.store.database import open_database, user_errors

    engine = open_database(db, create=False)
    with user_errors(db):
        boards = queries.boards(engine)
    if form == "table":
        from rich.console import Console

        from bench.evaluation.report import print_boards

        print_boards(boards, Console())
        return
    from bench.store import frames

    if what == "sources":
        with user_errors(db):
            frame = frames.sources_frame(boards, queries.withstood_on_source(engine))
    else:
        frame = frames.cells_frame(boards) if what == "cells" else frames.boards_frame(boards)
    click.echo(
        frame.to_csv(index=False) if form == "csv" else frame.to_json(orient="records", indent=1, force_ascii=False),
        nl=form != "csv",
    )
