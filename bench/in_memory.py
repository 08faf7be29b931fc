"""Plug-ins and models that live in this process only, such as a class of a notebook: found by name like installed ones.

Other processes get them with the set-up of a defended model, packed by cloudpickle: what a module has that can be imported
goes by its name, a class of a script or a notebook goes with its code. The private key never does.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import importlib.metadata
import re
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import cloudpickle

from bench import registry
from bench.api import Plugin, UsageError
from bench.entry_points import Entry, Group
from bench.support import code_digest

PACKAGE = "no package, but in memory"
DEFENDERS = ("defences", "networks")
"""Kinds of plug-ins that a defended model is made of."""

IsSecret = Callable[[bytes], bool]


@dataclasses.dataclass(frozen=True)
class InMemory:
    """A plug-in's class that no package registers, and the name it goes by."""

    kind: str
    name: str
    plugin: type[Plugin]
    version: str


@dataclasses.dataclass(frozen=True)
class Factory:
    """Makes a model that lives in this process only. Settings of a network name it as `memory:NAME`."""

    name: str
    make: Callable[[], Any]


class NotHere(UsageError):
    """Something that was in the memory of another process."""


MEMORY = "memory"
"""The module, as it were, that factories in memory are in."""


@dataclasses.dataclass(frozen=True)
class EntryInMemory(Entry[Plugin]):
    """A plug-in that is loaded already."""

    plugin: type[Plugin]

    @property
    def description(self) -> str:
        return (self.plugin.__doc__ or "").strip().split("\n")[0]

    def load(self) -> type[Plugin]:
        return self.plugin


@dataclasses.dataclass(frozen=True)
class Requested:
    """A plug-in object as a request: the name to ask for, its settings, and its class if no package registers it."""

    name: str
    settings: Mapping[str, Any]
    brought: InMemory | None = None

    @property
    def text(self) -> str:
        """As one asks for it: name[setting=value,…]."""
        settings = ",".join(f"{name}={_text(value)}" for name, value in self.settings.items())
        return f"{self.name}[{settings}]" if settings else self.name


def requested(kind: str, given: Plugin | type[Plugin]) -> Requested:
    """What an object, or a class with its default settings, asks for."""
    plugin = given if isinstance(given, type) else type(given)
    group = registry.GROUPS[kind]
    if not issubclass(plugin, group.bases):
        raise UsageError(f"{plugin.__name__} is no {_or(group)} of bench.api: derive it from one")
    made = given() if isinstance(given, type) else given
    settings = {field.name: getattr(made.settings, field.name) for field in dataclasses.fields(made.settings)}
    registered = _registered(kind, plugin)
    name = registered or _name_of(kind, plugin)
    _check_settings(plugin, name, made, settings)
    brought = (
        None if registered else InMemory(kind, name, plugin, f"{plugin.version}+{code_digest.of_class(plugin)[:12]}")
    )
    found = Requested(name, settings, brought)
    try:
        same = registry.settings_of(plugin, name, registry.parse(found.text)[1]) == made.settings
    except UsageError:
        same = False
    if not same:
        raise UsageError(
            f"{plugin.__name__}: its settings ({found.text}) cannot be stored: give them types int, float, bool, str, "
            "Literal or tuples of these, and text without brackets and commas"
        )
    return found


def _registered(kind: str, plugin: type[Plugin]) -> str | None:
    """The name that a package registers this very class under."""
    place = f"{plugin.__module__}:{plugin.__qualname__}"
    return next((name for name, entry in registry.entries(kind).items() if entry.entry_point.value == place), None)


def _name_of(kind: str, plugin: type[Plugin]) -> str:
    """The class's own name in small letters, with hyphens: MyDefence is my-defence."""
    words = re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+", plugin.__name__)
    name = "-".join(words).lower()
    if not name or name in registry.entries(kind):
        singular = registry.GROUPS[kind].singular
        raise UsageError(
            f"{plugin.__name__} would be called '{name}', and a {singular} of that name is registered already: "
            "give the class another name"
        )
    return name


