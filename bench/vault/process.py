"""A vault in a process of its own, as everybody else sees it: requests go in, verdicts come out, the key stays there."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from bench.api import BenchError
from bench.executors.base import AttackTask, Outcome, ReportProgress, TakeTask
from bench.executors.channel import ChannelClosed, Frame, Malformed
from bench.executors.child import Child, spawn_child
from bench.executors.codec import decoded
from bench.executors.messages import TaskFinished
from bench.keys import KeyPlace
from bench.models import artifacts
from bench.models.artifacts import Artifact
from bench.models.catalogue import ClassifierSpec
from bench.support.progress import Say, Track, Tracker, untracked
from bench.vault import forms
from bench.vault.base import Defended, Made, Vault
from bench.vault.here import VaultHere
from bench.vault.referee import Verdict
from bench.vault.serving import ERRORS, serve

MOST_ARRAYS = 2**33  # bytes of a classifier's weights, or of images, in one request


def opened(place: KeyPlace, *, training: bool = False, given: bytes = b"") -> Vault:
    """A vault for the key at this place; `training` is for work that is mostly that.

    `given` is what of a notebook's objects it takes to compute the defence (`bench.in_memory`).
    """
    return VaultProcess(place, training, given) if place.secret else VaultHere(place.read())


class VaultProcess(Vault):
    """Asks the process that has the key. It is started first of all, before any plug-in's attack is imported here."""

    def __init__(self, place: KeyPlace, training: bool = False, given: bytes = b"") -> None:
        pipe = None if place.pipe is None else Connection(place.pipe, writable=False)
        try:
            file = None if place.file is None else str(place.file)
            self._child: Child = spawn_child(serve, "bench-vault", file, pipe, training, given)
        finally:
            if pipe is not None:
                pipe.close()  # this process never reads it
        self._child.channel.limit = MOST_ARRAYS
        try:
            hello = self._ask("hello")
        except BaseException:
            self.close()
            raise
        super().__init__(str(hello.document["id"]), bool(hello.document["published"]))

    @property
    def pid(self) -> int:
        return self._child.pid

    def train(self, spec: ClassifierSpec, name: str, say: Say, track: Track, notice: str = "") -> Artifact:
        request = {"spec": forms.of_spec(spec), "name": name, "notice": notice}
        self._ask("train", request, say=say, track=track)
        return _artifact(spec)

    def keep(self, made: Made) -> Artifact:
        request = {"spec": forms.of_spec(made.spec), "origin": dict(made.origin), "measured": made.measured}
        self._ask("keep", request, {name: _wide(values) for name, values in made.weights.items()})
        return _artifact(made.spec)

    def referee(self, defended: Defended) -> RemoteReferee:
        return RemoteReferee(self._ask, int(self._ask("referee", forms.of_defended(defended)).document["number"]))

    def executor(self, say: Say) -> RemoteKeyedExecutor:
        return RemoteKeyedExecutor(self, say)

    def holds(self, content: bytes) -> bool:
        return bool(self._ask("holds", arrays={"content": np.frombuffer(content, np.uint8)}).document["holds"])

    def close(self) -> None:
        self._child.kill()

    def attack(self, task: AttackTask, say: Say) -> Iterator[Frame]:
        """What comes back about a task, its result last."""
        return self._conversation("attack", *forms.of_task(task), say=say)

    def _ask(
        self,
        what: str,
        document: Mapping[str, Any] | None = None,
        arrays: Mapping[str, np.ndarray] | None = None,
        say: Say = print,
        track: Track = untracked,
    ) -> Frame:
        """The answer to a request; what is said meanwhile is said here."""
        for frame in self._conversation(what, document, arrays, say, track):
            last = frame
        return last

    def _conversation(
        self,
        what: str,
        document: Mapping[str, Any] | None = None,
        arrays: Mapping[str, np.ndarray] | None = None,
        say: Say = print,
        track: Track = untracked,
    ) -> Iterator[Frame]:
        try:
            self._child.channel.send({**(document or {}), "do": what}, arrays)
            with contextlib.ExitStack() as stack:
                shown = _Shown(stack, say, track)
                while True:
                    frame = self._child.receive()
                    match frame.document.get("kind"):
                        case "done":
                            yield frame
                            return
                        case "failed":
                            raise _error(frame.document)
                        case "work":
                            yield frame
                        case _:
                            shown.show(frame.document)
        except ChannelClosed:
            raise BenchError(
                f"the process that has the key died ({self._child.ended()}): out of memory? What was finished is kept: the "
                "same command goes on from there"
            ) from None
        except Malformed as error:
            self.close()
            raise BenchError(f"the process that has the key sent {error}") from None


