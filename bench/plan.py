"""Which cells a request means, and what of them is still to do. Pure: no store, no models, no clock."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from bench import registry
from bench.api import Defence, Strategy, UsageError
from bench.spec import Spec
from bench.support.fingerprint import fingerprint

ALL, EVERYTHING = "all", "everything"


@dataclasses.dataclass(frozen=True)
class Pair:
    """An engine with its settings, on a source."""

    engine: str
    engine_version: str
    settings: Any  # the engine's settings object
    source: str
    strategy: str
    inside_threat_model: bool
    needs_key: bool = False

    @property
    def name(self) -> str:
        return f"{self.engine}@{self.source}"


@dataclasses.dataclass(frozen=True)
class Choice:
    """What a request is resolved against: a run's engine and strategy settings, and what the user allows or brings."""

    engines: Mapping[str, Mapping[str, Any]] = dataclasses.field(default_factory=dict)
    budgets: Mapping[str, Mapping[str, Mapping[str, Any]]] = dataclasses.field(default_factory=dict)
    strategies: Mapping[str, Mapping[str, Any]] = dataclasses.field(default_factory=dict)
    own_models: Sequence[str] = ()
    """Names of sources the user brings."""
    guess: bool = False
    """Whether the attacker has a key to try."""
    outside: bool = False
    """Whether pairs outside the threat model may run."""


def requested(
    spec: Spec,
    request: str,
    attacks: Sequence[str],
    own_models: Sequence[str] = (),
    guess: bool = False,
    outside: bool = False,
) -> list[Pair]:
    """The pairs that attack requests mean for a requested defence, `name[setting=value,…]`, under a run's settings."""
    name, defence = spec.defence(request)
    choice = Choice(spec.engines, spec.budgets, spec.strategies(name), own_models, guess, outside)
    return pairs(attacks, name, defence, choice)


def pairs(requests: Sequence[str], defence_name: str, defence: Defence, choice: Choice | None = None) -> list[Pair]:
    """The pairs that `--attack` values mean for a defence: engines, strategies, exact pairs, `all` and `everything`."""
    choice = choice or Choice()
    strategies = _strategies(choice.strategies)
    offered = [
        (source, name)
        for name, strategy in strategies.items()
        if strategy.in_all
        for source in strategy.sources(defence)
    ]
    offered += [(source, "own-models") for source in choice.own_models]
    if choice.guess and defence.keyed:
        offered.append(("guessed-key", "guessed-key"))
    chosen: dict[tuple[str, str, str], Pair] = {}
    for request in requests:
        for engine, settings, source, strategy, inside in _expand(
            request, defence_name, defence, strategies, offered, choice
        ):
            plugin = registry.engine_class(engine)
            budget = choice.budgets.get(source.partition(":")[0], {}).get(engine, {})
            resolved = registry.settings_of(plugin, engine, {**choice.engines.get(engine, {}), **budget, **settings})
            pair = Pair(engine, plugin.version, resolved, source, strategy, inside, strategies[strategy].needs_key)
            chosen.setdefault((engine, fingerprint(resolved), source), pair)
    engines = {pair.engine for pair in chosen.values()}
    work = {engine: registry.engine(engine, choice.engines.get(engine, {})).work(1) for engine in engines}
    return sorted(chosen.values(), key=lambda p: (work[p.engine], p.engine, p.source))  # every source early, cheaply


def _strategies(settings: Mapping[str, Mapping[str, Any]]) -> dict[str, Strategy]:
    return {name: registry.strategy(name, settings.get(name, {})) for name in registry.strategy_classes()}


def _engines(beyond: bool = False) -> list[str]:
    """The engines behind `all`, or `everything`; parts of other engines are asked for by name."""
    return [name for name, plugin in registry.engine_classes().items() if plugin.in_all or (beyond and plugin.beyond)]


Expanded = tuple[str, Mapping[str, str], str, str, bool]
"""Engine, its settings, source, strategy, and whether the pair is inside the threat model."""


