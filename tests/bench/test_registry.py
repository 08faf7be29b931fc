"""Plug-ins by name: descriptions without loading, did-you-mean, settings, and what is wrong said clearly."""

from __future__ import annotations

import importlib.metadata
from pathlib import Path
from typing import Any

import pytest

from bench import registry
from bench.api import BenchError, UsageError
from tests import packages


@pytest.fixture
def plugins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Installs packages that are nothing but metadata and a module."""

    def install(package: str, group: str, name: str, module: str, source: str, target: str) -> None:
        packages.write(tmp_path, package, group, name, module, source, target)
        registry.entries.cache_clear()

    monkeypatch.syspath_prepend(tmp_path)
    yield install
    registry.entries.cache_clear()


def test_every_builtin_has_a_description() -> None:
    for kind in registry.GROUPS:
        for name, entry in registry.entries(kind).items():
            assert len(entry.description) > 20, f"{name} has no description"


def test_descriptions_are_read_without_running_the_plugin(plugins: Any) -> None:
    source = 'raise SystemExit("loaded")\nclass Odd:\n    """Does odd things.\n\n    More."""\n'
    plugins("odd-pack", "defences", "odd", "odd_module", source, "Odd")
    assert registry.entries("defences")["odd"].description == "Does odd things."


def test_unknown_names_get_a_suggestion() -> None:
    with pytest.raises(UsageError, match="unknown defence 'block-shufle': did you mean 'block-shuffle'"):
        registry.entry("defences", "block-shufle")


def test_two_plugins_of_one_name_are_an_error_that_names_both(plugins: Any) -> None:
    plugins("first-pack", "defences", "twin", "first_module", "", "A")
    plugins("second-pack", "defences", "twin", "second_module", "", "B")
    with pytest.raises(BenchError, match=r"twin.*first-pack.*second-pack|twin.*second-pack.*first-pack"):
        registry.entries("defences")


def test_a_plugin_that_is_no_defence_is_refused(plugins: Any) -> None:
    plugins("wrong-pack", "defences", "wrong", "wrong_module", "class Wrong:\n    pass\n", "Wrong")
    with pytest.raises(BenchError, match=r"'wrong' of package wrong-pack is no subclass of bench\.api\.Defence"):
        registry.entry("defences", "wrong").load()


def test_a_plugin_that_cannot_be_imported_is_named(plugins: Any) -> None:
    plugins("broken-pack", "attacks", "broken", "broken_module", "import does_not_exist\n", "Broken")
    with pytest.raises(BenchError, match="'broken' of package broken-pack cannot be loaded"):
        registry.entry("attacks", "broken").load()


@pytest.mark.parametrize(
    ("text", "name", "settings"),
    [("jpeg", "jpeg", {}), ("jpeg[quality=5]", "jpeg", {"quality": "5"}), (" a[b=1, c=x] ", "a", {"b": "1", "c": "x"})],
)
def test_requests_are_read(text: str, name: str, settings: dict[str, str]) -> None:
    assert registry.parse(text) == (name, settings)


@pytest.mark.parametrize("text", ["", "jpeg[", "jpeg]quality[", "jpeg[quality]"])
def test_requests_that_make_no_sense_are_refused(text: str) -> None:
    with pytest.raises(UsageError):
        registry.parse(text)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"quality": "high"}, "quality is 'high'; it must be of type int"),
        ({"quality": "0"}, "quality is 0; it must be between 1 and 100"),
        ({"qality": "5"}, "no setting 'qality': did you mean 'quality'"),
        ({"chroma_downsampling": "maybe"}, "chroma_downsampling is 'maybe'; it must be of type bool"),
        ({"quality": True}, "quality is 'True'"),
    ],
)
def test_settings_are_checked(settings: dict[str, object], said: str) -> None:
    with pytest.raises(UsageError) as caught:
        registry.defence("jpeg", settings)
    assert said in str(caught.value)


def test_settings_are_read_as_their_types() -> None:
    settings = registry.defence("jpeg", {"quality": "5", "chroma_downsampling": "false"}).settings
    assert (settings.quality, settings.chroma_downsampling) == (5, False)


def test_the_package_registers_itself_by_entry_points() -> None:
    points = importlib.metadata.entry_points(group="bench.defences")
    assert {"none", "block-shuffle", "jpeg-23", "jpeg-10", "pca-full", "pca-block", "linac"} <= {p.name for p in points}
