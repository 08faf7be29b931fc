"""Key search in a process of its own, which never had the private key: guesses go in, scores come out, a key a core."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import threading
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.api import BenchError
from bench.executors.child import error_report, prepare_child, spawn_child

if TYPE_CHECKING:
    import numpy as np

    from bench.keysearch.race import Race
    from bench.keysearch.scorer import Score, Scorer
    from bench.models.architecture import Architecture

AHEAD = 3  # guesses that the process has at once for every core


@dataclasses.dataclass(frozen=True)
class SearchSetup:
    """What the attacker has, in a form that can be sent to another process."""

    defence_name: str
    defence_settings: Mapping[str, Any]
    network: Architecture
    classes: int
    weights: Path
    weights_sha256: str
    images: np.ndarray  # N×H×W×3, float32, [0,1]
    labels: np.ndarray  # N
    race: Race
    to_the_end: bool


@dataclasses.dataclass(frozen=True)
class SearchFailed:
    """What the process says in place of a score: why there is none, and the traceback of an error nobody expected."""

    error: str
    detail: str


def scores(setup: SearchSetup, guesses: Iterable[int]) -> Iterator[Score]:
    """The scores of the guesses as they come, not in order. Leaving the loop ends the process at once."""
    left = iter(guesses)
    guess = next(left, None)
    if guess is None:
        return
    process, pipe = spawn_child(_serve, "bench-key-search")
    try:
        pipe.send(setup)
        waiting = 0
        while waiting or guess is not None:
            while guess is not None and waiting < AHEAD * (os.cpu_count() or 1):
                pipe.send(guess)
                waiting += 1
                guess = next(left, None)
            message: Score | SearchFailed = pipe.recv()
            if isinstance(message, SearchFailed):
                raise BenchError(f"the key search failed: {message.error}") from RuntimeError(message.detail)
            waiting -= 1
            yield message
    except (EOFError, BrokenPipeError, ConnectionResetError) as error:
        process.join()
        raise BenchError(
            f"the key search's process died (exit code {process.exitcode}): out of memory? "
            "What was scored is kept: the same command goes on from there"
        ) from error
    finally:
        process.kill()
        process.join()
        pipe.close()


def _serve(pipe: Connection) -> None:
    """Takes guesses from the pipe until it closes."""
    prepare_child()
    from bench.support import devices

    devices.configure()
    sending = threading.Lock()

    def send(message: Score | SearchFailed) -> None:
        with sending, contextlib.suppress(BrokenPipeError):
            pipe.send(message)

    def run(scorer: Scorer, guess: int) -> None:
        try:
            send(scorer.score(guess))
        except Exception as error:
            send(SearchFailed(*error_report(error)))

    try:
        scorer = _scorer(pipe.recv())
    except Exception as error:
        send(SearchFailed(*error_report(error)))
        return
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool, contextlib.suppress(EOFError, OSError):
        while True:
            pool.submit(run, scorer, pipe.recv())


def _scorer(setup: SearchSetup) -> Scorer:
    from bench import registry
    from bench.keysearch.scorer import Scorer
    from bench.models import classifier

    defence = registry.defence(setup.defence_name, setup.defence_settings)
    shape = defence.output_shape(setup.images.shape[1:])
    found = classifier.load(setup.network, shape, setup.classes, setup.weights, setup.weights_sha256)
    return Scorer(defence, found.state, found.model, setup.images, setup.labels, setup.race, setup.to_the_end)
