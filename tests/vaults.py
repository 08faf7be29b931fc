"""Vaults for tests: in this process, where starting another would only take time."""

from __future__ import annotations

from bench import keys
from bench.vault.here import VaultHere


def published() -> VaultHere:
    """With the key that everybody knows."""
    return VaultHere(keys.published())


def with_key(id: str, value: int) -> VaultHere:
    return VaultHere(keys.PrivateKey(id, value))
