"""Plug-ins by name, over the entry-point groups `bench.defences` and `bench.attacks`; built-ins use them too.

Names and descriptions are read without importing the plug-in: the description is the first line of the class's
docstring, taken from its source text.
"""

from __future__ import annotations

import ast
import dataclasses
import difflib
import functools
import importlib.metadata
import importlib.util
import re
import typing
from typing import Any, TypeVar

from bench.api import BenchError, Defence, Engine, Plugin, Strategy, UsageError
from bench.support import devices

P = TypeVar("P", bound=Plugin)

GROUPS: dict[str, tuple[type[Plugin], ...]] = {"defences": (Defence,), "attacks": (Engine, Strategy)}
_SINGULAR = {"defences": "defence", "attacks": "attack"}


@dataclasses.dataclass(frozen=True)
class Entry:
    """A registered plug-in, not loaded."""

    kind: str
    name: str
    package: str
    entry_point: importlib.metadata.EntryPoint

    @property
    def description(self) -> str:
        return _docstring(self.entry_point.value).split("\n")[0].strip()

    def load(self) -> type[Plugin]:
        """The plug-in's class, checked to be one."""
        singular = _SINGULAR[self.kind]
        devices.tensorflow()  # plug-ins need it, and here it is imported quietly
        try:
            loaded = self.entry_point.load()
        except Exception as error:
            raise BenchError(
                f"{singular} '{self.name}' of package {self.package} cannot be loaded: {error!r}"
            ) from error
        if not (isinstance(loaded, type) and issubclass(loaded, GROUPS[self.kind])):
            wanted = " or ".join(f"bench.api.{base.__name__}" for base in GROUPS[self.kind])
            raise BenchError(f"{singular} '{self.name}' of package {self.package} is no subclass of {wanted}")
        return loaded


@functools.cache
def entries(kind: str) -> dict[str, Entry]:
    """All plug-ins of a kind by name; two of one name are an error."""
    found: dict[str, Entry] = {}
    for point in importlib.metadata.entry_points(group=f"bench.{kind}"):
        entry = Entry(kind, point.name, point.dist.name if point.dist else "unknown", point)
        other = found.setdefault(point.name, entry)
        if (other.package, other.entry_point.value) != (entry.package, entry.entry_point.value):
            raise BenchError(
                f"two {kind} are called '{point.name}': one of package {other.package}, "
                f"one of {entry.package}; uninstall one of them"
            )
    return dict(sorted(found.items()))


@dataclasses.dataclass(frozen=True)
class FamilyMember(Entry):
    """A plug-in that a family makes by name, such as `foolbox:LinfPGD`."""

    @property
    def description(self) -> str:
        return (self.load().__doc__ or "").split("\n")[0]

    def load(self) -> type[Plugin]:
        devices.tensorflow()
        return self.entry_point.load()(self.name)


def entry(kind: str, name: str) -> Entry:
    """The plug-in of this name; 'family:name' asks the family, an entry point of the group bench.families."""
    family, colon, _ = name.partition(":")
    for point in importlib.metadata.entry_points(group="bench.families") if colon and kind == "attacks" else ():
        if point.name == family:
            return FamilyMember(kind, name, point.dist.name if point.dist else "unknown", point)
    known = entries(kind)
    if name not in known:
        raise UsageError(
            f"unknown {_SINGULAR[kind]} '{name}'{did_you_mean(name, known)}; 'bench list {kind}' shows them all"
        )
    return known[name]


def did_you_mean(name: str, known: typing.Iterable[str]) -> str:
    close = difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)
    return f": did you mean '{close[0]}'?" if close else ""


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
    return _create(_loaded("attacks", name, Strategy), name, settings)


def engine_class(name: str) -> type[Engine]:
    """The engine of this name, without settings."""
    return _loaded("attacks", name, Engine)


def engine_classes() -> dict[str, type[Engine]]:
    """Every registered engine by name."""
    return _of_class("attacks", Engine)


def strategy_classes() -> dict[str, type[Strategy]]:
    """Every registered strategy by name."""
    return _of_class("attacks", Strategy)


def _of_class(kind: str, base: type[P]) -> dict[str, type[P]]:
    loaded = {name: entry.load() for name, entry in entries(kind).items()}
    return {name: plugin for name, plugin in loaded.items() if issubclass(plugin, base)}


def _loaded(kind: str, name: str, base: type[P]) -> type[P]:
    plugin = entry(kind, name).load()
    if not issubclass(plugin, base):
        others = [other.__name__.lower() for other in GROUPS[kind] if issubclass(plugin, other)]
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
        return tuple(value.split("+")) if isinstance(value, str) else tuple(value)
    raise UsageError(f"{name}: {key} is '{value}'; it must be of type {getattr(wanted, '__name__', wanted)}")


def _docstring(target: str) -> str:
    """The docstring of 'module:Class', read from the source without running it; its base's where it has none."""
    module, _, name = target.partition(":")
    try:
        spec = importlib.util.find_spec(module)
        source = spec.loader.get_source(module) if spec and spec.loader and hasattr(spec.loader, "get_source") else None
        tree = ast.parse(source or "")
    except (ImportError, SyntaxError, ValueError):
        return "(cannot be read)"
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef) and node.name == name:
            return ast.get_docstring(node) or ""
    return ""
