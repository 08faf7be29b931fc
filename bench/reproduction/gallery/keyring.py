"""Which keys the figures may show anything of: the published one and attackers' own, never a user's secret."""

from __future__ import annotations

import dataclasses

from bench.attacker_keys import attacker_key
from bench.keys import PUBLISHED_ID, PUBLISHED_KEY
from bench.vault.base import Vault

OTHERS = 2


@dataclasses.dataclass(frozen=True)
class Key:
    """A key that is no secret, and what it is called. Only the name is ever shown or stored."""

    name: str
    value: int = dataclasses.field(repr=False)


@dataclasses.dataclass(frozen=True)
class Keyring:
    """The key that stands for the private one, some others, and what a caption has to say of them."""

    private: Key
    others: tuple[Key, ...]
    note: str


def is_public(key: Vault | None) -> bool:
    """Whether everybody knows the key anyway: it is the paper's own, which is also what no key means."""
    return key is None or key.published


def keyring(key: Vault | None) -> Keyring:
    """The keys of the figures of a defence under this key."""
    attackers = tuple(Key(f"attacker:{number}", attacker_key(number)) for number in range(1, OTHERS + 2))
    if is_public(key):
        note = "The key is the one that the paper published."
        return Keyring(Key(PUBLISHED_ID, PUBLISHED_KEY), attackers[:OTHERS], note)
    note = "An attacker's key stands in for the private one, which is a secret: a figure would give it away."
    return Keyring(attackers[0], attackers[1:], note)
