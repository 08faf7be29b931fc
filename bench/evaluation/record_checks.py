"""What of a stored board can be checked without a model: totals, digests, settings, the threat model and the doubts."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence, Set

from bench import registry
from bench.api import BenchError, flags
from bench.evaluation import doubts
from bench.evaluation.stored_board import Row, StoredBoard
from bench.store import completeness, row_format, schema, shards


def check_records(board: StoredBoard) -> None:
    """Compares what is stored about every cell of a board with its rows, its run and the plug-ins' own words."""
    with board.database.connect() as connection:
        cells = board.cells(connection)
        broken = set(completeness.broken_examples(connection, board.row["id"]).tolist())
        for cell in cells:
            rows, finished = board.rows(connection, cell), board.shards(connection, cell)
            _check_totals(board, cell, rows, broken)
            _check_coverage(board, cell, rows, finished)
            _check_settings(board, cell)
            _check_threat_model(board, cell)
    expected = doubts.found(board.database, board.row["id"])
    for cell in cells:
        words, stored = expected.get((cell["attack_id"], cell["source_id"])), json.loads(cell["doubts_json"])
        if words is not None and flags.NOT_CARRIED_OVER not in stored:
            words.pop(flags.NOT_CARRIED_OVER, None)  # not looked for before schema 0007
        if words is not None and words != stored:
            board.problem(cell, "its doubts were changed (they are not what its flags and rows give)")


def _check_totals(board: StoredBoard, cell: Row, rows: Mapping[int, Row], broken: Set[int]) -> None:
    """What a cell says of its rows; `broken` are the examples that some attack of the threat model has broken."""
    said = (cell["n_correct"], cell["n_done"], cell["gradients"], cell["queries"])
    seen = (
        sum(row["correct"] for row in rows.values()), len(rows),
        sum(row["gradients"] for row in rows.values()), sum(row["queries"] for row in rows.values()),
    )  # fmt: skip
    if said != seen:
        board.problem(
            cell,
            f"the cell says {said[0]} of {said[1]} right, {said[2]} gradients and {said[3]} queries; "
            f"its rows say {seen[0]} of {seen[1]}, {seen[2]} and {seen[3]}",
        )
    total = board.row["n_examples"]
    missing = set(range(total)) - rows.keys()
    if cell["scope"] == schema.SURVIVORS:
        missing -= broken
    # What is not said to be done may have become so thanks to another cell: the next run says so.
    late = cell["scope"] == schema.SURVIVORS and not missing
    if (cell["status"] == "done") != (not missing) and not late:
        status = f"status {cell['status']} with {len(rows)} of {total} rows"
        still = f", {len(missing)} of the others not broken" if cell["scope"] == schema.SURVIVORS else ""
        board.problem(cell, status + still)


def _check_coverage(board: StoredBoard, cell: Row, rows: Mapping[int, Row], finished: Sequence[Row]) -> None:
    """Every row belongs to a finished shard, every shard has its rows, and they are those its digest was made of."""
    covered: set[int] = set()
    for shard in finished:
        own = shards.examples_of(shard)
        covered |= set(own)
        here = [rows[index] for index in own if index in rows]
        for index in own:
            if index not in rows:
                board.problem(cell, f"example {index}: its row is missing")
        if shard["rows_sha256"] and len(here) == len(own) and (reason := _changed(here, shard)):
            board.problem(cell, f"{shards.named(own)}: {reason}")
    for index in sorted(rows.keys() - covered):
        board.problem(cell, f"example {index}: its row belongs to no finished shard")


def _changed(rows: Sequence[Row], shard: Row) -> str | None:
    """What is wrong with the rows of a shard, by its digest."""
    try:
        same = row_format.digest(rows, shard["rows_version"]) == shard["rows_sha256"]
        later = row_format.stray(rows, shard["rows_version"])
    except BenchError as error:
        return str(error)
    if later is not None:
        return f"a row was changed since it was written (rows of version {shard['rows_version']} have no {later})"
    return None if same else "a row was changed since it was written (sha256 differs)"


def _check_settings(board: StoredBoard, cell: Row) -> None:
    """The run's stored settings against what its cells were made with."""
    run = board.tables["run"][cell["run_id"]]
    try:
        spec = json.loads(run["spec_json"])
        seed = json.loads(board.attack(cell)["params_json"]).get("seed", spec["seed"])
        said = {
            "preset": (spec["preset"], run["preset"]),
            "seed": (spec["seed"], seed),
            "examples": (spec["examples"], board.row["n_examples"]),
            "epsilon": (spec["epsilon"][board.row["norm"]], board.row["epsilon"]),
        }
    except (ValueError, KeyError, TypeError, AttributeError):
        board.problem(cell, f"the stored settings of run {run['id']} cannot be read")
        return
    for name, (in_run, in_cell) in said.items():
        if in_run != in_cell:
            board.problem(cell, f"run {run['id']} says {name} {in_run}, the cell was made with {in_cell}")


def _check_threat_model(board: StoredBoard, cell: Row) -> None:
    source = board.source(cell)
    if source["name"] == schema.CLEAN:
        return
    made_of = json.loads(source["params_json"])
    if made_of.get("strategy") != cell["strategy"]:
        board.problem(cell, f"it is counted to strategy {cell['strategy']}, its source is of {made_of.get('strategy')}")
    inside = is_inside(board.defence, source)
    if inside is not None and inside != cell["inside_threat_model"]:
        words = {True: "inside", False: "outside"}
        board.problem(cell, f"stored as {words[not inside]} the threat model; it is {words[inside]}")


def needs_guess(source: Row) -> bool:
    """Whether a source computes with a key that a search must have found."""
    try:
        return registry.strategy_class(json.loads(source["params_json"])["strategy"]).needs_guess
    except (BenchError, KeyError, TypeError):
        return False


def is_inside(defence_row: Row, source: Row) -> bool | None:
    """Whether a source is inside a defence's threat model, by the plug-ins' own words; None if one is not installed here."""
    made_of = json.loads(source["params_json"])
    try:
        defence = registry.defence(defence_row["name"], json.loads(defence_row["params_json"]))
        strategy = registry.strategy(made_of["strategy"], made_of.get("settings", {}))
    except (BenchError, KeyError, TypeError):
        return None
    return not strategy.needs_key and strategy.refusal(defence, source["name"]) is None
