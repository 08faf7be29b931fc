"""What to run: a preset with the user's options over it, resolved to plain values that are stored with the run."""

from __future__ import annotations

import dataclasses
import math
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench import norms, registry
from bench.api import Defence, HealthBudget, UsageError
from bench.registry import did_you_mean

PRESETS = Path(__file__).parent / "presets"
SCOPES = ("all", "survivors")


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
    """How classifiers are trained."""
    recipes: Mapping[str, Mapping[str, Any]]
    """What differs from it for a defence (`linac`), a source (`at-linf`), or a kind of source of a defence
    (`surrogate:linac`, `bypass:block-shuffle`); `start` names the classifier it starts from: nominal or defended."""
    engines: Mapping[str, Mapping[str, Any]]
    budgets: Mapping[str, Mapping[str, Mapping[str, Any]]]
    """Engine settings for the sources of a kind (`surrogate`), by engine."""
    defences: Mapping[str, Mapping[str, Any]]
    against: Mapping[str, Mapping[str, Mapping[str, Any]]]
    """Strategy settings against a defence or `all`, by strategy: against.linac.transfer.surrogates."""
    reproduce: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """How much of the paper's tables and figures `bench reproduce` runs: the fields of `reproduction.sizes`."""
    health: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """How much is checked of sources and attacks: the fields of `HealthBudget`, and a table of them by kind of source."""
    gallery: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """How fine the figures of `bench.reproduction.gallery` are."""
    reference: tuple[str, ...] = ()
    """Attacks outside the threat model that `all` adds against keyed defences: what they leave is what a key is worth."""
    scope: str = "all"
    """Which examples an attack is shown: all of them, or the `survivors` of the attacks before it."""
    left_out: Mapping[str, Sequence[str]] = dataclasses.field(default_factory=dict)
    """By defence or `all`: engines on kinds of sources (`square@nominal`) that `all` leaves out and `everything` has."""

    def defence(self, request: str) -> tuple[str, Defence]:
        """The defence that `name[setting=value,…]` asks for, under the run's settings: its name, and the plug-in."""
        name, given = registry.parse(request)
        return name, registry.defence(name, {**self.defences.get(name, {}), **given})

    def strategies(self, defence: str) -> dict[str, dict[str, Any]]:
        """Every strategy's settings against this defence."""
        layers = (self.against.get("all", {}), self.against.get(defence, {}))
        names = {name for layer in layers for name in layer}
        return {name: {k: v for layer in layers for k, v in layer.get(name, {}).items()} for name in sorted(names)}

    def left_out_of(self, defence: str) -> frozenset[str]:
        """The engines on kinds of sources that `all` leaves out against this defence."""
        return frozenset((*self.left_out.get("all", ()), *self.left_out.get(defence, ())))

    def health_of(self, kind: str) -> HealthBudget:
        """How much is checked of a source of this kind, and of the attacks on it."""
        common = {name: value for name, value in self.health.items() if not isinstance(value, Mapping)}
        own = self.health.get(kind, {})
        fields = {**common, **(own if isinstance(own, Mapping) else {})}
        known = [field.name for field in dataclasses.fields(HealthBudget)]
        if odd := [name for name in fields if name not in known]:
            raise UsageError(
                f"preset {self.preset}: health has no field '{odd[0]}'{did_you_mean(odd[0], known)}; it has "
                f"{', '.join(known)}, and a table of them for a kind of source"
            )
        return HealthBudget(**fields)

    def recipes_of(self, roles: Sequence[str] | None, defence: str) -> dict[str, dict[str, Any]]:
        """The recipes of these roles against a defence, and of the undefended network that others start from; None: all."""
        own = {"none", *(roles or ()), *(f"{role}:{defence}" for role in roles or ())}
        return {name: dict(self.recipes[name]) for name in sorted(self.recipes) if roles is None or name in own}

    def recipe(self, *names: str) -> tuple[dict[str, Any], str | None]:
        """What differs from `training` under the first of these names that the preset knows, and what that starts from.

        `bench.models.recipe.of_run` makes a recipe of the two.
        """
        changes = dict(next((self.recipes[name] for name in names if name in self.recipes), {}))
        start = changes.pop("start", None)
        if start not in (None, "nominal", "defended"):
            raise UsageError(f"preset {self.preset}: a recipe starts from '{start}'; give nominal or defended")
        return changes, start


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
    scope: str | None = None,
) -> Spec:
    """The preset with these options over it, checked."""
    values = read_preset(preset)
    known = {field.name for field in dataclasses.fields(Spec)} | {"description"}
    if odd := sorted(values.keys() - known):
        raise UsageError(f"preset {preset} has an unknown field '{odd[0]}'{did_you_mean(odd[0], known)}")
    _check_types(preset, values)
    epsilons = _epsilons(preset, values, norms, epsilon)
    count = values.get("examples", 0) if examples is None else examples
    if count < 1:
        raise UsageError(f"examples is {count}; it must be at least 1")
    spec = Spec(
        preset=Path(preset).stem,
        dataset=dataset or values.get("dataset", "cifar10"),
        examples=count,
        norms=tuple(epsilons),
        epsilon=epsilons,
        seed=values.get("seed", 0) if seed is None else seed,
        training=values.get("training", {}),
        recipes=values.get("recipes", {}),
        engines=values.get("engines", {}),
        budgets=values.get("budgets", {}),
        defences=values.get("defences", {}),
        against=values.get("against", {}),
        reproduce=values.get("reproduce", {}),
        health=values.get("health", {}),
        gallery=values.get("gallery", {}),
        reference=tuple(values.get("reference", ())),
        scope=scope or values.get("scope", "all"),
        left_out=values.get("left_out", {}),
    )
    if spec.scope not in SCOPES:
        given = "scope" if scope is None else "--scope"
        raise UsageError(f"{given} is '{spec.scope}'; it must be {' or '.join(SCOPES)}")
    for kind in ("", *(name for name, value in spec.health.items() if isinstance(value, Mapping))):
        spec.health_of(kind)  # a field that is none is refused
    return spec


