"""What a defence's page shows: its boards with their tables and figures, and how they were made."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from bench import norms
from bench.store import evidence, frames, ranking
from bench.store.health import SourceHealth
from bench.store.key_searches import KeySearch
from bench.store.outcomes import Outcomes, RunRecord, order_of
from bench.store.queries import Board, Cell, attack_names
from leaderboard import figures, paper, tables, terms, words
from leaderboard.figures import Figure
from leaderboard.output import Folder
from leaderboard.tables import Table
from leaderboard.terms import Term

ByPart = Mapping[tuple[int, int], Mapping[int, int]]
"""By attack and source, how many examples each part of the attack broke, by its place."""


@dataclasses.dataclass(frozen=True)
class Page:
    """A defence (with its settings, weights and key) and all its boards."""

    slug: str
    boards: list[Board]


@dataclasses.dataclass(frozen=True)
class Section:
    """A board on the page."""

    board: Board
    matrix: Table | None
    published: Table | None  # the paper's numbers for the same
    members: list[tuple[str, Table]]  # a family of sources, one by one
    outside: Table | None
    rounded: list[tuple[str, Cell]]  # every attack's cell, if any was judged rounded to eight bits
    strategies: Table | None
    strongest: tuple[str, int] | None
    surrogates: Figure | None
    breakers: list[tuple[str, evidence.Breaker]]
    parts: list[tuple[str, list[tuple[str, int]]]]  # what each part of an attack broke on its source
    cover: list[tuple[str, evidence.Step]]
    doubts: list[tuple[list[str], str, str]]  # the cells that are doubtful, why, and what that means
    checks: list[str]  # what is looked for in sources
    health: list[tuple[str, SourceHealth | None]]  # what was found of each source with gradients
    failures: list[tuple[str, str]]
    strategy_meanings: list[tuple[str, str]]
    engines: list[Term]
    sources: list[Term]
    attack_settings: list[tuple[str, list[str], str]]  # of an attack, on these sources if not on all of its own
    reduced: list[tuple[str, list[str], str]]  # the same of budgets below the published ones
    runs: list[RunRecord]
    data: str
    survivors: int  # how many cells were shown only what others had left
    order: Sequence[str]  # in which order examples went through them, if a run says so


def identity(of: Board | KeySearch) -> tuple[Any, ...]:
    """What makes two boards, or a board and a key search, those of one defence."""
    return (of.defence, json.dumps(of.defence_settings, sort_keys=True), of.key_id, of.weights_sha256)


def pages(boards: Sequence[Board]) -> list[Page]:
    """One page per defence, its main boards first: the paper's epsilon, then the most coverage, then the most examples."""
    found: dict[tuple[Any, ...], list[Board]] = {}
    for board in boards:
        found.setdefault(identity(board), []).append(board)
    return [Page(words.slug(key[0], *key[1:]), sorted(own, key=_place)) for key, own in found.items()]


def _place(board: Board) -> tuple[Any, ...]:
    return (
        norms.place(board.norm),
        board.epsilon != paper.EPSILONS.get(board.norm),
        *ranking.by_coverage(board),
        -board.n_examples,
        board.epsilon,
    )


def section(
    site: Folder, page: Page, board: Board, outcomes: Outcomes, runs: list[RunRecord], by_part: ByPart
) -> Section:
    """A board's tables and figures; writes their data beside the page."""
    data = f"data/{page.slug}/board-{board.id}"
    matrix, strategies = tables.matrix(board, outcomes), tables.strategies(board, outcomes)
    inside = [cell for cell in board.cells if cell.inside_threat_model]
    members = [
        (name, table) for name in evidence.families(inside) if (table := tables.matrix(board, outcomes, only=name))
    ]
    outside = tables.matrix(board, outcomes, inside=False)
    curves = evidence.by_members(outcomes)
    clean = board.clean.n_correct if board.clean else None
    several = [cell for cell in board.reduced if (evidence.family(cell.source) or ("", 0))[0] in curves]
    fewer = list(dict.fromkeys(cell.attack for cell in several))
    surrogates = figures.surrogates(board.norm, curves, board.n_examples, clean, reduced=fewer) if curves else None
    for name, table in (
        ("matrix", matrix),
        ("strategies", strategies),
        ("outside", outside),
        *((f"members-{words.slug(family)}", table) for family, table in members),
    ):
        if table is not None:
            site.frame(f"{data}-{name}", table.frame("attack"))
    if surrogates is not None:
        site.text(f"{data}-surrogates.csv", surrogates.data.to_csv(index=False))
    rounded = any(cell.rounded for cell in board.cells)
    if rounded:
        site.frame(f"{data}-rounded", tables.rounded_frame(board))
    breakers, cover = evidence.breakers(outcomes), evidence.cover(outcomes)
    site.frame(f"{data}-health", frames.health_frame([board]))
    site.frame(f"{data}-breakers", tables.breakers_frame(outcomes))
    site.frame(f"{data}-cover", tables.cover_frame(outcomes))
    name_of = evidence.names(outcomes)
    attacks = attack_names(board.cells)
    return Section(
        board=board,
        matrix=matrix,
        published=tables.published(board),
        members=members,
        outside=outside,
        rounded=[(f"{attacks[c.attack_id]}@{c.source}", c) for c in board.cells] if rounded else [],
        strategies=strategies if strategies and len(strategies.columns) > 1 else None,
        strongest=evidence.strongest_strategy(outcomes),
        surrogates=surrogates,
        breakers=[(name_of[b.column], b) for b in breakers],
        parts=_parts(board, attacks, by_part),
        cover=[(name_of[s.column], s) for s in cover],
        doubts=_doubts(board, attacks),
        checks=list(dict.fromkeys(name for found in board.health.values() for name in found.examined)),
        health=_health(board),
        failures=[(f"{attacks[c.attack_id]}@{c.source}", c.error or "") for c in board.cells if c.status == "failed"],
        strategy_meanings=list(evidence.strategies(inside).values()),
        engines=terms.engines(board.cells),
        sources=terms.sources(board.cells),
        attack_settings=_attack_settings(board, attacks),
        reduced=[one for one in _by_attack(board, attacks, lambda cell: cell.reduced) if one[2]],
        runs=runs,
        data=f"../{data}",
        survivors=sum(cell.on_survivors for cell in board.cells),
        order=order_of(board, runs),
    )


