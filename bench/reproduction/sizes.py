"""How much of the paper's tables and figures a preset runs: its table `[reproduce]`, checked."""

from __future__ import annotations

import dataclasses
from typing import Any

from bench.api import UsageError
from bench.registry import did_you_mean
from bench.reproduction.contents import ENGINES, LINAC, PLAIN, Sizes
from bench.spec import Spec
from leaderboard import paper

RECIPES = "recipes"
SWEEP = f"sweep:{LINAC}"
"""The recipe of the classifiers of a sensitivity figure, if it is not that of LINAC: all of a figure are trained alike."""

_CHOICES = {"engines": ENGINES, "transfer": PLAIN, "sweep_source": PLAIN}


def sizes(spec: Spec) -> Sizes:
    """The preset's sizes; what it does not say is as in the paper. Norms that the paper does not have are refused."""
    for norm in spec.norms:
        if norm not in paper.EPSILONS:
            raise UsageError(f"the paper has nothing in norm {norm}: reproduce in {' or '.join(paper.EPSILONS)}")
    known = {field.name: field.default for field in dataclasses.fields(Sizes)}
    values = {}
    for name, value in spec.reproduce.items():
        if name == RECIPES:
            continue
        if name not in known:
            raise UsageError(
                f"preset {spec.preset}: [reproduce] has no field '{name}'{did_you_mean(name, known)}; "
                f"it has {', '.join(known)} and {RECIPES}"
            )
        values[name] = _checked(spec.preset, name, value, known[name])
    return Sizes(**values)


def _checked(preset: str, name: str, value: Any, default: Any) -> Any:
    where = f"preset {preset}: reproduce.{name} is {value!r}"
    many = isinstance(default, tuple)
    if many != isinstance(value, list):
        raise UsageError(f"{where}; it must be {'a list' if many else 'one value'}")
    for one in value if many else [value]:
        if name in _CHOICES and one not in _CHOICES[name]:
            raise UsageError(f"{where}; choose from {', '.join(_CHOICES[name])}")
        if name not in _CHOICES and (not isinstance(one, int) or isinstance(one, bool) or one < 0):
            raise UsageError(f"{where}; give whole numbers from 0 up")
    if (many and not value and name != "transfer") or (name == "guesses" and value < 1):
        raise UsageError(f"{where}; give at least one")
    return tuple(value) if many else value


def spec_for(spec: Spec, sweep: bool) -> Spec:
    """The run's spec with the recipes that reproductions have of their own; of the points of a sweep, LINAC's is theirs."""
    recipes = {**spec.recipes, **spec.reproduce.get(RECIPES, {})}
    if sweep and SWEEP in recipes:
        recipes[LINAC] = recipes[SWEEP]
    return dataclasses.replace(spec, recipes=recipes)
