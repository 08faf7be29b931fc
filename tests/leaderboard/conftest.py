"""Sites built once for all tests of the pages, and one browser to look at them with."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy.engine import Engine as Database

from bench.evaluation import images
from bench.evaluation.pictures import KeptPictures
from leaderboard.build import build
from tests.leaderboard import stores
from tests.leaderboard.browser import Browser


class Site:
    """A built site and the store behind it."""

    def __init__(self, filler: stores.Filler, folder: Path) -> None:
        self.database: Database = filler.database
        self.db, self.folder = filler.path, folder
        self.home = build(filler.database, folder, KeptPictures(images.folder_of(str(filler.path))))

    def pages(self) -> list[Path]:
        return sorted(self.folder.rglob("*.html"))

    def page(self, start: str) -> Path:
        """The page of the defence whose file name starts so."""
        return next(path for path in (self.folder / "defences").iterdir() if path.name.startswith(start))


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    folder = tmp_path_factory.mktemp("site")
    filler = stores.paper_like(folder)
    stores.reproduce(filler, folder / "leaderboard")
    return Site(filler, folder / "leaderboard")


@pytest.fixture(scope="session")
def hostile_site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    folder = tmp_path_factory.mktemp("hostile")
    return Site(stores.hostile(folder), folder / "leaderboard")


@pytest.fixture(scope="session")
def surviving_site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    folder = tmp_path_factory.mktemp("surviving")
    return Site(stores.surviving(folder), folder / "leaderboard")


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    with Browser() as browser:
        yield browser


@pytest.fixture
def browser(chromium: Browser) -> Iterator[Browser]:
    """The browser, asked at the end whether anything went wrong or came from elsewhere."""
    chromium.problems.clear()
    chromium.requests.clear()
    chromium.resize(1280)
    yield chromium
    assert chromium.problems == []
    assert [url for url in chromium.requests if not url.startswith(("file:", "data:", "http://127.0.0.1:"))] == []
