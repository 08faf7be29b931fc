"""Options that several commands share, and what is made of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from bench.api import UsageError

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
    "--norm", "norms", multiple=True, help="linf or l2, again for both.  [default: the preset's]"
)
site_option = click.option(
    "--out", type=click.Path(path_type=Path), help="Folder of the site.  [default: leaderboard, beside the database]"
)


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
