"""Takes over somebody's results: checked, judged again where that is possible, and only then written."""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy.engine import Engine as Database

from bench.evaluation.record_checks import is_inside, needs_guess
from bench.evaluation.rejudging import Elsewhere
from bench.evaluation.stored_board import Findings
from bench.evaluation.verify import verify
from bench.exchange import kept_weights, placing
from bench.exchange.archive import Archive
from bench.exchange.examining import examine
from bench.exchange.layout import TABLES, Rows, Tables, cell_of
from bench.exchange.merging import Arrival, Taken, merge
from bench.store import imports, schema, writer
from bench.store.database import open_database, scratch_database, user_errors, writing
from bench.store.schema import CLEAN
from bench.store.writer import CellKey
from bench.support.fingerprint import of_file
from bench.support.progress import Track, untracked
from bench.vault.base import Vault


@dataclasses.dataclass(frozen=True)
class Imported:
    """What an import did."""

    cells: int
    rows: int
    there_already: int
    unjudged: Mapping[int, str]
    """Boards of the archive that could not be judged here, and why."""
    unjudged_cells: Mapping[CellKey, str]
    """Cells of other boards, by their ids in the archive, without all their images or of an unknown strategy, and why."""


def import_(
    path: Path,
    db: str,
    folder: Path,
    vault: Vault,
    track: Track = untracked,
    factories: frozenset[str] = frozenset(),
) -> Imported:
    """Checks an archive, judges it again where that is possible, and only then writes its results.

    `factories` name code that may be run to build its networks.
    """
    with Archive(path) as archive, tempfile.TemporaryDirectory() as name:
        staged = Path(name)
        tables, rows = examine(archive, staged)
        found = _judged(tables, rows, staged, vault, track, factories)
        if found.problems:
            archive.refuse(
                f"{found.problems[0]}" + (f" (and {len(found.problems) - 1} more)" * (len(found.problems) > 1))
            )
        unplaced = _unplaced(tables)
        judged = frozenset(found.judged - unplaced.keys())
        arrival = Arrival(path.name, of_file(path), tables, rows, staged / "images", judged)
        taken = _taken_over(arrival, db, folder, staged / "artifacts", track)
        there_already = sum(map(len, rows)) - taken.rows
        said = {**unplaced, **found.unjudged_cells}
        return Imported(taken.cells, taken.rows, there_already, found.unjudged, said)


def _judged(
    tables: Tables, rows: Sequence[Rows], staged: Path, vault: Vault, track: Track, factories: frozenset[str]
) -> Findings:
    stage = scratch_database(staged / "stage.db")
    try:
        _fill(stage, tables, rows)
        return verify(stage, staged / "images", vault, track, Elsewhere(staged / "artifacts", factories))
    finally:
        stage.dispose()


def _unplaced(tables: Tables) -> dict[CellKey, str]:
    """Cells that claim to be inside the threat model from a source of which nobody here can tell."""
    rows = {name: {row["id"]: row for row in tables[name]} for name in ("defence", "board", "source")}
    found = {}
    for cell in tables["cell"]:
        board, source = rows["board"][cell["board_id"]], rows["source"][cell["source_id"]]
        defence = rows["defence"][board["defence_id"]]
        if not cell["inside_threat_model"] or source["name"] == CLEAN:
            continue
        if needs_guess(source):
            found[cell_of(cell)] = (
                f"{defence['name']}, source {source['name']}: a key search does not come along, so nobody can tell whether "
                "its key was found or leaked"
            )
        elif is_inside(defence, source) is None:
            found[cell_of(cell)] = (
                f"{defence['name']}, source {source['name']}: its strategy '{cell['strategy']}' is not installed here, so "
                "nobody can tell whether it is inside the threat model"
            )
    return found


def _taken_over(arrival: Arrival, db: str, folder: Path, weights: Path, track: Track) -> Taken:
    """Everything at once, or nothing: rows, files of images and weights."""
    target, total = open_database(db, create=True), sum(map(len, arrival.rows))
    try:
        with user_errors(db), track("taking over results", total) as tracker:
            placing.clean_up(folder, target)
            files = {name: path for own in arrival.image_files.values() for name, _, path in own.values()}
            with placing.staging(folder, files) as placed, kept_weights.keeping(weights, db):
                done = merge(target, arrival, placed)
            kept_weights.release(db, imports.used_weights(target))  # of cells that were there already, say
            for name in done.replaced:
                placing.remove(folder, name)
            tracker.advance(total)
            return done
    finally:
        target.dispose()


def _fill(stage: Database, tables: Tables, rows: Sequence[Rows]) -> None:
    """The archive as a database of its own, as it was where it comes from."""
    with writing(stage) as connection:
        for table in TABLES:
            if tables[table.name]:
                connection.execute(sa.insert(table), tables[table.name])
        for cell, found in zip(tables["cell"], rows, strict=True):
            if found:
                connection.execute(sa.insert(schema.result), [{**writer.ids(cell_of(cell)), **row} for row in found])
