"""A key that is given as found (`--key-guess`) must have been found: by a stored search for this defended model's key."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from sqlalchemy.engine import Engine as Database

from bench import key_checks
from bench.api import UsageError
from bench.evaluation.contest import Contest
from bench.keys import PrivateKey
from bench.spec import Spec
from bench.store import key_searches
from bench.store.database import opened
from bench.store.key_searches import KeySearch


def require_found(guess: PrivateKey, spec: Spec, defences: Sequence[str], key_id: str, db: str) -> None:
    """Refuses a key that no search has found, before anything is written: it may have leaked, and would count as found.

    Its name stands for it in the store, so it is bound to the key here.
    """
    with opened(db) as database:
        for request in defences:
            name, defence = spec.defence(request)
            settings = dataclasses.asdict(defence.settings)
            found = _searches(database, name, guess)
            if defence.keyed and not any(s.key_id == key_id and s.defence_settings == settings for s in found):
                raise UsageError(
                    f"--key-guess: no key search of {request} within the threat model that is stored in this database has "
                    f"found the key '{guess.id}': 'bench keysearch --defence {request}' searches; pgd@key-leaked with "
                    "--outside-threat-model attacks with the private key itself"
                )
    key_checks.confirm(guess)


def require_same_model(guess: PrivateKey, ready: Contest, database: Database) -> None:
    """Refuses a key that was found for another classifier of the same defence."""
    searches = _searches(database, ready.defence_name, guess)
    if ready.defence.keyed and not any(s.weights_sha256 == ready.weights_sha256 for s in searches):
        raise UsageError(f"--key-guess: the key '{guess.id}' was found for another classifier of {ready.defence_name}")


def _searches(database: Database, defence: str, guess: PrivateKey) -> list[KeySearch]:
    """The searches within the threat model that have found this key."""
    inside = (s for s in key_searches.found(database, defence) if s.inside_threat_model)
    return [search for search in inside if guess.reveal() in {found.guess for found in search.found}]