def context(site: Folder, page: Page, sections: Sequence[Section], searches: Sequence[KeySearch]) -> dict[str, Any]:
    """What the page's template is given; the first board of each norm is its main one."""
    main = {section.board.norm: section for section in reversed(sections)}
    epsilon_figures = [
        figure
        for norm in dict.fromkeys(section.board.norm for section in sections)
        if (figure := figures.against_epsilon(norm, _epsilons(page.boards, norm)))
    ]
    for figure in epsilon_figures:
        site.text(f"data/{page.slug}/{figure.name}.csv", figure.data.to_csv(index=False))
    keys = [found for search in searches if (found := figures.key_search_section(search))]
    for one in keys:
        site.text(f"data/{page.slug}/{one.figure.name}.csv", one.figure.data.to_csv(index=False))
    return {
        "page": page,
        "defence": page.boards[0],
        "main": [section for section in sections if main[section.board.norm] is section],
        "others": [section for section in sections if main[section.board.norm] is not section],
        "epsilon_figures": epsilon_figures,
        "key_searches": keys,
        "runs": {run.id: run for section in sections for run in section.runs},
    }


def _epsilons(boards: Sequence[Board], norm: str) -> list[figures.Size]:
    """Of each epsilon the board with the most coverage, then the most examples."""
    first: dict[float, Board] = {}
    for board in sorted(boards, key=_place):
        if board.norm == norm and board.best_known is not None and board.clean is not None:
            first.setdefault(board.epsilon, board)
    return [
        figures.Size(epsilon, board.best_known, board.clean.n_correct, board.n_examples, words.known_on_reduced(board))
        for epsilon, board in first.items()
        if board.best_known is not None and board.clean is not None
    ]


def _doubts(board: Board, attacks: Mapping[int, str]) -> list[tuple[list[str], str, str]]:
    """Every doubt once, with the cells that it is about."""
    found: dict[tuple[str, str], list[str]] = {}
    for cell in board.cells:
        for doubt in cell.doubts.items():
            found.setdefault(doubt, []).append(f"{attacks[cell.attack_id]}@{cell.source}")
    return [(cells, *doubt) for doubt, cells in found.items()]


def _health(board: Board) -> list[tuple[str, SourceHealth | None]]:
    """The sources of attacks with gradients, in their order, and what was checked of them, if anything was."""
    known = {name: found for name, found in board.health_by_name.items() if found.error is None}
    places = {cell.source: cell.source_about.place for cell in board.cells}
    names = tables.ranked((name, places[name]) for name in {*known, *board.unchecked})
    return [(name, known.get(name)) for name in names]


def _parts(board: Board, attacks: Mapping[int, str], by_part: ByPart) -> list[tuple[str, list[tuple[str, int]]]]:
    found = []
    for cell in board.cells:
        names, counts = cell.parts, by_part.get((cell.attack_id, cell.source_id), {})
        if names and counts:
            own = [(name, counts.get(place, 0)) for place, name in enumerate(names)]
            reduced = " (reduced)" if cell.reduced else ""
            found.append((f"{attacks[cell.attack_id]}@{cell.source}{reduced}", own))
    return found


def _attack_settings(board: Board, attacks: Mapping[int, str]) -> list[tuple[str, list[str], str]]:
    return _by_attack(board, attacks, lambda cell: words.settings(cell.attack_settings))


def _by_attack(
    board: Board, attacks: Mapping[int, str], say: Callable[[Cell], str]
) -> list[tuple[str, list[str], str]]:
    """What there is to say of each attack, with its sources where another attack has the same name."""
    found = []
    for identity in sorted(attacks, key=lambda i: (attacks[i], i)):
        own = [cell for cell in board.cells if cell.attack_id == identity]
        sources = tables.ranked((cell.source, cell.source_about.place) for cell in own)
        shared = list(attacks.values()).count(attacks[identity]) > 1
        found.append((attacks[identity], sources if shared else [], say(own[0])))
    return found
