"""Runs the same small evaluation in two checkouts, and says whether it gave the same rows, value for value.

python tools/compare_rows.py BEFORE AFTER [--python-before PYTHON] [--python-after PYTHON] [--run 'OPTIONS']

BEFORE and AFTER are the folders of two checkouts, each run by the Python of its own .venv unless another is given, or
databases of such a run that are there already. --run has other options for `bench run` than the three defences of the
smoke preset. Compared are the defences, attacks, sources and boards with their fingerprints, the cells, and every column
of every result; not the times, nor which process did what. Ends with 1 and the first differences if there are any.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from bench.store.database import url_of

RUN = "--defence block-shuffle --defence linac --defence jpeg-23 --attack all --preset smoke"
MOST = 10
"""How many differences are printed."""

THINGS = ("defence", "attack", "source")
NOT_COMPARED = {
    "defence": ("id", "description"),
    "attack": ("id", "about_json"),
    "source": ("id", "about_json"),
    "board": ("id", "defence_id"),
    "cell": ("board_id", "attack_id", "source_id", "run_id", "seconds", "updated", "imported", "scope"),
    "result": ("board_id", "attack_id", "source_id", "example_idx"),
}
"""What may differ: ids, which are replaced by names; words for people; and when, how fast and by whom it was done."""

Key = tuple[Any, ...]
Rows = dict[Key, dict[str, Any]]
"""Rows of a table by what they are about, names and fingerprints in place of ids: of a result (defence, norm, board,
attack, attack, source, source, example), each name before its fingerprint."""


def snapshot(db: str) -> dict[str, Rows]:
    """Everything of a database that must be the same however, wherever and by which version it was computed."""
    database = sa.create_engine(url_of(db))
    tables = sa.MetaData()
    tables.reflect(database, only=list(NOT_COMPARED))
    with database.connect() as connection:
        rows = {
            name: [dict(row._mapping) for row in connection.execute(sa.select(tables.tables[name]))]
            for name in NOT_COMPARED
        }
    database.dispose()
    names: dict[tuple[str, int], Key] = {
        (table, row["id"]): (row["name"], row["fingerprint"][:12]) for table in THINGS for row in rows[table]
    }
    for row in rows["board"]:
        defence = names["defence", row["defence_id"]][0]
        names["board", row["id"]] = (defence, row["norm"], row["fingerprint"][:12])

    def key(table: str, row: Mapping[str, Any]) -> Key:
        if table in (*THINGS, "board"):
            return names[table, row["id"]]
        cell = tuple(part for one in ("board", "attack", "source") for part in names[one, row[f"{one}_id"]])
        return (*cell, row["example_idx"]) if table == "result" else cell

    return {table: {key(table, row): _compared(table, row) for row in found} for table, found in rows.items()}


def _compared(table: str, row: Mapping[str, Any]) -> dict[str, Any]:
    """The columns of a row that count; of doubts their names, since their meaning is for people."""
    kept = {name: value for name, value in row.items() if name not in NOT_COMPARED[table]}
    if table == "cell":
        kept["doubts_json"] = sorted(json.loads(row["doubts_json"]))
    return kept


def differences(before: Mapping[str, Rows], after: Mapping[str, Rows]) -> Iterator[str]:
    """What is in only one of two snapshots, or has another value: a line each. Columns that are new do not count."""
    for table in NOT_COMPARED:
        old, new = before[table], after[table]
        for key in [*old, *(key for key in new if key not in old)]:
            if key not in old or key not in new:
                yield f"{table} {_line(key)}: only {'before' if key in old else 'after'}"
                continue
            for column, value in old[key].items():
                if column not in new[key]:
                    yield f"{table} {_line(key)}: {column} is {value!r} before, and there is no such column after"
                elif new[key][column] != value:
                    yield f"{table} {_line(key)}: {column} is {value!r} before, {new[key][column]!r} after"


def _line(key: Key) -> str:
    return " ".join(map(str, key))


@dataclasses.dataclass(frozen=True)
class Side:
    """One of the two: a checkout with the Python to run it, or a database that is there already."""

    place: str
    python: str | None

    def database(self, folder: Path, options: str) -> str:
        """The database to compare; of a checkout, after a run in it, with a home folder of its own."""
        checkout = Path(self.place)
        if not checkout.is_dir():
            return self.place
        python = self.python or str(checkout.absolute() / ".venv" / "bin" / "python")
        db = str(folder / "bench.db")
        environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "BENCH_KEY")}
        done = subprocess.run(
            [python, "-m", "bench.cli", "run", *shlex.split(options), "--db", db], cwd=checkout, stdout=sys.stderr,
            env={**environment, "BENCH_HOME": str(folder / "home")},
        )  # fmt: skip
        if done.returncode:
            sys.exit(f"the run in {self.place} failed, exit code {done.returncode}")
        return db


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("before")
    parser.add_argument("after")
    parser.add_argument("--python-before")
    parser.add_argument("--python-after")
    parser.add_argument("--run", default=RUN)
    options = parser.parse_args()
    snapshots = []
    for place, python in ((options.before, options.python_before), (options.after, options.python_after)):
        with tempfile.TemporaryDirectory() as folder:
            snapshots.append(snapshot(Side(place, python).database(Path(folder), options.run)))
    before, after = snapshots
    found = list(differences(before, after))
    if found:
        more = f"\n… and {len(found) - MOST} more" if len(found) > MOST else ""
        sys.exit(f"{len(found)} differences:\n" + "\n".join(found[:MOST]) + more)
    counts = ", ".join(f"{len(rows)} {table}s" for table, rows in before.items() if table != "result")
    print(f"the same {len(before['result'])} rows, value for value ({counts})")


if __name__ == "__main__":
    main()
