"""Builds the static site: pages, and CSV and JSON beside them. Opens from file://, loads nothing from elsewhere."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jinja2
from sqlalchemy.engine import Engine

from bench.store import frames, outcomes, queries
from bench.store.queries import Board
from leaderboard import compare, defence, explorer, home, paper, words
from leaderboard.compare import Contestant
from leaderboard.explorer import Pictures
from leaderboard.figures import KeySearch
from leaderboard.output import Folder

HERE = Path(__file__).parent
MOST_PICTURES = 1000

KeySearches = Callable[[Sequence[Board]], KeySearch | None]


def build(
    engine: Engine,
    folder: Path,
    pictures: Pictures | None = None,
    most_pictures: int = MOST_PICTURES,
    key_searches: KeySearches = lambda boards: None,
) -> Path:
    """Writes the site to a folder; returns its first page.

    `pictures` gives the images of the examples, `most_pictures` limits the adversarial ones of a board, and
    `key_searches` gives what is known of guessed keys of the defence that some boards have in common.
    """
    site, render = Folder(folder), _environment()
    boards = queries.boards(engine)
    site.frame("boards", frames.boards_frame(boards))
    site.frame("cells", frames.cells_frame(boards))
    for path in sorted((HERE / "static").iterdir()):
        site.copy(path, f"static/{path.name}")
    site.copy(HERE / "paper_results.csv", "paper_results.csv")
    labels = home.labels(boards)
    clean_of = _clean_images(site, pictures)
    contestants: list[Contestant] = []
    for page in defence.pages(boards):
        shown = []
        for board in page.boards:
            everything = outcomes.outcomes(engine, board)
            runs = outcomes.runs(engine, board.id)
            sha256 = outcomes.examples_sha256(engine, board.id)
            dataset = str(runs[0].spec.get("dataset", board.dataset)) if runs else board.dataset
            files = outcomes.image_files(engine, board.id)
            clean, sheets = clean_of(dataset, sha256, board.n_examples)
            explorer.write(site, board, everything, files, clean, pictures, most_pictures, sheets)
            site.text(
                f"examples/board-{board.id}.html",
                render(
                    "explorer.html", root="../", board=board, page=page, label=labels[board.id], pictures=most_pictures
                ),
            )
            contestants.append(home.contestant(board, page, labels[board.id], sha256, everything))
            shown.append(defence.section(site, page, board, everything, runs))
        context = defence.context(site, page, shown, key_searches(page.boards))
        site.text(
            f"defences/{page.slug}.html", render("defence.html", root="../", label=labels[page.boards[0].id], **context)
        )
    order = {board.id: place for place, board in enumerate(boards)}
    contestants.sort(key=lambda one: order[one.board.id])
    groups = compare.groups(contestants)
    site.frame("data/comparison", compare.pairs_frame(groups))
    site.text("compare.html", render("compare.html", root="", groups=groups, paper_rows=_paper_tables()))
    site.text("about.html", render("about.html", root="", doubts=home.all_doubts(boards)))
    first = site.text("index.html", render("home.html", root="", **home.context(contestants)))
    site.finish()
    return first


def _clean_images(site: Folder, pictures: Pictures | None) -> Callable[[str, str, int], tuple[Any, str]]:
    """The clean images of some examples and where their sheets are; boards on the same examples share both."""

    @functools.lru_cache(maxsize=4)
    def of(dataset: str, sha256: str, count: int) -> tuple[Any, str]:
        place = f"examples/images-{sha256[:12]}"
        found = pictures.clean(dataset, sha256, count) if pictures else None
        if found is not None:
            explorer.clean_sheets(site, place, found[0])
        return found, place.removeprefix("examples/")

    return of


def _paper_tables() -> list[tuple[str, list[paper.Row]]]:
    return [(norm, paper.table3(norm)) for norm in paper.EPSILONS]


def _environment() -> Callable[..., str]:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(HERE / "templates"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters |= {
        "share": words.share,
        "interval": words.interval,
        "epsilon": words.epsilon,
        "settings": words.settings,
        "norm": words.norm,
        "strategy": words.strategy,
        "thousands": words.thousands,
        "plural": words.plural,
        "pretty": lambda value: json.dumps(value, indent=1, ensure_ascii=False),
    }
    environment.globals |= {"words": words, "citation": paper.CITATION}

    def render(template: str, **context: Any) -> str:
        return environment.get_template(template).render(**context)

    return render
