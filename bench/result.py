"""What `bench.evaluate` gives back: the numbers of one evaluation, read from the store that has them all."""

from __future__ import annotations

import dataclasses
import html
import shutil
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from bench import site
from bench.evaluation.run import Summary
from bench.store import coverage, frames, queries
from bench.store.database import opened
from bench.store.queries import Board
from bench.store.redaction import redacted
from bench.support.stats import wilson

if TYPE_CHECKING:
    import pandas as pd


@dataclasses.dataclass(frozen=True)
class Accuracy:
    """A share of `n` examples, between 0 and 1, with its 95 % Wilson interval."""

    share: float
    interval: tuple[float, float]
    n: int

    @classmethod
    def of(cls, count: int, n: int) -> Accuracy:
        return cls(count / n, wilson(count, n), n)

    def __str__(self) -> str:
        low, high = self.interval
        return f"{100 * self.share:.1f} % ({100 * low:.1f} to {100 * high:.1f} %)"


def _coverage(board: Board) -> str:
    found = board.coverage
    return coverage.UNKNOWN if found is None else f"{found} that preset {found.required.preset} asks for"


class Result:
    """One evaluation of a defence. All of it is in the store, `db`, which `bench` commands read as well.

    A temporary store lives as long as this object, and no longer than the process.
    """

    def __init__(self, db: str, summary: Summary, temporary: Path | None = None) -> None:
        """`temporary` is a folder that goes with this object."""
        self.db, self.summary = db, summary
        self._boards = self._read()
        if temporary is not None:
            weakref.finalize(self, shutil.rmtree, temporary, ignore_errors=True)

    @property
    def best_known(self) -> Mapping[str, Accuracy]:
        """Per norm, the share of examples that withstand everything; none of a norm in which no cell is complete."""
        known = {board.norm: (board.best_known, board.n_examples) for board in self._boards}
        return {norm: Accuracy.of(count, n) for norm, (count, n) in known.items() if count is not None}

    @property
    def best_known_rounded(self) -> Mapping[str, Accuracy]:
        """Best Known over the images rounded to eight bits; of norms in which every cell was judged so (`judge_rounded`)."""
        known = {board.norm: (board.best_known_rounded, board.n_examples) for board in self._boards}
        return {norm: Accuracy.of(count, n) for norm, (count, n) in known.items() if count is not None}

    @property
    def clean(self) -> Mapping[str, Accuracy]:
        """Per norm, the share of examples that are right without a perturbation."""
        found = {board.norm: (board.clean, board.n_examples) for board in self._boards}
        return {norm: Accuracy.of(cell.n_correct, n) for norm, (cell, n) in found.items() if cell is not None}

    @property
    def failed(self) -> Mapping[str, str]:
        """The cells that could not be run, with the reason."""
        return dict(self.summary.failed)

    def cells(self) -> pd.DataFrame:
        """One row per cell, as in `bench results`: accuracies in percent, and bounds of those that are not known."""
        return frames.cells_frame(self._boards)

    def examples(self) -> pd.DataFrame:
        """One row per example and cell: what the defended model said of it."""
        with opened(self.db) as database:
            return frames.examples_frame(database, self._boards)

    def doubts(self) -> pd.DataFrame:
        """One row per sign that a cell's result may flatter the defence."""
        return frames.doubts_frame(self._boards)

    def health(self) -> pd.DataFrame:
        """One row per source and check of it: on how many examples, and how many of them show a sign of weak attacks."""
        return frames.health_frame(self._boards)

    def site(self, folder: str | Path) -> Path:
        """Builds the leaderboard of the whole store in a folder; returns its first page, which opens without a server."""
        with opened(self.db) as database:
            return site.built(database, self.db, Path(folder))

    def _read(self) -> list[Board]:
        with opened(self.db) as database:
            return [board for board in queries.boards(database) if board.id in self.summary.board_ids]

    def __repr__(self) -> str:
        lines = []
        for board in self._boards:
            clean, known = self.clean.get(board.norm), self.best_known.get(board.norm)
            cells = "1 cell" if len(board.counted) == 1 else f"{len(board.counted)} cells"
            cells += f" ({len(board.reduced)} on reduced budgets)" if board.reduced else ""
            partial = f"; {len(board.left_out)} not complete" if board.left_out else ""
            lines.append(
                f"{board.defence}, {board.norm} ε = {board.epsilon:.5g}, {board.n_examples} examples of {board.dataset}: "
                f"clean {clean or 'unknown'}, Best Known {f'{coverage.BOUND} {known}' if known else 'unknown'} "
                f"under {cells}{partial}; {_coverage(board)}"
            )
        return "\n".join([*lines, str(self.summary), f"stored in {redacted(self.db)}"])

    def _repr_html_(self) -> str:
        columns = ["norm", "attack", "source", "accuracy", "low", "high", "reduced", "status", "doubts"]
        if any(cell.on_survivors for board in self._boards for cell in board.cells):  # whose accuracy is not known
            columns[6:6] = ["examples", "broken", "accuracy_least", "accuracy_most"]
        return f"<pre>{html.escape(repr(self))}</pre>{self.cells()[columns].to_html(index=False)}"
