"""The command line: the group, and what becomes of errors. The commands are in `bench.commands`."""

from __future__ import annotations

import signal
import sys
import threading
from typing import Any, NoReturn

import click

import bench
from bench.api import BenchError, UsageError
from bench.commands import data, db, exchange, key, keysearch, looking, plan, reproduce, run, site, training, verify
from bench.commands.options import examples

EPILOG_STYLE = {"max_content_width": 110, "help_option_names": ["-h", "--help"]}


class Terminated(KeyboardInterrupt):
    """SIGTERM: as Ctrl-C, what is finished is kept and what was started is ended."""


def _terminate(*_: object) -> NoReturn:
    raise Terminated


class Bench(click.Group):
    """Turns every expected failure into one line and an exit code: 2 for bad usage, 1 for work that failed."""

    def main(self, *args: Any, **kwargs: Any) -> Any:
        debug = "--debug" in sys.argv
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, _terminate)
        try:
            result = super().main(*args, **{**kwargs, "standalone_mode": False})
            sys.exit(result if isinstance(result, int) else 0)
        except click.ClickException as error:
            error.show()
            sys.exit(error.exit_code)
        except (click.Abort, KeyboardInterrupt) as reason:
            click.echo("stopped; what was finished is kept, and the same command goes on from there", err=True)
            sys.exit(143 if isinstance(reason.__cause__, Terminated) else 130)
        except BenchError as error:
            if debug:
                raise
            click.echo(f"error: {error}", err=True)
            sys.exit(2 if isinstance(error, UsageError) else 1)
        except Exception as error:
            if debug:
                raise
            line = " ".join(f"{type(error).__name__}: {error}".split())
            click.echo(f"error: {line} (unexpected: 'bench --debug …' shows where)", err=True)
            sys.exit(1)


@click.group(
    cls=Bench,
    context_settings=EPILOG_STYLE,
    epilog=examples("bench run --defence block-shuffle --attack all", "bench list defences", "bench leaderboard"),
)
@click.version_option(bench.__version__, prog_name="bench")
@click.option("--debug", is_flag=True, help="Show tracebacks.")
def main(debug: bool) -> None:
    """What is a key-based defence worth? Attacks it with everything its threat model allows and keeps the score."""


COMMANDS = (
    run.run,
    plan.plan,
    keysearch.keysearch,
    reproduce.reproduce,
    training.train,
    training.import_checkpoint,
    looking.list_,
    looking.show,
    looking.results,
    site.leaderboard,
    site.serve,
    verify.verify,
    exchange.export,
    exchange.import_,
    data.data,
    db.db,
    key.key,
)
for command in COMMANDS:
    main.add_command(command)

if __name__ == "__main__":
    main()
