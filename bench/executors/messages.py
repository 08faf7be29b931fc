"""What a worker tells the driver about the task it is at."""

from __future__ import annotations

import dataclasses

from bench.api import Attacked


@dataclasses.dataclass(frozen=True)
class SourceReady:
    """The task's source is built: the attack begins."""


@dataclasses.dataclass(frozen=True)
class WorkDone:
    """So much work since the last time, in the engine's own unit."""

    amount: int


@dataclasses.dataclass(frozen=True)
class Notice:
    """A line for the user."""

    text: str


@dataclasses.dataclass(frozen=True)
class TaskFinished:
    """The task's result, and how long it took; the worker goes on to its next task."""

    attacked: Attacked
    seconds: float


@dataclasses.dataclass(frozen=True)
class TaskFailed:
    """Why there is no result; the worker goes on to its next task."""

    error: str
    detail: str = ""


@dataclasses.dataclass(frozen=True)
class WorkerLost:
    """The worker is dead; said in its place by the pool."""

    reason: str


@dataclasses.dataclass(frozen=True)
class BrokenReply:
    """What the worker sent is no message; said in its place by the pool. It is ended, and its task is not tried again."""

    reason: str


Message = SourceReady | WorkDone | Notice | TaskFinished | TaskFailed | WorkerLost | BrokenReply
