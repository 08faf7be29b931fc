"""Key search in a process of its own, which never had the private key: guesses go in, scores come out, a key a core."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pickle
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bench.api import BenchError
from bench.executors.channel import Channel, ChannelClosed, Frame, Malformed
from bench.executors.child import error_report, spawn_child
from bench.executors.codec import LONGEST
from bench.executors.fields import Fields
from bench.support.text import one_line, several_lines

if TYPE_CHECKING:
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


def scores(setup: SearchSetup, guesses: Iterable[int]) -> Iterator[Score]:
    """The scores of the guesses as they come, not in order. Leaving the loop ends the process at once."""
    left = iter(guesses)
    guess = next(left, None)
    if guess is None:
        return
    child = spawn_child(_serve, "bench-key-search")
    try:
        child.channel.send_later({}, {"setup": np.frombuffer(pickle.dumps(setup), np.uint8)})
        waiting: set[int] = set()
        while waiting or guess is not None:
            while guess is not None and len(waiting) < AHEAD * (os.cpu_count() or 1):
                child.channel.send_later({"guess": guess})
                waiting.add(guess)
                guess = next(left, None)
            score = _score(child.receive(), len(setup.images))
            if score.key not in waiting:
                raise Malformed("the score of a key that it was not asked for")
            waiting.remove(score.key)
            yield score
    except Malformed as error:
        raise BenchError(f"the key search's process sent {error}, and was ended") from error
    except ChannelClosed as error:
        raise BenchError(
            f"the key search's process died ({child.ended()}): out of memory? "
            "What was scored is kept: the same command goes on from there"
        ) from error
    finally:
        child.kill()


def _score(frame: Frame, images: int) -> Score:
    """The score in a frame; every value is checked, for the process runs code of others."""
    from bench.keysearch.scorer import Score

    fields = Fields(frame)
    if fields.has("error"):
        error, detail = one_line(fields.text("error")), several_lines(fields.text("detail"))
        fields.finish()
        raise BenchError(f"the key search failed: {error}") from RuntimeError(detail)
    score = Score(
        fields.whole("key", -(2**63), 2**63 - 1),
        fields.whole("correct", 0, images),
        fields.whole("images", 0, images),
        fields.whole("stopped", 0, images) if fields.has("stopped") else None,
        fields.number("seconds", 0, LONGEST),
        fields.number("raced_seconds", 0, LONGEST),
    )
    fields.finish()
    return score


def _serve(channel: Channel) -> None:
    """Takes guesses from the channel until it closes."""
    from bench.support import devices

    devices.configure()

    def run(scorer: Scorer, guess: int) -> None:
        with contextlib.suppress(ChannelClosed):
            try:
                found = dataclasses.asdict(scorer.score(guess))
                channel.send({name: value for name, value in found.items() if value is not None})
            except Exception as error:
                _report(channel, error)

    try:
        first = channel.receive()
        assert first is not None
        scorer = _scorer(pickle.loads(first.arrays["setup"].tobytes()))
    except Exception as error:
        _report(channel, error)
        return
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool, contextlib.suppress(ChannelClosed):
        while (frame := channel.receive()) is not None:
            pool.submit(run, scorer, frame.document["guess"])


def _report(channel: Channel, error: Exception) -> None:
    words, detail = error_report(error)
    channel.send({"error": words, "detail": detail})


def _scorer(setup: SearchSetup) -> Scorer:
    from bench import registry
    from bench.keysearch.scorer import Scorer
    from bench.models import classifier

    defence = registry.defence(setup.defence_name, setup.defence_settings)
    shape = defence.output_shape(setup.images.shape[1:])
    found = classifier.load(setup.network, shape, setup.classes, setup.weights, setup.weights_sha256)
    return Scorer(defence, found.state, found.model, setup.images, setup.labels, setup.race, setup.to_the_end)
