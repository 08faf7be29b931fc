"""An honest archive with something changed, a thousand times: any field, any array, any file name.

What is accepted changes no number that was there before; what is refused leaves every byte as it was.
"""

from __future__ import annotations

import collections
import contextlib
import functools
import random
import shutil
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench.api import BenchError
from bench.evaluation import rejudging
from bench.exchange import importing
from bench.store import queries
from bench.store.database import open_database
from tests import vaults
from tests.archives import Forgery, everything, files, write

pytestmark = pytest.mark.needs_process

CASES, SEEDS = 250, range(4)
VALUES: tuple[Any, ...] = (
    None, True, False, -1, 0, 1, 3, 2**31, 2**63, 10**400, -0.5, 1e-9, 0.5, 1e300, "", "x", "clean", "published", "judged",
    "a\x1b[2J", "\u202e", "\x00", "../../x", "x" * 10**5, [], {}, "{}", "[]", '{"a": 1}', '{"seed": 0}', "0" * 64,
)  # fmt: skip


class Chance(random.Random):
    """What is changed of an archive, and to what."""

    def value(self, old: Any) -> Any:
        """Another value in place of one: anything, or something near."""
        if isinstance(old, bool) or self.random() < 0.5:
            return self.choice(VALUES)
        if isinstance(old, int):
            return old + self.choice((-1, 1, 10, 1000))
        if isinstance(old, float):
            return old * self.choice((0.5, 0.999, 1.001, 2.0))
        if isinstance(old, str) and old:
            at = self.randrange(len(old))
            return old[:at] + self.choice("0123456789abcdef{}\"',\x1b\u202e") + old[at + self.randrange(2) :]
        return self.choice(VALUES)

    def field(self, forgery: Forgery) -> None:
        table = self.choice([name for name, rows in forgery.tables.items() if rows])
        row = self.choice(forgery.tables[table])
        name = self.choice(sorted(row))
        what = self.random()
        if what < 0.9:
            row[name] = self.value(row[name])
        elif what < 0.95:
            del row[name]
        else:
            row[f"{name}2"] = row[name]

    def table(self, forgery: Forgery) -> None:
        rows = forgery.tables[self.choice(sorted(forgery.tables))]
        if self.random() < 0.5:
            rows.append(dict(self.choice(rows)))
        else:
            rows.pop(self.randrange(len(rows)))

    def top(self, forgery: Forgery) -> None:
        name = self.choice(sorted(forgery.manifest))
        forgery.manifest[name] = self.value(forgery.manifest[name])

    def array(self, forgery: Forgery) -> None:
        columns = forgery.rows[self.choice(sorted(forgery.rows))]
        name, what = self.choice(sorted(columns)), self.random()
        if what < 0.8:
            values = columns[name] = columns[name].copy()
            near = values[0] + self.choice((-1, 1)) if self.random() < 0.6 else self.choice((0, 1, 7, 2**31, 2**40))
            values[self.randrange(len(values))] = near
        elif what < 0.9:
            columns[name] = columns[name].astype(self.choice((np.float32, np.int8, np.complex64, bool)))
        else:
            columns[name] = columns[name][:-1] if self.random() < 0.5 else columns[name].reshape(1, -1)

    def images(self, forgery: Forgery) -> None:
        name, what = self.choice(sorted(forgery.images)), self.random()
        content = bytearray(forgery.images[name])
        if what < 0.4:
            content[self.randrange(len(content))] ^= 1 << self.randrange(8)
            forgery.images[name] = bytes(content)
        elif what < 0.6:
            forgery.images[name] = forgery.images[self.choice(sorted(forgery.images))]
        else:
            forgery.images.pop(name)
            for shard in forgery.tables["shard"]:
                if shard["images_file"] == name:
                    shard["images_file"] = shard["images_sha256"] = None

    def weights(self, forgery: Forgery) -> None:
        if self.random() < 0.5:
            forgery.another_weight(self.randrange(100), self.choice((0.0, 1.0, np.nan, 1e4)))
        else:
            name = self.choice(sorted(forgery.rest))
            content = bytearray(forgery.rest[name])
            content[self.randrange(len(content))] ^= 1 << self.randrange(8)
            forgery.rest[name] = bytes(content)

    def names(self, forgery: Forgery) -> None:
        kind = self.choice(("images", "rest"))
        old: dict[str, bytes] = getattr(forgery, kind)
        name = self.choice(sorted(old))
        new = str(self.value(name))[:1000]
        old[new] = old.pop(name)
        for shard in forgery.tables["shard"]:
            if shard.get("images_file") == name and self.random() < 0.5:
                shard["images_file"] = new

    def changed(self, packed: Path) -> Forgery:
        """An archive with one to three changes; mostly of an attack that is not there yet, so that it would be taken."""
        forgery = Forgery(packed)
        if self.random() < 0.7:
            forgery.another_attack(steps=self.choice((21, 22, 23))).mend()
        if self.random() < 0.3:
            forgery.all_broken()
            if self.random() < 0.7:
                forgery.without_images(self.choice((0, 3)))
        ways = [self.field] * 3 + [self.array] * 2 + [self.table, self.top, self.images, self.names, self.weights]
        for _ in range(self.choice((1, 1, 2, 3))):
            # What another change took away, or damaged.
            with contextlib.suppress(IndexError, KeyError, TypeError, ValueError, zipfile.BadZipFile):
                self.choice(ways)(forgery)
        if self.random() < 0.7:
            with contextlib.suppress(Exception):  # what was changed may have no fingerprint
                forgery.mend()  # so that only what it says is wrong, and no digest tells
        return forgery


