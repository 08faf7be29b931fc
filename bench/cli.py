"""The command line: the group, and what becomes of errors. The commands are in `bench.commands`."""

from __future__ import annotations

import importlib
import io
import pkgutil
import signal
import sys
import threading
import traceback
from collections.abc import Sequence
from typing import Any, NoReturn

import click

import bench
from bench import commands, keys
from bench.commands.options import examples
from bench.errors import BenchError, UsageError
from bench.support.printable import printable

CONTEXT = {"max_content_width": 110, "help_option_names": ["-h", "--help"]}
NOT_COMMANDS = ("options",)


class Terminated(KeyboardInterrupt):
    """SIGTERM: as Ctrl-C, what is finished is kept and what was started is ended."""


def _terminate(*_: object) -> NoReturn:
    raise Terminated


class Bench(click.Group):
    """Turns every expected failure into one line and an exit code: 2 for bad usage, 1 for work that failed."""

    def main(self, args: Sequence[str] | None = None, *others: Any, **more: Any) -> Any:
        if args is None:
            keys.leave_environment()
        arguments = sys.argv[1:] if args is None else [*args]
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, _terminate)
        try:
            result = super().main(arguments, *others, **{**more, "standalone_mode": False, "obj": tuple(arguments)})
            sys.exit(result if isinstance(result, int) else 0)
        except (click.Abort, KeyboardInterrupt) as reason:
            click.echo("stopped; what was finished is kept, and the same command goes on from there", err=True)
            sys.exit(143 if isinstance(reason.__cause__, Terminated) else 130)
        except Exception as error:
            _explain(error, arguments)
            sys.exit(_exit_code(error))

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        """A command that has no use for a key does not get to see one."""
        name, command, rest = super().resolve_command(ctx, args)
        wanting = command is None or any(option.name in ("key_file", "key_name") for option in command.params)
        if not wanting:
            keys.forget_environment()
        return name, command, rest


def _exit_code(error: Exception) -> int:
    if isinstance(error, click.ClickException):
        return error.exit_code
    return 2 if isinstance(error, UsageError) else 1


def _explain(error: Exception, arguments: Sequence[str]) -> None:
    """One line, or where it happened with --debug; never the password of a database among the arguments."""
    if isinstance(error, click.ClickException):
        shown = io.StringIO()
        error.show(shown)
        said = shown.getvalue()
    elif "--debug" in arguments:
        said = traceback.format_exc()
    elif isinstance(error, BenchError):
        said = f"error: {error}\n"
    else:
        line = " ".join(f"{type(error).__name__}: {error}".split())
        said = f"error: {line} (unexpected: 'bench --debug …' shows where)\n"
    click.echo(printable(_without_passwords(said, arguments)), err=True, nl=False)


def _without_passwords(text: str, arguments: Sequence[str]) -> str:
    if not any(":" in argument or "=" in argument for argument in arguments):
        return text
    from bench.store.redaction import without_passwords

    return without_passwords(text, arguments)


@click.group(
    cls=Bench,
    context_settings=CONTEXT,
    epilog=examples("bench run --defence block-shuffle --attack all", "bench list defences", "bench leaderboard"),
)
@click.version_option(bench.__version__, prog_name="bench")
@click.option("--debug", is_flag=True, help="Show tracebacks.")
def main(debug: bool) -> None:
    """What is a key-based defence worth? Attacks it with everything its threat model allows and keeps the score."""


for found in pkgutil.iter_modules(commands.__path__):
    if found.name not in NOT_COMMANDS:
        main.add_command(getattr(importlib.import_module(f"bench.commands.{found.name}"), found.name))

if __name__ == "__main__":
    main()
