"""Prints docs/cli.md: the help of every command.   python tools/cli_docs.py > docs/cli.md"""

from __future__ import annotations

import click
from click.testing import CliRunner

from bench.cli import main


def commands(group: click.Group, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """The path of every command, groups before what is in them."""
    found = [path]
    for name, command in sorted(group.commands.items()):
        found += commands(command, (*path, name)) if isinstance(command, click.Group) else [(*path, name)]
    return found


def render() -> str:
    parts = ["# Commands\n\nWhat `--help` says, of every command (`python tools/cli_docs.py`).\n"]
    for path in commands(main):
        shown = CliRunner().invoke(main, [*path, "--help"], prog_name="bench", terminal_width=100)
        parts.append(f"\n## {' '.join(('bench', *path))}\n\n```\n{shown.output.rstrip()}\n```\n")
    return "".join(parts)


if __name__ == "__main__":
    print(render(), end="")
