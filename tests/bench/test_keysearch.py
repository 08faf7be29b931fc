"""`bench keysearch` on the shipped Block Pixel Shuffle classifier, as users type it; and its tables in the store."""

from __future__ import annotations

import contextlib
import csv
import functools
import io
import json
import os
import pickle
import re
import signal
import sqlite3
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import sqlalchemy as sa
from click.testing import CliRunner, Result
from sqlalchemy.engine import Engine as Database

from bench.api import BenchError
from bench.cli import main
from bench.executors.channel import Channel, Frame
from bench.keys import PUBLISHED_KEY
from bench.keysearch import process
from bench.store import key_searches, schema, writer
from bench.store.database import migrate, open_database, writing
from bench.store.key_searches import KeyGuess, KeySearch
from bench.support.stats import at_least
from tests.processes import bench_command, started

SEARCH = ("keysearch", "--defence", "block-shuffle", "--paper")


def bench(*arguments: object, cwd: Path, **environment: str) -> Result:
    """Runs `bench …` in this process, which has TensorFlow already; the search's own process is a new one all the same."""
    with contextlib.chdir(cwd):
        return CliRunner(env=environment).invoke(main, [str(argument) for argument in arguments])


def rows(folder: Path) -> list[tuple[Any, ...]]:
    """What must be the same however a search went."""
    connection = sqlite3.connect(folder / "results" / "bench.db")
    return connection.execute("SELECT guess, origin, correct, images, stopped FROM key_guess ORDER BY guess").fetchall()


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A search among meta-seeds that nothing disturbed; what it printed is kept in out.txt."""
    folder = tmp_path_factory.mktemp("found")
    done = bench(*SEARCH, "--meta-seeds", "30..49", "--save", "found.key", cwd=folder, BENCH_HOME=str(folder / "home"))
    assert done.exit_code == 0, done.output
    (folder / "out.txt").write_text(done.stdout)
    return folder


@pytest.mark.needs_process
def test_the_published_key_is_found_and_the_defence_said_to_be_broken(found: Path) -> None:
    said = (found / "out.txt").read_text()
    assert f"BROKEN by key search: with the key {PUBLISHED_KEY} (meta-seed 42, guess number 13)" in said
    assert "--attack pgd@guessed-key --key-guess FOUND.key" in said
    assert "OUTSIDE the threat model" in said
    assert "← defended accuracy" in said
    assert "times fewer" in said
    assert "fresh images right: its defended accuracy" in said
    assert (found / "found.key").stat().st_mode & 0o777 == 0o600
    assert re.fullmatch(rf"found[0-9a-f]{{8}}:{PUBLISHED_KEY}\n", (found / "found.key").read_text())


@pytest.mark.needs_process
def test_the_race_kept_the_right_key_alone(found: Path) -> None:
    stored = rows(found)
    assert len(stored) == 20
    assert [guess for guess, *_, stopped in stored if stopped is None] == [PUBLISHED_KEY]
    assert sum(images for *_, images, _ in stored) < 20 * 100 * 3 / 4


@pytest.mark.needs_process
def test_no_guess_is_scored_twice(found: Path) -> None:
    before = rows(found)
    again = bench(*SEARCH, "--meta-seeds", "40..49", "--format", "json", cwd=found)
    assert again.exit_code == 0
    assert "0 guesses scored now, 20 in all" in again.stderr
    result = json.loads(again.stdout)
    assert result["broken"]
    assert result["found"] == [{"guess": str(PUBLISHED_KEY), "number": 3}]
    assert rows(found) == before


@pytest.mark.needs_process
def test_scored_to_the_end_the_race_ends_where_it_ended(found: Path, tmp_path: Path) -> None:
    done = bench(*SEARCH, "--meta-seeds", "40..44", "--no-race", "--format", "csv", cwd=tmp_path)
    assert done.exit_code == 0, done.output
    whole = {int(row["guess"]): row for row in csv.DictReader(io.StringIO(done.stdout))}
    assert {row["images"] for row in whole.values()} == {"100"}
    raced = {guess: stopped for guess, _, _, _, stopped in rows(found) if guess in whole}
    noted = {key: int(float(row["dropped_after"])) if row["dropped_after"] else None for key, row in whole.items()}
    assert noted == raced
    text = bench(*SEARCH, "--meta-seeds", "40..44", "--no-race", cwd=tmp_path).stdout
    assert "the race's part of that time" in text
    # And the other way round: a race after it has nothing to do, where a full score after a race has.
    assert "0 guesses scored now" in bench(*SEARCH, "--meta-seeds", "40..44", cwd=tmp_path).stderr


@pytest.mark.needs_process
def test_stopping_when_found(tmp_path: Path) -> None:
    arguments = [*SEARCH, "--meta-seeds", "42..300", "--stop-when-found"]
    assert "BROKEN" in bench(*arguments, cwd=tmp_path).stdout
    assert len(rows(tmp_path)) < 100
    assert "0 guesses scored now" in bench(*arguments, cwd=tmp_path).stderr


@pytest.mark.parametrize("kind", [signal.SIGINT, signal.SIGKILL])
@pytest.mark.needs_process
def test_stopped_and_started_again_it_ends_with_the_same_rows(
    found: Path, tmp_path: Path, kind: signal.Signals
) -> None:
    arguments = [*SEARCH, "--meta-seeds", "30..49"]
    with started(bench_command(*arguments), tmp_path) as process:
        deadline = time.monotonic() + 240
        while process.poll() is None and time.monotonic() < deadline:
            with contextlib.suppress(sqlite3.OperationalError):
                if rows(tmp_path):
                    break
            time.sleep(0.02)
        os.killpg(process.pid, kind)
        _, errors = process.communicate(timeout=60)
    if kind == signal.SIGINT:
        assert process.returncode == 130
        assert "the same command goes on from there" in errors
        assert "Traceback" not in errors
    kept = rows(tmp_path)
    assert 0 < len(kept) < 20
    assert bench(*arguments, cwd=tmp_path).exit_code == 0
    assert set(kept) <= set(rows(tmp_path))
    assert rows(tmp_path) == rows(found)


@pytest.mark.needs_process
def test_a_private_key_in_the_environment_stays_out_of_it(tmp_path: Path) -> None:
    """Its name chooses the classifier; the key itself is gone before anything is read, started or written."""
    done = bench(*SEARCH, "--meta-seeds", "1", cwd=tmp_path, BENCH_KEY="mine:1234567890123456789")
    assert done.exit_code == 2
    assert "under the key 'mine'" in done.stderr
    done = bench(
        *SEARCH, "--meta-seeds", "1", "--key-name", "published", cwd=tmp_path, BENCH_KEY="mine:1234567890123456789"
    )
    assert done.exit_code == 0, done.output
    for path in tmp_path.rglob("*"):
        assert path.is_dir() or b"1234567890123456789" not in path.read_bytes()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--defence", "block-shuffle"], "no guesses asked for"),
        (["--defence", "jpeg-23", "--random", "1"], "jpeg-23 has no key to search for"),
        (["--defence", "block-shuffle", "--meta-seeds", "a..b"], "--meta-seeds is 'a..b'"),
        (["--defence", "block-shuffle", "--random", "1"], "bench data fetch"),
        (["--defence", "block-shuffle[block=8]", "--random", "1"], "bench train --defence block-shuffle[block=8]"),
        (["--defence", "block-shuffle", "--random", "1", "--paper", "--slack", "0.7"], "lower --slack"),
        (["--defence", "block-shuffle", "--random", "1", "--save", "."], "never overwritten"),
    ],
)
def test_what_cannot_be_searched_is_refused(tmp_path: Path, arguments: list[str], said: str) -> None:
    done = bench("keysearch", *arguments, cwd=tmp_path)
    assert done.exit_code == 2
    assert said in done.stderr
    assert not (tmp_path / "results").exists()


def a_search(database: Database) -> int:
    defence = writer.ensure(database, schema.defence, {
        "name": "d", "version": "1", "params_json": "{}", "fingerprint": "d", "keyed": True, "key_id": "k",
        "weights_sha256": "w", "description": "D."})  # fmt: skip
    values = {
        "defence_id": defence, "dataset": "x", "split": "training", "n_images": 100, "images_sha256": "i",
        "inside_threat_model": True, "defended_accuracy": 0.8, "defended_images": 1000, "race_floor": 0.75,
        "race_error": 1e-4, "fingerprint": "s",
    }  # fmt: skip
    return key_searches.start(database, values, "bench keysearch")


def guess(key: int, correct: int, images: int = 100, origin: str = "meta-seed 1") -> KeyGuess:
    return KeyGuess(key, origin, correct, images, None if images == 100 else images, 1.0, 1.0)


def test_the_store_keeps_the_fuller_score_and_gives_the_best_first(tmp_path: Path) -> None:
    database = open_database(str(tmp_path / "bench.db"), create=True)
    search = a_search(database)
    assert a_search(database) == search
    key_searches.record(
        database, search, "first", [guess(-(2**63), 3, 20), guess(2**63 - 1, 30, origin="random, draw 1")]
    )
    key_searches.record(database, search, "then", [guess(-(2**63), 40), guess(2**63 - 1, 2, 8), guess(0, 78)])
    (stored,) = key_searches.found(database, "d")
    assert [(g.guess, g.correct, g.images) for g in stored.guesses] == [
        (0, 78, 100), (-(2**63), 40, 100), (2**63 - 1, 30, 100),
    ]  # fmt: skip
    assert stored.origins == {"meta-seed": 2, "random": 1}
    assert [g.guess for g in stored.candidates] == [0]
    assert stored.found == (), "nothing is found before fresh images say so"
    key_searches.confirm(database, search, 0, 470, 600)
    assert [g.guess for g in key_searches.found(database, "d")[0].found] == [0]
    key_searches.confirm(database, search, 0, 420, 600)
    assert key_searches.found(database, "d")[0].found == ()
    assert (stored.command, stored.defence, stored.key_id) == ("then", "d", "k")
    assert key_searches.found(database, "other") == []


def test_a_lucky_guess_is_no_break(tmp_path: Path) -> None:
    """47 of 100 images right where the defended accuracy is 64 %: a candidate, and fresh images say that it is none."""
    database = open_database(str(tmp_path / "bench.db"), create=True)
    search = a_search(database)
    with writing(database) as connection:
        connection.execute(sa.update(schema.key_search).values(defended_accuracy=0.64))
    key_searches.record(database, search, "first", [guess(7, 47)])
    (stored,) = key_searches.found(database)
    assert [g.guess for g in stored.candidates] == [7]
    needed = stored.fresh_images_needed
    for share, broken in ((0.47, False), (0.54, False), (0.64, True)):
        key_searches.confirm(database, search, 7, round(share * needed), needed)
        (stored,) = key_searches.found(database)
        assert bool(stored.found) == broken, share


@pytest.mark.parametrize("accuracy", [0.2, 0.64, 0.8, 0.93, 1.0])
def test_fresh_images_miss_the_right_key_and_take_a_wrong_one_as_rarely_as_is_said(accuracy: float) -> None:
    """Simulated: no right key of 2,000 is missed, and no key ten points worse (or half as good) taken for it."""
    search = KeySearch(
        1, "d", {}, "k", "w", "x", "training", 100, True, accuracy, 1000, accuracy - 0.05, 1e-4, "", "", "", ()
    )
    count, random = search.fresh_images_needed, np.random.default_rng(0)
    enough = next(k for k in range(count + 2) if at_least(k, count, search.too_low) <= 1e-4)
    assert (random.binomial(count, accuracy, 2000) >= enough).all()
    assert (random.binomial(count, search.too_low, 2000) < enough).all()


def test_scores_wait_for_a_database_that_another_process_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("bench.store.database.BUSY_SECONDS", 0.2)
    database = open_database(str(tmp_path / "bench.db"), create=True)
    search = a_search(database)
    other = sqlite3.connect(tmp_path / "bench.db", isolation_level=None, check_same_thread=False)
    other.execute("BEGIN IMMEDIATE")
    threading.Timer(2.5, lambda: other.execute("ROLLBACK")).start()
    key_searches.record(database, search, "bench keysearch", [guess(1, 30)])
    assert len(key_searches.found(database)[0].guesses) == 1
    assert "trying for another" in caplog.text


def test_scores_wait_for_a_server_that_is_briefly_gone(postgres: Any, caplog: pytest.LogCaptureFixture) -> None:
    database = open_database(postgres.database(), create=True)
    search = a_search(database)
    postgres.stop()
    threading.Timer(2.5, postgres.start).start()
    key_searches.record(database, search, "bench keysearch", [guess(1, 30), guess(2, 78)])
    (stored,) = key_searches.found(database)
    assert [(g.guess, g.correct) for g in stored.guesses] == [(2, 78), (1, 30)]
    assert "trying for another" in caplog.text
    database.dispose()


def test_a_database_of_the_first_schema_is_upgraded_with_what_it_holds(tmp_path: Path) -> None:
    path = tmp_path / "old.db"
    database = sa.create_engine(f"sqlite:///{path}")
    migrate(database, "0001")
    with database.begin() as connection:
        connection.execute(sa.text("INSERT INTO attack VALUES (1, 'pgd', '1', '{}', 'f')"))
    with pytest.raises(BenchError, match="bench db upgrade"):
        open_database(str(path), create=True)
    upgraded = open_database(str(path), create=False, upgrade=True)
    assert key_searches.found(upgraded) == []
    with upgraded.connect() as connection:
        assert connection.execute(sa.select(schema.attack.c.name)).scalars().all() == ["pgd"]


SEARCHED: dict[str, dict[str, Any]] = {
    "a key that was not asked for": {"key": 6},
    "a key of 2**70": {"key": 2**70},
    "more right than there are images": {"correct": 5},
    "images as text": {"images": "4"},
    "true images": {"images": True},
    "endless seconds": {"seconds": 10**400},
    "a field more": {"more": 1},
    "an error that is a list": {"error": []},
}
HONEST_SCORE = {"key": 5, "correct": 3, "images": 4, "seconds": 0.5, "raced_seconds": 0.5}


def forged_scores(channel: Channel, name: str) -> None:
    channel.receive()
    if name == "noise":
        channel._socket.sendall(pickle.dumps(HONEST_SCORE))
    else:
        channel.send({**HONEST_SCORE, **SEARCHED.get(name, {})})
    time.sleep(100)


@pytest.mark.needs_process
def test_what_the_search_process_sends_is_held_to_its_form(monkeypatch: pytest.MonkeyPatch) -> None:
    setup: Any = SimpleNamespace(images=range(4))
    for name in ["honest", "noise", *SEARCHED]:
        monkeypatch.setattr(process, "_serve", functools.partial(forged_scores, name=name))
        if name == "honest":
            (score,) = process.scores(setup, [5])
            assert score == process._score(Frame(HONEST_SCORE), 4)
        else:
            with pytest.raises(BenchError, match=r"^the key search's process sent .*, and was ended$"):
                list(process.scores(setup, [5]))
