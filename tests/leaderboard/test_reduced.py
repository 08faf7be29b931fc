"""A number that comes from an attack on a reduced budget says so wherever it stands: in every place it is looked for."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from bench import registry
from bench.evaluation.report import print_boards
from bench.evaluation.run import Summary
from bench.result import Result
from bench.store import descriptions, frames, outcomes, queries
from bench.store.frames import percent
from leaderboard.build import build
from tests.leaderboard import stores
from tools import results_docs
from tools.claims import REDUCED, ReportedBoard

N = 97
SAID = "reduced"
CELLS = (
    ("pgd", "nominal", "transfer", 0.43), ("pgd", "surrogate:1", "transfer", 0.63), ("pgd", "surrogate:2", "transfer", 0.58),
    ("aa", "bypass", "pba", 0.51),
)  # fmt: skip


class World:
    """A store of boards with reduced cells, its site, and the figures of what is reduced: no other number has them."""

    def __init__(self, folder: Path) -> None:
        filler, strength = stores.Filler(folder), np.linspace(0, 1, N)
        for name, epsilon in (("linac", None), ("block-shuffle", None), ("linac", 2 / 255)):
            board = filler.board(name, "linf", N, epsilon=epsilon)
            filler.clean(board, 0.95, strength)
            for attack, source, strategy, share in CELLS:
                filler.fill(board, attack, source, strategy, share, strength)
            filler.fill(board, "mt", "key-leaked", "key-leaked", 0.3, strength, inside=False)
        self.database, self.path, self.site = filler.database, filler.path, folder / "site"
        stores.reproduce(filler, self.site, ("linf",))
        build(filler.database, self.site)
        self.boards = queries.boards(filler.database)
        self.cells = {figure(cell.n_correct) for board in self.boards for cell in board.cells if cell.reduced}
        unions = [count for b in self.boards for count in (b.best_known, b.best_adversary["pgd"]) if count is not None]
        self.figures = self.cells | {figure(count) for count in unions}
        self.numbers = {float(one) for one in self.figures}
        full = [c.n_correct for b in self.boards for c in (b.clean, *b.cells) if c is not None and not c.reduced]
        assert self.figures.isdisjoint(map(figure, full)), "else a number that needs no mark would be taken for one"


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with pytest.MonkeyPatch.context() as patched:
        plain = stores.attack_about

        def about(name: str) -> str:
            less: dict[str, Any] = {"pgd": {"steps": 7}, "mt": {"steps": 3}}
            if name not in less:
                return plain(name)
            return json.dumps(descriptions.of_engine(name, registry.engine(name, less[name])))

        patched.setattr(stores, "attack_about", about)
        yield World(tmp_path_factory.mktemp("reduced"))


def figure(count: int) -> str:
    return f"{percent(count / N):.2f}"


def unsaid(text: str, figures: set[str]) -> list[str]:
    """The places of a page that have one of the figures, and no word on its budget beside it.

    In a table that is in the same cell, or at the beginning of its row; elsewhere in the same figure, card or summary.
    """
    own = re.compile(rf"(?<![\d.])(?:{'|'.join(map(re.escape, sorted(figures)))})(?!\d)")
    found = []
    for row in re.findall(r"<tr\b.*?</tr>", text, re.DOTALL):
        if (
            'class="bar-cell"' in row
        ):  # what is left after this attack and those of the rows above, which say it of theirs
            continue
        whole, (first, *cells) = (
            "data-name=" in row,
            re.findall(r"<t[dh]\b.*?</t[dh]>", row, re.DOTALL),
        )  # home page: rows
        named = SAID in (row if whole else first + "".join(cells[:1] if first.startswith('<td class="n">') else []))
        found += [cell for cell in (first, *cells) if own.search(cell) and not named and SAID not in cell]
    rest = re.sub(r"<tr\b.*?</tr>", "", text, flags=re.DOTALL)
    for piece in re.findall(r'<figure.*?</figure>|<a class="card".*?</a>|<summary>.*?</summary>', rest, re.DOTALL):
        rest = rest.replace(piece, "")
        found += [piece] if own.search(piece) and SAID not in piece else []
    return [*found, *(rest[max(0, hit.start() - 80) : hit.end() + 80] for hit in own.finditer(rest))]


def unsaid_in_records(records: Iterable[Mapping[Any, Any]], figures: set[str]) -> list[Mapping[str, Any]]:
    """The records that have one of the figures among their values, and nothing that speaks of its budget."""
    numbers = {float(one) for one in figures}
    found = []
    for record in records:
        values = [*record.values(), *(one for v in record.values() if isinstance(v, dict) for one in v.values())]
        has = any(value in numbers for value in values if isinstance(value, float))
        said = any(SAID in str(value) or (SAID in name and value) for name, value in record.items())
        found += [record] if has and not said else []
    return found


def of_csv(text: str) -> list[dict[str, Any]]:
    """The rows of a CSV file, with numbers for numbers."""

    def value(text: str) -> Any:
        try:
            return float(text)
        except ValueError:
            return text

    return [{name: value(own) for name, own in row.items()} for row in csv.DictReader(io.StringIO(text))]


def missing(path: Path, figures: set[str]) -> list[Any]:
    """What a file of the site fails to say."""
    text = path.read_text()
    if path.suffix == ".html":
        return unsaid(text, figures)
    if path.suffix == ".csv":
        return [*unsaid_in_records(of_csv(text), figures)]
    if path.suffix == ".json":
        read = json.loads(text)
        records = [one for one in (read if isinstance(read, list) else [read]) if isinstance(one, dict)]
        return [*unsaid_in_records(records, figures)]
    if path.suffix == ".tex":
        ours = re.findall(r"([\d.]+)(\$\^\{[^}]*\}\$)? \(", text)  # before the paper's, in brackets
        return [number for number, marks in ours if number in figures and r"\dagger" not in marks]
    return []


def test_every_file_of_the_site(world: World) -> None:
    having: set[str] = set()
    for path in world.site.rglob("*.*"):
        if path.suffix in (".html", ".csv", ".json", ".tex") and "static" not in path.parts:
            assert not missing(path, world.figures), path.relative_to(world.site)
            having |= {path.name} if any(one in path.read_text() for one in world.figures) else set()
    pages = {"index.html", "compare.html", "cells.csv", "cells.json", "boards.csv", "boards.json"}
    parts = {"matrix", "strategies", "members", "outside", "surrogates", "cover", "epsilon"}
    assert pages <= having
    assert all(any(part in name for name in having) for part in parts), "every kind of table was looked at"
    assert sum(name.startswith("linac-") for name in having) == 1, "the defence's own page too"
    assert {"table1.html", "table1.csv", "table1.tex", "table7.tex"} <= having, "and the paper's tables made again"


def test_the_explorers_cells(world: World) -> None:
    """They have counts of what each breaks."""
    scripts = list(world.site.rglob("index.js"))
    assert len(scripts) == len(world.boards)
    for script in scripts:
        names = re.findall(r'"name": "([^"]*)"', script.read_text())
        said = {name.split(" ")[0]: SAID in name for name in names}
        assert {name: own for name, own in said.items() if own} == {
            f"{attack}@{source}": True for attack, source, *_ in (*CELLS, ("mt", "key-leaked")) if attack != "aa"
        }


def test_the_terminal_and_tables(world: World) -> None:
    written = io.StringIO()
    print_boards(world.boards, Console(width=300, file=written))
    own = re.compile("|".join(map(re.escape, world.cells)))
    lines = [line for line in written.getvalue().splitlines() if own.search(line) and "Best Known" not in line]
    assert len(lines) >= len(world.cells)
    assert [line for line in lines if SAID not in line] == []
    withstood = {(b.id, c.attack_id, c.source_id): c.n_correct for b in world.boards for c in b.cells}
    for table in (
        frames.cells_frame(world.boards), frames.boards_frame(world.boards), frames.sources_frame(world.boards, withstood)
    ):  # fmt: skip
        assert unsaid_in_records(table.to_dict("records"), world.figures) == []
        assert any(value in world.numbers for value in table.to_numpy().ravel().tolist() if isinstance(value, float))


def test_a_notebook(world: World) -> None:
    result = Result(str(world.path), Summary(board_ids=[board.id for board in world.boards]))
    assert sum("under 4 cells (3 on reduced budgets)" in line for line in repr(result).splitlines()) == len(
        world.boards
    )
    shown = result._repr_html_()
    rows = [row for row in re.findall(r"<tr\b.*?</tr>", shown, re.DOTALL) if any(one in row for one in world.cells)]
    assert len(rows) >= len(world.cells)
    assert [row for row in rows if "steps" not in row] == []


def test_the_tables_of_the_docs(world: World) -> None:
    shown = [ReportedBoard(world.database, board, outcomes.outcomes(world.database, board)) for board in world.boards]
    rounded = {f"{float(one):.1f} (" for one in world.figures}
    lines = [*results_docs.page(shown, [world.database], ["bench run"], "")]
    numbers = [cell for line in lines if line.startswith("|") for cell in line.split("|")]
    own = [cell for cell in numbers if any(one in cell for one in rounded)]
    assert own
    assert [cell for cell in own if REDUCED not in cell] == []
    assert any("7 of 100 steps" in line for line in lines if line.strip().startswith(REDUCED))


def test_a_table_that_says_nothing_is_told(world: World, tmp_path: Path) -> None:
    one = min(world.figures)
    for name, text in (
        ("a.html", f"<tr><td>pgd</td><td>{one}</td></tr>"), ("b.html", f"<figure>{one}</figure>"),
        ("c.html", f"<p>{one}</p>"),
        ("d.csv", f"attack,accuracy,reduced\npgd,{one},\n"), ("f.tex", f"PGD & {one} (1.00) & 3.00 (2.00)"),
        ("e.json", f'[{{"accuracy": {float(one)}, "reduced": ""}}]'),
    ):  # fmt: skip
        (tmp_path / name).write_text(text)
        assert missing(tmp_path / name, world.figures), name
