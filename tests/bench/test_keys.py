"""Private keys: read from where they may be, and kept out of everything that is printed or stored."""

from __future__ import annotations

import os
import pickle
import traceback
from pathlib import Path

import pytest

from bench import keys
from bench.api import UsageError

SECRET = 1234567890123456789


def test_the_default_is_the_published_key() -> None:
    key = keys.load(None)
    assert (key.id, key.reveal()) == ("published", -2314326399425823309)


def test_the_environment_gives_a_key_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BENCH_KEY", f"mine:{SECRET}")
    key = keys.load(None)
    assert (key.id, key.reveal()) == ("mine", SECRET)
    assert "BENCH_KEY" not in os.environ


def test_a_new_key_file_can_be_read_by_its_owner_only(tmp_path: Path) -> None:
    made = keys.create(tmp_path / "my.key")
    assert (tmp_path / "my.key").stat().st_mode & 0o777 == 0o600
    assert keys.load(tmp_path / "my.key").reveal() == made.reveal()
    with pytest.raises(UsageError, match="never overwritten"):
        keys.create(tmp_path / "my.key")
    (tmp_path / "my.key").chmod(0o644)
    with pytest.raises(UsageError, match="can be read by others"):
        keys.load(tmp_path / "my.key")


@pytest.mark.parametrize("text", ["", "12", "a:b", f"a:{2**63}", f"a b:{SECRET}", f":{SECRET}", "a:1.5"])
def test_what_is_no_key_is_refused_without_being_repeated(tmp_path: Path, text: str) -> None:
    path = tmp_path / "bad.key"
    path.write_text(text)
    path.chmod(0o600)
    with pytest.raises(UsageError, match="NAME:KEY") as caught:
        keys.load(path)
    assert str(SECRET) not in "".join(traceback.format_exception(caught.value))


def test_a_key_prints_as_its_name_and_is_never_pickled() -> None:
    key = keys.PrivateKey("mine", SECRET)
    assert str(SECRET) not in f"{key} {key!r} {[key]}"
    with pytest.raises(TypeError, match="never pickled"):
        pickle.dumps(key)
