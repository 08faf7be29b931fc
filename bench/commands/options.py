"""Options that several commands share, and what is made of them."""

from __future__ import annotations

import functools
import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bench.api import UsageError

if TYPE_CHECKING:
    from bench.executors.base import Executor

    StartExecutor = Callable[[Callable[[str], None]], Executor]

DEFAULT_DB = "results/bench.db"


def examples(*lines: str) -> str:
    """The examples at the end of a command's help, as they are typed."""
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)


db_option = click.option("--db", default=DEFAULT_DB, show_default=True, help="Database: a file, or postgresql://…")
key_option = click.option(
    "--key-file",
    type=click.Path(path_type=Path),
    help="File with the private key ('bench key new' makes one). Else BENCH_KEY, else the key the paper published.",
)
defences_option = click.option(
    "--defence",
    "defences",
    multiple=True,
    required=True,
    help="NAME or 'NAME[setting=value,…]', again for more; or all.",
)
preset_option = click.option(
    "--preset", default="laptop", show_default=True, help="smoke, laptop, paper, or the path of a .toml file."
)
dataset_option = click.option(
    "--dataset", help="cifar10, or the path of an .npz with images (N×H×W×3, uint8) and labels."
)
count_option = click.option("--examples", "count", type=int, help="The first so many test images.")
norms_option = click.option(
    "--norm", "norms", multiple=True, help="A norm, such as linf or l2; again for more.  [default: the preset's]"
)
site_option = click.option(
    "--out", type=click.Path(path_type=Path), help="Folder of the site.  [default: leaderboard, beside the database]"
)

no_train_option = click.option("--no-train", is_flag=True, help="Refuse to train a classifier that is not there yet.")


def executor_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Where attacks run, and what they may take: the command is given one argument, `executor`, to start with `say`."""
    options = (
        click.option(
            "--executor",
            "where",
            metavar="NAME",
            default="local",
            show_default=True,
            help="Where attacks run: local, in processes on this machine; ray, on a Ray cluster; or another of "
            "'bench list executors'.",
        ),
        click.option("--workers", type=click.IntRange(1), default=1, show_default=True, help="Processes that attack."),
        click.option(
            "--ray-address", help="A Ray cluster that is up (auto, HOST:PORT).  [default: one of its own, here]"
        ),
        click.option(
            "--gpus-per-worker",
            type=click.FloatRange(0),
            default=0.0,
            help="GPUs of a Ray worker; fractions share one.",
        ),
        click.option(
            "--time-limit",
            type=click.FloatRange(0, min_open=True),
            help="Seconds an attack on one shard may take.",
        ),
        click.option("--memory-limit", help="Memory a worker may take, such as 4GB."),
    )

    @functools.wraps(command)
    def bundled(
        *,
        where: str,
        workers: int,
        ray_address: str | None,
        gpus_per_worker: float,
        time_limit: float | None,
        memory_limit: str | None,
        **others: Any,
    ) -> Any:
        def start(say: Callable[[str], None]) -> Executor:
            from bench import registry
            from bench.executors import base

            limits = base.Limits(workers, time_limit, None if memory_limit is None else size_of(memory_limit))
            settings: dict[str, Any] = {}
            if ray_address or gpus_per_worker:
                if registry.parse(where)[0] != "ray":
                    raise UsageError("--ray-address and --gpus-per-worker belong to --executor ray")
                settings = {"address": ray_address or "", "gpus_per_worker": gpus_per_worker}
            return base.start(where, limits, say, **settings)

        return command(executor=start, **others)

    for option in reversed(options):
        bundled = option(bundled)
    return bundled


def command_line() -> str:
    """This command as it may be stored and shown: quoted for a shell, without the password of its database."""
    from bench.store.redaction import redacted_arguments

    return shlex.join(["bench", *redacted_arguments(sys.argv[1:])])


def chosen_defences(requests: Sequence[str]) -> list[str]:
    """The defences that `--defence` values mean, each once."""
    from bench import registry

    if "all" in requests:
        return [name for name, entry in registry.entries("defences").items() if entry.load().in_all]
    return list(dict.fromkeys(requests))


def size_of(text: str) -> int:
    """'4GB', '512MB' or a number of bytes, as bytes."""
    number = text.strip().upper().removesuffix("B").removesuffix("I")
    unit = {"K": 10, "M": 20, "G": 30, "T": 40}.get(number[-1:], 0)
    try:
        size = int(float(number[: -1 if unit else None]) * 2**unit)
    except ValueError:
        size = 0
    if size < 1:
        raise UsageError(f"'{text}' is no amount of memory; give a number with a unit, such as 4GB")
    return size
