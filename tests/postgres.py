"""A real PostgreSQL server for tests: in a folder of its own, reached by a socket in it, ended with the tests."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

LIMIT = 120.0  # seconds for the server to start or stop
PLACES = ("/usr/lib/postgresql/*/bin", "/usr/local/pgsql/bin", "/opt/homebrew/opt/postgresql*/bin")


def programs() -> Path | None:
    """The folder of `initdb` and `pg_ctl`; Debian keeps it out of PATH."""
    if found := shutil.which("initdb"):
        return Path(found).parent
    candidates = [path for place in PLACES for path in Path("/").glob(place.lstrip("/")) if (path / "initdb").exists()]
    return max(candidates, default=None)


def missing() -> str | None:
    """Why there can be no server here, or None."""
    if importlib.util.find_spec("psycopg") is None:
        return "psycopg is not installed (pip install '.[postgres]')"
    if programs() is None:
        return "PostgreSQL is not installed (apt-get install postgresql)"
    if os.geteuid() == 0 and not _other_user():
        return "PostgreSQL does not run as root, and there is no user 'postgres' or 'nobody'"
    return None


def _other_user() -> pwd.struct_passwd | None:
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name)
    return None


class Server:
    """A server that can be stopped and started again; every database of it is new."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="pg-", dir="/tmp"))  # a socket's path has to be short
        self._data, self._made = self._folder / "data", 0
        self._user = _other_user() if os.geteuid() == 0 else None
        if self._user:
            os.chown(self._folder, self._user.pw_uid, self._user.pw_gid)
        self._call("initdb", "-D", self._data, "-U", "bench", "-A", "trust", "--no-sync", "-E", "UTF8", "--locale=C")
        self.start()

    def start(self) -> None:
        settings = (
            f"-c listen_addresses='' -c unix_socket_directories={self._folder} -c fsync=off -c max_connections=30"
        )
        self._call("pg_ctl", "-D", self._data, "-w", "-l", self._folder / "log", "-o", settings, "start")

    def stop(self, mode: str = "immediate") -> None:
        self._call("pg_ctl", "-D", self._data, "-w", "-m", mode, "stop")

    def database(self, disk: Path | None = None) -> str:
        """The URL of a new empty database; its tables on a disk of their own, if one is given."""
        self._made += 1
        name, place = f"bench{self._made}", ""
        if disk is not None:
            folder = disk / "tables"
            folder.mkdir()
            if self._user:
                os.chown(folder, self._user.pw_uid, self._user.pw_gid)
            self._execute(f"CREATE TABLESPACE {name} LOCATION '{folder}'")
            place = f" TABLESPACE {name}"
        self._execute(f"CREATE DATABASE {name}{place}")
        return f"postgresql://bench@/{name}?host={self._folder}"

    def drop(self, url: str) -> None:
        """Removes a database that has a disk of its own."""
        name = url.partition("@/")[2].partition("?")[0]
        self._execute(f"DROP DATABASE {name}")
        self._execute(f"DROP TABLESPACE {name}")

    def _execute(self, statement: str) -> None:
        import psycopg

        with psycopg.connect(host=str(self._folder), user="bench", dbname="postgres", autocommit=True) as connection:
            connection.execute(statement)

    def close(self) -> None:
        with contextlib.suppress(subprocess.CalledProcessError, subprocess.TimeoutExpired):
            self.stop()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _call(self, program: str, *arguments: object) -> None:
        folder = programs()
        assert folder is not None
        user = {"user": self._user.pw_uid, "group": self._user.pw_gid, "extra_groups": []} if self._user else {}
        subprocess.run(
            [str(folder / program), *map(str, arguments)], check=True, cwd=self._folder, stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=LIMIT, **user,  # type: ignore[call-overload]
        )  # fmt: skip


@pytest.fixture(scope="session")
def postgres() -> Iterator[Server]:
    """A server for all tests; skips them where there can be none."""
    if reason := missing():
        pytest.skip(reason)
    server = Server()
    yield server
    server.close()
