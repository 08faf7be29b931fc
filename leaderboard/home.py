"""What the home page shows: boards in their order in each norm, and the paper's own figures beside them."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from bench import norms
from bench.store import evidence, ranking
from bench.store.outcomes import Outcomes
from bench.store.queries import Board, attack_names
from leaderboard import paper
from leaderboard.compare import Contestant
from leaderboard.defence import Page, identity


@dataclasses.dataclass(frozen=True)
class Row:
    """A board that the page shows, and those that stand behind it: on fewer or more of the same examples."""

    shown: Contestant
    others: list[Contestant]

    @property
    def board(self) -> Board:
        return self.shown.board


@dataclasses.dataclass(frozen=True)
class Ranking:
    """The boards of one norm: those of its usual epsilon, those of others, and the paper's rows if it used the same."""

    norm: str
    epsilon: float
    members: list[Row]
    others: list[Row]
    paper: list[paper.PublishedDefence]


def contestant(board: Board, page: Page, label: str, outcomes: Outcomes) -> Contestant:
    """A board as the home page and the comparison need it, without its ten thousand answers."""
    return Contestant(
        board=board,
        page=f"defences/{page.slug}.html#board-{board.id}",
        label=label,
        known=evidence.best_known(outcomes),
        strongest=evidence.strongest_strategy(outcomes),
    )


def labels(boards: Sequence[Board]) -> dict[int, str]:
    """A name for every board's defence; defences of one name get what tells them apart."""
    namesakes: dict[str, dict[Any, Board]] = {}
    for board in boards:
        namesakes.setdefault(board.defence, {}).setdefault(identity(board), board)
    return {board.id: _label(board, list(namesakes[board.defence].values())) for board in boards}


def _label(board: Board, namesakes: Sequence[Board]) -> str:
    """The name, with the settings that differ among namesakes; without such, the key or the weights."""
    if len(namesakes) == 1:
        return board.defence
    differing = {
        key: value
        for key, value in board.defence_settings.items()
        if any(other.defence_settings.get(key) != value for other in namesakes)
    }
    if differing:
        name = f"{board.defence}[{','.join(f'{k}={v}' for k, v in differing.items())}]"
        namesakes = [other for other in namesakes if other.defence_settings == board.defence_settings]
    else:
        name = board.defence
    if len({other.key_id for other in namesakes}) > 1:
        name += f", key {board.key_id}"
    if len({other.weights_sha256 for other in namesakes}) > 1:
        name += f", weights {board.weights_sha256[:6]}"
    return name


def all_doubts(boards: Sequence[Board]) -> dict[str, str]:
    """Every doubt raised about some cell, with its meaning."""
    return {
        name: meaning.rsplit(" (", 1)[0]
        for board in boards
        for cell in board.cells
        for name, meaning in cell.doubts.items()
    }


def board_doubts(board: Board) -> dict[str, list[tuple[str, str]]]:
    """The doubts about a board's cells: for each, the cells it concerns and what is said of them."""
    found: dict[str, list[tuple[str, str]]] = {}
    names = attack_names(board.cells)
    for cell in board.cells:
        for name, meaning in cell.doubts.items():
            found.setdefault(name, []).append((f"{names[cell.attack_id]}@{cell.source}", meaning))
    return found


def rows(contestants: Sequence[Contestant], digests: dict[str, bytes]) -> list[Row]:
    """The rows of the page in the order of boards; `digests` say which examples are the first of others."""
    by_board = {one.board.id: one for one in contestants}
    return [
        Row(by_board[standing.board.id], [by_board[other.id] for other in standing.others])
        for standing in ranking.shown([one.board for one in contestants], digests)
    ]


def context(contestants: Sequence[Contestant], digests: dict[str, bytes]) -> dict[str, Any]:
    """What the home page's template is given."""
    boards = [one.board for one in contestants]
    own = rows(contestants, digests)
    shown = sorted({*paper.EPSILONS, *(board.norm for board in boards)}, key=norms.place)
    return {
        "rankings": [_ranking(norm, [row for row in own if row.board.norm == norm]) for norm in shown],
        "presets": sorted({board.preset for board in boards}),
        "n_boards": len(boards),
        "n_defences": len({identity(board) for board in boards}),
        "doubts_of": board_doubts,
        "rule": ranking.RULE,
        "paper_examples": paper.EXAMPLES,
        "paper_count": paper.count,
    }


def _ranking(norm: str, own: Sequence[Row]) -> Ranking:
    published = paper.EPSILONS.get(norm)
    sizes = [one.board.epsilon for one in own]
    usual = (
        published if published in sizes or not sizes else max(set(sizes), key=lambda size: (sizes.count(size), size))
    )
    assert usual is not None
    return Ranking(
        norm,
        usual,
        [one for one in own if one.board.epsilon == usual],
        [one for one in own if one.board.epsilon != usual],
        paper.table3(norm) if published == usual else [],
    )
