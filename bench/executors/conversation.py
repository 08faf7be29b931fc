"""The driver's side of the talk with one worker: tasks go out, and what comes back is held to the task it is about."""

from __future__ import annotations

import collections
import contextlib
from collections.abc import Iterator, Sequence

from bench.executors import codec
from bench.executors.base import AttackTask
from bench.executors.channel import Channel, ChannelClosed, Frame, Malformed
from bench.executors.messages import BrokenReply, Message, TaskFailed, TaskFinished


class Conversation:
    """Knows which tasks a worker has, in their order."""

    def __init__(self) -> None:
        self._shapes: collections.deque[Sequence[int]] = collections.deque()

    def send(self, channel: Channel, task: AttackTask) -> None:
        """Sends a task, without waiting for the worker to take it."""
        shape = task.batch.images.shape
        self._shapes.append(shape)
        channel.limit = max(codec.room_for(one) for one in self._shapes)
        frame = codec.task_frame(task)
        with contextlib.suppress(ChannelClosed):  # it is dead, and reading from it will say so
            channel.send_later(frame.document, frame.arrays)

    def messages(self, frames: Sequence[Frame]) -> Iterator[Message]:
        """What the worker says in these frames, up to the first that is no message."""
        for frame in frames:
            try:
                message = codec.decoded(frame, self._shapes[0] if self._shapes else None)
            except Malformed as error:
                yield BrokenReply(str(error))
                return
            if isinstance(message, TaskFinished | TaskFailed):
                self._shapes.popleft()
            yield message
