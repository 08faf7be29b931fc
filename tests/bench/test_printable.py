"""What somebody else called something reaches a terminal without its escape sequences, whichever command prints it."""

from __future__ import annotations

import io
import json
import unicodedata
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from bench.api import BenchError
from bench.cli import main
from bench.store import schema, writer
from bench.support.printable import is_printable, printable, printable_json
from bench.support.progress import Reporter
from tests.stores import a_board, fill, opened

HOSTILE = "pgd\x1b]0;owned\x07\x1b[2J\x9b31m\u202egpj.\u2066\u2028x\x00"


def obeyed(text: str) -> set[str]:
    """The signs of a text that a terminal would do something for, but for the ends of lines."""
    return {sign for sign in text if unicodedata.category(sign) in ("Cc", "Cf", "Zl", "Zp", "Cs")} - {"\n"}


@given(st.text())
def test_nothing_is_left_that_a_terminal_obeys_and_nothing_else_changes(text: str) -> None:
    assert obeyed(printable(text)) <= {"\t"}
    if not obeyed(text):
        assert printable(text) == text
    assert is_printable(text) == (not obeyed(text) and "\n" not in text)
    assert json.loads(printable_json(json.dumps([text], ensure_ascii=False))) == [text]


@pytest.fixture
def db(tmp_path: Path) -> str:
    """A database in which everything is called something hostile."""
    database = opened(tmp_path)
    board = a_board(database, 3, name=HOSTILE)
    right = np.ones(3, bool)
    fill(database, board, {(schema.CLEAN, schema.CLEAN): right, (HOSTILE, HOSTILE): right})
    writer.set_doubts(database, (board, 2, 2), {HOSTILE: HOSTILE})
    database.dispose()
    return str(tmp_path / "bench.db")


@pytest.mark.parametrize(
    "words",
    [
        ("results",),
        ("results", "--format", "csv"),
        ("results", "--format", "json"),
        ("results", "--format", "json", "--what", "boards"),
        ("verify",),
        ("db", "info"),
    ],
    ids=" ".join,
)
def test_no_command_passes_it_on(db: str, words: tuple[str, ...]) -> None:
    done = CliRunner().invoke(main, [*words, "--db", db])
    assert "owned" in done.output or words == ("db", "info")
    assert obeyed(done.output) == set()


def test_neither_do_errors_and_progress(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def fail(*_: object, **__: object) -> None:
        raise BenchError(f"{HOSTILE} is refused")

    monkeypatch.setattr("bench.commands.options.open_database", fail, raising=False)
    monkeypatch.setattr("bench.store.database.open_database", fail)
    done = CliRunner().invoke(main, ["results"])
    assert done.exit_code == 1
    assert "is refused" in done.output
    assert obeyed(done.output) == set()
    reporter, shown = Reporter(), io.StringIO()
    reporter._console.file = shown
    reporter.say(HOSTILE)
    assert "owned" in shown.getvalue()
    assert obeyed(shown.getvalue()) == set()
