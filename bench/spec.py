"""What to run: a preset with the user's options over it, resolved to plain values that are stored with the run."""

from __future__ import annotations

import dataclasses
import math
import tomllib
from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

from bench.api import UsageError
from bench.registry import did_you_mean

NORMS = ("linf", "l2")
PRESETS = Path(__file__).parent / "presets"


@dataclasses.dataclass(frozen=True)
class Spec:
    """A resolved request. Everything that changes a number is here, and in the plug-ins' own settings."""

    preset: str
    dataset: str
    examples: int
    norms: tuple[str, ...]
    epsilon: Mapping[str, float]
    seed: int
    training: Mapping[str, Any]
    warm_training: Mapping[str, Any]
    engines: Mapping[str, Mapping[str, Any]]
    defences: Mapping[str, Mapping[str, Any]]

    def recipe_fields(self, warm: bool) -> dict[str, Any]:
        """The training settings, for a classifier trained from nothing or from the nominal one's weights."""
        changes = {k: v for k, v in self.warm_training.items() if k != "defences"} if warm else {}
        return {**self.training, **changes}

    def starts_warm(self, defence: str) -> bool:
        return defence in self.warm_training.get("defences", ())


def preset_names() -> list[str]:
    return sorted(path.stem for path in PRESETS.glob("*.toml"))


def read_preset(name: str) -> dict[str, Any]:
    """A preset by name, or a TOML file of the user's own by path."""
    path = Path(name) if name.endswith(".toml") else PRESETS / f"{name}.toml"
    try:
        return tomllib.loads(path.read_text())
    except FileNotFoundError:
        known = preset_names()
        raise UsageError(
            f"unknown preset '{name}'{did_you_mean(name, known)}; there are {', '.join(known)}, "
            "or give the path of a .toml file"
        ) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as error:
        raise UsageError(f"preset {name} cannot be read: {error}") from error


def resolve(
    preset: str,
    *,
    dataset: str | None = None,
    examples: int | None = None,
    norms: tuple[str, ...] = (),
    epsilon: str | None = None,
    seed: int | None = None,
) -> Spec:
    """The preset with these options over it, checked."""
    values = read_preset(preset)
    known = {field.name for field in dataclasses.fields(Spec)} | {"description"}
    if odd := sorted(values.keys() - known):
        raise UsageError(f"preset {preset} has an unknown field '{odd[0]}'{did_you_mean(odd[0], known)}")
    chosen = norms or tuple(values.get("norms", NORMS))
    for norm in chosen:
        if norm not in NORMS:
            raise UsageError(f"unknown norm '{norm}'; choose linf or l2")
    if epsilon is not None and len(chosen) != 1:
        raise UsageError("--epsilon belongs to one norm: give --norm linf or --norm l2 with it")
    epsilons = {
        n: parse_epsilon(values.get("epsilon", {}).get(n, "missing") if epsilon is None else epsilon) for n in chosen
    }
    count = int(values.get("examples", 0) if examples is None else examples)
    if count < 1:
        raise UsageError(f"{count} examples make no board; give at least 1")
    return Spec(
        preset=Path(preset).stem,
        dataset=dataset or values.get("dataset", "cifar10"),
        examples=count,
        norms=chosen,
        epsilon=epsilons,
        seed=values.get("seed", 0) if seed is None else seed,
        training=values.get("training", {}),
        warm_training=values.get("warm_training", {}),
        engines=values.get("engines", {}),
        defences=values.get("defences", {}),
    )


def parse_epsilon(text: str | float) -> float:
    """'8/255' or '0.5' as a number above 0."""
    try:
        value = float(Fraction(str(text).replace(" ", "")))
    except (ValueError, ZeroDivisionError, OverflowError):
        value = math.nan
    if not (value > 0 and math.isfinite(value)):
        raise UsageError(f"epsilon is '{text}'; it must be a number above 0, such as 8/255 or 0.5")
    return value