_TABLES = {
    "epsilon": 1, "training": 1, "recipes": 2, "engines": 2, "defences": 2, "budgets": 3, "against": 3, "reproduce": 1,
    "gallery": 1, "health": 1,
}  # fmt: skip
"""Fields of a preset that are tables: of values (1), of tables of values (2), of tables of tables of them (3)."""


def _check_types(preset: str, values: Mapping[str, Any]) -> None:
    for name, value in values.items():
        if name == "left_out":
            if isinstance(value, dict) and all(_is_list_of_text(one) for one in value.values()):
                continue
            wanted = 'a table of lists of attacks, such as linac = ["square@nominal"]'
        elif name in _TABLES and not _is_table(value, _TABLES[name]):
            wanted = "a table" + " of tables" * (_TABLES[name] - 1)
        elif name in ("examples", "seed") and (not isinstance(value, int) or isinstance(value, bool)):
            wanted = "a whole number"
        elif name in ("dataset", "description", "scope") and not isinstance(value, str):
            wanted = "text"
        elif name == "reference" and not _is_list_of_text(value):
            wanted = 'a list of attacks, such as ["pgd@key-leaked"]'
        else:
            continue
        raise UsageError(f"preset {preset}: {name} is {str(value)[:60]!r}; it must be {wanted} (docs/presets.md)")


def _is_list_of_text(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(one, str) for one in value)


def _is_table(value: Any, depth: int) -> bool:
    return isinstance(value, dict) and (depth == 1 or all(_is_table(one, depth - 1) for one in value.values()))


def _epsilons(preset: str, values: Mapping[str, Any], asked: tuple[str, ...], epsilon: str | None) -> dict[str, float]:
    """The norms of a run, in its order, and the size of the ball in each: as asked for, else as the preset says."""
    sizes = values.get("epsilon", {})
    chosen = asked or values.get("norms", sorted(sizes, key=norms.place))
    if isinstance(chosen, str) or not chosen or not all(isinstance(norm, str) for norm in chosen):
        raise UsageError(f'preset {preset}: norms is {chosen!r}; it must be a list of norms, such as ["linf", "l2"]')
    for norm in (*chosen, *sizes):
        norms.named(norm)  # an unknown one is refused
    if epsilon is not None and len(chosen) != 1:
        raise UsageError(f"--epsilon belongs to one norm, not to {', '.join(chosen)}: give one --norm with it")
    for norm in chosen:
        if epsilon is None and norm not in sizes:
            raise UsageError(
                f"preset {preset} has no epsilon for norm {norm}: add it to its table [epsilon], or give --epsilon"
            )
    return {norm: parse_epsilon(sizes[norm] if epsilon is None else epsilon) for norm in chosen}


def parse_epsilon(text: str | float) -> float:
    """'8/255' or '0.5' as a number above 0."""
    above, slash, below = str(text).replace(" ", "").partition("/")
    try:
        value = int(above) / int(below) if slash else float(above)
    except (ValueError, ZeroDivisionError, OverflowError):
        value = math.nan
    if not (value > 0 and math.isfinite(value)):
        raise UsageError(f"epsilon is '{text}'; it must be a number above 0, such as 8/255 or 0.5")
    return value
