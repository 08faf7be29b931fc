"""The page in a real browser, from file://, and its numbers against the store's."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from bench.store import frames, queries, schema
from leaderboard.build import build
from tests.bench.test_store import a_board, a_cell, fill, opened, shard, writer

HOSTILE = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>'\"&"


@pytest.fixture
def site(tmp_path: Path) -> tuple[object, Path]:
    """A store with a complete board, a partial one, a failed cell, doubts, and names full of HTML; and its page."""
    engine, random = opened(tmp_path), np.random.default_rng(0)
    clean = {(schema.CLEAN, schema.CLEAN): np.ones(10, bool)}
    first = a_board(engine, 10, "honest")
    fill(engine, first, {**clean, ("pgd", "nominal"): random.random(10) < 0.7, ("mt", "nominal"): random.random(10) < 0.7})
    fill(engine, first, {("pgd", "self"): np.zeros(10, bool)}, inside=False)
    second = a_board(engine, 10, HOSTILE)
    fill(engine, second, {**clean, (HOSTILE, "nominal"): random.random(10) < 0.9})
    half = a_cell(engine, second, "square", "nominal")
    writer.record_shard(engine, half, shard(0, [True, False]), 10)
    failed = a_cell(engine, second, "mt", "nominal")
    writer.fail_shard(engine, failed, 0, 10, "w", HOSTILE)
    writer.set_doubts(engine, half, {"zero-gradient": HOSTILE})
    return engine, build(engine, tmp_path / "site")


def chromium(page: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The page in headless Chromium, with every way out of the machine closed."""
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if found is None:
        assert not os.environ.get("CI"), "in CI nothing that needs Chromium is skipped"
        pytest.skip("no Chromium on this machine")
    flags = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
             "--disable-background-networking", "--disable-component-update", f"--user-data-dir={page.parent / 'profile'}",
             "--host-resolver-rules=MAP * ~NOTFOUND", "--enable-logging=stderr")  # fmt: skip
    return subprocess.run([found, *flags, *arguments, page.as_uri()], capture_output=True, text=True, timeout=120)


def test_the_page_opens_without_a_network_and_runs_nothing_hostile(site: tuple[object, Path]) -> None:
    shown = chromium(site[1], "--dump-dom", "--virtual-time-budget=2000")
    assert "<title>bench: Best Known accuracy of key-based defences</title>" in shown.stdout
    assert "CONSOLE" not in shown.stderr, shown.stderr
    assert HOSTILE not in shown.stdout
    text = re.sub(r"<[^>]+>", "", shown.stdout)
    assert "partial" in text
    assert "Outside the threat model" in text


@pytest.mark.parametrize("width", [1280, 390])
def test_the_page_can_be_looked_at(site: tuple[object, Path], tmp_path: Path, width: int) -> None:
    picture = tmp_path / f"{width}.png"
    chromium(site[1], f"--screenshot={picture}", f"--window-size={max(width, 500)},1200")
    with Image.open(picture) as image:
        assert len(image.convert("RGB").getcolors(maxcolors=2**24) or []) > 20


def test_nothing_comes_from_elsewhere(site: tuple[object, Path]) -> None:
    html = site[1].read_text()
    assert not re.search(r"(src|href)=[\"']?(https?:)?//", html)


def test_the_numbers_are_those_of_the_store(site: tuple[object, Path]) -> None:
    engine, page = site
    boards = queries.boards(engine)  # type: ignore[arg-type]
    cells = json.loads((page.parent / "cells.json").read_text())
    assert cells == json.loads(frames.cells_frame(boards).to_json(orient="records"))
    honest = next(board for board in boards if board.defence == "honest")
    row = re.search(rf"<tr[^>]*>(?:(?!</tr>).)*#board-{honest.id}(?:(?!</tr>).)*</tr>", page.read_text(), re.DOTALL)
    assert row is not None
    assert f"{10 * (honest.best_known or 0):.2f}" in row.group()
    table = page.read_text().split(f'id="board-{honest.id}"')[1]
    for cell in honest.counted:
        assert f">{10 * cell.n_correct:.2f}" in table


def test_an_empty_store_has_a_page_too(tmp_path: Path) -> None:
    assert "No results yet" in build(opened(tmp_path), tmp_path / "site").read_text()
