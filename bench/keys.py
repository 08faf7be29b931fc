"""Private keys: where they come from, and a wrapper that keeps them out of everything that is printed or stored.

A key that a user gives is read by one process alone, the vault's (`bench.vault`); every other knows the place of the key.
"""

from __future__ import annotations

import dataclasses
import os
import secrets
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

from bench.api import UsageError
from bench.support import environment
from bench.support.files import atomic_write

# The key that the paper itself publishes (its appendix A.1): no secret, and called so wherever it is used.
PUBLISHED_KEY = -2314326399425823309
PUBLISHED_ID = "published"

VARIABLE = "BENCH_KEY"
DESCRIPTOR, NAME = "BENCH_KEY_DESCRIPTOR", "BENCH_KEY_NAME"
"""What stands in the environment in place of the key: a pipe that has it, and what it is called."""
SHORT = 6  # what is written in fewer characters stands in any text, and replacing it would only point at it
HIDDEN = "***"


class PrivateKey:
    """A signed 64-bit key and a random name for it. The name is never derived from the key: a hash could be searched."""

    __slots__ = ("__value", "id")

    def __init__(self, id: str, value: int) -> None:
        self.id = id
        self.__value = value

    def reveal(self) -> int:
        """The key itself: for the referee and for training the defended classifier, and nobody else."""
        return self.__value

    @property
    def published(self) -> bool:
        """Whether it is the paper's own key, whatever it is called here: then it is no secret."""
        return self.__value == PUBLISHED_KEY

    def redacted(self, text: str) -> str:
        """Some text without the key in it, however it may be written there. The published one is no secret."""
        if self.published:
            return text
        for form in sorted(_forms(self.__value), key=len, reverse=True):
            text = text.replace(form, HIDDEN)
        return text

    def stands_in(self, content: bytes) -> bool:
        """Whether the key stands in some bytes; one of few bits stands everywhere, and is no secret."""
        value = self.__value
        if self.published or abs(value) < 2**31:
            return False
        shortest = value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)[: (value.bit_length() + 7) // 8]
        return any(form in content for form in (shortest, str(value).encode()))

    def __repr__(self) -> str:
        return f"PrivateKey(id={self.id})"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a private key is never pickled: it stays in the process that read it")


def _forms(value: int) -> Iterator[str]:
    """How a key, or a half of it, may be written: as a number in several bases, as a float, as bytes."""
    unsigned = value % 2**64
    low, high = unsigned % 2**32, unsigned >> 32
    for number in {value, abs(value), unsigned, low, high, low - 2**32, high - 2**32}:
        digits = f"{abs(number):x}"
        floats = (repr(float(number)), f"{float(number):g}", f"{float(number):e}")
        for form in (
            str(number), f"{number:,}", f"{number:_}", digits, digits.upper(), f"{abs(number):o}", f"{abs(number):b}",
            *floats,
        ):  # fmt: skip
            if len(form) >= SHORT:
                yield form
    for order in ("little", "big"):
        content = unsigned.to_bytes(8, order)
        yield from (repr(content)[2:-1], content.hex(" "), str(list(content))[1:-1])


@dataclasses.dataclass(frozen=True)
class KeyPlace:
    """Where a private key is, for the process that reads it: a file, or a pipe; neither is the published key."""

    file: Path | None = None
    pipe: int | None = None
    """A descriptor that gives the key's text once."""

    @property
    def secret(self) -> bool:
        """Whether there is a key to be kept: without one it is the key that the paper published."""
        return self.file is not None or self.pipe is not None

    @classmethod
    def of(cls, key: PrivateKey) -> KeyPlace:
        """For a key that the caller's own program has."""
        return PUBLISHED if key.id == PUBLISHED_ID and key.published else cls(pipe=_piped(f"{key.id}:{key.reveal()}"))

    def read(self) -> PrivateKey:
        """The key; a pipe gives it once."""
        if self.file is not None:
            return _parse(_read(self.file), f"key file {self.file}")
        if self.pipe is not None:
            with open(self.pipe, "rb") as stream:
                return _parse(stream.read().decode(errors="replace"), VARIABLE)
        return published()


PUBLISHED = KeyPlace()


def place(path: Path | None) -> KeyPlace:
    """Where the key is: in a key file, else in BENCH_KEY, else published. BENCH_KEY leaves the environment in any case."""
    pipe = _from_environment()
    if path is None:
        return KeyPlace(pipe=pipe)
    if pipe is not None:
        os.close(pipe)
    return KeyPlace(path)


def name_in_environment() -> str | None:
    """What the key in the environment is called, for those who need no more; the key itself leaves it, unread."""
    name = os.environ.get(NAME) or os.environ.get(VARIABLE, "").partition(":")[0]
    forget_environment()
    return name or None


def forget_environment() -> None:
    """Takes a key out of the environment, for a command that has no use for it."""
    pipe = _from_environment()
    if pipe is not None:
        os.close(pipe)


def leave_environment() -> None:
    """Starts this program over without the key in its environment, where /proc shows it as long as a process lives.

    The key goes through a pipe, which is read once. Called first thing, before anything is imported that could look.
    """
    text = os.environ.get(VARIABLE)
    if text is None:
        return
    pipe = _piped(text)
    os.set_inheritable(pipe, True)
    others = {name: value for name, value in os.environ.items() if name != VARIABLE}
    given = {DESCRIPTOR: str(pipe), NAME: text.strip().partition(":")[0]}
    os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], {**others, **given})


