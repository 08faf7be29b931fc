"""The channel between processes: frames come whole or not at all, nobody waits for half of one, and garbage is named."""

from __future__ import annotations

import json
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays_of

from bench.executors import channel as channels
from bench.executors import rendezvous
from bench.executors.channel import Channel, ChannelClosed, Malformed
from bench.executors.rendezvous import Listener


@pytest.fixture
def ends() -> Iterator[tuple[Channel, Channel]]:
    near, far = channels.pair()
    other = Channel(far)
    yield near, other
    near.close()
    other.close()


def raw(document: object, tail: bytes = b"") -> bytes:
    """A frame as a hostile process might make it."""
    text = document if isinstance(document, bytes) else json.dumps(document).encode()
    return struct.pack(">4sIQ", b"bch1", len(text), len(tail)) + text + tail


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)
ARRAYS = st.sampled_from(sorted(channels.DTYPES)).flatmap(
    lambda dtype: arrays_of.arrays(dtype, arrays_of.array_shapes(min_dims=0, min_side=0, max_side=3))
)


@given(st.dictionaries(st.text().filter(lambda name: name != "arrays"), VALUES), st.dictionaries(st.text(), ARRAYS))
def test_what_is_sent_is_what_comes(document: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
    near, far = channels.pair()
    other = Channel(far)
    near.send_later(document, arrays)
    found = other.receive(10)
    near.close()
    other.close()
    assert found is not None
    assert found.document == document
    assert list(found.arrays) == list(arrays)
    for name, array in arrays.items():
        assert type(found.arrays[name]) is np.ndarray
        assert (found.arrays[name].dtype, found.arrays[name].shape) == (array.dtype, array.shape)
        assert found.arrays[name].tobytes() == array.tobytes()


@given(st.binary(min_size=16, max_size=200) | st.builds(raw, st.binary(max_size=80) | VALUES, st.binary(max_size=20)))
def test_bytes_of_anybody_are_a_frame_or_a_fault(data: bytes) -> None:
    near, far = socket.socketpair()
    channel = Channel(near)
    with far:
        far.sendall(data)
        far.shutdown(socket.SHUT_WR)
        try:
            while True:
                assert channel.receive(5) is not None
        except (Malformed, ChannelClosed):
            pass
    channel.close()


WRONG = {
    "no header": b"GET / HTTP/1.1\r\n\r\n",
    "a document beyond the limit": struct.pack(">4sIQ", b"bch1", 2**20 + 1, 0),
    "arrays beyond the limit": struct.pack(">4sIQ", b"bch1", 2, 2**40),
    "no JSON": raw(b"\xff\xfe"),
    "NaN": raw(b'{"a": NaN, "arrays": []}'),
    "a number of ten thousand digits": raw(b'{"a": ' + b"9" * 10_000 + b', "arrays": []}'),
    "lists in lists": raw(b"[" * 100_000),
    "a list": raw([]),
    "no arrays": raw({}),
    "arrays as text": raw({"arrays": "none"}),
    "an array of objects": raw({"arrays": [["a", "|O", [1]]]}, b"A" * 8),
    "an array of text": raw({"arrays": [["a", "<U1", [1]]]}, b"A" * 4),
    "an array of a negative length": raw({"arrays": [["a", "<f4", [-1]]]}, b"A" * 4),
    "an array of half a length": raw({"arrays": [["a", "<f4", [0.5]]]}, b"A" * 4),
    "an array of true length": raw({"arrays": [["a", "<f4", [True]]]}, b"A" * 4),
    "an array larger than its bytes": raw({"arrays": [["a", "<f4", [2]]]}, b"A" * 4),
    "bytes of no array": raw({"arrays": [["a", "<f4", [1]]]}, b"A" * 8),
    "an array twice": raw({"arrays": [["a", "<f4", [1]], ["a", "<f4", [1]]]}, b"A" * 8),
    "nothing in too large a shape": raw({"arrays": [["a", "<f4", [2**31, 2**31, 2**31, 0]]]}),
    "too many dimensions": raw({"arrays": [["a", "<f4", [1] * 33]]}, b"A" * 4),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_no_frame_is_refused_after_what_came_before_it(name: str) -> None:
    near, far = socket.socketpair()
    channel = Channel(near)
    with far:
        far.sendall(raw({"kind": "ready", "arrays": []}) + WRONG[name])
        first = channel.receive(5)
        assert first is not None
        assert first.document == {"kind": "ready"}
        with pytest.raises(Malformed, match=r"^(a message|something other) "):
            channel.receive(5)
    channel.close()


def test_half_a_frame_holds_up_nobody(ends: tuple[Channel, Channel]) -> None:
    near, far = socket.socketpair()
    channel, frame = Channel(near), raw({"arrays": [["a", "<i4", [2]]]}, struct.pack("<ii", 3, 4))
    with far:
        for at in range(len(frame)):
            assert channel.waiting() == []
            assert channel.receive(0) is None
            far.sendall(frame[at : at + 1])
        (whole,) = channel.waiting()
    assert whole.arrays["a"].tolist() == [3, 4]
    channel.close()


def test_sending_to_one_who_does_not_read_never_waits(ends: tuple[Channel, Channel]) -> None:
    near, far = ends
    large = np.arange(2**20, dtype=np.int64)
    began = time.monotonic()
    for index in range(4):
        near.send_later({"index": index}, {"large": large})
    assert time.monotonic() - began < 5
    for index in range(4):  # and all of it comes once it is read
        found = far.receive(30)
        assert found is not None
        assert found.document == {"index": index}
        assert (found.arrays["large"] == large).all()


def test_closing_ends_the_thread_that_waits_to_send(ends: tuple[Channel, Channel]) -> None:
    near, _ = ends
    near.send_later({}, {"large": np.zeros(2**22)})
    writer = near._writer
    assert writer is not None
    near.close()
    writer.join(10)
    assert not writer.is_alive()


def test_an_end_is_told_after_the_last_frame(ends: tuple[Channel, Channel]) -> None:
    near, far = ends
    far.send({"last": True})
    far.close()
    found = near.receive(5)
    assert found is not None
    assert found.document == {"last": True}
    with pytest.raises(ChannelClosed):
        near.receive(5)


def test_a_limit_on_arrays_is_the_receivers() -> None:
    near, far = channels.pair()
    near.limit = 100
    other = Channel(far)
    other.send_later({}, {"a": np.zeros(13)})
    with pytest.raises(Malformed, match="where 1048676 are the most"):
        near.receive(5)
    near.close()
    other.close()


@pytest.fixture
def listener() -> Iterator[Listener]:
    made = Listener("127.0.0.1")
    yield made
    made.close()


def awaited(found: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        if (value := found()) is not None:
            return value
        time.sleep(0.01)
    raise AssertionError("nobody came")


def test_who_was_invited_gets_in_past_those_who_say_nothing(listener: Listener) -> None:
    invitation = listener.invite()
    silent = [socket.create_connection((invitation.host, invitation.port)) for _ in range(5)]
    with rendezvous.connect(invitation) as there, awaited(lambda: listener.arrived(invitation)) as here:
        Channel(here).send({"said": "hello"})
        found = Channel(there).receive(10)
        assert found is not None
        assert found.document == {"said": "hello"}
    for one in silent:
        one.close()


def test_who_does_not_know_the_token_does_not_get_in(listener: Listener, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rendezvous, "SECONDS_TO_REACH", 0.0)
    invitation = listener.invite()
    with pytest.raises(OSError):
        rendezvous.connect(rendezvous.Invitation(invitation.host, invitation.port, invitation.number, b"\0" * 32))
    with pytest.raises(OSError):
        rendezvous.connect(rendezvous.Invitation(invitation.host, invitation.port, 99, invitation.token))
    assert listener.arrived(invitation) is None
    rendezvous.connect(invitation).close()
    awaited(lambda: listener.arrived(invitation)).close()
    with pytest.raises(OSError):  # a token is good for one connection
        rendezvous.connect(invitation)
    withdrawn = listener.invite()
    listener.withdraw(withdrawn)
    with pytest.raises(OSError):
        rendezvous.connect(withdrawn)


def test_a_worker_does_not_take_orders_from_somebody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rendezvous, "SECONDS_TO_REACH", 0.0)
    with socket.create_server(("127.0.0.1", 0)) as impostor:

        def pretend() -> None:
            connection, _ = impostor.accept()
            with connection:
                connection.sendall(b"n" * 32)
                connection.recv(200)
                connection.sendall(b"p" * 32)

        threading.Thread(target=pretend, daemon=True).start()
        with pytest.raises(ConnectionRefusedError):
            rendezvous.connect(rendezvous.Invitation("127.0.0.1", impostor.getsockname()[1], 1, b"t" * 32))