class RemoteReferee:
    """Has images judged where the key is."""

    def __init__(self, ask: Callable[..., Frame], number: int) -> None:
        self._ask, self._number = ask, number

    def judge(
        self,
        images: np.ndarray,
        labels: np.ndarray,
        adversarial: np.ndarray,
        norm: str,
        epsilon: float,
        rounded: bool = False,
    ) -> Verdict:
        request = {"number": self._number, "norm": norm, "epsilon": epsilon, "rounded": rounded}
        given = {"images": images, "labels": labels.astype(np.int64), "adversarial": adversarial}
        found = self._ask("judge", request, given).arrays
        survives = found["rounded"].astype(bool) if rounded else None
        return Verdict(found["pred"], found["correct"].astype(bool), found["margin"], found["distance"], survives)


class RemoteKeyedExecutor:
    """Has attacks that compute with the key run where it is, one after the other."""

    name = "inside"  # as stored since the first version
    shares_files = True

    def __init__(self, vault: VaultProcess, say: Say) -> None:
        self._vault, self._say = vault, say

    def run(self, take: TakeTask, progress: ReportProgress) -> Iterator[Outcome | None]:
        """As `Executor.run`."""
        while (task := take()) is not None:
            began = time.monotonic()
            try:
                for frame in self._vault.attack(task, self._say):
                    if frame.document["kind"] == "work":
                        progress(task.index, int(frame.document["amount"]))
                        yield None
                message = decoded(Frame({**frame.document, "kind": "finished"}, frame.arrays), task.batch.images.shape)
                assert isinstance(message, TaskFinished)
                yield Outcome(task.index, message.attacked, time.monotonic() - began, None)
            except (BenchError, Malformed) as error:
                yield Outcome(task.index, None, 0.0, str(error), str(error.__cause__ or ""))

    def close(self) -> None:
        """There is nothing to end: the vault goes on."""


class _Shown:
    """Notices and progress of the other process, shown in this one."""

    def __init__(self, stack: contextlib.ExitStack, say: Say, track: Track) -> None:
        self._stack, self._say, self._track = stack, say, track
        self._trackers: dict[int, tuple[contextlib.ExitStack, Tracker]] = {}

    def show(self, document: Mapping[str, Any]) -> None:
        match document:
            case {"kind": "say", "text": str(text)}:
                self._say(text)
            case {"kind": "begin", "number": int(number), "what": str(what), "total": float(total) | int(total)}:
                own = self._stack.enter_context(contextlib.ExitStack())
                self._trackers[number] = (own, own.enter_context(self._track(what, total)))
            case {"kind": "at", "number": int(number), "done": float(done) | int(done), "detail": str(detail)}:
                self._trackers[number][1].reach(done, detail)
            case {"kind": "end", "number": int(number)}:
                self._trackers.pop(number)[0].close()
            case _:
                raise Malformed("a message of no known kind")


def _artifact(spec: ClassifierSpec) -> Artifact:
    found = artifacts.find(spec.fingerprint)
    if found is None:
        raise BenchError(f"the classifier of {spec.defence_name} was made, and is not where it should be kept")
    return found


def _error(document: Mapping[str, Any]) -> BenchError:
    kind = ERRORS.get(str(document.get("error")), BenchError)
    error = kind(str(document.get("text")))
    error.__cause__ = RuntimeError(document["detail"]) if document.get("detail") else None
    return error


def _wide(values: np.ndarray) -> np.ndarray:
    """Weights as they may be sent: half precision is widened, which changes no value."""
    return values.astype(np.float32) if values.dtype == np.float16 else values
