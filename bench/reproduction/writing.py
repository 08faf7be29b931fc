"""From a finished run to the files of each table and figure: made from the store, or drawn by the gallery."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path

from bench import registry
from bench.api import BenchError
from bench.keys import PrivateKey
from bench.reproduction import contents, making, pages
from bench.reproduction.differences import differences
from bench.reproduction.making import Made
from bench.reproduction.sizes import sizes, spec_for
from bench.reproduction.stored import Stored
from bench.spec import Spec


@dataclasses.dataclass(frozen=True)
class Writer:
    """Writes into the folder of a site what was asked of the paper, and says why something is missing."""

    spec: Spec
    key: PrivateKey
    stored: Stored
    cells: Mapping[str, str]
    """Cells that failed, as a run names them, and why."""
    folder: Path
    command: str
    may_train: bool
    say: Callable[[str], None]

    def write(self, name: str) -> Path | None:
        """Its page; None if nothing could be drawn, and `stored.failed` says why."""
        try:
            made = self._made(name)
        except BenchError as error:
            self.stored.failed[name] = str(error)
            self.say(f"failed: {name}: {error}")
            return None
        return pages.write(
            self.folder,
            made,
            preset=self.spec.preset,
            examples=self.spec.examples if name in contents.OF_BOARDS else None,
            command=self.command,
            differences=differences(name, self.spec),
            failed=self._failed(name),
        )

    def _made(self, name: str) -> Made:
        if name in contents.STORED:
            return making.make(name, sizes(self.spec), self.stored)
        from bench.reproduction import gallery

        return making.drawn(name, gallery.make(name, spec_for(self.spec, False), self.key, self.may_train, self.say))

    def _failed(self, name: str) -> list[str]:
        """Why something of a table or figure is missing: defences that could not be had, and cells, by reason."""
        needs = contents.needs(name, sizes(self.spec))
        wanted = {need.defence for need in needs} | ({"the key search"} if name in contents.KEY_SEARCH else set())
        found = [f"{what}: {why}" for what, why in self.stored.failed.items() if wanted.intersection(what.split(", "))]
        reasons: dict[str, list[str]] = {}
        for need in needs:
            for norm in self.spec.norms:
                cell = f"{registry.parse(need.defence)[0]} {norm} {need.engine}@{need.source}"
                if cell in self.cells:
                    reasons.setdefault(self.cells[cell], []).append(f"{need.engine}@{need.source}")
        return found + [f"{', '.join(dict.fromkeys(cells))}: {why}" for why, cells in reasons.items()]
