"""From a finished run to the files of each table and figure in the site's folder: page, CSV, LaTeX or SVG, record."""

from __future__ import annotations

import dataclasses
import datetime
import json
from collections.abc import Callable, Mapping
from pathlib import Path

from bench import registry
from bench.api import BenchError
from bench.reproduction import contents, grids, reproduced
from bench.reproduction.differences import differences
from bench.reproduction.reproduced import Reproduced
from bench.reproduction.results import Results
from bench.reproduction.sizes import sizes, spec_for
from bench.spec import Spec
from bench.vault.base import Vault
from leaderboard import paper, rendering
from leaderboard.output import Folder
from leaderboard.reproductions import FOLDER, Record


@dataclasses.dataclass(frozen=True)
class Writer:
    """Writes into the folder of a site what was asked of the paper, and says why something is missing."""

    spec: Spec
    key: Vault
    results: Results
    cells: Mapping[str, str]
    """Cells that failed, as a run names them, and why."""
    folder: Path
    command: str
    may_train: bool
    say: Callable[[str], None]

    def write(self, name: str) -> Path | None:
        """Its page; None if nothing could be drawn, and `results.failed` says why."""
        try:
            item = self._reproduced(name)
        except BenchError as error:
            self.results.failed[name] = str(error)
            self.say(f"failed: {name}: {error}")
            return None
        failed = self._failed(name)
        record = Record(
            preset=self.spec.preset,
            made=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            complete=item.complete and not failed,
            examples=self.spec.examples if name in contents.OF_BOARDS else None,
            command=self.command,
            differences=differences(name, self.spec),
            failed=failed,
        )
        return write_files(self.folder, item, record)

    def _reproduced(self, name: str) -> Reproduced:
        if name in contents.STORED:
            return reproduced.from_results(name, sizes(self.spec), self.results)
        from bench.reproduction import gallery

        figures = gallery.make(name, spec_for(self.spec, False), self.key, self.may_train, self.say)
        return reproduced.from_figures(name, figures)

    def _failed(self, name: str) -> list[str]:
        """Why something of a table or figure is missing: defences that could not be had, and cells, by reason."""
        needs = contents.needs(name, sizes(self.spec))
        wanted = {need.defence for need in needs} | ({"the key search"} if name in contents.KEY_SEARCH else set())
        found = [f"{what}: {why}" for what, why in self.results.failed.items() if wanted.intersection(what.split(", "))]
        reasons: dict[str, list[str]] = {}
        for need in needs:
            for norm in self.spec.norms:
                cell = f"{registry.parse(need.defence)[0]} {norm} {need.engine}@{need.source}"
                if cell in self.cells:
                    reasons.setdefault(self.cells[cell], []).append(f"{need.engine}@{need.source}")
        return found + [f"{', '.join(dict.fromkeys(cells))}: {why}" for why, cells in reasons.items()]


def write_files(folder: Path, item: Reproduced, record: Record) -> Path:
    """The page, CSV and record of a table or figure, LaTeX of a table, SVG of a figure; returns the page."""
    site, place = Folder(folder), f"{FOLDER}/{item.name}"
    label, title = paper.label(item.name), paper.TITLES[item.name]
    comment = f"{label}, {title}; made by bench, preset {record.preset}; in brackets: {paper.CITATION}"
    contents_by_kind = {"csv": item.data.to_csv(index=False), "tex": item.latex(comment), "svg": item.svg()}
    files = {kind: text for kind, text in contents_by_kind.items() if text is not None}
    for kind, text in files.items():
        site.text(f"{place}.{kind}", text)
    site.text(f"{place}.json", json.dumps(dataclasses.asdict(record), indent=1, ensure_ascii=False))
    template = rendering.environment().get_template("reproduced.html")
    page = template.render(
        root="../",
        item=item,
        label=label,
        title=title,
        record=record,
        files=list(files),
        row_titles=grids.TITLES,
    )
    return site.text(f"{place}.html", page)