def _from_environment() -> int | None:
    """The pipe that `leave_environment` left, or one for a key that still stands there."""
    os.environ.pop(NAME, None)
    descriptor, text = os.environ.pop(DESCRIPTOR, None), os.environ.get(VARIABLE)
    if text is not None:
        environment.wipe(VARIABLE)
        return _piped(text)
    if descriptor is None:
        return None
    pipe = int(descriptor)
    os.set_inheritable(pipe, False)
    return pipe


def _piped(text: str) -> int:
    """The end of a pipe from which this text can be read once."""
    reading, writing = os.pipe()
    with open(writing, "wb") as stream:
        stream.write(text.encode()[:4096])
    return reading


def published() -> PrivateKey:
    """The paper's own key, with which the models of the zoo were trained."""
    return PrivateKey(PUBLISHED_ID, PUBLISHED_KEY)


def create(path: Path) -> PrivateKey:
    """A new random key in a new file that only its owner can read."""
    return keep(path, PrivateKey(secrets.token_hex(4), secrets.randbits(64) - 2**63))


def keep(path: Path, key: PrivateKey) -> PrivateKey:
    """Writes a key to a new file that only its owner can read."""
    if path.exists():
        raise UsageError(f"{path} exists already: a key file is never overwritten")
    with atomic_write(path, private=True) as stream:
        stream.write(f"{key.id}:{key.reveal()}\n".encode())
    return key


def _read(path: Path) -> str:
    try:
        mode = path.stat().st_mode
        if mode & (stat.S_IRWXG | stat.S_IRWXO):
            raise UsageError(
                f"key file {path} can be read by others (mode {stat.S_IMODE(mode):o}): run 'chmod 600 {path}'"
            )
        return path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read key file {path}: {getattr(error, 'strerror', None) or 'not text'}") from None


def _parse(text: str, where: str) -> PrivateKey:
    """'ID:INTEGER'. What is wrong is said without repeating the text, which may be the key."""
    id, colon, number = text.strip().partition(":")
    try:
        value = int(number)
    except ValueError:
        value = 2**64
    if not colon or not id.isalnum() or len(id) > 40 or not -(2**63) <= value < 2**63:
        raise UsageError(
            f"{where} must hold NAME:KEY, letters and digits and a signed 64-bit integer ('bench key new' makes one)"
        )
    if id.lower() == PUBLISHED_ID and value != PUBLISHED_KEY:
        raise UsageError(f"{where}: the name '{id}' is reserved for the key that the paper published: choose another")
    return PrivateKey(id, value)
