"""Opening a database: SQLite by default, PostgreSQL by URL; its schema checked before anything else."""

from __future__ import annotations

import contextlib
import functools
import logging
import re
import sqlite3
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import ParamSpec, TypeVar

import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.engine import URL, Connection, make_url
from sqlalchemy.engine import Engine as Database

from bench.api import BenchError, UsageError
from bench.store.redaction import cause_of, reason_of, redacted

HEAD = "0010"
BUSY_SECONDS = 30
PATIENCE_SECONDS = 300.0
MIGRATION_LOCK = 0xBE9C4
NO_URL = (
    "this is no URL of a database; give postgresql://USER:PASSWORD@HOST:PORT/NAME, with @ : / in a password as "
    "%40 %3A %2F"
)
_LIKE_URL = re.compile(r"(postgres(ql)?|sqlite)(\+\w+)?:")
Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


class NoDatabase(UsageError):
    """There is no database of ours there yet."""


def url_of(text: str) -> URL:
    """A path or an SQLAlchemy URL."""
    if _LIKE_URL.match(text) and "://" not in text:
        raise UsageError(f"--db {redacted(text)}: {NO_URL}")
    if "://" in text:
        try:
            url = make_url(text)
        except (sa.exc.ArgumentError, ValueError):  # its words have the URL, or part of it, in them
            raise UsageError(f"--db {redacted(text)}: {NO_URL}") from None
        return url.set(drivername="postgresql+psycopg") if url.drivername == "postgresql" else url
    return URL.create("sqlite", database=text)


def open_database(text: str, *, create: bool, upgrade: bool = False) -> Database:
    """Connects and checks the schema; makes or upgrades it only if asked."""
    url, name = url_of(text), redacted(text)
    if url.get_backend_name() == "sqlite":
        _check_sqlite_file(Path(url.database or ""), name, create)
    try:
        database = sa.create_engine(
            url, connect_args={"timeout": BUSY_SECONDS} if url.get_backend_name() == "sqlite" else {}
        )
    except ModuleNotFoundError as error:
        extra = ": pip install 'bench-keyed-defences[postgres]'" if error.name == "psycopg" else ""
        raise UsageError(f"--db {name}: {error}{extra}") from error
    except (ImportError, sa.exc.ArgumentError) as error:
        raise UsageError(f"--db {name}: {reason_of(error, text)}") from cause_of(error, text)
    if database.dialect.name not in ("sqlite", "postgresql"):
        raise UsageError(f"--db {name}: bench keeps its results in SQLite or PostgreSQL")
    if database.dialect.name == "sqlite":
        _set_up_sqlite(database)
    with user_errors(text):
        try:
            with database.connect() as connection:
                tables = set(sa.inspect(connection).get_table_names())
        except (sa.exc.ArgumentError, TypeError, ValueError) as error:  # the driver cannot take the URL's parts
            raise UsageError(f"--db {name}: {reason_of(error, text)}") from cause_of(error, text)
        _check_schema(database, tables, name, create, upgrade)
    return database


def scratch_database(path: Path) -> Database:
    """A new empty database that is thrown away: made at once, and nobody waits for the disk."""
    from bench.store.schema import metadata

    database = sa.create_engine(url_of(str(path)))
    _set_up_sqlite(database, synchronous="OFF")
    metadata.create_all(database)
    return database


@contextlib.contextmanager
def opened(text: str, *, create: bool = False) -> Iterator[Database]:
    """The database at `text` until the block ends; what goes wrong with it is one line that says what to do."""
    database = open_database(text, create=create)
    try:
        with user_errors(text):
            yield database
    finally:
        database.dispose()


@contextlib.contextmanager
def user_errors(text: str) -> Iterator[None]:
    """Database errors as one line that says what to do."""
    try:
        yield
    except (sa.exc.DBAPIError, sqlite3.Error) as error:
        reason = reason_of(error, text)
        hints = {
            "locked": "another process holds it: wait for it to end, then run the same command again",
            "not a database": "this file is no SQLite database: choose another with --db",
            "malformed": "the file is damaged: restore a copy, or choose another with --db",
            "readonly": "it cannot be written: check its permissions, or choose another with --db",
            "is full": "no room left on its disk: free some space, then run the same command again",
            "No space left": "no room left on its server's disk: free some space, then run the same command again",
            "unable to open": "check that its folder exists and can be written",
        }
        hint = next(
            (advice for words, advice in hints.items() if words in reason), "check that it is up, then run again"
        )
        raise BenchError(f"database {redacted(text)}: {reason}; {hint}") from cause_of(error, text)


