"""The site over 10 million synthetic rows: how long it takes to build, what memory, how large and how quick its pages are.

python -m benchmarks.site [--boards 10] [--examples 10000] [--attacks 4] [--sources 25] [--db FILE] [--out FOLDER]

The pictures are noise, which no PNG makes smaller; what the attacks made is read from memory instead of from files. The
store of --db is made if it is not there, and kept. The pages are opened in a Chromium, if there is one.
"""

from __future__ import annotations

import argparse
import resource
import shutil
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import sqlalchemy as sa
from sqlalchemy.engine import Engine as Database

from bench.store import schema
from bench.store.database import open_database, writing
from bench.store.outcomes import ImageFile
from benchmarks.store import fill
from leaderboard.build import MOST_PICTURES, build

SHARD = 50


class Noise:
    """Pictures of any examples."""

    def __init__(self, count: int) -> None:
        self._images = np.random.default_rng(0).integers(0, 256, (count, 32, 32, 3), dtype=np.uint8)

    def clean(self, dataset: str, sha256: str, count: int) -> tuple[np.ndarray, Sequence[str]]:
        return self._images[:count], [f"class {i}" for i in range(10)]

    def adversarial(self, file: ImageFile) -> np.ndarray:
        own = self._images[np.asarray(file.examples)]
        return np.clip(own.astype(np.float32) / 255 + np.where(own % 2, 8 / 255, -8 / 255), 0, 1).astype(np.float32)


def make(database: Database, boards: int, examples: int, attacks: int, sources: int) -> None:
    """The store's synthetic rows with answers, margins and kept images."""
    fill(database, boards, examples, attacks, sources, answers=True)
    shards = [(start, start + SHARD) for start in range(0, min(examples, MOST_PICTURES), SHARD)]
    with writing(database) as connection:
        cells = connection.execute(
            sa.select(schema.cell.c.board_id, schema.cell.c.attack_id, schema.cell.c.source_id)
        ).all()
        connection.execute(
            sa.insert(schema.shard),
            [
                {**cell._mapping, "start": start, "stop": stop, "status": "done", "attempt": 1, "worker": "", "seconds": 0,
                 "images_file": f"{start}"}
                for cell in cells
                for start, stop in shards
            ],
        )  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, default in (("boards", 10), ("examples", 10_000), ("attacks", 4), ("sources", 25)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--db", type=Path)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path, out = options.db or Path(folder, "store.db"), options.out or Path(folder, "site")
        if not path.exists():
            make(
                open_database(str(path), create=True),
                options.boards,
                options.examples,
                options.attacks,
                options.sources,
            )
        database = open_database(str(path), create=False)
        began, used = time.monotonic(), time.process_time()
        home = build(database, out, Noise(options.examples))
        print(
            f"built in {time.monotonic() - began:.1f} s, of which {time.process_time() - used:.1f} s of processor time"
        )
        files = [file.stat().st_size for file in out.rglob("*") if file.is_file()]
        print(f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MiB")
        print(
            f"home page {home.stat().st_size / 1024:.0f} KiB; site {len(files):,} files, {sum(files) / 2**20:.0f} MiB"
        )
        start, part = (
            next(out.glob(f"examples/board-*/{name}.js")).stat().st_size / 1024 for name in ("index", "00000")
        )
        print(f"explorer of a board: {start:.0f} KiB to start, {part:.0f} KiB per hundred examples")
        _browse(home, next(out.glob("examples/board-*.html")))


def _browse(home: Path, explorer: Path) -> None:
    """How soon the home page and an explorer can be used, and what the explorer has loaded by then."""
    if not (shutil.which("chromium") or shutil.which("google-chrome")):
        print("no Chromium here: how soon the pages can be used was not measured")
        return
    from tests.leaderboard.browser import Browser

    with Browser() as browser:
        browser.open(home.as_uri())
        loaded = browser.run("performance.getEntriesByType('navigation')[0].loadEventEnd")
        browser.run("document.querySelector('[data-sort=name]').click()")
        sorted_by = browser.run("document.querySelector('[data-sort=name]').parentElement.ariaSort")
        print(f"home page loaded in {loaded:.0f} ms; then sorted by a click: {sorted_by}")
        browser.requests.clear()
        browser.open(explorer.as_uri())
        browser.wait_for("document.querySelectorAll('.example').length")
        ready = browser.run("performance.now()")
        print(f"explorer shows its first examples after {ready:.0f} ms, of {len(browser.requests)} files")


if __name__ == "__main__":
    main()