def _expand(
    request: str,
    defence_name: str,
    defence: Defence,
    strategies: Mapping[str, Strategy],
    offered: Sequence[tuple[str, str]],
    choice: Choice,
) -> Iterable[Expanded]:
    left, at, source = request.partition("@")
    if left == ALL and not at:
        return [(engine, {}, s, strategy, True) for engine in _engines() for s, strategy in offered]
    if left == EVERYTHING and not at:
        more = [
            (s, name) for name, strategy in strategies.items() if strategy.beyond for s in strategy.sources(defence)
        ]
        return [(engine, {}, s, name, True) for engine in _engines(beyond=True) for s, name in (*offered, *more)]
    name, settings = registry.parse(left)
    registry.entry("attacks", name)
    if name in strategies:
        return _whole_strategy(request, defence_name, defence, strategies[name], name, offered, choice)
    if not at:
        if not offered:
            raise UsageError(f"no strategy has a source against {defence_name}")
        return [(name, settings, s, strategy, True) for s, strategy in offered]
    if found := next((strategy for s, strategy in offered if s == source), None):
        return [(name, settings, source, found, True)]
    for strategy_name, strategy in strategies.items():
        reason = strategy.refusal(defence, source)
        if reason and not choice.outside:
            raise UsageError(
                f"{name}@{source} is outside the threat model of {defence_name}: {reason}; "
                "--outside-threat-model runs it all the same, on a row of its own"
            )
        if reason and strategy.needs_key:
            return [(name, settings, source, strategy_name, False)]
        if reason:
            raise UsageError(f"{name}@{source}: {reason}; {name}@key-leaked is that attack, outside the threat model")
    for strategy_name, strategy in strategies.items():
        if strategy.builds(defence, source):
            if strategy_name == "guessed-key" and not choice.guess:
                raise UsageError(f"{name}@{source} needs a key to try: give it with --key-guess FILE")
            if strategy_name == "own-models":
                raise UsageError(f"{name}@{source}: there is no such model; bring it with --source FILE.keras")
            return [(name, settings, source, strategy_name, True)]
    known = [s for s, _ in offered]
    raise UsageError(
        f"unknown source '{source}' against {defence_name}{registry.did_you_mean(source, known)}; "
        f"{_applicable(defence_name, offered)}"
    )


def _whole_strategy(
    request: str,
    defence_name: str,
    defence: Defence,
    strategy: Strategy,
    name: str,
    offered: Sequence[tuple[str, str]],
    choice: Choice,
) -> Iterable[Expanded]:
    """Every engine on every source of a strategy; where the sources give no gradient, the engines that need none."""
    if request != name:
        raise UsageError(f"'{request}': {name} is a strategy, it takes neither settings nor a source")
    own = [s for s, of in offered if of == name] or list(strategy.sources(defence))
    if strategy.needs_key:
        reason = strategy.refusal(defence, name)
        if reason is None:
            raise UsageError(f"{name} has no source against {defence_name}, which has no key")
        if not choice.outside:
            raise UsageError(
                f"{name} is outside the threat model of {defence_name}: {reason}; "
                "--outside-threat-model runs it all the same, on rows of their own"
            )
        own = [name]
    if not own:
        raise UsageError(f"{name} has no source against {defence_name}: {_applicable(defence_name, offered)}")
    engines = [e for e in _engines() if strategy.has_gradient or not registry.engine_class(e).needs_gradient]
    return [(engine, {}, s, name, not strategy.needs_key) for engine in engines for s in own]


def _applicable(defence_name: str, offered: Sequence[tuple[str, str]]) -> str:
    return f"its sources are {', '.join(f'{s} ({strategy})' for s, strategy in offered) or 'none'}"


def shards(n_examples: int, done: Iterable[tuple[int, int]], size: int) -> list[tuple[int, int]]:
    """The example ranges still to do, in order, none longer than `size`."""
    missing = np.ones(n_examples, bool)
    for start, stop in done:
        missing[start:stop] = False
    edges = np.flatnonzero(np.diff(np.concatenate([[False], missing, [False]]).astype(int)))
    gaps = zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True)
    return [(at, min(at + size, stop)) for start, stop in gaps for at in range(start, stop, size)]


def example_seeds(seed: int, cell_fingerprint: str, start: int, stop: int) -> np.ndarray:
    """All the randomness of each example in a cell, two int32 (N×2): of the example, never of its shard or batch."""
    rows = []
    for index in range(start, stop):
        digest = hashlib.sha256(f"{seed}/{cell_fingerprint}/{index}".encode()).digest()
        rows.append(np.frombuffer(digest[:8], np.int32))
    return np.stack(rows)
