"""Values that are of the wrong kind or size, wherever a user can give one: refused in one line that names them."""

from __future__ import annotations

from pathlib import Path

import click
import numpy as np
import pytest

from bench import spec
from bench.api import UsageError
from bench.commands.options import SecondsOption, size_of
from bench.data import datasets
from bench.support import cache


@pytest.mark.parametrize(
    "text", ["1e999999999", "1e400", "nan", "inf", "0", "-1", "8/0", "8/255/2", "1" + "0" * 5000, "x"]
)
def test_an_epsilon_is_a_number_above_0(text: str) -> None:
    with pytest.raises(UsageError, match="it must be a number above 0"):
        spec.parse_epsilon(text)


@pytest.mark.parametrize(("text", "value"), [("8/255", 8 / 255), (" 8 / 255 ", 8 / 255), ("0.5", 0.5), ("1e-9", 1e-9)])
def test_an_epsilon_is_read_exactly(text: str, value: float) -> None:
    assert spec.parse_epsilon(text) == value


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ('examples = "ten"', "examples is 'ten'; it must be a whole number"),
        ("examples = 1.5", "examples is '1.5'; it must be a whole number"),
        ("examples = true", "examples is 'True'; it must be a whole number"),
        ('examples = 4\nseed = "x"', "seed is 'x'; it must be a whole number"),
        ("examples = 4\ndataset = 3", "dataset is '3'; it must be text"),
        ("examples = 4\ntraining = 3", "training is '3'; it must be a table (docs"),
        ("examples = 4\n[engines]\npgd = 3", "it must be a table of tables (docs"),
        ("examples = 4\n[budgets.bypass]\npgd = 3", "it must be a table of tables of tables (docs"),
        ('examples = 4\nagainst = ["all"]', "it must be a table of tables of tables (docs"),
        ('examples = 4\nreference = "pgd@key-leaked"', "it must be a list of attacks, such as"),
        ("examples = 4\nreference = [3]", "it must be a list of attacks, such as"),
        ("examples = 4\nepsilon = 0.1", "epsilon is '0.1'; it must be a table (docs"),
    ],
)
def test_a_preset_has_values_of_the_right_types(lines: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "own.toml").write_text(lines)
    with pytest.raises(UsageError) as caught:
        spec.resolve(str(tmp_path / "own.toml"))
    assert said in str(caught.value)


@pytest.mark.parametrize("text", ["infGB", "nanGB", "1e999GB", "-1GB", "0", "GB", ""])
def test_an_amount_of_memory_is_a_number(text: str) -> None:
    with pytest.raises(UsageError, match="is no amount of memory"):
        size_of(text)


@pytest.mark.parametrize("text", ["nan", "inf", "-inf", "0", "-1", "soon"])
def test_a_time_limit_is_a_number_of_seconds(text: str) -> None:
    with pytest.raises(click.BadParameter):
        SecondsOption(0, min_open=True).convert(text, None, None)
    assert SecondsOption(0, min_open=True).convert("2.5", None, None) == 2.5


@pytest.mark.parametrize("label", [2**32 + 3, 2**31, 2**62, -1])
def test_labels_are_looked_at_before_they_are_cast(label: int, tmp_path: Path) -> None:
    images = np.zeros((2, 8, 8, 3), np.uint8)
    np.savez(tmp_path / "own.npz", images=images, labels=np.array([0, label], np.int64))
    with pytest.raises(UsageError, match=f"labels has {label}; labels are 0 and up"):
        datasets.load(str(tmp_path / "own.npz"))


def test_the_cache_folder_is_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("BENCH_HOME", str(tmp_path / "file"))
    with pytest.raises(UsageError, match="which is no folder"):
        cache.home()
