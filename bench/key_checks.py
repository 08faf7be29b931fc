"""A key's name belongs to one key: so a board goes on only with the key it was begun with.

The first time that a name is used, a check value of its key is kept in a folder of the user's own, and every later use is
compared with it. The check value is salted and slow to compute, and is in no database, export or page: it could tell a
guesser of a weak key that a guess is right, and a guess should cost as much as possible then.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
from pathlib import Path
from typing import Any

from bench.api import UsageError
from bench.keys import PrivateKey
from bench.support import locks
from bench.support.cache import home
from bench.support.files import atomic_write

COST = {"n": 2**15, "r": 8, "p": 1}  # a tenth of a second and 32 MiB per guess
MEMORY = 2**26


def folder() -> Path:
    """Where check values are: private to the user."""
    return home() / "keys"


def confirm(key: PrivateKey) -> None:
    """Raises UsageError if the name of this key was used with another key before; keeps its check value if it is new."""
    if key.published:
        return  # its name is reserved, and it is no secret
    folder().mkdir(parents=True, exist_ok=True)
    folder().chmod(0o700)
    with locks.alone(folder() / "checks.lock"):
        known = _known()
        if key.id not in known:
            salt = secrets.token_bytes(16)
            known[key.id] = {"salt": salt.hex(), **COST, "check": _check(key, salt, COST).hex()}
            with atomic_write(_path(), private=True) as stream:
                stream.write(json.dumps(known, indent=1).encode())
            return
    try:
        said = known[key.id]
        same = hmac.compare_digest(bytes.fromhex(said["check"]), _check(key, bytes.fromhex(said["salt"]), said))
    except (KeyError, TypeError, ValueError) as error:
        raise UsageError(f"{_path()} cannot be read ({error}): move it away, and names are bound anew") from None
    if not same:
        raise UsageError(
            f"the name '{key.id}' belongs to another key, which results were judged with before: give this key another "
            f"name, or find the key of that name (names are bound to keys in {_path()})"
        )


def _path() -> Path:
    return folder() / "checks.json"


def _known() -> dict[str, Any]:
    try:
        found = json.loads(_path().read_text()) if _path().exists() else {}
    except (OSError, ValueError) as error:
        raise UsageError(f"{_path()} cannot be read ({error}): move it away, and names are bound anew") from None
    if not isinstance(found, dict):
        raise UsageError(f"{_path()} holds no check values: move it away, and names are bound anew")
    return found


def _check(key: PrivateKey, salt: bytes, cost: Any) -> bytes:
    text = str(key.reveal()).encode()
    return hashlib.scrypt(text, salt=salt, n=cost["n"], r=cost["r"], p=cost["p"], maxmem=MEMORY)