def retry_transient(transaction: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """Makes a function of one whole transaction try again while the database is locked, or gone and not yet back."""

    @functools.wraps(transaction)
    def retried(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        began, pause = time.monotonic(), 0.25
        while True:
            try:
                return transaction(*args, **kwargs)
            except sa.exc.DBAPIError as error:
                left = PATIENCE_SECONDS - (time.monotonic() - began)
                if not _is_transient(error) or left <= 0:
                    raise
                if pause > 0.5:  # a deadlock or a moment without a connection is not worth a word
                    reason = str(error.orig).strip().splitlines()[0]
                    logging.getLogger("bench").warning(
                        f"the database does not take this ({reason}); trying for another {left:.0f} s"
                    )
                time.sleep(min(pause, max(left, 0.0)))
                pause = min(2 * pause, 30.0)

    return retried


def _is_transient(error: sa.exc.DBAPIError) -> bool:
    """Whether the trouble may pass by itself: a lock, a lost connection, a server that restarts."""
    if isinstance(error.orig, sqlite3.Error):
        return "locked" in str(error.orig)
    state = getattr(error.orig, "sqlstate", None)
    if state is None:
        return isinstance(error, sa.exc.OperationalError) or error.connection_invalidated
    return state[:2] in ("08", "40", "55", "57", "53") and state != "53100"  # 53100: the server's disk is full


@contextlib.contextmanager
def writing(database: Database) -> Iterator[Connection]:
    """One transaction that writes; on SQLite it takes the write lock at the start instead of failing in the middle."""
    with database.connect().execution_options(bench_write=True) as connection, connection.begin():
        yield connection


@contextlib.contextmanager
def reading(where: Database | Connection) -> Iterator[Connection]:
    """A connection to read by: a new one, or the one of the transaction that is under way, which sees what it wrote."""
    if isinstance(where, Connection):
        yield where
        return
    with where.connect() as connection:
        yield connection


def _check_sqlite_file(path: Path, text: str, create: bool) -> None:
    if not str(path) or str(path) == ":memory:":
        raise UsageError(f"--db {text}: give the path of a database file")
    if path.is_dir():
        raise UsageError(f"--db {text} is a folder; give the path of a database file, such as {text}/bench.db")
    if not path.exists() and not create:
        raise NoDatabase(f"there is no database at {text}: 'bench run' makes one, --db chooses another")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"--db {text}: cannot make its folder ({error.strerror})") from error


def _set_up_sqlite(database: Database, synchronous: str = "FULL") -> None:
    @event.listens_for(database, "connect")
    def _on_connect(connection: sqlite3.Connection, _record: object) -> None:
        connection.isolation_level = None  # SQLAlchemy begins transactions below; the driver must not
        # FULL: with NORMAL a power cut takes the last transactions with it, though they were committed.
        for pragma in (f"synchronous={synchronous}", "foreign_keys=ON", "cache_size=-65536"):
            connection.execute(f"PRAGMA {pragma}").close()

    @event.listens_for(database, "begin")
    def _on_begin(connection: Connection) -> None:
        if connection.get_execution_options().get("isolation_level") == "AUTOCOMMIT":
            return
        write = connection.get_execution_options().get("bench_write")
        connection.exec_driver_sql("BEGIN IMMEDIATE" if write else "BEGIN")


def _check_schema(database: Database, tables: set[str], text: str, create: bool, upgrade: bool) -> None:
    version = None
    if "alembic_version" in tables:
        with database.connect() as connection:
            version = connection.execute(sa.text("SELECT version_num FROM alembic_version")).scalar()
    if version == HEAD:
        return
    if version is None and tables:
        raise UsageError(
            f"database {text} holds other tables ({', '.join(sorted(tables)[:3])}): it is not one of bench's"
        )
    if version is not None and version > HEAD:
        raise BenchError(f"database {text} has schema {version}, newer than this bench knows ({HEAD}): update bench")
    if version is not None and not upgrade:
        raise BenchError(f"database {text} has the older schema {version}: run 'bench db upgrade --db {text}'")
    if version is None and not create:
        raise NoDatabase(f"database {text} is empty: 'bench run' fills one")
    migrate(database)


@retry_transient
def migrate(database: Database, version: str = "head") -> None:
    """Brings the schema to its newest version, or to an earlier one of an empty database."""
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
    if database.dialect.name == "sqlite":  # it stays in the file; set here, never in a file that is not ours
        with database.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.exec_driver_sql("PRAGMA journal_mode=WAL")
    with writing(database) as connection:
        if database.dialect.name == "postgresql":  # SQLite's writers wait for each other as it is
            connection.execute(sa.select(sa.func.pg_advisory_xact_lock(MIGRATION_LOCK)))
        config.attributes["connection"] = connection
        command.upgrade(config, version)
