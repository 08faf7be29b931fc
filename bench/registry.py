"""Defences, attacks, networks and probes by name: what a request means, and the plug-in of that name with its settings."""

from __future__ import annotations

import dataclasses
import functools
import importlib.metadata
import re
import typing
from typing import Any, TypeVar

from bench import entry_points
from bench.api import Defence, Engine, Network, Plugin, Probe, Strategy, UsageError
from bench.entry_points import Entry, Group
from bench.entry_points import did_you_mean as did_you_mean
from bench.support import devices

P = TypeVar("P", bound=Plugin)

GROUPS: dict[str, Group[Plugin]] = {
    "defences": Group("defences", "defence", (Defence,)),
    "attacks": Group("attacks", "attack", (Engine, Strategy)),
    "probes": Group("probes", "probe", (Probe,)),
    "networks": Group("networks", "network", (Network,)),
}


_installed: dict[str, dict[str, Entry[Plugin]]] = {kind: {} for kind in GROUPS}


@functools.cache
def entries(kind: str) -> dict[str, Entry[Plugin]]:
    """All plug-ins of a kind by name; two of one name are an error."""
    return {**entry_points.entries(GROUPS[kind]), **_installed[kind]}


def install(kind: str, entry: Entry[Plugin]) -> None:
    """Adds a plug-in that no package registers, in this process only (`bench.in_memory`)."""
    _installed[kind][entry.name] = entry
    entries.cache_clear()


def remove(kind: str, name: str) -> None:
    """Takes out what `install` has added, if it is there."""
    _installed[kind].pop(name, None)
    entries.cache_clear()


@dataclasses.dataclass(frozen=True)
class FamilyMember(Entry[Plugin]):
    """A plug-in that a family makes by name, such as `foolbox:LinfPGD`."""

    @property
    def description(self) -> str:
        return (self.load().__doc__ or "").split("\n")[0]

    def load(self) -> type[Plugin]:
        devices.tensorflow()
        member: type[Plugin] = self.entry_point.load()(self.name)
        return member


def entry(kind: str, name: str) -> Entry[Plugin]:
    """The plug-in of this name; 'family:name' asks the family, an entry point of the group bench.families."""
    group = GROUPS[kind]
    family, colon, _ = name.partition(":")
    for point in importlib.metadata.entry_points(group="bench.families") if colon and kind == "attacks" else ():
        if point.name == family:
            return FamilyMember(group, name, entry_points.package_of(point), point)
    known = entries(kind)
    if name not in known:
        raise UsageError(
            f"unknown {group.singular} '{name}'{did_you_mean(name, known)}; 'bench list {kind}' shows them all"
        )
    return known[name]


def parse(text: str) -> tuple[str, dict[str, str]]:
    """'name[setting=value,other=value]' to the name and the settings as text."""
    match = re.fullmatch(r"([^\[\]]+)(?:\[(.*)\])?", text.strip(), re.DOTALL)
    if not match:
        raise UsageError(f"'{text}' is not a name, nor name[setting=value,…]")
    settings = {}
    for part in filter(None, (match[2] or "").split(",")):
        key, equals, value = part.partition("=")
        if not equals:
            raise UsageError(f"'{part}' in '{text}' is not setting=value")
        settings[key.strip()] = value.strip()
    return match[1].strip(), settings


def defence(name: str, settings: typing.Mapping[str, Any]) -> Defence:
    """The defence of this name with these settings."""
    return _create(_loaded("defences", name, Defence), name, settings)


def engine(name: str, settings: typing.Mapping[str, Any]) -> Engine:
    """The engine of this name with these settings."""
    return _create(engine_class(name), name, settings)


def strategy(name: str, settings: typing.Mapping[str, Any]) -> Strategy:
    """The strategy of this name with these settings."""
    return _create(strategy_class(name), name, settings)


def network(name: str, settings: typing.Mapping[str, Any]) -> Network:
    """The network of this name with these settings."""
    return _create(_loaded("networks", name, Network), name, settings)


def engine_class(name: str) -> type[Engine]:
    """The engine of this name, without settings."""
    return _loaded("attacks", name, Engine)


def strategy_class(name: str) -> type[Strategy]:
    """The strategy of this name, without settings."""
    return _loaded("attacks", name, Strategy)


def engine_classes() -> dict[str, type[Engine]]:
    """Every registered engine by name."""
    return _of_class("attacks", Engine)


def strategy_classes() -> dict[str, type[Strategy]]:
    """Every registered strategy by name."""
    return _of_class("attacks", Strategy)


def probes(only_built_in: bool = False) -> dict[str, Probe]:
    """Every registered probe by name, or those that came with the harness."""
    chosen = [name for name, entry in entries("probes").items() if entry.built_in or not only_built_in]
    found = {name: _loaded("probes", name, Probe)() for name in chosen}
    for name, probe in found.items():
        if type(probe).of_source is Probe.of_source and type(probe).of_attack is Probe.of_attack:
            raise UsageError(f"probe {name} checks nothing: it has neither of_source nor of_attack (bench.api.Probe)")
    return found


def _of_class(kind: str, base: type[P]) -> dict[str, type[P]]:
    loaded = {name: entry.load() for name, entry in entries(kind).items()}
    return {name: plugin for name, plugin in loaded.items() if issubclass(plugin, base)}


def _loaded(kind: str, name: str, base: type[P]) -> type[P]:
    plugin = entry(kind, name).load()
    if not issubclass(plugin, base):
        others = [other.__name__.lower() for other in GROUPS[kind].bases if issubclass(plugin, other)]
        raise UsageError(f"{name} is no {base.__name__.lower()}: it is a {' and a '.join(others)}")
    return plugin


def _create(plugin: type[P], name: str, settings: typing.Mapping[str, Any]) -> P:
    """A plug-in with these settings; text is read as the setting's type, and everything wrong is named."""
    return plugin(settings_of(plugin, name, settings))


def settings_of(plugin: type[Plugin], name: str, given: typing.Mapping[str, Any]) -> Any:
    """The plug-in's settings object from a mapping; text values are read as the field's type."""
    hints = typing.get_type_hints(plugin.Settings)
    fields = {field.name: hints[field.name] for field in dataclasses.fields(plugin.Settings)}
    values = {}
    for key, value in given.items():
        if key not in fields:
            has = f"it has {', '.join(fields)}" if fields else "it has none"
            raise UsageError(f"{name} has no setting '{key}'{did_you_mean(key, fields)}; {has}")
        values[key] = _converted(name, key, value, fields[key])
    return plugin.Settings(**values)


def _converted(name: str, key: str, value: Any, wanted: type) -> Any:
    if isinstance(value, str) and wanted is bool and value.lower() in ("true", "false"):
        return value.lower() == "true"
    try:
        if isinstance(value, str) and wanted in (int, float):
            return wanted(value)
    except ValueError:
        pass
    if wanted is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if typing.get_origin(wanted) is typing.Literal:
        return value  # the settings class says which values there are
    if (
        typing.get_origin(wanted) is None
        and isinstance(value, wanted)
        and (wanted is bool or not isinstance(value, bool))
    ):
        return value
    if typing.get_origin(wanted) is tuple and isinstance(value, (list, tuple, str)):
        parts = value.split("+") if isinstance(value, str) else value
        return tuple(_converted(name, key, part, typing.get_args(wanted)[0]) for part in parts)
    raise UsageError(f"{name}: {key} is '{value}'; it must be of type {getattr(wanted, '__name__', wanted)}")
