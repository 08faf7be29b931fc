"""Which cells a request means, and what of them is still to do. Pure: no store, no models, no clock."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from bench import registry
from bench.api import Defence, Engine, Strategy, UsageError
from bench.fingerprint import fingerprint

ALL = "all"


@dataclasses.dataclass(frozen=True)
class Pair:
    """An engine with its settings, on a source."""

    engine: str
    engine_version: str
    settings: Any  # the engine's settings object
    source: str
    strategy: str
    inside_threat_model: bool

    @property
    def name(self) -> str:
        return f"{self.engine}@{self.source}"


def pairs(
    requests: Sequence[str],
    defence_name: str,
    defence: Defence,
    presets: Mapping[str, Mapping[str, Any]],
    outside_allowed: bool = False,
) -> list[Pair]:
    """The pairs that `--attack` values mean for a defence: engines, strategies, exact pairs and `all`, in that order."""
    strategies = _strategies()
    offered = [(source, name) for name, strategy in strategies.items() for source in strategy.sources(defence)]
    chosen: dict[tuple[str, str, str], Pair] = {}
    for request in requests:
        for engine, settings, source, strategy in _expand(
            request, defence_name, defence, strategies, offered, outside_allowed
        ):
            plugin = registry.entry("attacks", engine).load()
            resolved = registry.settings_of(plugin, engine, {**presets.get(engine, {}), **settings})
            inside = (source, strategy) in offered
            pair = Pair(engine, plugin.version, resolved, source, strategy, inside)
            chosen.setdefault((engine, fingerprint(resolved), source), pair)
    return sorted(chosen.values(), key=lambda p: (p.source, p.engine))


def _strategies() -> dict[str, Strategy]:
    loaded = {name: entry.load() for name, entry in registry.entries("attacks").items()}
    return {name: plugin() for name, plugin in loaded.items() if issubclass(plugin, Strategy)}


def _engines() -> list[str]:
    """The engines behind `all`; parts of other engines are asked for by name."""
    loaded = {name: entry.load() for name, entry in registry.entries("attacks").items()}
    return [name for name, plugin in loaded.items() if issubclass(plugin, Engine) and plugin.in_all]


def _expand(
    request: str,
    defence_name: str,
    defence: Defence,
    strategies: Mapping[str, Strategy],
    offered: Sequence[tuple[str, str]],
    outside_allowed: bool,
) -> Iterable[tuple[str, dict[str, str], str, str]]:
    left, at, source = request.partition("@")
    if left == ALL and not at:
        return [(engine, {}, s, strategy) for engine in _engines() for s, strategy in offered]
    name, settings = registry.parse(left)
    registry.entry("attacks", name)
    if name in strategies:
        if at or settings:
            raise UsageError(f"'{request}': {name} is a strategy, it takes neither settings nor a source")
        own = [s for s, strategy in offered if strategy == name]
        if not own:
            raise UsageError(f"{name} has no source against {defence_name}: {_applicable(defence_name, offered)}")
        return [(engine, {}, s, name) for engine in _engines() for s in own]
    if not at:
        if not offered:
            raise UsageError(f"no strategy has a source against {defence_name}")
        return [(name, settings, s, strategy) for s, strategy in offered]
    for offered_source, strategy in offered:
        if offered_source == source:
            return [(name, settings, source, strategy)]
    for strategy_name, strategy_plugin in strategies.items():
        reason = strategy_plugin.refusal(defence, source)
        if reason and not outside_allowed:
            raise UsageError(
                f"{name}@{source} is outside the threat model of {defence_name}: {reason}; "
                "--outside-threat-model runs it all the same, on a row of its own"
            )
        if reason:
            return [(name, settings, source, strategy_name)]
    known = [s for s, _ in offered]
    raise UsageError(
        f"unknown source '{source}' against {defence_name}{registry.did_you_mean(source, known)}; "
        f"{_applicable(defence_name, offered)}"
    )


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
