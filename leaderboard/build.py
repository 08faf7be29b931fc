"""Builds the static site: pages, and CSV and JSON beside them. Opens from file://, loads nothing from elsewhere."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import jinja2
from sqlalchemy.engine import Engine

from bench.home import written_whole
from bench.stats import wilson
from bench.store import frames, queries
from bench.store.queries import Board

HERE = Path(__file__).parent
NORM_NAMES = {"linf": "L∞", "l2": "L2"}


def build(engine: Engine, folder: Path) -> Path:
    """Writes the site to a folder; returns its first page."""
    boards = queries.boards(engine)
    for name, frame in (("boards", frames.boards_frame(boards)), ("cells", frames.cells_frame(boards))):
        _write(folder / f"{name}.csv", frame.to_csv(index=False))
        _write(folder / f"{name}.json", frame.to_json(orient="records", indent=1, force_ascii=False))
    for path in (HERE / "static").iterdir():
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, folder / path.name)
    page = (
        _environment()
        .get_template("index.html")
        .render(
            groups=_groups(boards),
            boards=boards,
            by_source={board.id: queries.best_by_source(engine, board) for board in boards},
        )
    )
    return _write(folder / "index.html", page)


def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(HERE / "templates"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters |= {"share": share, "interval": interval, "epsilon": epsilon, "settings": settings}
    environment.globals |= {"norm_names": NORM_NAMES, "matrix": matrix}
    return environment


def _groups(boards: list[Board]) -> list[tuple[str, float, list[Board]]]:
    """Boards that may be compared with each other: of one norm and epsilon, ranked."""
    groups: dict[tuple[str, float], list[Board]] = {}
    for board in boards:
        groups.setdefault((board.norm, board.epsilon), []).append(board)
    return [(norm, size, members) for (norm, size), members in groups.items()]


def matrix(board: Board, inside: bool) -> dict[str, Any]:
    """A board's cells as attacks × sources; two settings of one attack are two rows."""
    cells = [cell for cell in board.cells if cell.inside_threat_model == inside]
    attacks = list(dict.fromkeys((cell.attack_id, cell.attack) for cell in cells))
    sources = list(dict.fromkeys((cell.source_id, cell.source) for cell in cells))
    by_key = {(cell.attack_id, cell.source_id): cell for cell in cells}
    rows = [(name, [by_key.get((identity, s)) for s, _ in sources]) for identity, name in attacks]
    return {"sources": [name for _, name in sources], "rows": rows, "cells": cells}


def share(count: int | None, total: int) -> str:
    return "–" if count is None or not total else f"{100 * count / total:.2f}"


def interval(count: int | None, total: int) -> str:
    if count is None or not total:
        return ""
    low, high = wilson(count, total)
    return f"{100 * low:.1f} to {100 * high:.1f}"


def epsilon(value: float) -> str:
    """8/255 where it is a whole number of grey levels, else the number."""
    levels = value * 255
    return f"{round(levels)}/255" if levels >= 1 and abs(levels - round(levels)) < 1e-9 else f"{value:g}"


def settings(values: dict[str, Any]) -> str:
    return ", ".join(f"{key} = {value}" for key, value in values.items())


def _write(path: Path, text: str) -> Path:
    with written_whole(path) as stream:
        stream.write(text.encode())
    return path