def _check_settings(plugin: type[Plugin], name: str, made: Plugin, settings: Mapping[str, Any]) -> None:
    """Refuses an object that another process could not make again from its class and settings."""
    rule = "everything that it is made of belongs into its Settings, a frozen dataclass (bench.api.Plugin)"
    try:
        again = plugin(made.settings)
    except Exception as error:
        raise UsageError(f"{plugin.__name__} cannot be made from its settings alone ({error}): {rule}") from error
    differ = [
        attribute
        for attribute, value in vars(made).items()
        if isinstance(value, bool | int | float | str | tuple | None)
        and vars(again).get(attribute, registry) != value  # which equals no value
    ]
    if differ:
        raise UsageError(f"{plugin.__name__} has values besides its settings ({', '.join(differ)}): {rule}")


_packed: dict[str, bytes] = {}
"""What is installed in this process: digest to what it was packed as."""
_factories: dict[str, Factory] = {}


@contextlib.contextmanager
def installed(things: Iterable[InMemory | Factory], secret: IsSecret | None = None) -> Iterator[None]:
    """Has these things found by name, here and in the processes that are given `packed()`, until the block ends.

    `secret` says whether packed bytes have something in them that they must not.
    """
    things = list(things)
    own = _pack(things, secret) if things else b""
    before, factories = dict(_packed), dict(_factories)
    try:
        _put(things, own)
        yield
    finally:
        for one in things:
            if isinstance(one, InMemory):
                registry.remove(one.kind, one.name)
        for kept, now in ((before, _packed), (factories, _factories)):
            now.clear()
            now.update(kept)  # type: ignore[arg-type]


def packed_for_defender(things: Iterable[InMemory | Factory]) -> bytes:
    """What of these things the process with the key needs: what the defended model is made of, and no attack."""
    needed = [one for one in things if isinstance(one, Factory) or one.kind in DEFENDERS]
    return _pack(needed, None) if needed else b""


def packed() -> bytes:
    """What another process needs of what is installed here; empty if there is nothing."""
    return next(reversed(_packed.values()), b"")


def install(given: bytes) -> None:
    """Installs what another process has packed, for as long as this one lives; what is there already is left as it is."""
    if given and _digest(given) not in _packed:
        _put(cloudpickle.loads(given), given)


def factory(name: str) -> Callable[[], Any]:
    """The factory of this name."""
    if name not in _factories:
        raise NotHere(f"{MEMORY}:{name} was in the memory of another process, and is not here: bring it again")
    return _factories[name].make


def _put(things: Iterable[InMemory | Factory], own: bytes) -> None:
    for one in things:
        if isinstance(one, Factory):
            _factories[one.name] = one
            continue
        values = {"__module__": one.plugin.__module__, "__doc__": one.plugin.__doc__, "version": one.version}
        plugin = type(one.plugin.__name__, (one.plugin,), values)
        group = registry.GROUPS[one.kind]
        place = f"{one.plugin.__module__}:{one.plugin.__qualname__}"
        point = importlib.metadata.EntryPoint(one.name, place, f"bench.{group.name}")
        registry.install(one.kind, EntryInMemory(group, one.name, PACKAGE, point, plugin))
    if own:
        _packed[_digest(own)] = own


def _pack(things: list[InMemory | Factory], secret: IsSecret | None) -> bytes:
    names = ", ".join(one.plugin.__name__ if isinstance(one, InMemory) else one.name for one in things)
    for one in things:  # in another process there is no module to look names of types up in
        if isinstance(one, InMemory):
            settings = one.plugin.Settings
            settings.__annotations__ = {**settings.__annotations__, **typing.get_type_hints(settings)}
    try:
        own: bytes = cloudpickle.dumps(things)
    except Exception as error:
        raise UsageError(f"{names}: cannot be sent to the processes that attack ({error})") from error
    if secret is not None and secret(own):
        raise UsageError(
            f"{names}: the private key is among what it refers to (a global, a default, a closure), and attacks would "
            "get it: a transform is given the key as an argument"
        )
    return own


def _digest(packed: bytes) -> str:
    return hashlib.sha256(packed).hexdigest()


def _text(value: Any) -> str:
    return "+".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def _or(group: Group[Plugin]) -> str:
    return " or ".join(base.__name__ for base in group.bases)
