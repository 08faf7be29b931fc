"""A channel between two processes that need not trust each other: frames of a JSON document and plain arrays over a socket.

Nothing that comes in is ever unpickled or run. A frame is a header (a mark, the length of the document, the length of the
arrays), the document, which also says what the arrays are, and their bytes one after the other. Lengths are limited
before anything is read, and a frame is read as it comes: half of one holds up nobody.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import json
import math
import queue
import select
import socket
import struct
import threading
import time
from collections.abc import Mapping
from typing import Any

import numpy as np

DOCUMENT_LIMIT = 2**20
ARRAYS_LIMIT = 2**31
DTYPES = frozenset({"|u1", "<i4", "<i8", "<f4", "<f8"})  # truth values are u1: a byte of 2 is no bool
_HEADER = struct.Struct(">4sIQ")
_MARK = b"bch1"
_CHUNK = 2**20
_AT_ONCE = 4 * _CHUNK  # bytes read of one channel before others have their turn
_MOST_DIMENSIONS = 8

Arrays = Mapping[str, np.ndarray]


class Malformed(Exception):
    """What came in is no frame, or none of the agreed form. Its words are ours, but for names that are cut short."""


class ChannelClosed(Exception):
    """The other end is closed, or its process is gone."""


@dataclasses.dataclass(frozen=True)
class Frame:
    """What one end sends the other: a document, and arrays by name."""

    document: dict[str, Any]
    arrays: dict[str, np.ndarray] = dataclasses.field(default_factory=dict)


class Channel:
    """One end of a connected stream socket. Sending is safe from several threads, receiving is for one."""

    def __init__(self, connection: socket.socket, limit: int = ARRAYS_LIMIT) -> None:
        """`limit` is on the bytes of arrays in one frame that comes in."""
        connection.setblocking(True)
        self._socket, self.limit = connection, limit
        self._incoming = bytearray()
        self._frames: collections.deque[Frame] = collections.deque()
        self._sending = threading.Lock()
        self._outgoing: queue.SimpleQueue[list[memoryview] | None] = queue.SimpleQueue()
        self._writer: threading.Thread | None = None
        self._broken = False
        self._fault: Malformed | None = None

    def fileno(self) -> int:
        """For `multiprocessing.connection.wait` and the like; −1 once it is closed."""
        return self._socket.fileno()

    def send(self, document: Mapping[str, Any], arrays: Arrays | None = None) -> None:
        """Sends a frame, and waits until the other end has taken it."""
        self._write(_packed(document, arrays or {}))

    def send_later(self, document: Mapping[str, Any], arrays: Arrays | None = None) -> None:
        """Sends a frame without ever waiting for the other end, be it stopped or stuck; frames keep their order."""
        if self._broken:
            raise ChannelClosed("the other end is gone")
        self._outgoing.put(_packed(document, arrays or {}))
        if self._writer is None:
            self._writer = threading.Thread(target=self._write_queued, daemon=True, name="bench-channel")
            self._writer.start()

    def receive(self, seconds: float | None = None) -> Frame | None:
        """The next whole frame, or None if there is none within so many seconds (None: however long it takes)."""
        deadline = math.inf if seconds is None else time.monotonic() + seconds
        while not self._frames:
            left = max(deadline - time.monotonic(), 0.0)
            if not self._fault and not _readable(self._socket, None if left == math.inf else left):
                return None
            self._frames.extend(self._read())
            if not self._frames and time.monotonic() >= deadline:  # one who sends a little at a time gets no more time
                return None
        return self._frames.popleft()

    def waiting(self) -> list[Frame]:
        """Every whole frame that is there by now; waits for nothing."""
        frames = [*self._frames]
        self._frames.clear()
        return frames or (self._read() if self._fault or _readable(self._socket, 0) else [])

    def close(self) -> None:
        """Ends both directions at once; what was to be sent later is dropped."""
        self._outgoing.put(None)
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # which wakes a thread that waits to send
        self._socket.close()

    def _read(self) -> list[Frame]:
        """Whole frames of what has come in. An end, or a fault, is told only once every frame before it was given."""
        if self._fault:
            raise self._fault
        read = 0
        while read < _AT_ONCE:
            try:
                chunk = self._socket.recv(_CHUNK, socket.MSG_DONTWAIT)
            except (BlockingIOError, InterruptedError):
                break
            except OSError as error:
                raise ChannelClosed(str(error)) from None
            if not chunk:
                if not read:
                    raise ChannelClosed("the other end is gone")
                break
            self._incoming += chunk
            read += len(chunk)
        return self._parsed()

    def _parsed(self) -> list[Frame]:
        frames: list[Frame] = []
        try:
            while (frame := self._next()) is not None:
                frames.append(frame)
        except Malformed as fault:
            if not frames:
                raise
            self._fault = fault
        return frames

    def _next(self) -> Frame | None:
        """The first frame of what has come in, if it is whole."""
        if len(self._incoming) < _HEADER.size:
            return None
        mark, document, arrays = _HEADER.unpack_from(self._incoming)
        if mark != _MARK:
            raise Malformed("something other than a message")
        if document > DOCUMENT_LIMIT or arrays > self.limit:
            raise Malformed(f"a message of {document + arrays} bytes, where {DOCUMENT_LIMIT + self.limit} are the most")
        stop = _HEADER.size + document + arrays
        if len(self._incoming) < stop:
            return None
        with memoryview(self._incoming) as view:  # arrays get a copy: the buffer goes on to be filled
            head = bytes(view[_HEADER.size : _HEADER.size + document])
            tail = bytearray(view[_HEADER.size + document : stop])
        del self._incoming[:stop]
        return _unpacked(head, tail)

    def _write(self, parts: list[memoryview]) -> None:
        try:
            with self._sending:
                for part in parts:
                    self._socket.sendall(part)
        except OSError as error:
            self._broken = True
            raise ChannelClosed(str(error)) from None

    def _write_queued(self) -> None:
        with contextlib.suppress(ChannelClosed):
            while (parts := self._outgoing.get()) is not None:
                self._write(parts)


def pair() -> tuple[Channel, socket.socket]:
    """This process's end of a new channel, and the socket of the other end, for a child."""
    near, far = socket.socketpair()
    return Channel(near), far


