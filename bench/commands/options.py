"""Options that several commands share, and what is made of them."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import math
import shlex
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bench.errors import UsageError

if TYPE_CHECKING:
    from sqlalchemy.engine import Engine as Database

    from bench.executors.base import Executor
    from bench.models.brought import Given
    from bench.spec import Spec
    from bench.support.progress import Say
    from bench.vault.base import Vault

DEFAULT_DB = "results/bench.db"

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


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
training_dataset_option = click.option(
    "--dataset", help="cifar10, or the path of an .npz with x_train, y_train, x_test and y_test."
)
count_option = click.option("--examples", "count", type=int, help="Number of test images, from the first on.")
norms_option = click.option(
    "--norm", "norms", multiple=True, help="A norm, such as linf or l2; again for more.  [default: the preset's]"
)
epsilon_option = click.option("--epsilon", help="Size of the ball, such as 8/255; with one --norm.")
seed_option = click.option("--seed", type=int, help="Seed of all attacks.")
scope_option = click.option(
    "--scope",
    type=click.Choice(["all", "survivors"]),
    help="Show every attack all examples, or each example to one attack after the other until one breaks it: the same "
    "Best Known, sooner.  [default: the preset's]",
)
site_option = click.option(
    "--out", type=click.Path(path_type=Path), help="Folder of the site.  [default: leaderboard, beside the database]"
)
factory_option = click.option(
    "--factory",
    "factories",
    multiple=True,
    metavar="MODULE:NAME",
    help="Code that may be run to build a PyTorch network of imported results, again for more; none is by itself.",
)
no_train_option = click.option("--no-train", is_flag=True, help="Refuse to train a classifier that is not there yet.")
quiet_option = click.option("--quiet", is_flag=True, help="No progress, only the result.")
format_option = click.option(
    "--format",
    "form",
    type=click.Choice(["table", "csv", "json"]),
    default="table",
    show_default=True,
    help="A table for people; csv or json for programs.",
)


def bundled(kind: type, argument: str, *options: Decorator) -> Decorator:
    """Gives a command one argument for several options: a frozen dataclass whose fields have the options' names."""
    names = {field.name for field in dataclasses.fields(kind)}

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(command)
        def called(**values: Any) -> Any:
            own = {name: values.pop(name) for name in names & values.keys()}
            return command(**{argument: kind(**own)}, **values)

        command_with_options: Callable[..., Any] = called
        for option in reversed(options):
            command_with_options = option(command_with_options)
        return command_with_options

    return decorate


@dataclasses.dataclass(frozen=True)
class SpecOptions:
    """A preset, and what is changed of it."""

    preset: str
    dataset: str | None = None
    count: int | None = None
    norms: tuple[str, ...] = ()
    epsilon: str | None = None
    seed: int | None = None
    scope: str | None = None

    def resolve(self) -> Spec:
        from bench import spec

        return spec.resolve(
            self.preset,
            dataset=self.dataset,
            examples=self.count,
            norms=self.norms,
            epsilon=self.epsilon,
            seed=self.seed,
            scope=self.scope,
        )


def spec_options(*more: Decorator) -> Decorator:
    """The options of what is attacked, and how much of it: the command is given them as `spec_options`."""
    shared = (preset_option, dataset_option, count_option, norms_option)
    return bundled(SpecOptions, "spec_options", *shared, *more)


training_options = bundled(SpecOptions, "spec_options", preset_option, training_dataset_option)
"""The options of what is trained, or was: the command is given them as `spec_options`."""


@dataclasses.dataclass(frozen=True)
class ClassifierOptions:
    """The defended classifier, where it is not one that is trained here."""

    classifier: str | None
    weights: Path | None
    probabilities: bool

    def given(self) -> Given | None:
        """The classifier that was made elsewhere, if there is one."""
        from bench.models.brought import Given

        if self.classifier is not None:
            return Given(self.classifier, self.weights, self.probabilities)
        if self.probabilities:
            raise UsageError("--probabilities says what --classifier gives: give that too")
        return None

    @property
    def own_weights(self) -> Path | None:
        """Weights for the network that a preset names."""
        return self.weights if self.classifier is None else None


