"""Rows are what they always were: those of an old database are made again, value for value, from what they stand for."""

from __future__ import annotations

import json
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from bench import registry
from bench.api import BenchError
from bench.store import frames, identity
from bench.store.coverage import Required

BEFORE = Path(__file__).parents[1] / "fixtures" / "before" / "bench.db"
Tables = dict[str, list[dict[str, Any]]]


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Tables:
    """The rows of the old database, without their ids."""
    connection = sqlite3.connect(shutil.copy(BEFORE, tmp_path_factory.mktemp("before")))
    connection.row_factory = sqlite3.Row
    names = ("defence", "board", "attack", "source", "key_search")
    tables = {name: [dict(row) for row in connection.execute(f"SELECT * FROM {name} ORDER BY id")] for name in names}
    connection.close()
    ids = ("id", "defence_id", "command", "started", "updated")
    return {name: [{k: v for k, v in row.items() if k not in ids} for row in rows] for name, rows in tables.items()}


def test_a_defence(old: Tables) -> None:
    (stored,) = old["defence"]
    plugin = registry.defence(stored["name"], json.loads(stored["params_json"]))
    made = identity.defence_row(
        stored["name"], plugin, stored["weights_sha256"], stored["key_id"], stored["description"]
    )
    assert made == stored


def test_its_boards(old: Tables) -> None:
    for stored in old["board"]:
        made = identity.board_row(
            old["defence"][0], stored["dataset"], stored["examples_sha256"], 6, stored["norm"], stored["epsilon"],
            Required("smoke", ("pgd@bypass", "aa@bypass")),
        )  # fmt: skip
        required = '{"imported":false,"pairs":["aa@bypass","pgd@bypass"],"preset":"smoke"}'
        assert made == {**stored, "required_json": required}, "which is no part of the fingerprint"


def test_attacks(old: Tables) -> None:
    for stored in old["attack"][1:]:
        settings = json.loads(stored["params_json"])
        seed = settings.pop("seed")
        made = identity.attack_row(stored["name"], stored["version"], settings, seed, about={"label": "x"})
        assert made == {**stored, "about_json": '{"label":"x"}'}
        plugin = registry.engine(stored["name"], settings)
        now = identity.attack_row(stored["name"], plugin.version, vars(plugin.settings), seed)
        same = now["fingerprint"] == stored["fingerprint"]
        assert same == (plugin.version == stored["version"]), "rows of another version are another attack's"


def test_sources(old: Tables) -> None:
    for stored in old["source"][1:]:
        made_of = json.loads(stored["params_json"])
        against = made_of.pop("against")
        assert against == old["defence"][0]["fingerprint"]
        made = identity.source_row(stored["name"], "1", **made_of, against=old["defence"][0], given={})
        assert made == {**stored, "about_json": None}


def test_what_a_user_brings_is_part_of_a_source(old: Tables) -> None:
    def made(given: dict[str, Any]) -> dict[str, Any]:
        return identity.source_row(
            "s", "1", strategy="x", settings={}, training={}, recipes={}, training_images=None,
            against=old["defence"][0], given=given,
        )  # fmt: skip

    assert json.loads(made({"model_sha256": "m"})["params_json"])["model_sha256"] == "m"
    assert len({made(given)["fingerprint"] for given in ({}, {"guess": 1}, {"guess": 2}, {"model_sha256": "m"})}) == 4


def test_the_unperturbed_images(old: Tables) -> None:
    assert identity.clean_row() == old["attack"][0] == old["source"][0]


def test_a_key_search(old: Tables) -> None:
    (stored,) = old["key_search"]
    values = {**stored, "inside_threat_model": bool(stored["inside_threat_model"])}
    del values["fingerprint"]
    assert identity.key_search_row(old["defence"][0], **values) == stored


def test_a_cell_is_known_by_its_images_folder(old: Tables) -> None:
    folder = identity.cell(old["board"][0], old["attack"][1], old["source"][1])[:16]
    assert folder == "1ecbf7a1c535b19c"


def test_names_that_are_taken() -> None:
    with pytest.raises(
        BenchError, match="an engine is called 'clean', which is what the unperturbed images are called"
    ):
        identity.attack_row("clean", "1", {}, 0)
    with pytest.raises(BenchError, match="engine mine has a setting called 'seed', which is the run's"):
        identity.attack_row("mine", "1", {"seed": 3}, 0)


def test_tables_for_people_and_programs_may_grow_but_never_change() -> None:
    boards = (
        "board defence settings keyed key_id dataset norm epsilon examples clean best_known best_known_low best_known_high "
        "best_adversary cells left_out partial preset updated"
    )
    cells = (
        "board defence norm epsilon attack attack_settings source strategy inside_threat_model status examples of correct "
        "accuracy low high gradients queries seconds flags doubts error imported"
    )
    sources = "defence norm epsilon attack source examples accuracy accuracy_on_source"
    for frame, columns in (
        (frames.boards_frame([]), boards),
        (frames.cells_frame([]), cells),
        (frames.sources_frame([], {}), sources),
    ):
        assert list(frame.columns)[: len(columns.split())] == columns.split()
