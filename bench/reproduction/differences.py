"""What of a reproduction is not as in the paper: every setting that differs from the preset `paper`, by name."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from bench import registry, spec
from bench.reproduction import contents
from bench.reproduction.sizes import sizes, spec_for
from bench.spec import Spec

Difference = tuple[str, str, str]


def differences(name: str, here: Spec) -> list[Difference]:
    """Every setting of a table or figure that is not the paper's: what, here, in the paper."""
    ours, published = _settings(name, here), _settings(name, spec.resolve("paper", norms=here.norms))
    return [
        (what, _text(ours.get(what)), _text(published.get(what)))
        for what in dict.fromkeys([*ours, *published])
        if ours.get(what) != published.get(what)
    ]


def _settings(name: str, run: Spec) -> dict[str, Any]:
    """Everything that a table or figure depends on, by name."""
    size, full = sizes(run), spec_for(run, name in contents.SWEEPS)
    needs = contents.needs(name, size)
    shown = contents.SHUFFLE if name == "figure5" else contents.LINAC
    defences = list(dict.fromkeys(registry.parse(need.defence)[0] for need in needs)) or [shown]
    settings: dict[str, Any] = {"dataset": run.dataset, **_sizes(name, size)}
    if name in contents.OF_BOARDS:
        settings["test images"] = run.examples
    if name == "figure4":
        settings |= _flat("gallery", run.gallery)
    if name not in contents.UNCLASSIFIED:
        settings |= _training(full, defences, [need.source.partition(":")[0] for need in needs])
    for defence in defences:
        plugin = registry.defence(defence, full.defences.get(defence, {}))
        settings |= _flat(defence, dataclasses.asdict(plugin.settings))
    if needs:
        settings |= {"seed": run.seed, **{f"epsilon, {norm}": value for norm, value in run.epsilon.items()}}
    for engine in dict.fromkeys(need.engine for need in needs):
        used = registry.engine(engine, full.engines.get(engine, {}))
        settings |= _flat(engine, dataclasses.asdict(used.settings))
        for kind in dict.fromkeys(need.source.partition(":")[0] for need in needs if need.engine == engine):
            settings |= _flat(f"{engine} on {kind}", full.budgets.get(kind, {}).get(engine, {}))
    return settings


def _training(run: Spec, defences: Sequence[str], kinds: Sequence[str]) -> dict[str, Any]:
    """How the classifiers of these defences and the sources of these kinds are trained."""
    settings = _flat("training", run.training)
    for recipe in dict.fromkeys([*defences, *kinds, *(f"{kind}:{defence}" for kind in kinds for defence in defences)]):
        settings |= _flat(f"training of {recipe}", run.recipes.get(recipe, {}))
    return settings


def _sizes(name: str, size: contents.Sizes) -> dict[str, Any]:
    """The sizes that a table or figure depends on."""
    if name in contents.SWEEPS:
        sweep = contents.SWEEPS[name]
        return {f"values of {sweep.symbol}": getattr(size, sweep.values), "source": size.sweep_source}
    if name in contents.KEY_SEARCH:
        return {"guessed keys": size.guesses}
    fields = {
        "table1": ("engines", "transfer", "surrogates", "reconstructions"),
        "table2": ("engines", "transfer", "surrogates", "reconstructions"),
        "table3": ("engines",),
        "table5": ("engines", "surrogates"),
        "table6": ("engines", "reconstructions"),
        "table7": ("engines", "transfer"),
        "figure3": ("engines", "surrogates", "reconstructions"),
    }.get(name, ())
    return {field: getattr(size, field) for field in fields}


def _flat(name: str, values: Mapping[str, Any]) -> dict[str, Any]:
    return {f"{name}: {key}": value for key, value in values.items()}


def _text(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_text(one)}" for key, one in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value)) or "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:g}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value)
