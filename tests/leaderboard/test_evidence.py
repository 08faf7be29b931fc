"""The numbers behind the pages against brute force, and the paper's figures as they are in its tables."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.store import descriptions, evidence, queries
from bench.store.best_known import Bounds
from bench.store.key_searches import KeyGuess, KeySearch
from bench.store.outcomes import Outcomes, outcomes
from bench.store.queries import Cell
from leaderboard import figures, paper, sheets, svg, words
from tests.leaderboard import stores
from tests.leaderboard.conftest import Site


def some(
    seed: int, examples: int = 12, sources: tuple[str, ...] = ("nominal", "surrogate:1", "surrogate:2", "bypass")
) -> Outcomes:
    """Random answers of a board with two engines on some sources."""
    random = np.random.default_rng(seed)
    pairs = [("clean", "clean"), *itertools.product(("pgd", "square"), sources)]
    cells = tuple(
        Cell(i, i, attack, {}, source, "pba" if source == "bypass" else "transfer", True, "done", examples, 0,
             10 + 7 * i % 5, 0, 0.0, {}, {}, None, "", None, (), descriptions.read_attack(attack, {}),
             descriptions.read_source(source, "transfer", {}))
        for i, (attack, source) in enumerate(pairs)
    )  # fmt: skip
    correct = random.random((examples, len(cells))) < 0.7
    pred = np.where(correct, 1, 0)
    return Outcomes(
        cells, np.ones(examples, np.int32), pred, correct, random.normal(size=correct.shape).astype(np.float32)
    )


def counted(known: Iterable[bool]) -> Bounds:
    """So many, known exactly."""
    count = sum(known)
    return Bounds(count, count)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6))
def test_unions_and_breakers_against_brute_force(seed: int) -> None:
    found = some(seed)
    right = [row[0] for row in found.correct]
    everything = evidence.best_known(found)
    assert everything is not None
    assert everything.tolist() == [all(row) for row in found.correct]
    for name, columns in evidence.by_strategy(found).items():
        assert evidence.known_count(found, columns) == counted(
            all(row[c] for c in range(len(row)) if c == 0 or found.cells[c].strategy == name) for row in found.correct
        )
    for breaker in evidence.breakers(found):
        broken = [ok and not row[breaker.column] for ok, row in zip(right, found.correct, strict=True)]
        others = [any(not row[c] for c in range(1, len(row)) if c != breaker.column) for row in found.correct]
        assert breaker.breaks == sum(broken)
        assert breaker.alone == sum(b and not o for b, o in zip(broken, others, strict=True))
    curve = evidence.by_members(found)["surrogate"]
    for k, count in enumerate(curve, 1):
        members = {f"surrogate:{j}" for j in range(1, k + 1)}
        own = [c for c, cell in enumerate(found.cells) if cell.source in members]
        assert count == sum(row[0] and all(row[c] for c in own) for row in found.correct)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6))
def test_the_cover_gives_best_known_and_every_step_is_the_largest(seed: int) -> None:
    found = some(seed)
    steps = evidence.cover(found)
    standing = set(np.flatnonzero(found.correct[:, 0]).tolist())
    for step in steps:
        gains = {c: {i for i in standing if not found.correct[i, c]} for c in found.counted}
        assert step.adds == max(len(gain) for gain in gains.values()) == len(gains[step.column])
        standing -= gains[step.column]
        assert step.left == len(standing)
    everything = evidence.best_known(found)
    assert everything is not None
    assert standing == set(np.flatnonzero(everything).tolist())


def test_the_cell_that_tells_of_an_example_is_the_cheapest_that_breaks_it() -> None:
    found = some(3, examples=50)
    shown, order = evidence.shown_cells(found), evidence.cheapest_first(found)
    for i, row in enumerate(found.correct):
        breaking = [c for c in order if not row[c]]
        assert shown[i] == (breaking[0] if breaking else min(order, key=lambda c: found.margin[i, c]))


def test_what_the_store_gives_is_what_was_written(site: Site) -> None:
    for board in queries.boards(site.database):
        found = outcomes(site.database, board)
        for column, cell in enumerate(found.cells):
            reached = found.pred[:, column] >= 0
            assert int(reached.sum()) == cell.n_done
            assert int(found.correct[:, column].sum()) == cell.n_correct
            assert ((found.pred[:, column] == found.labels) == found.correct[:, column])[reached].all()
        known = evidence.best_known(found)
        assert (None if known is None else int(known.sum())) == board.best_known


def test_only_boards_on_the_same_examples_are_compared(tmp_path: Path) -> None:
    filler = stores.Filler(tmp_path)
    strength = filler.random.random(20)
    for name, n in (("a", 20), ("b", 20), ("c", 19)):
        board = filler.board(name, "linf", n)
        filler.clean(board, 0.9, strength[:n])
        filler.fill(board, "pgd", "nominal", "transfer", 0.5, strength[:n])
    from leaderboard.build import build

    build(filler.database, tmp_path / "site")
    pairs = (tmp_path / "site" / "data" / "comparison.csv").read_text().splitlines()[1:]
    assert len(pairs) == 1
    assert ",a," in pairs[0]
    assert ",b," in pairs[0]


def test_the_papers_rows_are_its_table_3() -> None:
    linf = {row.defence: row for row in paper.table3("linf")}
    assert list(linf) == ["linac", "jpeg-10", "jpeg-23", "block-shuffle", "pca-block", "pca-full"]
    assert (linf["linac"].clean, linf["linac"].best_known, linf["linac"].strategy) == (93.08, 35.32, "pba")
    assert linf["jpeg-23"].engines == {"aa": 11.90, "mt": None, "pgd": 17.49, "square": 5.36}
    table = paper.matrix("linac", "l2")
    assert list(table) == ["aa", "mt", "pgd", "square", "best_known"]
    assert list(table["pgd"].values()) == [88.61, 82.39, 74.19, 88.36, 75.00, 66.93, 70.90]
    assert paper.matrix("block-shuffle", "linf")["best_known"]["all"] == 0.00
    assert paper.matrix("none", "linf") == {}


def test_key_search_section() -> None:
    assert figures.key_search_section(None) is None
    guesses = [KeyGuess(i, f"meta-seed {i}", 20 + i // 2, 100, None, 0.0, 0.0) for i in range(49, -1, -1)]
    guesses.insert(0, KeyGuess(987654321, "meta-seed 7, draw 3", 90, 100, None, 0.0, 0.0, 540, 600))
    guesses.append(KeyGuess(99, "dropped", 2, 2, 2, 0.0, 0.0))
    search = KeySearch(
        1,
        "d",
        {},
        "k",
        "w",
        "cifar10",
        "training",
        100,
        True,
        0.9,
        10_000,
        0.5,
        1e-3,
        "bench keysearch",
        "",
        "",
        tuple(guesses),
    )
    section = figures.key_search_section(search)
    assert section is not None
    assert section.figure.data["keys"].sum() == 52
    assert [name for name, _, _ in section.best] == [
        "as good as the key",
        *(f"meta-seed {i}" for i in range(49, 40, -1)),
    ]
    assert "987654321" not in section.figure.chart + section.figure.caption + section.figure.data.to_csv()
    assert "90.0 % with the best" in section.figure.caption


def test_a_chart_is_a_file_of_its_own_too() -> None:
    import xml.etree.ElementTree

    figure = figures.surrogates("linf", {stores.HOSTILE: [9, 8, 7], "reconstruction": [8, 5, 4]}, 10, 9)
    assert figure is not None
    tree = xml.etree.ElementTree.fromstring(svg.standalone(figure.chart))
    assert stores.HOSTILE in [element.text for element in tree.iter() if element.text]


def test_sheets_hold_the_images_in_order() -> None:
    import io

    from PIL import Image

    images = np.random.default_rng(0).integers(0, 256, (23, 8, 6, 3), dtype=np.uint8)
    with Image.open(io.BytesIO(sheets.sheet(images))) as picture:
        pixels = np.asarray(picture)
    for i, image in enumerate(images):
        row, column = divmod(i, sheets.COLUMNS)
        assert (pixels[8 * row : 8 * row + 8, 6 * column : 6 * column + 6] == image).all()


def test_names() -> None:
    assert words.epsilon(8 / 255) == "8/255"
    assert words.epsilon(0.5) == "0.5"
    assert evidence.family("surrogate:3") == ("surrogate", 3)
    assert evidence.family("self") is None
    assert evidence.distinct({1: "pgd", 2: "pgd", 3: "mt"}) == {1: "pgd", 2: "pgd (2)", 3: "mt"}
    assert words.slug(stores.HOSTILE).replace("-", "").isalnum()
    assert words.slug("linac", 1) != words.slug("linac", 2)
