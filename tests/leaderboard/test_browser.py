"""The site in a real Chromium, from file://, without a network: what a reader does with it, and what it looks like."""

from __future__ import annotations

import contextlib
import json
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from subprocess import DEVNULL

import numpy as np
import pytest
from PIL import Image

from bench.store import evidence, queries
from bench.store.outcomes import outcomes
from tests.leaderboard.browser import Browser
from tests.leaderboard.conftest import Site
from tests.leaderboard.stores import HOSTILE
from tests.processes import bench_command, started

pytestmark = pytest.mark.needs_process

AUDIT = (Path(__file__).parent / "audit.js").read_text()
ROWS = "[...document.querySelectorAll('[data-norm=linf] .ours tr')].filter(row => row.checkVisibility())"
NAMES = f"{ROWS}.map(row => row.dataset.name)"
FOCUSABLE = "a[href], button, input, select, summary, [tabindex='0']"


def test_a_reader_sorts_filters_opens_a_defence_and_an_example(site: Site, browser: Browser) -> None:
    browser.open(site.home.as_uri())
    assert browser.run(NAMES) == ranked(site)
    browser.run("document.querySelector('[data-norm=linf] [data-sort=name]').click()")
    assert browser.run(NAMES) == ["block-shuffle", "jpeg-23", "linac", "none"]
    browser.run("document.querySelector('[data-norm=linf] [data-sort=name]').click()")
    assert browser.run(NAMES) == ["none", "linac", "jpeg-23", "block-shuffle"]
    assert (
        browser.run("document.querySelector('[data-norm=linf] [data-sort=name]').parentElement.ariaSort")
        == "descending"
    )
    assert browser.run("document.querySelector('tbody.paper').rows[0].className") == "group"
    choose(browser, "filter-keyed", "key")
    assert set(browser.run(NAMES)) == {"linac", "block-shuffle"}
    choose(browser, "filter-keyed", "")
    browser.run("document.getElementById('search').focus()")
    browser.type("jpeg")
    assert browser.run(NAMES) == ["jpeg-23"]
    assert "2 results" in browser.run("document.getElementById('shown').textContent")
    browser.type(" zzz")
    assert browser.run("document.querySelector('.empty').checkVisibility()")
    browser.follow("document.querySelector('[data-norm=l2] [data-name=linac] a')")
    assert browser.run("document.querySelector('h1').textContent") == "linac"
    browser.follow("document.querySelector('.section-head .button')")
    browser.wait_for("document.querySelectorAll('.example').length")
    browser.run("document.querySelectorAll('.example')[2].click()")
    browser.wait_for("document.getElementById('detail-rows').rows.length > 10")
    assert "Example 2" in browser.run("document.getElementById('detail-title').textContent")
    browser.key("Escape", 27)
    assert not browser.run("document.getElementById('detail').open")
    browser.wait_for("document.activeElement.dataset.example === '2'")


def test_the_theme_is_switched_and_remembered(site: Site, browser: Browser) -> None:
    browser.open(site.home.as_uri())
    background = "getComputedStyle(document.body).backgroundColor"
    before = browser.run(background)
    browser.run("document.getElementById('theme').click()")
    after = browser.run(background)
    assert after != before
    browser.open(site.page("linac").as_uri())
    assert browser.run(background) == after
    browser.run("document.getElementById('theme').click()")
    assert browser.run(background) == before


