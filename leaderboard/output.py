"""The folder of the site: writes its files, and takes away those of an earlier build that are not of this one."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd

from bench.support.files import atomic_write

MANIFEST = "site.json"


class Folder:
    """Where a site is being built. Only files that an earlier build listed as its own are ever removed."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._written: dict[str, None] = {}

    def text(self, name: str, text: str) -> Path:
        """A page or a script."""
        return self.data(name, text.encode())

    def data(self, name: str, content: bytes) -> Path:
        """Any file. A site can always be built again, so nobody waits for the disk."""
        self._written[name] = None
        with atomic_write(self.path / name, durable=False) as stream:
            stream.write(content)
        return self.path / name

    def frame(self, name: str, frame: pd.DataFrame) -> None:
        """A table as CSV and as JSON."""
        self.text(f"{name}.csv", frame.to_csv(index=False))
        self.text(f"{name}.json", frame.to_json(orient="records", indent=1, force_ascii=False))

    def copy(self, source: Path, name: str) -> None:
        self.data(name, source.read_bytes())

    def finish(self) -> None:
        """Removes what an earlier build wrote and this one did not, and lists what is here."""
        for name in self._listed() - self._written.keys():
            path = (self.path / name).resolve()
            if path.is_relative_to(self.path.resolve()):
                path.unlink(missing_ok=True)
        with atomic_write(self.path / MANIFEST) as stream:
            stream.write(json.dumps(sorted(self._written), indent=0).encode())

    def _listed(self) -> set[str]:
        try:
            return set(json.loads((self.path / MANIFEST).read_text()))
        except (OSError, ValueError):
            return set()
