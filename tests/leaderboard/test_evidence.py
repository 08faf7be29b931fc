"""The numbers behind the pages against brute force, and the paper's figures as they are in its tables."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Sequence
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


def partly(seed: int) -> Outcomes:
    """The same as a run over what still stands would leave it: some cells were shown everything, some are not complete."""
    random, whole = np.random.default_rng(seed), some(seed)
    cells, shown = list(whole.cells), np.ones_like(whole.correct)
    standing = whole.correct[:, 0].copy()
    for column in random.permutation(range(1, len(cells))):
        kind = random.choice(["all", "survivors", "survivors", "running"])
        if kind != "all":
            shown[:, column] = standing | (random.random(len(standing)) < 0.15)  # another run had shown it those
        if kind == "running":
            shown[:, column] &= random.random(len(standing)) < 0.6
        standing &= whole.correct[:, column] | ~shown[:, column]
        cells[column] = dataclasses.replace(
            cells[column],
            status="running" if kind == "running" else "done",
            scope="all" if kind == "all" else "survivors",
        )
    correct = whole.correct & shown
    cells = [
        dataclasses.replace(cell, n_done=int(own.sum()), n_correct=int(right.sum()), n_examples=len(shown))
        for cell, own, right in zip(cells, shown.T, correct.T, strict=True)
    ]
    return Outcomes(tuple(cells), whole.labels, np.where(shown, whole.pred, -1), correct, whole.margin)


def completed(found: Outcomes, columns: Sequence[int]) -> Bounds:
    """Over everything that the answers which are not known may be: the fewest and the most right under all of the cells."""
    least = most = 0
    for right, shown in zip(found.correct[:, columns].tolist(), found.shown[:, columns].tolist(), strict=True):
        answers = [(ok,) if known else (False, True) for ok, known in zip(right, shown, strict=True)]
        possible = {all(combination) for combination in itertools.product(*answers)}
        least, most = least + min(possible), most + max(possible)
    return Bounds(least, most)


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
        assert breaker.alone == counted(b and not o for b, o in zip(broken, others, strict=True))
    curve = evidence.by_members(found)["surrogate"]
    for k, count in enumerate(curve, 1):
        members = {f"surrogate:{j}" for j in range(1, k + 1)}
        own = [c for c, cell in enumerate(found.cells) if cell.source in members]
        assert count == counted(row[0] and all(row[c] for c in own) for row in found.correct)


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
        assert step.left == Bounds(len(standing), len(standing))
    everything = evidence.best_known(found)
    assert everything is not None
    assert standing == set(np.flatnonzero(everything).tolist())


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6))
def test_bounds_are_what_the_unknown_answers_leave_open(seed: int) -> None:
    found = partly(seed)
    for engine in ("pgd", "square"):
        own = [c for c in found.counted if found.cells[c].attack == engine]
        assert evidence.left_right(found, own) == completed(found, own)
    strategies = evidence.by_strategy(found)
    for columns in strategies.values():
        if set(columns) < set(found.counted):
            assert evidence.known_count(found, columns) == completed(found, [0, *columns])
    for members in evidence.families(found.cells[c] for c in found.counted).values():
        curve = evidence.by_members(found)["surrogate"]
        assert len(curve) == len(members)
        for k, bounds in enumerate(curve, 1):
            own = [c for c in found.counted if found.cells[c].source in members[:k]]
            assert bounds == completed(found, [0, *own]) or set(own) == set(found.counted)
    strongest = evidence.strongest_strategy(found)
    left = {name: evidence.known_count(found, columns) for name, columns in strategies.items()}
    known = [bounds for bounds in left.values() if bounds is not None]
    least = min((bounds.most for bounds in known), default=None)
    told = [bounds.least for bounds in known if bounds.exact and all(bounds.least <= o.least for o in known)]
    assert (strongest is None) == (not told)
    if strongest is not None:
        assert strongest[1] == least == min(told)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6))
def test_best_known_is_exact_however_little_single_cells_were_shown(seed: int) -> None:
    """Whatever is not right under everything was seen to be wrong, if by a cell that is not complete."""
    found = partly(seed)
    mask = evidence.best_known(found)
    if mask is None:
        assert not found.counted
        return
    for example, ok in enumerate(mask):
        row, shown = found.correct[example], found.shown[example]
        assert bool(ok) == (row[0] and all(row[c] for c in found.counted))
        if not ok:
            assert any(known and not right for known, right in zip(shown, row, strict=True))
    assert evidence.known_count(found, found.counted) == counted(mask.tolist())
    steps, standing = evidence.cover(found), int(mask.sum())
    broken = {i for i in np.flatnonzero(found.correct[:, 0]) if any(found.wrong[i, c] for c in found.counted)}
    assert sum(step.adds for step in steps) == len(broken)
    if steps:
        assert steps[-1].left == Bounds(standing, standing)
    elsewhere = [i for i in np.flatnonzero(found.correct[:, 0]) if not mask[i] and i not in broken]
    for place, step in enumerate(steps):
        so_far = completed(found, [0, *(one.column for one in steps[: place + 1])])
        assert so_far.most - len(elsewhere) <= step.left.most <= so_far.most
        assert so_far.least - len(elsewhere) <= step.left.least <= so_far.least


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6))
def test_what_every_cell_breaks_alone_is_known_where_the_others_were_shown_it(seed: int) -> None:
    found = partly(seed)
    for breaker in evidence.breakers(found):
        own = [i for i in range(len(found.labels)) if found.correct[i, 0] and found.wrong[i, breaker.column]]
        others = [c for c in found.counted if c != breaker.column]
        assert breaker.breaks == len(own)
        assert breaker.shown == sum(found.correct[:, 0] & found.shown[:, breaker.column])
        rows = Outcomes(found.cells, found.labels[own], found.pred[own], found.correct[own], found.margin[own])
        assert breaker.alone == completed(rows, others), "nobody else breaks it: right under all the others"


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6))
def test_an_example_tells_of_a_cell_that_was_shown_it(seed: int) -> None:
    found = partly(seed)
    chosen, mask, order = evidence.shown_cells(found), evidence.best_known(found), evidence.cheapest_first(found)
    for i, column in enumerate(chosen.tolist()):
        breaking = [c for c in order if found.wrong[i, c]]
        reached = [c for c in order if found.shown[i, c]]
        if breaking:
            assert column == breaking[0]
        elif mask is not None and found.correct[i, 0] and not mask[i]:
            assert found.wrong[i, column]
            assert found.cells[column].status == "running"
        else:
            assert column == (min(reached, key=lambda c: found.margin[i, c]) if reached else -1)


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

    curves = {
        stores.HOSTILE: [Bounds(9, 9), Bounds(8, 8), Bounds(7, 7)],
        "reconstruction": [Bounds(8, 8), Bounds(4, 5)],
    }
    figure = figures.surrogates("linf", curves, 10, 9)
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
