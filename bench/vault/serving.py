"""The process that has the private key: it answers requests until nobody asks. No text leaves it with the key in it."""

from __future__ import annotations

import contextlib
import itertools
import os
import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

from bench import in_memory, key_checks
from bench.api import BenchError, UsageError
from bench.executors.channel import Channel, ChannelClosed, Frame, Malformed
from bench.executors.child import error_report
from bench.executors.codec import encoded
from bench.executors.messages import TaskFinished
from bench.in_memory import NotHere
from bench.keys import KeyPlace, PrivateKey
from bench.models.architecture import NotInstalled
from bench.models.catalogue import NotTrained
from bench.support.progress import Tracker
from bench.vault import forms
from bench.vault.base import Made
from bench.vault.here import VaultHere
from bench.vault.referee import Referee, RefusedImages

ERRORS: dict[str, type[BenchError]] = {
    kind.__name__: kind for kind in (BenchError, UsageError, RefusedImages, NotHere, NotInstalled, NotTrained)
}
"""What a request may fail with, by name: the asker raises the same."""
SECONDS_BETWEEN_REPORTS = 0.2
MOST_ARRAYS = 2**33

Answer = tuple[dict[str, Any], dict[str, np.ndarray]]


def serve(channel: Channel, file: str | None, pipe: Connection | None, training: bool, given: bytes) -> None:
    """Takes requests from the channel until it closes: the life of the process."""
    channel.limit = MOST_ARRAYS
    desk: _Desk | None = None
    with contextlib.suppress(ChannelClosed, Malformed):
        while True:
            frame = channel.receive()
            assert frame is not None
            try:
                if desk is None:
                    desk = _opened(channel, file, pipe, given)
                document, arrays = desk.answer(frame)
            except ChannelClosed:
                raise
            except Exception as error:
                channel.send(_failure(error, desk))
                continue
            channel.send({**document, "kind": "done"}, arrays)
            if frame.document["do"] == "hello":
                from bench.support import devices

                devices.configure(training=training)  # while the asker plans


def _opened(channel: Channel, file: str | None, pipe: Connection | None, given: bytes) -> _Desk:
    place = KeyPlace(None if file is None else Path(file), None if pipe is None else os.dup(pipe.fileno()))
    key = place.read()
    key_checks.confirm(key)
    in_memory.install(given)
    return _Desk(key, channel)


def _failure(error: Exception, desk: _Desk | None) -> dict[str, str]:
    text, detail = error_report(error)
    kind = next((kind for kind in type(error).__mro__ if kind.__name__ in ERRORS), BenchError).__name__
    said = {"kind": "failed", "error": kind, "text": text, "detail": detail}
    return said if desk is None else {name: desk.redacted(value) for name, value in said.items()}


class _Desk:
    """Answers requests, one after the other."""

    def __init__(self, key: PrivateKey, channel: Channel) -> None:
        self._vault, self.redacted, self._channel = VaultHere(key), key.redacted, channel
        self._referees: list[Referee] = []
        self._numbers = itertools.count()
        self._executor = self._vault.executor(self._say)
        self._requests: dict[str, Callable[[Frame], Answer]] = {
            "hello": self._hello,
            "holds": self._holds,
            "train": self._train,
            "keep": self._keep,
            "referee": self._referee,
            "judge": self._judge,
            "attack": self._attack,
        }

    def answer(self, frame: Frame) -> Answer:
        return self._requests[frame.document["do"]](frame)

    def _hello(self, frame: Frame) -> Answer:
        return {"id": self._vault.id, "published": self._vault.published}, {}

    def _holds(self, frame: Frame) -> Answer:
        return {"holds": self._vault.holds(frame.arrays["content"].tobytes())}, {}

    def _train(self, frame: Frame) -> Answer:
        form = frame.document
        spec = forms.spec_of(form["spec"], self._vault.id)
        self._vault.train(spec, form["name"], self._say, self._track, form["notice"])
        return {}, {}

    def _keep(self, frame: Frame) -> Answer:
        form = frame.document
        spec = forms.spec_of(form["spec"], self._vault.id)
        self._vault.keep(Made(spec, frame.arrays, form["origin"], form["measured"]))
        return {}, {}

    def _referee(self, frame: Frame) -> Answer:
        form = {name: value for name, value in frame.document.items() if name != "do"}
        self._referees.append(self._vault.referee(forms.defended_of(form)))
        return {"number": len(self._referees) - 1}, {}

    def _judge(self, frame: Frame) -> Answer:
        form, given = frame.document, frame.arrays
        verdict = self._referees[form["number"]].judge(
            given["images"], given["labels"], given["adversarial"], form["norm"], form["epsilon"], form["rounded"]
        )
        survives = {} if verdict.rounded is None else {"rounded": verdict.rounded.astype(np.uint8)}
        return {}, {
            "pred": verdict.pred.astype(np.int64),
            "correct": verdict.correct.astype(np.uint8),
            "margin": verdict.margin.astype(np.float32),
            "distance": np.asarray(verdict.distance, np.float64),
            **survives,
        }

    def _attack(self, frame: Frame) -> Answer:
        task = forms.task_of(frame.document, frame.arrays)
        tasks = iter([task])
        (outcome,) = self._executor.run(lambda: next(tasks, None), self._worked())
        assert outcome is not None
        if outcome.attacked is None:
            raise BenchError(outcome.error or "failed") from (RuntimeError(outcome.detail) if outcome.detail else None)
        found = encoded(TaskFinished(outcome.attacked, outcome.seconds))
        return found.document, found.arrays

    def _worked(self) -> Callable[[int, int], None]:
        """Passes the progress of an attack on a few times a second."""
        unsent, last = 0, time.monotonic()

        def report(index: int, amount: int) -> None:
            nonlocal unsent, last
            unsent += amount
            if time.monotonic() - last > SECONDS_BETWEEN_REPORTS:
                self._channel.send({"kind": "work", "amount": unsent})
                unsent, last = 0, time.monotonic()

        return report

    def _say(self, text: str) -> None:
        self._channel.send({"kind": "say", "text": self.redacted(text)})

    @contextlib.contextmanager
    def _track(self, what: str, total: float) -> Iterator[Tracker]:
        """Progress, as the asker shows it."""
        number, last = next(self._numbers), 0.0

        def show(tracker: Tracker) -> None:
            nonlocal last
            if time.monotonic() - last > SECONDS_BETWEEN_REPORTS:
                last = time.monotonic()
                detail = self.redacted(tracker.detail)
                self._channel.send({"kind": "at", "number": number, "done": float(tracker.done), "detail": detail})

        self._channel.send({"kind": "begin", "number": number, "what": what, "total": float(total)})
        yield Tracker(what, total, show)
        self._channel.send({"kind": "end", "number": number})
