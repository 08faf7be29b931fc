"""Packages of somebody else's that register plug-ins: a module, and the metadata that pip would have written."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path


def write(folder: Path, package: str, group: str, name: str, module: str, source: str, target: str) -> None:
    """Puts a package into a folder of the import path: `name` in the entry-point group `bench.GROUP`."""
    write_groups(folder, package, module, source, {group: {name: target}})


def write_groups(folder: Path, package: str, module: str, source: str, groups: Mapping[str, Mapping[str, str]]) -> None:
    """A package with several plug-ins: group to name to class."""
    lines = [f"[bench.{g}]\n" + "".join(f"{n} = {module}:{c}\n" for n, c in own.items()) for g, own in groups.items()]
    info = folder / f"{package.replace('-', '_')}-1.0.dist-info"
    info.mkdir(parents=True)
    (folder / f"{module}.py").write_text(source)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("".join(lines))


def attacks(folder: Path, name: str, source: str, *classes: str) -> str:
    """A package NAME-pack of attacks, each called as its class is in small letters; returns the folder, for PYTHONPATH."""
    write_groups(folder, f"{name}-pack", f"{name}_module", source, {"attacks": {one.lower(): one for one in classes}})
    return str(folder)
