"""`bench.evaluate`: what `bench run` does, for notebooks and scripts, on the same code and with the same rows."""

from __future__ import annotations

import contextlib
import functools
import multiprocessing.process
import re
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench import in_memory
from bench import python_arguments as arguments
from bench import spec as specs
from bench.errors import BenchError, UsageError
from bench.evaluation import session
from bench.evaluation.run import Options
from bench.executors import base
from bench.keys import PrivateKey
from bench.models import torch_in_memory
from bench.models.brought import Given
from bench.python_arguments import AttackArgument, DefenceArgument, count
from bench.result import Result
from bench.support.progress import Reporter, Say
from bench.vault import process as vaults

if TYPE_CHECKING:
    import keras
    import numpy as np
    import torch


class EvaluationFailed(BenchError):
    """Some cells could not be run; everything else is done, stored, and in `result`."""

    def __init__(self, problem: str, result: Result) -> None:
        super().__init__(problem)
        self.result = result


def evaluate(
    defence: DefenceArgument,
    attacks: AttackArgument | Sequence[AttackArgument],
    *,
    preset: str = "laptop",
    norms: str | Sequence[str] = (),
    epsilon: float | str | None = None,
    examples: int | None = None,
    seed: int | None = None,
    scope: str | None = None,
    dataset: str | Path | None = None,
    images: np.ndarray | None = None,
    labels: np.ndarray | Sequence[int] | None = None,
    classes: int | Sequence[str] | None = None,
    classifier: str | keras.Model | torch.nn.Module | None = None,
    weights: str | Path | None = None,
    probabilities: bool = False,
    sources: str | Sequence[str] = (),
    key: int | PrivateKey | None = None,
    key_file: str | Path | None = None,
    db: str | Path | None = None,
    train: bool = True,
    outside_threat_model: bool = False,
    workers: int = 1,
    executor: str = "local",
    batch_size: int = 64,
    shard_size: int = 50,
    keep_images: bool = True,
    judge_rounded: bool = False,
    quiet: bool = False,
) -> Result:
    """Attacks a defence, judges every adversarial image with the private key, and gives back the numbers.

    `defence`, `attacks` and the options are those of `bench run`; defences, engines, strategies and the classifier may also
    be objects. `images` (N×H×W×3, uint8 or floats in [0,1]) and `labels` are attacked in place of a dataset's test images.

    Attacks run in processes that never get the key: `key` is the key itself (an int has a random name in this process, a
    `bench.PrivateKey` its own), `key_file` a file with it, else it is BENCH_KEY, else the one that the paper published.

    With `judge_rounded` each adversarial image is judged rounded to eight bits too, as a PNG keeps it.

    Results are kept in `db` and not computed twice; without one, in a temporary database that goes with the result. Bad
    usage is a `UsageError`, and nothing is stored. If cells fail, the others are run all the same, and an
    `EvaluationFailed` is raised at the end that has the result.
    """
    command = arguments.as_call(evaluate, locals())
    _refuse_in_a_child()
    with _python_names():
        place = arguments.key_place(key, key_file)
        wanted = arguments.wanted(defence, attacks)
        if images is not None or labels is not None:
            if dataset is not None:
                raise UsageError("images and dataset are both given: give one of them")
            dataset = arguments.kept_images(images, labels, classes, _outputs(classifier))
            examples = len(images) if examples is None and images is not None else examples
        spec = specs.resolve(
            preset,
            dataset=None if dataset is None else str(dataset),
            examples=count("examples", examples),
            norms=arguments.several(norms),
            epsilon=None if epsilon is None else str(epsilon),
            seed=seed,
            scope=scope,
        )
        file = None if weights is None else Path(weights)
        options = Options(
            count("batch_size", batch_size), count("shard_size", shard_size), keep_images, train, command,
            judge_rounded=judge_rounded,
        )  # fmt: skip
        start = functools.partial(_executor, executor, base.Limits(count("workers", workers)))
        modules = [torch_in_memory.factory_of(classifier)] if torch_in_memory.is_module(classifier) else []
        things: list[in_memory.InMemory | in_memory.Factory] = [*wanted.plugins, *modules]
        with (
            vaults.opened(place, given=in_memory.packed_for_defender(things)) as vault,
            in_memory.installed(things, vault.holds),
        ):
            request = session.Request(
                wanted.over(spec),
                (wanted.defence,),
                wanted.attacks,
                vault,
                file if classifier is None else None,
                arguments.several(sources),
                outside_threat_model=outside_threat_model,
                classifier=None if classifier is None else Given(classifier, file, probabilities),
            )
            result = _stored(request, None if db is None else str(db), options, start, Reporter(quiet=quiet))
    if result.failed:
        raise EvaluationFailed(result.summary.problem, result)
    return result


def _stored(request: session.Request, db: str | None, options: Options, start: Any, reporter: Reporter) -> Result:
    """Runs what is asked for; where no database is named, in one that goes with the result, or with an error."""
    with contextlib.ExitStack() as undo:
        temporary = None
        if db is None:
            temporary = Path(tempfile.mkdtemp(prefix="bench-"))
            undo.callback(shutil.rmtree, temporary, ignore_errors=True)
            db = str(temporary / "bench.db")
        result = Result(db, session.run(request, db, options, start, reporter), temporary)
        undo.pop_all()
        return result


def _executor(request: str, limits: base.Limits, say: Say) -> contextlib.closing[base.Executor]:
    return contextlib.closing(base.start(request, limits, say))


def _outputs(classifier: Any) -> int | None:
    """How many classes a model in memory knows, if it says so."""
    if torch_in_memory.is_module(classifier):
        return torch_in_memory.outputs(classifier)
    shape = getattr(classifier, "output_shape", None)
    return shape[-1] if isinstance(shape, tuple) and isinstance(shape[-1], int) else None


def _refuse_in_a_child() -> None:
    """A script that starts processes is run again by each, unless it says which of it is the main program."""
    process = multiprocessing.process.current_process()
    if getattr(process, "_inheriting", False) or process.daemon:
        raise UsageError(
            "bench.evaluate was called in a process that this script started itself, and cannot be: "
            "put the call under  if __name__ == '__main__':"
        )


_PYTHON_NAMES = {
    "attack": "attacks",
    "no-train": "train=False",
    "norm": "norms",
    "outside-threat-model": "outside_threat_model=True",
    "probabilities": "probabilities=True",
    "source": "sources",
}


@contextlib.contextmanager
def _python_names() -> Iterator[None]:
    """What is said of the options of `bench run` is said of the arguments of `bench.evaluate`."""
    try:
        yield
    except UsageError as error:
        text = re.sub(
            r"(?<![\w/.-])--([a-z][a-z-]*)", lambda at: _PYTHON_NAMES.get(at[1], at[1].replace("-", "_")), str(error)
        )
        raise UsageError(text) from error.__cause__