def _packed(document: Mapping[str, Any], arrays: Arrays) -> list[memoryview]:
    described, parts = [], []
    for name, array in arrays.items():
        plain = np.ascontiguousarray(array)
        if plain.dtype.str not in DTYPES:
            raise TypeError(f"{name}: arrays of {plain.dtype} are not sent")
        described.append([name, plain.dtype.str, list(array.shape)])
        parts.append(plain.reshape(-1).view(np.uint8).data)
    text = json.dumps({**document, "arrays": described}, allow_nan=False).encode("ascii")
    if len(text) > DOCUMENT_LIMIT:
        raise ValueError(f"a document of {len(text)} bytes, more than {DOCUMENT_LIMIT}, is not sent")
    header = _HEADER.pack(_MARK, len(text), sum(part.nbytes for part in parts))
    return [memoryview(header + text), *(part for part in parts if part.nbytes)]


def _unpacked(head: bytes, tail: bytearray) -> Frame:
    try:
        document = json.loads(head, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise Malformed(f"a message that is no JSON ({type(error).__name__})") from None
    if not isinstance(document, dict):
        raise Malformed("a message that is no JSON object")
    described, arrays, at = document.pop("arrays", None), dict[str, np.ndarray](), 0
    if not isinstance(described, list):
        raise Malformed("a message that does not say which arrays it has")
    for one in described:
        name, dtype, shape = _description(one)
        stop = at + dtype.itemsize * math.prod(shape)
        if stop > len(tail) or name in arrays:
            raise Malformed("a message whose arrays are not those it declares")
        try:
            arrays[name] = np.frombuffer(tail[at:stop], dtype).reshape(shape)
        except ValueError:  # of no bytes, in a shape beyond any array's
            raise Malformed("a message with an array of no agreed kind") from None
        at = stop
    if at != len(tail):
        raise Malformed("a message whose arrays are not those it declares")
    return Frame(document, arrays)


def _description(one: Any) -> tuple[str, np.dtype[Any], tuple[int, ...]]:
    match one:
        case [str(name), str(dtype), list(shape)] if dtype in DTYPES and len(shape) <= _MOST_DIMENSIONS:
            if all(type(length) is int and 0 <= length <= ARRAYS_LIMIT for length in shape):
                return name, np.dtype(dtype), tuple(shape)
    raise Malformed("a message with an array of no agreed kind")


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


def _readable(connection: socket.socket, seconds: float | None) -> bool:
    """Whether there is something to read, or an end to notice; `select` would not take high file numbers."""
    if connection.fileno() < 0:
        raise ChannelClosed("it is closed")
    poll = select.poll()
    poll.register(connection, select.POLLIN)
    return bool(poll.poll(None if seconds is None else math.ceil(seconds * 1000)))
