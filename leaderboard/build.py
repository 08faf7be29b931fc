"""Builds the static site: pages, and CSV and JSON beside them. Opens from file://, loads nothing from elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sqlalchemy.engine import Engine as Database

from bench.api import flags
from bench.store import example_sets, frames, key_searches, on_sources, outcomes, queries, ranking
from bench.store.key_searches import KeySearch
from bench.store.queries import Board
from bench.support.progress import Track, Tracker, untracked
from leaderboard import compare, defence, explorer, home, paper, rendering, reproductions, terms
from leaderboard.compare import Contestant
from leaderboard.output import Folder
from leaderboard.sheets import Pictures, Sheets

HERE = Path(__file__).parent
MOST_PICTURES = 1000


def build(
    database: Database,
    folder: Path,
    pictures: Pictures | None = None,
    most_pictures: int = MOST_PICTURES,
    track: Track = untracked,
) -> Path:
    """Writes the site to a folder; returns its first page.

    `pictures` gives the images of the examples, `most_pictures` limits the adversarial ones per board.
    """
    site, boards = Folder(folder), queries.boards(database)
    site.frame("boards", frames.boards_frame(boards))
    site.frame("cells", frames.cells_frame(boards))
    site.frame("health", frames.health_frame(boards))
    for path in sorted((HERE / "static").iterdir()):
        site.copy(path, f"static/{path.name}")
    site.copy(HERE / "paper_results.csv", "paper_results.csv")
    pages = _Pages(database, site, Sheets(site, pictures, most_pictures), home.labels(boards))
    searches, contestants = key_searches.found(database), []
    with track("building the leaderboard", sum(map(_size, boards))) as tracker:
        for page in defence.pages(boards):
            own = [search for search in searches if defence.identity(search) == defence.identity(page.boards[0])]
            contestants += pages.defence(page, own, tracker)
    order = {board.id: place for place, board in enumerate(boards)}
    contestants.sort(key=lambda one: order[one.board.id])
    groups = compare.groups(contestants)
    site.frame("data/comparison", compare.pairs_frame(groups))
    pages.page("compare.html", "compare.html", groups=groups, paper_rows=[(n, paper.table3(n)) for n in paper.EPSILONS])
    pages.page("paper.html", "paper.html", items=reproductions.items(folder))
    pages.page(
        "about.html",
        "about.html",
        doubts=home.all_doubts(boards),
        checks=flags.MEANINGS,
        rule=ranking.RULE,
        **terms.everything(boards),
    )
    first = pages.page("index.html", "home.html", **home.context(contestants, example_sets.found(database, boards)))
    site.finish()
    return first


def _size(board: Board) -> int:
    """How much there is to show of a board."""
    return board.n_examples * (1 + len(board.cells))


class _Pages:
    """Writes pages, one defence after the other: only one board's answers are in memory at a time."""

    def __init__(self, database: Database, site: Folder, sheets: Sheets, labels: dict[int, str]) -> None:
        self._database, self._site, self._sheets, self._labels = database, site, sheets, labels
        self._environment = rendering.environment()

    def page(self, name: str, template: str, **context: Any) -> Path:
        """Renders a page; `root` leads from it to the site's folder."""
        text = self._environment.get_template(template).render(root="../" * name.count("/"), **context)
        return self._site.text(name, text)

    def defence(self, page: defence.Page, searches: Sequence[KeySearch], tracker: Tracker) -> list[Contestant]:
        """A defence's page and its boards' explorers; returns what the home page and the comparison need of them."""
        sections, contestants = [], []
        for board in page.boards:
            everything = outcomes.outcomes(self._database, board)
            runs = outcomes.runs(self._database, board.id)
            label = self._labels[board.id]
            dataset = str(runs[0].spec.get("dataset", board.dataset)) if runs else board.dataset
            files = outcomes.image_files(self._database, board.id)
            explorer.write(self._site, self._sheets, board, everything, dataset, board.examples_sha256, files)
            self.page(f"examples/board-{board.id}.html", "explorer.html", board=board, page=page, label=label)
            contestants.append(home.contestant(board, page, label, everything))
            made_of_parts = [cell.attack_id for cell in board.cells if cell.parts]
            broken = on_sources.broken_by_part(self._database, board.id, made_of_parts)
            sections.append(defence.section(self._site, page, board, everything, runs, broken))
            tracker.advance(_size(board), label)
        context = defence.context(self._site, page, sections, searches)
        self.page(f"defences/{page.slug}.html", "defence.html", label=self._labels[page.boards[0].id], **context)
        return contestants
