"""Plug-ins as packages register them, by entry points of the groups `bench.*`; built-ins use them too.

Names and descriptions are read without importing the plug-in: the description is the first line of the class's
docstring, taken from its source text.
"""

from __future__ import annotations

import ast
import dataclasses
import difflib
import importlib.metadata
import importlib.util
from collections.abc import Iterable
from typing import Generic, TypeVar

from bench.errors import BenchError
from bench.support import devices

T = TypeVar("T")


OWN_PACKAGE = "bench-keyed-defences"
"""The package that this harness and its built-in plug-ins are installed as."""


@dataclasses.dataclass(frozen=True)
class Group(Generic[T]):
    """A kind of plug-in: the entry-point group `bench.NAME`, the word for one of them, and what its class must be."""

    name: str
    singular: str
    bases: tuple[type[T], ...]
    light: bool = False
    """Whether its plug-ins are loaded without TensorFlow, which they import on first use if at all."""
    contract: str = "bench.api"
    """The module that plug-ins import the base classes from."""


@dataclasses.dataclass(frozen=True)
class Entry(Generic[T]):
    """A registered plug-in, not loaded."""

    group: Group[T]
    name: str
    package: str
    entry_point: importlib.metadata.EntryPoint

    @property
    def description(self) -> str:
        return _docstring(self.entry_point.value).split("\n")[0].strip()

    @property
    def built_in(self) -> bool:
        """Whether it came with the harness itself."""
        return self.package == OWN_PACKAGE

    def load(self) -> type[T]:
        """The plug-in's class, checked to be one of its group."""
        what = f"{self.group.singular} '{self.name}' of package {self.package}"
        if not self.group.light:
            devices.tensorflow()  # plug-ins need it, and here it is imported quietly
        try:
            loaded = self.entry_point.load()
        except Exception as error:
            raise BenchError(f"{what} cannot be loaded: {error!r}") from error
        if not (isinstance(loaded, type) and issubclass(loaded, self.group.bases)):
            wanted = " or ".join(f"{self.group.contract}.{base.__name__}" for base in self.group.bases)
            raise BenchError(f"{what} is no subclass of {wanted}")
        return loaded


def entries(group: Group[T]) -> dict[str, Entry[T]]:
    """All plug-ins of a group by name; two of one name are an error, and so is none, as every group has built-ins."""
    found: dict[str, Entry[T]] = {}
    for point in importlib.metadata.entry_points(group=f"bench.{group.name}"):
        entry = Entry(group, point.name, package_of(point), point)
        other = found.setdefault(point.name, entry)
        if (other.package, other.entry_point.value) != (entry.package, entry.entry_point.value):
            raise BenchError(
                f"two {group.name} are called '{point.name}': one of package {other.package}, "
                f"one of {entry.package}; uninstall one of them"
            )
    if not found:
        raise BenchError(
            f"no {group.name} are registered: this package is not installed, or was before it had any; "
            "install it again (pip install --editable .)"
        )
    return dict(sorted(found.items()))


def package_of(point: importlib.metadata.EntryPoint) -> str:
    """The name of the package that registers an entry point."""
    return point.dist.name if point.dist else "unknown"


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """': did you mean …?' for the known name that is most like this one; empty if none is."""
    close = difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)
    return f": did you mean '{close[0]}'?" if close else ""


def _docstring(target: str) -> str:
    """The docstring of 'module:Class', read from the source without running it; empty where it has none."""
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
