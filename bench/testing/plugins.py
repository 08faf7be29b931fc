"""What is asked of every plug-in: a description, a version, and settings that can be written down and read again."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from bench import registry
from bench.api import Plugin, UsageError
from bench.testing.contract import Subject

P = TypeVar("P", bound=Plugin)
NOT_IN_A_REQUEST = ",[]"
"""Text with one of these cannot stand in `name[setting=value,…]`; a preset's table or JSON can hold it."""


def made(plugin: P | type[P] | str, kind: str, make: Callable[[str, Mapping[str, Any]], P]) -> tuple[P, Subject]:
    """An instance of what was given: one already, a class with its default settings, or a request, as `--defence` has it."""
    if isinstance(plugin, str):
        return make(*registry.parse(plugin)), Subject(f"{kind} {plugin}")
    if isinstance(plugin, type):
        subject = Subject(f"{kind} {plugin.__name__}")
        with subject.must("be made without arguments, with its default settings"):
            return plugin(), subject
    return plugin, Subject(f"{kind} {type(plugin).__name__}")


def check_plugin(plugin: Plugin, subject: Subject) -> None:
    """Raises ContractError unless it has a description, a version and sound settings."""
    kind = type(plugin)
    description = (kind.__doc__ or "").strip().split("\n")[0]
    subject.require(bool(description), "has no docstring: its first line must say what it does, for 'bench list'")
    subject.require(
        isinstance(kind.version, str) and kind.version != "",
        f"has version {kind.version!r}: it must be text, such as '1'",
    )
    settings = plugin.settings
    subject.require(
        isinstance(kind.Settings, type) and dataclasses.is_dataclass(kind.Settings) and _frozen(kind.Settings),
        f"has Settings that are no frozen dataclass ({kind.Settings!r}): write @dataclass(frozen=True) above the class",
    )
    subject.require(
        type(settings) is kind.Settings,
        f"has settings of type {type(settings).__name__}: they must be its Settings, {kind.Settings.__name__}",
    )
    _check_round_trips(plugin, subject)


def settings_from(plugin: Plugin, given: Mapping[str, Any]) -> Any:
    """The settings object that the harness makes of a mapping."""
    return registry.settings_of(type(plugin), type(plugin).__name__, given)


def _frozen(settings: Any) -> bool:
    return bool(settings.__dataclass_params__.frozen)


def _check_round_trips(plugin: Plugin, subject: Subject) -> None:
    """Settings are stored as JSON, fingerprinted, sent to workers, and asked for as text: always the same ones."""
    values = dataclasses.asdict(plugin.settings)
    plain = "use numbers, text, booleans and tuples of them, with their types written at the fields"
    try:
        again = settings_from(plugin, json.loads(json.dumps(values)))
    except (TypeError, ValueError, UsageError) as error:
        subject.require(False, f"has settings that do not come back from JSON ({error}): {plain}")
    subject.require(
        again == plugin.settings, f"has settings {plugin.settings} that come back from JSON as {again}: {plain}"
    )
    text = {name: _text(value) for name, value in values.items() if _can_be_asked_for(value)}
    try:
        read = settings_from(plugin, {**values, **text})
    except UsageError as error:
        subject.require(False, f"has settings that cannot be asked for as text ({error}): {plain}")
    subject.require(
        read == plugin.settings, f"has settings {plugin.settings} that come back from text as {read}: {plain}"
    )


def _text(value: Any) -> str:
    return "+".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def _can_be_asked_for(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return bool(value) and all(_can_be_asked_for(part) for part in value)
    return not (isinstance(value, str) and any(mark in value for mark in NOT_IN_A_REQUEST))
