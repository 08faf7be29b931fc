"""Every engine of this package with settings small enough for a test."""

from __future__ import annotations

from attacks.engines.apgd import ApgdCe, ApgdDlr, ApgdSettings, ApgdT, ApgdTargetedSettings
from attacks.engines.autoattack import AutoAttack, AutoAttackSettings
from attacks.engines.fab import FabSettings, FabT, FabUntargeted
from attacks.engines.multi_targeted import MultiTargeted, MultiTargetedSettings
from attacks.engines.pgd import Pgd, PgdSettings
from attacks.engines.square import Square, SquareSettings
from bench.api import Engine

ENGINES: dict[str, Engine] = {
    "pgd": Pgd(PgdSettings(steps=12, restarts=2)),
    "pgd-sign": Pgd(PgdSettings(steps=12, restarts=2, rule="sign", loss="ce")),
    "mt": MultiTargeted(MultiTargetedSettings(steps=12, restarts=2, targets=2)),
    "square": Square(SquareSettings(queries=60, restarts=2)),
    "square-on": Square(SquareSettings(queries=60, restarts=2, stop="never")),
    "apgd-ce": ApgdCe(ApgdSettings(steps=15)),
    "apgd-ce-best": ApgdCe(ApgdSettings(steps=15, keep="best-margin")),
    "apgd-dlr": ApgdDlr(ApgdSettings(steps=15, restarts=2)),
    "apgd-t": ApgdT(ApgdTargetedSettings(steps=15, targets=2)),
    "fab-t": FabT(FabSettings(steps=15, targets=2)),
    "fab-t-best": FabT(FabSettings(steps=15, targets=2, keep="best-margin")),
    "fab": FabUntargeted(FabSettings(steps=8, restarts=2)),
    "aa": AutoAttack(AutoAttackSettings(steps=8, queries=30, targets=2)),
    "aa-apart": AutoAttack(AutoAttackSettings(steps=8, queries=30, targets=2, cascade=False)),
}
