"""The password of a database is in no output, no stored row and no page of any command, whatever characters it has."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import quote, quote_plus

import click
import psycopg
import pytest
import sqlalchemy as sa
from click.testing import CliRunner, Result
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st

from bench.cli import main
from bench.store import schema
from bench.store.database import open_database
from bench.store.redaction import without_passwords
from tests.processes import bench

MARKS = ("Xq7Zk9Wv", "Jb4Lr2Ty")
"""In every password, so that any part of it that gets out is seen."""

SMOKE = ("--preset", "smoke")
COMMANDS = {
    "db forget": ["db", "forget", "--imported", "in.zip"],
    "db imports": ["db", "imports"],
    "db info": ["db", "info"],
    "db upgrade": ["db", "upgrade"],
    "export": ["export", "out.zip"],
    "import": ["import", "in.zip"],
    "keysearch": ["keysearch", "--defence", "block-shuffle", "--random", "2", "--paper", *SMOKE],
    "leaderboard": ["leaderboard"],
    "plan": ["plan", "--defence", "block-shuffle", "--attack", "pgd@nominal", "--examples", "2", *SMOKE],
    "reproduce": ["reproduce", "figure5", "--examples", "2", "--norm", "linf", *SMOKE],
    "results": ["results", "--format", "json"],
    "run": [
        "run",
        "--defence",
        "block-shuffle",
        "--attack",
        "pgd@nominal",
        "--examples",
        "2",
        "--norm",
        "linf",
        *SMOKE,
    ],
    "serve": ["serve", "--out", "nowhere"],
    "verify": ["verify"],
}
FAIL = ("serve",)
"""What fails by itself, or would never end."""

characters = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=5)
awkward = st.text("@:/?#&=%[]'\"\\ \n$`!,+;", max_size=5)
passwords = st.tuples(characters | awkward, characters | awkward, characters | awkward).map(
    lambda parts: f"{parts[0]}{MARKS[0]}{parts[1]}{MARKS[1]}{parts[2]}"
)
encodings: st.SearchStrategy[Callable[[str], str]] = st.sampled_from(
    [lambda text: quote(text, safe=""), quote_plus, lambda text: quote(text, safe="'$!*()"), str]
)
unreachable = st.sampled_from(
    [
        "postgresql://me:{}@127.0.0.1:1/none",
        "postgresql+psycopg://me:{}@[::1]:1/none?sslmode=disable",
        "postgresql://127.0.0.1:1/none?user=me&password={}",
        "postgresql+nothing://me:{}@127.0.0.1:1/none",
        "nothing://me:{}@127.0.0.1:1/none",
        "sqlite://me:{}@127.0.0.1/none.db",
        "postgresql:/me:{}@127.0.0.1/none",
    ]
)


def leaks(text: str) -> list[str]:
    return [mark for mark in MARKS if mark in text]


def called(command: Sequence[str], url: str, debug: bool = False) -> Result:
    """Runs a command in this process; its output and all that it raised must be clean of the password."""
    done = CliRunner().invoke(main, [*(["--debug"] if debug else []), *command, "--db", url])
    assert not leaks(done.output), done.output
    assert isinstance(done.exception, SystemExit | None), done.exc_info
    return done


def test_every_command_that_takes_a_database_is_tried() -> None:
    def with_database(group: click.Group, path: tuple[str, ...] = ()) -> Iterator[str]:
        for name, command in group.commands.items():
            if isinstance(command, click.Group):
                yield from with_database(command, (*path, name))
            elif any("--db" in parameter.opts for parameter in command.params):
                yield " ".join((*path, name))

    assert set(with_database(main)) == set(COMMANDS)


def refuse(*given: object, **named: object) -> NoReturn:
    """A driver that fails at once, and quotes everything that it was given."""
    raise psycopg.OperationalError(f"connection failed: {given} {named} {' '.join(map(str, named.values()))}")


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.slow] if name == "plan" else []) for name in COMMANDS
    ],  # it times the machine
)
@given(url=unreachable, password=passwords, encode=encodings, debug=st.booleans())
@example(url="postgresql://me:{}@127.0.0.1:1/none", password=f"{MARKS[0]}'$ {MARKS[1]}", encode=str, debug=False)
@example(url="sqlite://me:{}@127.0.0.1/none.db", password=f"{MARKS[0]}{MARKS[1]}", encode=str, debug=True)
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_no_command_shows_it_where_the_database_is_not_there(
    name: str, url: str, password: str, encode: Callable[[str], str], debug: bool
) -> None:
    assume((name, url[:6]) != ("plan", "sqlite"))  # a file that is not there is no reason not to plan
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(psycopg, "connect", refuse)
        done = called(COMMANDS[name], url.format(encode(password)), debug)
    assert done.exit_code in (1, 2), done.output
    assert done.output


@given(password=passwords, encode=encodings)
@settings(max_examples=15, deadline=None)
def test_it_is_not_shown_where_it_is_given_in_the_wrong_place(password: str, encode: Callable[[str], str]) -> None:
    for arguments in (["results"], ["db"], []):
        done = CliRunner().invoke(main, [*arguments, f"postgresql://me:{encode(password)}@127.0.0.1/none"])
        assert done.exit_code == 2
        assert not leaks(done.output), done.output


@given(password=passwords, encode=encodings, url=unreachable)
@settings(max_examples=50, deadline=None)
def test_an_error_that_nobody_expected_does_not_show_it(password: str, encode: Callable[[str], str], url: str) -> None:
    text = url.format(encode(password))
    for arguments in (["run", "--db", text], ["run", f"--db={text}"]):
        assert not leaks(without_passwords(f"ValueError: {text} or {text!r}", arguments))
        assert without_passwords("nothing of it", arguments) == "nothing of it"
    text = f"postgresql://me:{quote(password, safe='')}@127.0.0.1/none"
    said = f"KeyError: {password} or {password!r}, as {quote(password, safe='')}"
    assert not leaks(without_passwords(said, ["run", "--db", text]))


class World:
    """A folder with an archive to import, and a database that takes any password."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder, self.bare = folder, url

    def url(self, password: str, encode: Callable[[str], str]) -> str:
        return self.bare.replace("bench@", f"bench:{encode(password)}@")

    def call(self, name: str, url: str) -> Result:
        with contextlib.chdir(self.folder), pytest.MonkeyPatch.context() as patch:
            patch.setenv("BENCH_HOME", str(self.folder / "home"))
            return called(COMMANDS[name], url)

    def rows(self) -> str:
        """Everything that is stored."""
        database = open_database(self.bare, create=False)
        with database.connect() as connection:
            found = [
                str(row) for table in schema.metadata.sorted_tables for row in connection.execute(sa.select(table))
            ]
        database.dispose()
        return "\n".join(found)

    def check(self) -> None:
        assert not leaks(self.rows())
        for path in self.folder.rglob("*"):
            assert not leaks(str(path))
            if path.is_file():
                assert not any(mark.encode() in path.read_bytes() for mark in MARKS), path


