"""Private keys: read from where they may be, and kept out of everything that is printed or stored."""

from __future__ import annotations

import os
import pickle
import posix
import traceback
from pathlib import Path

import numpy as np
import pytest

from bench import key_checks, keys
from bench.api import UsageError
from tests.processes import python

SECRET = 1234567890123456789


def test_the_default_is_the_published_key() -> None:
    assert not keys.place(None).secret
    key = keys.place(None).read()
    assert (key.id, key.reveal()) == ("published", -2314326399425823309)


def test_the_environment_gives_a_key_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BENCH_KEY", f"mine:{SECRET}")
    place = keys.place(None)
    assert place.secret
    assert "BENCH_KEY" not in os.environ
    assert b"BENCH_KEY" not in posix.environ
    key = place.read()
    assert (key.id, key.reveal()) == ("mine", SECRET)
    assert not keys.place(None).secret


def test_a_key_file_stands_before_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    made = keys.create(tmp_path / "my.key")
    monkeypatch.setenv("BENCH_KEY", f"mine:{SECRET}")
    assert keys.place(tmp_path / "my.key").read().id == made.id
    assert "BENCH_KEY" not in os.environ


@pytest.mark.needs_process
def test_the_environment_that_a_process_began_with_is_overwritten() -> None:
    """/proc shows it as long as the process lives, whatever `os.environ` says."""
    code = (
        "from pathlib import Path; from bench import keys; own = Path('/proc/self/environ'); "
        "assert b'BENCH_KEY=mine:12' in own.read_bytes(); assert keys.place(None).read().reveal() == 1234567; "
        "print(b'1234567' in own.read_bytes(), b'OTHER=7' in own.read_bytes())"
    )
    done = python(code, environment={"BENCH_KEY": "mine:1234567", "OTHER": "7"})
    assert done.stdout.split() == ["False", "True"]


def test_a_new_key_file_can_be_read_by_its_owner_only(tmp_path: Path) -> None:
    made = keys.create(tmp_path / "my.key")
    assert (tmp_path / "my.key").stat().st_mode & 0o777 == 0o600
    assert keys.place(tmp_path / "my.key").read().reveal() == made.reveal()
    with pytest.raises(UsageError, match="never overwritten"):
        keys.create(tmp_path / "my.key")
    (tmp_path / "my.key").chmod(0o644)
    with pytest.raises(UsageError, match="can be read by others"):
        keys.place(tmp_path / "my.key").read()


def key_file(folder: Path, text: str) -> keys.KeyPlace:
    path = folder / "one.key"
    path.write_text(text)
    path.chmod(0o600)
    return keys.place(path)


@pytest.mark.parametrize("text", ["", "12", "a:b", f"a:{2**63}", f"a b:{SECRET}", f":{SECRET}", "a:1.5"])
def test_what_is_no_key_is_refused_without_being_repeated(tmp_path: Path, text: str) -> None:
    with pytest.raises(UsageError, match="NAME:KEY") as caught:
        key_file(tmp_path, text).read()
    assert str(SECRET) not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize("name", ["published", "Published", "PUBLISHED"])
def test_the_published_keys_name_cannot_be_claimed(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match="reserved for the key that the paper published"):
        key_file(tmp_path, f"{name}:5").read()
    assert key_file(tmp_path, f"published:{keys.PUBLISHED_KEY}").read().published


def test_a_name_belongs_to_the_key_it_was_first_used_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BENCH_HOME", str(tmp_path))
    key_checks.confirm(keys.PrivateKey("mine", SECRET))
    key_checks.confirm(keys.PrivateKey("mine", SECRET))
    key_checks.confirm(keys.PrivateKey("other", SECRET + 1))
    with pytest.raises(UsageError, match="the name 'mine' belongs to another key"):
        key_checks.confirm(keys.PrivateKey("mine", SECRET + 1))
    kept = tmp_path / "keys" / "checks.json"
    assert kept.stat().st_mode & 0o777 == 0o600
    assert kept.parent.stat().st_mode & 0o777 == 0o700
    assert str(SECRET) not in kept.read_text()
    kept.write_text("{")
    with pytest.raises(UsageError, match="move it away"):
        key_checks.confirm(keys.PrivateKey("mine", SECRET))


@pytest.mark.parametrize("value", [SECRET, -SECRET, 7 * 2**60 + 987654321987, -(2**63) + 8877665544332211])
def test_no_form_of_a_key_is_left_in_a_text(value: int) -> None:
    unsigned = value % 2**64
    forms = [
        str(value), f"{value:,}", f"{value:_}", f"{value:x}", f"0x{unsigned:X}", f"{unsigned:o}", f"{unsigned:b}",
        str(unsigned), str(float(value)), f"{float(value):.6e}", str(unsigned % 2**32), f"{unsigned >> 32:x}",
        str(np.array(unsigned % 2**32, np.uint32).astype(np.int32)), repr(unsigned.to_bytes(8, "little")),
        repr(unsigned.to_bytes(8, "big")), unsigned.to_bytes(8, "big").hex(),
    ]  # fmt: skip
    for overflowing in (np.int32, np.uint8):
        try:
            overflowing(value)
        except OverflowError as error:
            forms.append(str(error))
    key = keys.PrivateKey("mine", value)
    for form in forms:
        shown = key.redacted(f"before {form} behind")
        assert shown.startswith("before ")
        assert shown.endswith(" behind")
        assert keys.HIDDEN in shown, form
        assert sum(letter.isdigit() for letter in shown) <= 6, shown  # of int32, e+18 and the like
    assert keys.published().redacted(str(keys.PUBLISHED_KEY)) == str(keys.PUBLISHED_KEY)


def test_a_key_prints_as_its_name_and_is_never_pickled() -> None:
    key = keys.PrivateKey("mine", SECRET)
    assert str(SECRET) not in f"{key} {key!r} {[key]}"
    with pytest.raises(TypeError, match="never pickled"):
        pickle.dumps(key)