def test_the_explorer_filters_by_class_and_attack_and_pages_its_data(site: Site, browser: Browser) -> None:
    (board,) = queries.boards(site.database, only=1)
    found = outcomes(site.database, board)
    assert found.clean is not None
    browser.open((site.folder / "examples" / f"board-{board.id}.html").as_uri())
    count = "document.getElementById('where').textContent"
    assert browser.run(count) == f"1 to 48 of {board.n_examples}"
    assert not [url for url in browser.requests if re.search(r"/\d{5}\.js", url)]
    browser.run("document.getElementById('next').click()")
    assert browser.run(count) == f"49 to {board.n_examples} of {board.n_examples}"
    known = evidence.best_known(found)
    assert known is not None
    for choice, wanted in (
        ("held", known),
        ("wrong", ~found.clean),
        ("broken", found.clean & ~known),
        *((f"cell-{c}", found.clean & ~found.correct[:, c]) for c in (1, 7, 20)),
    ):
        choose(browser, "outcome", choice)
        assert shown(browser) == np.flatnonzero(wanted)[:48].tolist(), choice
    choose(browser, "outcome", "")
    choose(browser, "class", "3")
    cats = np.flatnonzero(found.labels == 3)
    assert shown(browser) == cats.tolist()
    browser.run("document.querySelector('.example').click()")
    browser.wait_for("document.getElementById('detail-rows').rows.length")
    rows = browser.run(
        "[...document.getElementById('detail-rows').rows].map(r => [...r.cells].map(c => c.textContent))"
    )
    margins = sorted(found.margin[cats[0]].tolist())
    assert [float(row[2].replace("−", "-")) for row in rows] == pytest.approx(margins, abs=0.006)
    assert sum("wrong" in row[1] for row in rows) == int((~found.correct[cats[0]]).sum())
    assert any(url.endswith("/00000.js") for url in browser.requests)


def test_an_example_can_be_linked_to_and_walked_by_keyboard(site: Site, browser: Browser) -> None:
    browser.open((site.folder / "examples" / "board-1.html").as_uri() + "#example-7")
    browser.wait_for("document.getElementById('detail').open")
    browser.key("ArrowRight", 39)
    browser.wait_for("document.getElementById('detail-title').textContent.startsWith('Example 8')")
    browser.key("ArrowLeft", 37)
    browser.wait_for("document.getElementById('detail-title').textContent.startsWith('Example 7')")


def test_the_comparison_follows_the_choice(site: Site, browser: Browser) -> None:
    browser.open((site.folder / "compare.html").as_uri())
    pairs = "[...document.querySelectorAll('.comparison [data-pair]')].filter(r => r.checkVisibility()).length"
    assert browser.run(pairs) == 12
    browser.run("document.querySelectorAll('.comparison')[0].querySelectorAll('input')[3].click()")
    assert browser.run(pairs) == 9
    first = "document.querySelector('.comparison [data-pair] .verdict').textContent"
    assert browser.run(first) == "linac holds up better"
    browser.run(
        "[...document.querySelector('.comparison').querySelectorAll('input')].slice(1).forEach(b => b.checked && b.click())"
    )
    assert "at least two" in browser.run("document.querySelector('.pairs-note').textContent")


def test_nothing_hostile_runs_and_everything_hostile_is_shown(hostile_site: Site, browser: Browser) -> None:
    for page in hostile_site.pages():
        browser.open(page.as_uri())
        if page.parent.name == "examples":
            browser.wait_for("document.querySelectorAll('.example').length")
            browser.run("document.querySelector('.example').click()")
            browser.wait_for("document.getElementById('detail-rows').rows.length")
        assert "owned" not in browser.run("document.title").replace(HOSTILE, "").replace(HOSTILE + "2", "")
        assert browser.run("document.querySelectorAll('main img, main script, [onerror]').length") == 0
        if page.name not in ("about.html", "paper.html"):
            assert HOSTILE in browser.run("document.body.textContent"), page.name


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_kind_of_page_fits_and_can_be_read(
    site: Site, browser: Browser, tmp_path: Path, width: int, theme: str
) -> None:
    """Screenshots, no sideways scrolling, and contrast, names, headings and targets as `audit.js` checks them."""
    browser.resize(width)
    reproduced = ("paper.html", "paper/table3.html", "paper/figure3.html")
    for name in (
        "index.html",
        "compare.html",
        "about.html",
        "examples/board-1.html",
        *reproduced,
        *defence_pages(site),
    ):
        browser.open((site.folder / name).as_uri())
        browser.run(f"document.documentElement.dataset.theme = '{theme}'")
        browser.run("document.querySelectorAll('details').forEach(d => { d.open = true; })")
        result = browser.run(AUDIT)
        assert result["problems"] == [], name
        assert result["texts"] > 20, name
        assert browser.run("document.documentElement.scrollWidth") <= width, name
        picture = tmp_path / "page.png"
        browser.screenshot(picture)
        with Image.open(picture) as image:
            assert image.width == width
            assert len(image.convert("RGB").getcolors(maxcolors=2**24) or []) > 50
    browser.open((site.folder / "examples" / "board-1.html").as_uri() + "#example-3")
    browser.wait_for("document.getElementById('detail-rows').rows.length")
    assert browser.run(AUDIT)["problems"] == []


