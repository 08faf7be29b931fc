"""What the arguments of `bench.evaluate` mean: requests as the command line has them, out of text, objects and arrays."""

from __future__ import annotations

import dataclasses
import inspect
import secrets
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bench import in_memory, keys
from bench.api import Defence, Engine, Strategy, UsageError
from bench.data import datasets
from bench.in_memory import InMemory, Requested
from bench.keys import KeyPlace, PrivateKey
from bench.spec import Spec
from bench.store.redaction import redacted

DefenceArgument = str | Defence | type[Defence]
Attack = Engine | Strategy | type[Engine] | type[Strategy]
AttackArgument = str | Attack | tuple[Engine | type[Engine], str]
"""As on the command line, or an object; an engine with the name of a source is that pair."""


@dataclasses.dataclass(frozen=True)
class Wanted:
    """A defence and attacks on it, as text, and what of it is in memory only."""

    defence: str
    attacks: tuple[str, ...]
    plugins: tuple[InMemory, ...]
    strategies: Mapping[str, Mapping[str, Any]]
    """The settings of strategies that were given as objects."""
    defence_name: str

    def over(self, spec: Spec) -> Spec:
        """A run's settings with those of the strategies over them."""
        if not self.strategies:
            return spec
        own = {**spec.against.get(self.defence_name, {}), **self.strategies}
        return dataclasses.replace(spec, against={**spec.against, self.defence_name: own})


def wanted(defence: DefenceArgument, attacks: AttackArgument | Sequence[AttackArgument]) -> Wanted:
    """What a defence and attacks ask for, each by name or as an object."""
    if defence == "all":
        raise UsageError("defence is 'all'; a result is of one defence: call bench.evaluate once per defence")
    target = Requested(defence, {}) if isinstance(defence, str) else in_memory.requested("defences", defence)
    given = _one_or_more(attacks)
    texts, found, strategies = [], [target], {}
    for one in given:
        text, request = _attack(one)
        texts.append(text)
        found.append(request)
        if request.settings and text == request.name:
            strategies[request.name] = dict(request.settings)
    plugins = {one.brought.name: one.brought for one in found if one.brought is not None}
    name = target.text.partition("[")[0]
    return Wanted(target.text, tuple(texts), tuple(plugins.values()), strategies, name)


def _one_or_more(attacks: Any) -> list[Any]:
    """The attacks, one by one; a pair of an engine and a source is one."""
    is_pair = isinstance(attacks, tuple) and len(attacks) == 2 and isinstance(attacks[0], Engine | type)
    given = list(attacks) if isinstance(attacks, list | tuple) and not is_pair else [attacks]
    if not given:
        raise UsageError("attacks is empty; give an engine, a strategy, a pair such as pgd@nominal, or all")
    return given


def _attack(given: AttackArgument) -> tuple[str, Requested]:
    """An attack as text, and what it asks for."""
    if isinstance(given, str):
        return given, Requested(given, {})
    attack, at, source = (given[0], "@", given[1]) if isinstance(given, tuple) else (given, "", "")
    request = in_memory.requested("attacks", attack)
    plugin = attack if isinstance(attack, type) else type(attack)
    text = request.text if issubclass(plugin, Engine) else request.name
    return f"{text}{at}{source}", request


def several(given: str | Sequence[str]) -> tuple[str, ...]:
    """One text, or several."""
    return (given,) if isinstance(given, str) else tuple(given)


def count(name: str, value: Any) -> Any:
    """A number of things; None stays None."""
    if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
        raise UsageError(f"{name} is {value!r}; it must be an integer of at least 1")
    return value


def kept_images(images: Any, labels: Any, classes: int | Sequence[str] | None, outputs: int | None) -> str:
    """Keeps images and labels as a dataset, and gives its name; `outputs` is how many classes the classifier knows."""
    if images is None or labels is None:
        raise UsageError(f"{'labels' if images is None else 'images'} is given alone: give images and labels")
    pixels, numbers = datasets.as_bytes(images), np.asarray(labels)
    if classes is None:
        classes = outputs or int(numbers.max(initial=0)) + 1 if numbers.dtype.kind in "iu" else 1
    names = [str(number) for number in range(classes)] if isinstance(classes, int) else list(map(str, classes))
    return datasets.keep_images(pixels, numbers, names)


_NAMED: dict[int | None, PrivateKey] = {}
"""The keys that were given as numbers, and under None the one of BENCH_KEY, which leaves the environment when it is read."""


def key_place(key: int | PrivateKey | None, file: str | Path | None) -> KeyPlace:
    """Where the key is that is asked for. BENCH_KEY leaves the environment in any case: workers would inherit it.

    A key file is never read in this process; any other key is in it already.
    """
    if key is not None and file is not None:
        raise UsageError("key and key_file are both given: give one of them")
    found = keys.place(None if file is None else Path(file))
    if found.file is not None:
        return found
    if found.pipe is not None:
        _NAMED[None] = found.read()
    named = _NAMED.get(None, keys.published()) if key is None else _named(key)
    return KeyPlace.of(named)


def _named(key: int | PrivateKey) -> PrivateKey:
    """A key with its name, which is the same for one number as long as this process lives."""
    if isinstance(key, PrivateKey):
        return key
    if not isinstance(key, int) or isinstance(key, bool) or not -(2**63) <= key < 2**63:
        raise UsageError("key is no signed 64-bit integer: give one, a bench.PrivateKey, or the path of a key_file")
    if key == keys.PUBLISHED_KEY:
        return keys.published()
    return _NAMED.setdefault(key, PrivateKey(secrets.token_hex(4), key))


def as_call(function: Callable[..., Any], arguments: Mapping[str, Any]) -> str:
    """A call as it is stored with the run: what differs from the defaults, without the key."""
    defaults = {name: one.default for name, one in inspect.signature(function).parameters.items()}
    shown = {name: value for name, value in arguments.items() if name != "key" and value is not defaults[name]}
    return f"bench.{function.__name__}({', '.join(f'{name}={_shown(value)}' for name, value in shown.items())})"


def _shown(value: Any) -> str:
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_shown, value))}]"
    if isinstance(value, str | Path):
        return repr(redacted(str(value)))
    if isinstance(value, bool | int | float):
        return repr(value)
    return getattr(value, "__name__", type(value).__name__)
