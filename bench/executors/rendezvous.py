"""How a process on another machine reaches the driver: it connects back, and both show that they know a one-time token.

The token itself never crosses the connection. Who does not know it learns nothing and is dropped, and however slowly
somebody speaks, nobody else waits for it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hmac
import secrets
import socket
import threading
import time

SECONDS_TO_SHAKE_HANDS = 10.0
SECONDS_TO_REACH = 60.0
STRANGERS = 64  # connections at once that have not shown a token yet
_NONCE = 32


@dataclasses.dataclass(frozen=True)
class Invitation:
    """Where to connect to, as whom, and with which token; for one process, once."""

    host: str
    port: int
    number: int
    token: bytes = dataclasses.field(repr=False)


class Listener:
    """The driver's door: a port on one address, and a thread that lets in who is expected."""

    def __init__(self, host: str) -> None:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._socket = socket.create_server((host, 0), family=family, backlog=STRANGERS)
        self._host, self._port = host, int(self._socket.getsockname()[1])
        self._expected: dict[int, bytes] = {}
        self._arrived: dict[int, socket.socket] = {}
        self._lock, self._strangers, self._invited = threading.Lock(), threading.Semaphore(STRANGERS), 0
        threading.Thread(target=self._accept, daemon=True, name="bench-listener").start()

    def invite(self) -> Invitation:
        """A new token, for one process."""
        token = secrets.token_bytes(32)
        with self._lock:
            self._invited += 1
            self._expected[self._invited] = token
        return Invitation(self._host, self._port, self._invited, token)

    def arrived(self, invitation: Invitation) -> socket.socket | None:
        """The connection of who was invited, once it is there."""
        with self._lock:
            return self._arrived.pop(invitation.number, None)

    def withdraw(self, invitation: Invitation) -> None:
        """Lets who was invited in no more."""
        with self._lock:
            self._expected.pop(invitation.number, None)
            late = self._arrived.pop(invitation.number, None)
        if late is not None:
            late.close()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        for connection in self._arrived.values():
            connection.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                if self._socket.fileno() < 0:
                    return
                time.sleep(0.1)  # too many open files, say
                continue
            if not self._strangers.acquire(blocking=False):
                connection.close()
                continue
            threading.Thread(target=self._welcome, args=(connection,), daemon=True).start()

    def _welcome(self, connection: socket.socket) -> None:
        try:
            number = self._shake_hands(connection)
        except (OSError, ValueError):
            number = None
        finally:
            self._strangers.release()
        if number is None:
            connection.close()
            return
        with self._lock:
            self._arrived[number] = connection

    def _shake_hands(self, connection: socket.socket) -> int | None:
        """Who it is, if it knows its token; a token is good for one connection."""
        deadline = time.monotonic() + SECONDS_TO_SHAKE_HANDS
        mine = secrets.token_bytes(_NONCE)
        connection.settimeout(SECONDS_TO_SHAKE_HANDS)
        connection.sendall(mine)
        number = int.from_bytes(_read(connection, 8, deadline), "big")
        theirs, shown = _read(connection, _NONCE, deadline), _read(connection, 32, deadline)
        with self._lock:
            token = self._expected.get(number)
            if token is None or not hmac.compare_digest(shown, _proof(token, b"worker", mine, theirs)):
                return None
            del self._expected[number]
        connection.sendall(_proof(token, b"driver", theirs, mine))
        _settle(connection)
        return number


def connect(invitation: Invitation) -> socket.socket:
    """Reaches the driver; raises OSError if that cannot be done, or if it is somebody else."""
    give_up = time.monotonic() + SECONDS_TO_REACH
    while True:
        try:
            return _connect_once(invitation)
        except OSError:
            if time.monotonic() > give_up:
                raise
            time.sleep(1.0)


def _connect_once(invitation: Invitation) -> socket.socket:
    deadline = time.monotonic() + SECONDS_TO_SHAKE_HANDS
    connection = socket.create_connection((invitation.host, invitation.port), timeout=SECONDS_TO_SHAKE_HANDS)
    try:
        theirs, mine = _read(connection, _NONCE, deadline), secrets.token_bytes(_NONCE)
        proof = _proof(invitation.token, b"worker", theirs, mine)
        connection.sendall(invitation.number.to_bytes(8, "big") + mine + proof)
        if not hmac.compare_digest(_read(connection, 32, deadline), _proof(invitation.token, b"driver", mine, theirs)):
            raise ConnectionRefusedError("somebody else listens there")
        _settle(connection)
        return connection
    except BaseException:
        connection.close()
        raise


def _settle(connection: socket.socket) -> None:
    connection.settimeout(None)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)


def _proof(token: bytes, role: bytes, *nonces: bytes) -> bytes:
    return hmac.digest(token, role + b"".join(nonces), "sha256")


def _read(connection: socket.socket, size: int, deadline: float) -> bytes:
    found = b""
    while len(found) < size:
        connection.settimeout(max(deadline - time.monotonic(), 0.001))
        chunk = connection.recv(size - len(found))
        if not chunk:
            raise ConnectionResetError("closed in the middle of a handshake")
        found += chunk
    return found
