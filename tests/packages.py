"""Packages of somebody else's that register plug-ins: a module, and the metadata that pip would have written."""

from __future__ import annotations

from pathlib import Path


def write(folder: Path, package: str, group: str, name: str, module: str, source: str, target: str) -> None:
    """Puts a package into a folder of the import path: `name` in the entry-point group `bench.GROUP`."""
    (folder / f"{module}.py").write_text(source)
    info = folder / f"{package}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[bench.{group}]\n{name} = {module}:{target}\n")