def test_the_audit_finds_what_is_wrong(site: Site, browser: Browser) -> None:
    browser.open(site.home.as_uri())
    browser.run(
        "document.querySelector('main').insertAdjacentHTML('beforeend', "
        '\'<h4>deep</h4><p style="color: #999; background: #fff">pale</p><button></button><p id="theme">twice</p>\')'
    )
    found = " ".join(browser.run(AUDIT)["problems"])
    for problem in ("contrast 2.85, needs 4.5", "no name", "h4 after h2", "id theme twice"):
        assert problem in found


def test_the_keyboard_reaches_everything_in_order_and_one_sees_where(site: Site, browser: Browser) -> None:
    browser.open(site.home.as_uri())
    wanted = browser.run(
        f'window.all = [...document.querySelectorAll("{FOCUSABLE}")].filter(e => e.checkVisibility() && !e.disabled '
        "&& (!e.closest('details:not([open])') || e.tagName === 'SUMMARY')); all.length"
    )
    reached = []
    for _ in range(wanted):
        browser.key("Tab", 9)
        reached.append(browser.run("window.all.indexOf(document.activeElement)"))
        style = browser.run("getComputedStyle(document.activeElement).outlineStyle")
        assert style != "none", browser.run("document.activeElement.outerHTML")[:200]
    assert reached == list(range(wanted))


def test_the_home_page_is_ready_at_once(site: Site, browser: Browser) -> None:
    browser.open(site.home.as_uri())
    timing = browser.run("performance.getEntriesByType('navigation')[0].toJSON()")
    assert timing["loadEventEnd"] < 2000
    assert site.home.stat().st_size < 1_000_000


def test_serve_shows_it_over_http_to_this_machine(site: Site, browser: Browser) -> None:
    with served(site) as address:
        browser.open(address)
        assert browser.run(NAMES) == ranked(site)
        browser.open(f"{address}examples/board-1.html#example-1")
        browser.wait_for("document.getElementById('detail-rows').rows.length")


@contextlib.contextmanager
def served(site: Site) -> Iterator[str]:
    with started(bench_command("serve", "--out", site.folder, "--port", 0), stderr=DEVNULL) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        found = re.match(r"(http://127\.0\.0\.1:\d+/)", line)
        assert found, line
        yield found[1]
        process.send_signal(signal.SIGINT)
        process.wait(30)


def choose(browser: Browser, control: str, value: str) -> None:
    browser.run(
        f"(() => {{ const c = document.getElementById('{control}'); c.value = {json.dumps(value)}; "
        "c.dispatchEvent(new Event('change', {bubbles: true})); })()"
    )


def shown(browser: Browser) -> list[int]:
    return list(browser.run("[...document.querySelectorAll('.example')].map(e => Number(e.dataset.example))"))


def ranked(site: Site) -> list[str]:
    """The defences in the order the store ranks them, in L-inf at the usual epsilon."""
    return [b.defence for b in queries.boards(site.database) if b.norm == "linf" and b.epsilon == 8 / 255]


def defence_pages(site: Site) -> list[str]:
    return [f"defences/{site.page(name).name}" for name in ("linac", "jpeg-23")]