def numbers(db: Path) -> Any:
    """Every number that is made of several cells, and those of every cell of one's own."""
    database = open_database(str(db), create=False)
    (board,) = [board for board in queries.boards(database) if any(cell.imported is None for cell in board.cells)]
    by_source = queries.best_by_source(database, board)
    database.dispose()
    own = [cell for cell in board.cells if cell.imported is None]
    engines = {name: count for name, count in board.best_adversary.items() if name in {cell.attack for cell in own}}
    sources = {name: count for name, count in by_source.items() if name in {cell.source for cell in own}}
    return board.best_known, engines, board.clean, own, sources, board.preset, board.n_examples, board.left_out


@pytest.fixture
def one_referee(monkeypatch: pytest.MonkeyPatch) -> None:
    """The defended model is loaded once for all cases of a defence: nothing that is changed here is part of it."""
    true, known = rejudging._referee, dict[Any, Any]()

    @functools.wraps(true)
    def referee(board: Any, key: Any, *more: Any, **others: Any) -> Any:
        mark = (repr(dict(board.defence)), board.row["dataset"], board.row["n_examples"], key.id)
        if mark not in known:
            known[mark] = true(board, key, *more, **others)
        return known[mark]

    monkeypatch.setattr(rejudging, "_referee", referee)


def offered(path: Path, own: Path) -> importing.Imported | str:
    """What an import did, or why it was refused."""
    try:
        return importing.import_(path, str(own / "bench.db"), own / "bench.images", vaults.published())
    except BenchError as refusal:
        return str(refusal)


@pytest.mark.parametrize("seed", SEEDS)
def test_what_is_accepted_changes_no_number_and_what_is_refused_changes_no_byte(
    packed: Path, honest: Path, tmp_path: Path, own_home: Path, one_referee: None, seed: int
) -> None:
    own, chance, seen = tmp_path / "own", Chance(seed), collections.Counter[str]()
    shutil.copytree(honest / "results", own)
    rows_before, numbers_before = everything(own / "bench.db"), numbers(own / "bench.db")
    bytes_before, images_before = files(own), files(own / "bench.images")
    for case in range(CASES):
        forgery = chance.changed(packed)
        try:
            write(tmp_path / "offered.zip", forgery.content(), zipfile.ZIP_STORED)
        except Exception:  # ours: such as a manifest that is no mapping any more
            seen["no archive"] += 1
            continue
        done = offered(tmp_path / "offered.zip", own)
        if isinstance(done, str):
            seen["refused"] += 1
            assert "\n" not in done, case
            assert files(own) == bytes_before, (case, done)
            assert files(own_home) == {}, case
            continue
        seen["accepted, with rows" if done.rows else "accepted, nothing new"] += 1
        after, images = everything(own / "bench.db"), files(own / "bench.images")
        assert all(rows <= after[table] for table, rows in rows_before.items()), case
        assert images_before.items() <= images.items(), case
        assert numbers(own / "bench.db") == numbers_before, case
        shutil.rmtree(own)
        shutil.copytree(honest / "results", own)
        shutil.rmtree(own_home / "imported", ignore_errors=True)
        bytes_before = files(own)
    print(dict(seen))
    assert seen["refused"] > CASES / 4
    assert seen["accepted, with rows"] > CASES / 50
    assert seen["no archive"] < CASES / 10
