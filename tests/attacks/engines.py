"""Every engine of this package with settings small enough for a test."""

from __future__ import annotations

from attacks.pgd import Pgd, PgdSettings
from bench.api import Engine

ENGINES: dict[str, Engine] = {
    "pgd": Pgd(PgdSettings(steps=12, restarts=2)),
    "pgd-sign": Pgd(PgdSettings(steps=12, restarts=2, rule="sign", loss="ce")),
}
