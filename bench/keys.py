"""Private keys: where they come from, and a wrapper that keeps them out of everything that is printed or stored."""

from __future__ import annotations

import os
import secrets
import stat
from pathlib import Path
from typing import NoReturn

from bench.api import UsageError
from bench.support.files import atomic_write

# The key that the paper itself publishes (its appendix A.1): no secret, and called so wherever it is used.
PUBLISHED_KEY = -2314326399425823309
PUBLISHED_ID = "published"


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

    def __repr__(self) -> str:
        return f"PrivateKey(id={self.id})"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a private key is never pickled: it stays in the process that read it")


def load(path: Path | None) -> PrivateKey:
    """The key of a key file, else of BENCH_KEY, else the published one. BENCH_KEY leaves the environment at once."""
    from_environment = os.environ.pop("BENCH_KEY", None)
    if path is not None:
        return _parse(_read(path), f"key file {path}")
    if from_environment is not None:
        return _parse(from_environment, "BENCH_KEY")
    return published()


def published() -> PrivateKey:
    """The paper's own key, with which the models of the zoo were trained."""
    return PrivateKey(PUBLISHED_ID, PUBLISHED_KEY)


def create(path: Path) -> PrivateKey:
    """A new random key in a new file that only its owner can read."""
    if path.exists():
        raise UsageError(f"{path} exists already: a key file is never overwritten")
    key = PrivateKey(secrets.token_hex(4), secrets.randbits(64) - 2**63)
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
    return PrivateKey(id, value)
