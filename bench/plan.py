"""Which cells a request means, and what of them is still to do. Pure: no store, no models, no clock."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from bench import norms, registry
from bench.api import BenchError, Defence, SourceDescription, Strategy, UsageError
from bench.spec import Spec
from bench.support.fingerprint import fingerprint

ALL, EVERYTHING = "all", "everything"


@dataclasses.dataclass(frozen=True)
class Model:
    """A model that a source is, or one of several that it is made of."""

    source: str
    """The name it has as a source of its own."""
    description: SourceDescription


@dataclasses.dataclass(frozen=True)
class Pair:
    """An engine with its settings, on a source."""

    engine: str
    engine_version: str
    settings: Any  # the engine's settings object
    source: str
    strategy: str
    inside_threat_model: bool
    description: SourceDescription
    """Of the source."""
    models: tuple[Model, ...]
    """What the source computes with: itself, or its members."""
    needs_key: bool = False
    needs_guess: bool = False
    reference: bool = False
    """Whether nobody asked for it by name: the preset compares with it what the threat model allows."""

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
    left_out: frozenset[str] = frozenset()
    """Engines on kinds of sources (`square@nominal`) that `all` does not mean."""


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
    left_out = spec.left_out_of(name)
    choice = Choice(spec.engines, spec.budgets, spec.strategies(name), own_models, guess, outside, left_out)
    found = pairs(attacks, name, defence, choice)
    if not defence.keyed or not {ALL, EVERYTHING} & set(attacks):
        return found
    return [*found, *_references(spec, name, defence, choice, found)]


def _references(spec: Spec, name: str, defence: Defence, choice: Choice, found: Sequence[Pair]) -> list[Pair]:
    """The reference rows of a preset against a keyed defence, without those that were asked for anyway.

    They are computed with the key, and so by built-in attacks alone: there are none in a norm of another package.
    """
    if not all(norms.entries()[norm].built_in for norm in spec.norms):
        return []
    given = pairs(spec.reference, name, defence, dataclasses.replace(choice, outside=True))
    for pair in given:
        if pair.inside_threat_model:
            raise UsageError(
                f"preset {spec.preset}: reference names {pair.name}, which is inside the threat model of {name}; it is for "
                "attacks that are not, such as pgd@key-leaked"
            )
    asked = {(pair.name, fingerprint(pair.settings)) for pair in found}
    return [
        dataclasses.replace(pair, reference=True)
        for pair in given
        if (pair.name, fingerprint(pair.settings)) not in asked
    ]


def reference_notice(found: Sequence[Pair]) -> str | None:
    """What a user is told of the reference rows among some pairs, if there are any."""
    names = [pair.name for pair in found if pair.reference]
    if not names:
        return None
    return f"reference rows, outside the threat model, which count towards nothing: {', '.join(names)}"


def required(spec: Spec, defence_name: str, defence: Defence) -> tuple[str, ...]:
    """The names of the pairs that an evaluation under a run's settings must have: what `all` means, by engine and source."""
    left_out = spec.left_out_of(defence_name)
    choice = Choice(spec.engines, spec.budgets, spec.strategies(defence_name), left_out=left_out)
    return tuple(sorted({pair.name for pair in pairs([ALL], defence_name, defence, choice)}))


def pairs(requests: Sequence[str], defence_name: str, defence: Defence, choice: Choice | None = None) -> list[Pair]:
    """The pairs that `--attack` values mean for a defence: engines, strategies, exact pairs, `all` and `everything`."""
    choice = choice or Choice()
    planner = Planner(defence_name, defence, choice)
    chosen: dict[tuple[str, str, str], Pair] = {}
    for request in requests:
        for combination in planner.meant(request):
            pair = planner.pair(combination)
            chosen.setdefault((pair.engine, fingerprint(pair.settings), pair.source), pair)
    engines = {pair.engine for pair in chosen.values()}
    work = {engine: registry.engine(engine, choice.engines.get(engine, {})).work(1) for engine in engines}
    return sorted(chosen.values(), key=lambda p: (work[p.engine], p.engine, p.source))  # every source early, cheaply


def sources(names: Sequence[str], defence_name: str, defence: Defence, choice: Choice | None = None) -> list[Offer]:
    """The sources of these names, or all that `--attack all` means, without an engine: for models made ahead of time."""
    planner = Planner(defence_name, defence, choice or Choice())
    found = planner.offered if ALL in names else [planner.named(name, f"the source {name}") for name in names]
    return sorted(dict.fromkeys(found), key=lambda offer: offer.source)


