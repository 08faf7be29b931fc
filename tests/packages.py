"""Packages of somebody else's that register plug-ins: a module, and the metadata that pip would have written."""

from __future__ import annotations

from pathlib import Path


def write(folder: Path, package: str, group: str, name: str, module: str, source: str, target: str) -> None:
    """Puts a package into a folder of the import path: `name` in the entry-point group `bench.GROUP`."""
    _write(folder, package, module, source, f"[bench.{group}]\n{name} = {module}:{target}\n")


def attacks(folder: Path, name: str, source: str, *classes: str) -> str:
    """A package NAME-pack of attacks, each called as its class is in small letters; returns the folder, for PYTHONPATH."""
    lines = [f"{one.lower()} = {name}_module:{one}\n" for one in classes]
    _write(folder, f"{name}-pack", f"{name}_module", source, "[bench.attacks]\n" + "".join(lines))
    return str(folder)


def _write(folder: Path, package: str, module: str, source: str, entry_points: str) -> None:
    info = folder / f"{package.replace('-', '_')}-1.0.dist-info"
    info.mkdir(parents=True)
    (folder / f"{module}.py").write_text(source)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(entry_points)