classifier_options = bundled(
    ClassifierOptions,
    "classifier",
    click.option(
        "--classifier",
        metavar="MODEL",
        help="The defended classifier, trained elsewhere: FILE.keras, or torch:package.module:factory with --weights.",
    ),
    click.option(
        "--weights",
        type=click.Path(path_type=Path),
        help="Weights of the defended classifier: .npz for the preset's network; .safetensors or a state_dict for torch:….",
    ),
    click.option(
        "--probabilities", is_flag=True, help="The --classifier gives probabilities, not logits: use their logarithms."
    ),
)
"""The command is given them as `classifier`."""


class SecondsOption(click.FloatRange):
    """A range of numbers; nan, which is in every range, is no number of seconds."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        found = super().convert(value, param, ctx)
        if not math.isfinite(found):
            self.fail(f"{value} is no number of seconds", param, ctx)
        return found


@dataclasses.dataclass(frozen=True)
class ExecutorOptions:
    """Where attacks run, and what they may take."""

    where: str
    workers: int
    ray_address: str | None
    gpus_per_worker: float
    time_limit: float | None
    memory_limit: str | None

    @contextlib.contextmanager
    def started(self, say: Say) -> Iterator[Executor]:
        from bench import registry
        from bench.executors import base

        memory = None if self.memory_limit is None else size_of(self.memory_limit)
        limits = base.Limits(self.workers, self.time_limit, memory)
        settings: dict[str, Any] = {}
        if self.ray_address or self.gpus_per_worker:
            if registry.parse(self.where)[0] != "ray":
                raise UsageError("--ray-address and --gpus-per-worker belong to --executor ray")
            settings = {"address": self.ray_address or "", "gpus_per_worker": self.gpus_per_worker}
        with contextlib.closing(base.start(self.where, limits, say, **settings)) as executor:
            yield executor


executor_options = bundled(
    ExecutorOptions,
    "executor",
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
    click.option("--ray-address", help="A Ray cluster that is up (auto, HOST:PORT).  [default: one of its own, here]"),
    click.option(
        "--gpus-per-worker", type=click.FloatRange(0), default=0.0, help="GPUs per Ray worker; fractions share one."
    ),
    click.option("--time-limit", type=SecondsOption(0, min_open=True), help="Seconds an attack on one shard may take."),
    click.option("--memory-limit", help="Memory a worker may take, such as 4GB."),
)


def opened_vault(key_file: Path | None, *, training: bool = False) -> Vault:
    """Who has the key of `--key-file`, to be opened before anything else: no attack is imported where the key is."""
    from bench import keys
    from bench.vault import process

    return process.opened(keys.place(key_file), training=training)


def opened(db: str, *, create: bool = False) -> AbstractContextManager[Database]:
    """The database of `--db`; what goes wrong with it is one line that says what to do."""
    from bench.store import database

    return database.opened(db, create=create)


def command_line() -> str:
    """This command as it may be stored and shown: quoted for a shell, without the password of its database."""
    from bench.store.redaction import redacted_arguments

    return shlex.join(["bench", *redacted_arguments(click.get_current_context().find_root().obj)])


def debugging() -> bool:
    """Whether `bench --debug` was asked for."""
    return bool(click.get_current_context().find_root().params["debug"])


def size_of(text: str) -> int:
    """'4GB', '512MB' or a number of bytes, as bytes."""
    number = text.strip().upper().removesuffix("B").removesuffix("I")
    unit = {"K": 10, "M": 20, "G": 30, "T": 40}.get(number[-1:], 0)
    try:
        size = int(float(number[: -1 if unit else None]) * 2**unit)
    except (ValueError, OverflowError):  # no number, nan or infinite
        size = 0
    if size < 1:
        raise UsageError(f"'{text}' is no amount of memory; give a number with a unit, such as 4GB")
    return size