@dataclasses.dataclass(frozen=True)
class Offer:
    """A source that a strategy has against the defence."""

    source: str
    strategy: str
    inside_threat_model: bool = True


@dataclasses.dataclass(frozen=True)
class Combination:
    """An engine on an offered source, as a request has it: with the settings that it names itself."""

    engine: str
    settings: Mapping[str, str]
    offer: Offer


class Planner:
    """What requests mean for one defence: the strategies with their settings, and the sources that they offer."""

    def __init__(self, defence_name: str, defence: Defence, choice: Choice) -> None:
        self._name, self._defence, self._choice = defence_name, defence, choice
        self._strategies = {
            name: registry.strategy(name, choice.strategies.get(name, {})) for name in registry.strategy_classes()
        }
        self.offered = self._offers(s for s, strategy in self._strategies.items() if strategy.in_all)
        """What `--attack all` means, but for the engines."""

    def pair(self, combination: Combination) -> Pair:
        """The combination under the run's settings: the engine's own, those for this kind of source, those requested."""
        offer, engine, choice = combination.offer, combination.engine, self._choice
        strategy, plugin = self._strategies[offer.strategy], registry.engine_class(engine)
        description = strategy.describe(offer.source, self._defence)
        budget = choice.budgets.get(description.kind, {}).get(engine, {})
        settings = {**choice.engines.get(engine, {}), **budget, **combination.settings}
        return Pair(
            engine=engine,
            engine_version=plugin.version,
            settings=registry.settings_of(plugin, engine, settings),
            source=offer.source,
            strategy=offer.strategy,
            inside_threat_model=offer.inside_threat_model,
            description=description,
            models=tuple(self._models(offer.source, description, ())),
            needs_key=strategy.needs_key,
            needs_guess=strategy.needs_guess,
        )

    def meant(self, request: str) -> list[Combination]:
        """What one `--attack` value means."""
        left, at, source = request.partition("@")
        if not at and left in (ALL, EVERYTHING):
            return self._everything(beyond=left == EVERYTHING)
        name, settings = registry.parse(left)
        registry.entry("attacks", name)
        if name in self._strategies:
            return self._whole_strategy(request, name)
        if at:
            return [Combination(name, settings, self.named(source, f"{name}@{source}"))]
        if not self.offered:
            raise UsageError(f"no strategy has a source against {self._name}")
        return self._combined([name], self.offered, settings)

    def _combined(
        self, engines: Sequence[str], offers: Sequence[Offer], settings: Mapping[str, str] | None = None
    ) -> list[Combination]:
        """Every engine on every source, but none without gradients on a source that only has other gradients."""
        return [
            Combination(engine, settings or {}, offer)
            for engine in engines
            for offer in offers
            if registry.engine_class(engine).needs_gradient or not self._answers_as(offer)
        ]

    def _answers_as(self, offer: Offer) -> str:
        return self._strategies[offer.strategy].describe(offer.source, self._defence).answers_as

    def _everything(self, beyond: bool) -> list[Combination]:
        if beyond:
            more = self._offers(s for s, strategy in self._strategies.items() if strategy.beyond)
            return self._combined(_engines(beyond=True), [*self.offered, *more])
        for pair in self._choice.left_out:
            engine, _, kind = pair.partition("@")
            registry.entry("attacks", engine)  # an unknown one is refused
            if not kind:
                raise UsageError(
                    f"left_out has '{pair}'; it must be an engine on a kind of source, such as square@nominal"
                )
        found = self._combined(_engines(), self.offered)
        return [one for one in found if f"{one.engine}@{self._kind(one.offer)}" not in self._choice.left_out]

    def _kind(self, offer: Offer) -> str:
        return self._strategies[offer.strategy].describe(offer.source, self._defence).kind

    def _whole_strategy(self, request: str, name: str) -> list[Combination]:
        """Every engine on every source of a strategy; where the sources give no gradient, the engines that need none."""
        if request != name:
            raise UsageError(f"'{request}': {name} is a strategy, it takes neither settings nor a source")
        strategy = self._strategies[name]
        sources = self._sources(strategy)
        if not sources:
            if strategy.sources(self._defence) or strategy.user_models:
                self._must_be_there(name, strategy)
            raise UsageError(f"{name} has no source against {self._name}: {self._applicable()}")
        if strategy.needs_key and not self._choice.outside:
            reason = strategy.refusal(self._defence, sources[0])
            raise UsageError(
                f"{name} is outside the threat model of {self._name}: {reason}; "
                "--outside-threat-model runs it all the same, on rows of their own"
            )
        engines = [e for e in _engines() if strategy.has_gradient or not registry.engine_class(e).needs_gradient]
        offers = [Offer(source, name, inside_threat_model=not strategy.needs_key) for source in sources]
        return self._combined(engines, offers)

    def named(self, source: str, what: str) -> Offer:
        """The source of this name, also one that is not offered unasked; `what` is what a refusal calls the request."""
        for offer in self.offered:
            if offer.source == source:
                return offer
        for name, strategy in self._strategies.items():
            if reason := strategy.refusal(self._defence, source):
                self._must_be_allowed(what, strategy, reason)
                return Offer(source, name, inside_threat_model=False)
        for name, strategy in self._strategies.items():
            if strategy.builds(self._defence, source):
                self._must_be_there(what, strategy)
                return Offer(source, name)
        known = [offer.source for offer in self.offered]
        raise UsageError(
            f"unknown source '{source}' against {self._name}{registry.did_you_mean(source, known)}; {self._applicable()}"
        )

    def _must_be_allowed(self, what: str, strategy: Strategy, reason: str) -> None:
        """Refuses what is outside the threat model, unless the user allows it and it can be run with the private key."""
        if strategy.needs_key and self._choice.outside:
            return
        instead = "--outside-threat-model runs it all the same, on a row of its own"
        if not strategy.needs_key:
            keyed = [s for other in self._strategies.values() if other.needs_key for s in other.sources(self._defence)]
            instead = f"{self._applicable()}; with --outside-threat-model there are {', '.join(keyed) or 'no more'} too"
        raise UsageError(f"{what} is outside the threat model of {self._name}: {reason}; {instead}")

    def _must_be_there(self, what: str, strategy: Strategy) -> None:
        """Refuses a source that is made of something the user did not give."""
        if strategy.needs_guess and not self._choice.guess:
            raise UsageError(f"{what} needs a key to try: give it with --key-guess FILE")
        if strategy.user_models:
            raise UsageError(f"{what}: there is no such model; bring it with --source FILE.keras")

    def _offers(self, strategies: Iterable[str]) -> list[Offer]:
        """What these strategies offer, as far as it is inside the threat model."""
        inside = [(name, self._strategies[name]) for name in strategies if not self._strategies[name].needs_key]
        return [Offer(source, name) for name, strategy in inside for source in self._sources(strategy)]

    def _sources(self, strategy: Strategy) -> list[str]:
        """The sources that a strategy has against the defence, with what the user gave."""
        if strategy.user_models:
            return list(self._choice.own_models)
        if strategy.needs_guess and not self._choice.guess:
            return []
        return list(strategy.sources(self._defence))

    def _models(self, source: str, description: SourceDescription, above: tuple[str, ...]) -> Iterable[Model]:
        """The source itself, or the models of its members; `above` are the sources that it is a member of."""
        if source in above:
            raise BenchError(f"source '{source}' is described as a member of itself")
        if not description.members:
            yield Model(source, description)
        for member in description.members:
            yield from self._models(member, self._described(member, source), (*above, source))

    def _described(self, member: str, source: str) -> SourceDescription:
        for strategy in self._strategies.values():
            if strategy.builds(self._defence, member):
                return strategy.describe(member, self._defence)
        raise BenchError(f"source '{source}' is described as made of '{member}', which no strategy has")

    def _applicable(self) -> str:
        return f"its sources are {', '.join(f'{o.source} ({o.strategy})' for o in self.offered) or 'none'}"


def _engines(beyond: bool = False) -> list[str]:
    """The engines behind `all`, or `everything`; parts of other engines are asked for by name."""
    return [name for name, plugin in registry.engine_classes().items() if plugin.in_all or (beyond and plugin.beyond)]


def example_seeds(seed: int, cell_fingerprint: str, examples: Iterable[int]) -> np.ndarray:
    """All the randomness of each example in a cell, two int32 (N×2): of the example, never of its shard or batch."""
    rows = []
    for index in examples:
        digest = hashlib.sha256(f"{seed}/{cell_fingerprint}/{index}".encode()).digest()
        rows.append(np.frombuffer(digest[:8], np.int32))
    return np.stack(rows)