@pytest.fixture(scope="module")
def world(postgres: Any, honest: Path, tmp_path_factory: pytest.TempPathFactory) -> World:
    folder = tmp_path_factory.mktemp("passwords")
    home: dict[str, Any] = {"BENCH_HOME": str(honest / "home")}
    packed = bench("export", folder / "in.zip", cwd=honest, **home)
    assert packed.returncode == 0, packed.stderr
    url = postgres.database()
    open_database(url, create=True).dispose()
    return World(folder, url)


encoded = encodings.filter(lambda encode: encode is not str)  # else it may be another URL


@given(password=passwords, encode=encoded)
@example(password=f"{MARKS[0]}'\"$ \n{MARKS[1]}", encode=quote_plus)
@settings(max_examples=2, deadline=None, suppress_health_check=list(HealthCheck))
def test_what_commands_show_and_store_is_without_it(world: World, password: str, encode: Callable[[str], str]) -> None:
    """All of them, one after the other, on a real database; the first call computes, the others find it stored."""
    url = world.url(password, encode)
    for name in dict.fromkeys(["run", "keysearch", "reproduce", "import", *COMMANDS]):
        done = world.call(name, url)
        assert name in FAIL or done.exit_code == 0, (name, done.output)
    assert "bench:***@" in world.rows()
    pages = "".join(path.read_text() for path in world.folder.rglob("defences/*.html"))
    assert "bench run" in pages, "what was run is shown"
    world.check()


@given(password=passwords, encode=encoded)
@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
def test_what_is_only_read_is_shown_without_it(world: World, password: str, encode: Callable[[str], str]) -> None:
    url = world.url(password, encode)
    for name in ("db info", "db upgrade", "results"):
        assert world.call(name, url).exit_code == 0
