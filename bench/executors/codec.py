"""Messages of workers as frames of a channel, and back: every field is checked as it is read, by one fixed form per kind.

A worker that breaks these rules has been taken over or damaged: what honest attacks do wrong is found where they run.
"""

from __future__ import annotations

import math
import pickle
from collections.abc import Sequence

import numpy as np

from bench.api import Attacked, BenchError
from bench.executors.base import AttackTask
from bench.executors.channel import Frame, Malformed
from bench.executors.fields import Fields
from bench.executors.messages import Message, Notice, SourceReady, TaskFailed, TaskFinished, WorkDone, WorkerLost
from bench.executors.replies import COLUMNS, checked
from bench.support.text import one_line, several_lines

LONGEST = 10 * 365 * 86400.0  # seconds of a task
ROOM = 2**16  # bytes of a message's arrays beyond the task's own


def encoded(message: Message) -> Frame:
    """The frame of a worker's message."""
    match message:
        case SourceReady():
            return Frame({"kind": "ready"})
        case WorkDone(amount):
            return Frame({"kind": "work", "amount": int(amount)})
        case Notice(text):
            return Frame({"kind": "notice", "text": one_line(text)})
        case TaskFailed(error, detail):
            return Frame({"kind": "failed", "error": one_line(error), "detail": several_lines(detail)})
        case WorkerLost(reason):
            return Frame({"kind": "lost", "reason": one_line(reason)})
        case TaskFinished(attacked, seconds):
            columns = {name: value for name in COLUMNS if (value := getattr(attacked, name)) is not None}
            arrays = {name: np.asarray(value).astype(COLUMNS[name].dtype) for name, value in columns.items()}
            said = {"flags": dict(attacked.flags), "examined": dict(attacked.examined)}
            document = {"kind": "finished", "seconds": float(seconds), **said}
            return Frame(document, {"images": attacked.images, **arrays})
        case _:
            raise TypeError(f"a worker sends no {type(message).__name__}")


def decoded(frame: Frame, shape: Sequence[int] | None) -> Message:
    """The message in a frame from a worker; raises Malformed. Its task, if it has one, is on images of this shape."""
    fields = Fields(frame)
    kind = fields.text("kind")
    if shape is None and kind not in ("notice", "work", "lost"):
        raise Malformed("an answer where it had no task")
    match kind:
        case "ready":
            message: Message = SourceReady()
        case "work":
            message = WorkDone(fields.whole("amount", 0, 2**53))
        case "notice":
            message = Notice(one_line(fields.text("text")))
        case "failed":
            message = TaskFailed(one_line(fields.text("error")), several_lines(fields.text("detail")))
        case "lost":
            message = WorkerLost(one_line(fields.text("reason")))
        case "finished":
            assert shape is not None
            message = TaskFinished(_attacked(fields, tuple(shape)), fields.number("seconds", 0, LONGEST))
        case _:
            raise Malformed(f"a message of the unknown kind {one_line(kind, 40)!r}")
    fields.finish()
    return message


def _attacked(fields: Fields, shape: tuple[int, ...]) -> Attacked:
    images = fields.array("images", "<f4", shape)
    columns = {
        name: fields.array(name, rule.dtype, shape[:1])
        for name, rule in COLUMNS.items()
        if name != "part" or fields.has_array("part")
    }
    if columns["success"].max(initial=0) > 1:
        raise Malformed("success that is neither 0 nor 1")
    columns["success"] = columns["success"].astype(bool)
    flags, examined = fields.mapping("flags"), fields.mapping("examined")
    try:
        return checked(Attacked(images, flags=flags, examined=examined, **columns), shape)
    except BenchError as error:
        raise Malformed(f"a result that cannot be ({error})") from None


def room_for(shape: Sequence[int]) -> int:
    """The most bytes of arrays in an answer about images of this shape."""
    return 4 * math.prod(shape) + 64 * shape[0] + ROOM


def task_frame(task: AttackTask) -> Frame:
    """A task for a worker. It is pickled: a worker has no secret, and trusts the driver whose code it runs."""
    return Frame({"kind": "task"}, {"task": np.frombuffer(pickle.dumps(task), np.uint8)})


def task_of(frame: Frame) -> AttackTask:
    """The task in a frame from the driver: to be called in workers alone."""
    task: AttackTask = pickle.loads(frame.arrays["task"].tobytes())
    return task
