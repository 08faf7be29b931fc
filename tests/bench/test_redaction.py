"""No password of a database URL is printed or stored, whatever characters it has and however it is written."""

from __future__ import annotations

import shlex
import traceback
from collections.abc import Callable
from typing import Any
from urllib.parse import quote, quote_plus

import pytest
import sqlalchemy as sa
from click.testing import CliRunner
from hypothesis import example, given
from hypothesis import strategies as st
from sqlalchemy.engine import make_url

from bench.api import BenchError
from bench.cli import main
from bench.store.database import open_database, url_of, user_errors
from bench.store.redaction import redacted, redacted_arguments, redacted_command

MARKS = ("Xq7Zk9Wv", "Jb4Lr2Ty")
characters = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=5)
awkward = st.text("@:/?#&=%[]'\"\\ \n,+", max_size=5)
passwords = st.tuples(characters | awkward, characters | awkward, characters | awkward).map(
    lambda parts: f"{parts[0]}{MARKS[0]}{parts[1]}{MARKS[1]}{parts[2]}"
)
forms = st.sampled_from([str, quote_plus, lambda text: quote(text, safe=""), lambda text: quote(text, safe="@:/?&=")])
urls = st.sampled_from(
    [
        "postgresql://me:{}@127.0.0.1:1/none",
        "postgresql://:{}@127.0.0.1:1/none",
        "postgresql+psycopg://us@er:{}@[::1]:1/none?sslmode=require",
        "postgresql://us/er:{}@127.0.0.1/none?application_name=a@b",
        "postgresql:///none?host=127.0.0.1&user=me&password={}",
        "postgresql://127.0.0.1:1/none?PASSWORD={}&sslmode=require",
        "postgresql://me:{0}@127.0.0.1:1/none?pass%77ord={0}",
        "postgresql://me%3A{}@127.0.0.1:1/none",
        "postgresql://me:{}%40127.0.0.1:1/none",
        "sqlite://me:{}@127.0.0.1/none.db",
        "postgres:/me:{}@127.0.0.1/none",
        "postgresql:me:{}@127.0.0.1",
        "me:{}@127.0.0.1/none",
        "host=127.0.0.1 user=me password={}",
    ]
)  # fmt: skip


def leaks(text: str) -> list[str]:
    return [mark for mark in MARKS if mark in text]


@given(urls, passwords, forms)
@example("postgresql://me:{}@127.0.0.1:1/none", f"{MARKS[0]}@ss:{MARKS[1]}", str)  # the rest would be host and port
@example("postgresql://me:{}@127.0.0.1:1/none", f"{MARKS[0]}'\"{MARKS[1]}", str)  # a shell's quotes go between
def test_it_is_in_nothing_that_is_shown_or_stored(url: str, password: str, form: Callable[[str], str]) -> None:
    text = url.format(form(password))
    assert not leaks(redacted(text))
    assert redacted(redacted(text)) == redacted(text)
    for given_as in (["--db", text], [f"--db={text}"]):
        command = ["bench", "run", *given_as, "--attack", "pgd[a=b:c]@nominal"]
        safe = redacted_command(shlex.join(command))
        assert not leaks(safe)
        assert shlex.split(safe) == redacted_arguments(command)
        assert (shlex.split(safe)[:2], shlex.split(safe)[-2:]) == (command[:2], command[-2:])
        assert not leaks(redacted_command(f"{shlex.join(command)} 'cut short"))


def fail(text: str, said: str) -> None:
    """Raises what is said where a driver fails, and has everything it knows in its words."""
    url_of(text)
    url = make_url(text) if "://" in text else make_url("sqlite://")
    parts = f"no host {url.host!r}, port {url.port}; {url.database}; option {dict(url.query)}"
    with user_errors(text):
        raise sa.exc.OperationalError("SELECT 1", {}, Exception(f"{parts}; {said}"))


@given(urls, passwords, forms)
@example("postgresql://me:{}@127.0.0.1:1/none", f"p@{MARKS[0]},{MARKS[1]}", str)
def test_it_is_in_no_error_nor_its_traceback(url: str, password: str, form: Callable[[str], str]) -> None:
    text = url.format(form(password))
    with pytest.raises(BenchError) as refusal:
        fail(text, f"password {form(password)}, {password}, {password!r}")
    assert not leaks("".join(traceback.format_exception(refusal.value)))


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("results/bench.db", "results/bench.db"),
        ("postgresql://bench@localhost:5432/bench", "postgresql://bench@localhost:5432/bench"),
        ("postgresql://bench@/bench?host=/tmp/pg", "postgresql://bench@/bench?host=/tmp/pg"),
        ("postgresql://[::1]:5432/bench", "postgresql://[::1]:5432/bench"),
        ("postgresql://me:secret@host:5432/bench", "postgresql://me:***@host:5432/bench"),
        ("postgresql://host/bench?user=me&password=secret", "postgresql://host/bench?user=me&password=***"),
        ("postgresql://me:secret/bench", "postgresql://me:***"),
        ("postgresql://me:***@host/bench", "postgresql://me:***@host/bench"),
    ],
)
def test_what_is_no_password_stays(text: str, shown: str) -> None:
    assert redacted(text) == shown


def test_a_command_without_a_password_stays_as_it_was_typed() -> None:
    for command in (
        "bench run --db 'my results.db'  --attack pgd@nominal",
        "bench run --db postgresql://me:***@h/d",
        "",
    ):
        assert redacted_command(command) == command


def test_what_the_driver_says_stays_where_it_cannot_hold_the_password() -> None:
    url = "postgresql://bench:s3cr%40t@127.0.0.1:1/bench"
    with pytest.raises(BenchError, match=r"127\.0\.0\.1.*refused.*check that it is up") as refusal:
        open_database(url, create=True)
    assert isinstance(refusal.value.__cause__, sa.exc.OperationalError)
    with pytest.raises(BenchError, match=r'database "bench" has no "\*\*\*"'), user_errors(url):
        raise sa.exc.OperationalError("", {}, Exception('database "bench" has no "s3cr@t"'))


def test_a_mistyped_url_makes_no_file(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BenchError, match="this is no URL of a database; give postgresql://"):
        open_database("postgresql:/me:secret@host/bench", create=True)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.needs_process
def test_the_database_commands_do_not_print_it(postgres: Any) -> None:
    url = postgres.database().replace("bench@", "bench:se'c:r et@")
    open_database(url, create=True).dispose()
    for command in ("info", "upgrade"):
        done = CliRunner().invoke(main, ["db", command, "--db", url])
        assert done.exit_code == 0, done.output
        assert "bench:***@/" in done.output
