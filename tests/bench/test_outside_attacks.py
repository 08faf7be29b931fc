"""Attacks of somebody else's package, which the harness has never heard of: a new kind of source, an engine of parts.

Each is one class in one place. What plans, stored rows, doubts and pages say of them is what they say themselves.
"""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from bench import plan, registry, spec
from bench.api import Batch, BenchError, Finding, Probe, UsageError, flags
from bench.data import datasets
from bench.evaluation import estimate
from bench.evaluation.calibration import Calibration, Seconds
from bench.executors import worker
from bench.executors.base import HEALTH, AttackTask
from bench.executors.keyed import KeyedExecutor
from bench.executors.replies import unchanged
from bench.spec import PRESETS
from tests import packages
from tests.conftest import bench

MODULE = '''
import dataclasses
import numpy as np
import tensorflow as tf
from bench.api import Attacked, Engine, Finding, ModelSource, Probe, SourceDescription, Strategy


class Mirrored(Strategy):
    """The undefended network on mirrored images."""

    label = "Mirrors"
    meaning = "attack a network that sees the image in a mirror"
    place = 5

    def sources(self, defence):
        return ["mirrored:1", "mirrored:2", "both-mirrors"]

    def describe(self, source, defence):
        if source == "both-mirrors":
            return SourceDescription(source, meaning="both mirrors as one", place=16, members=("mirrored:1", "mirrored:2"))
        return SourceDescription(
            "mirrored", label="mirror network", meaning="a network behind a mirror", place=15, through=(),
            recipes=("mirrored",),
        )

    def build(self, source, knowledge):
        plain = knowledge.workshop.classifier("none", {})
        flips = {"mirrored:1": [tf.image.flip_left_right], "mirrored:2": [tf.image.flip_up_down]}
        chosen = flips.get(source) or [flip for own in flips.values() for flip in own]
        return ModelSource(source, lambda images: tf.add_n([plain.logits(flip(images)) for flip in chosen]))


def moved(batch):
    """The images moved by random signs: whether that breaks anything is not what is tested."""
    shape = batch.images[0].shape
    signs = [np.random.default_rng(seed.view(np.uint32)).choice([-0.9, 0.9], shape) for seed in batch.seeds]
    return np.clip(batch.images + batch.epsilon * np.stack(signs), 0, 1).astype(np.float32)


@dataclasses.dataclass(frozen=True)
class Steps:
    steps: int = 3


class Uphill(Engine):
    """A part of tandem: breaks every other example."""

    Settings = Steps
    def work(self, examples):
        return self.settings.steps * examples
    def run(self, source, batch, report):
        raise NotImplementedError


class Dice(Engine):
    """Throws dice: breaks everything, without gradients."""

    Settings = Steps
    needs_gradient = False
    in_all = False
    def work(self, examples):
        return self.settings.steps * examples
    def run(self, source, batch, report):
        count = len(batch.labels)
        none, zeros = np.full(count, -1, np.int32), np.zeros(count, np.int64)
        return Attacked(moved(batch), np.ones(count, bool), -np.ones(count, np.float32), none, none, zeros, zeros + 1)


class Tandem(Engine):
    """Two engines, one after the other."""

    Settings = Steps
    label = "Tandem"
    meaning = "uphill first, then dice for what is left"
    place = 1
    in_all = False

    def __init__(self, settings=None):
        super().__init__(settings)
        self.parts = {"tandem-uphill": Uphill(self.settings), "tandem-dice": Dice(Steps(steps=7))}

    def work(self, examples):
        return sum(part.work(examples) for part in self.parts.values())

    def run(self, source, batch, report):
        whole = Dice().run(source, batch, report)
        first = batch.seeds.sum(axis=1) % 2 == 0
        return dataclasses.replace(whole, part=np.where(first, 0, 1).astype(np.int32))


class Wrong(Tandem):
    """Names a part that it does not have."""

    def run(self, source, batch, report):
        found = super().run(source, batch, report)
        return dataclasses.replace(found, part=found.part + 1)


class Curious(Probe):
    """Always finds something."""

    def of_source(self, source, batch, budget):
        return {"curious-source": Finding(1, len(batch.labels))}

    def of_attack(self, source, batch, attacked):
        assert len(attacked.images) == len(batch.labels)
        return {"curious": Finding(len(batch.labels), len(batch.labels))}
'''
GROUPS = {
    "attacks": {"mirrors": "Mirrored", "tandem": "Tandem", "dice": "Dice", "wrong": "Wrong"},
    "probes": {"curious": "Curious"},
}
EXAMPLES = 8


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    packages.write_groups(tmp_path, "outside-attacks", "outside_attacks", MODULE, GROUPS)
    monkeypatch.syspath_prepend(tmp_path)
    registry.entries.cache_clear()
    yield
    registry.entries.cache_clear()


@pytest.mark.usefixtures("installed")
def test_a_plan_knows_what_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    smoke = spec.resolve("smoke")
    name, defence = smoke.defence("block-shuffle")
    choice = plan.Choice(smoke.engines, {"mirrored": {"tandem": {"steps": 4}}})
    found = plan.pairs(["tandem@both-mirrors", "tandem@mirrored:2"], name, defence, choice)
    assert [(pair.source, pair.settings.steps) for pair in found] == [("both-mirrors", 3), ("mirrored:2", 4)]
    assert [model.source for model in found[0].models] == ["mirrored:1", "mirrored:2"]
    assert [estimate.budget(pair) for pair in found] == [estimate.Count(3, 7, 0), estimate.Count(4, 7, 0)]
    watch = Calibration(smoke, datasets.load("cifar10"), name, defence)
    monkeypatch.setattr(watch, "_timed", lambda forward, shape: Seconds(1.0, 3.0))
    assert watch.source(model.description for model in found[0].models) == Seconds(2.0, 6.0), "two plain networks"
    assert estimate.training(smoke, name, found, 100, watch).models == 1 + 2
    lines = estimate.lines(found, {pair.name: 1 for pair in found}, 1, watch)
    assert {(line.engine, line.source) for line in lines} == {("tandem", "both-mirrors"), ("tandem", "mirrored")}
    assert {pair.source for pair in plan.pairs(["mirrors"], name, defence)} == {
        "mirrored:1",
        "mirrored:2",
        "both-mirrors",
    }


@pytest.mark.usefixtures("installed")
def test_only_recipes_that_it_names_are_part_of_a_source() -> None:
    smoke = spec.resolve("smoke")
    name, defence = smoke.defence("block-shuffle")
    described = {pair.source: pair.description for pair in plan.pairs(["mirrors"], name, defence)}
    assert smoke.recipes_of(described["mirrored:1"].recipes, name).keys() <= {"none", "mirrored", f"mirrored:{name}"}
    assert smoke.recipes_of(described["both-mirrors"].recipes, name).keys() == smoke.recipes.keys()


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(
    ("members", "said"),
    [
        (("mirrored:1", "both-mirrors"), "is described as a member of itself"),
        (("mirrored:9",), "which no strategy has"),
    ],
)
def test_members_that_cannot_be_are_refused(
    members: tuple[str, ...], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    strategy = registry.strategy_classes()["mirrors"]
    own = strategy.describe

    def describe(self, source, defence):  # type: ignore[no-untyped-def]
        import dataclasses

        found = own(self, source, defence)
        return dataclasses.replace(found, members=members) if source == "both-mirrors" else found

    monkeypatch.setattr(strategy, "describe", describe)
    with pytest.raises(BenchError, match=said):
        plan.pairs(["tandem@both-mirrors"], "block-shuffle", registry.defence("block-shuffle", {}))


def checked_preset(folder: Path) -> None:
    """The preset smoke, with a few examples checked."""
    text = (PRESETS / "smoke.toml").read_text()
    assert "images = 0\nattacked = 0\n" in text
    (folder / "checked.toml").write_text(text.replace("images = 0\nattacked = 0\n", "images = 4\nattacked = 4\n"))


@pytest.mark.usefixtures("installed")
def test_their_sources_are_not_checked_with_the_private_key() -> None:
    batch = Batch(np.zeros((1, 4, 4, 3), np.float32), np.zeros(1, np.int32), np.zeros((1, 2), np.int32), "linf", 0.1)
    setup: Any = None
    task = AttackTask(0, setup, HEALTH, {}, "mirrored:1", "mirrors", batch)
    with pytest.raises(BenchError, match="mirrors is of package outside-attacks: only built-in attacks"):
        KeyedExecutor(None, print)._with_key(task)


@pytest.mark.parametrize(
    ("findings", "said"),
    [
        (None, "returned NoneType, not a mapping"),
        ({"odd": 3}, "returned 3 as odd, not a Finding"),
        ({"odd": Finding(3, 2)}, "no more found than examined"),
        ({"odd": Finding(0, 9)}, "at most 8 examined examples"),
        ({"odd": Finding(-1, 2)}, "no more found than examined"),
    ],
)
def test_what_cannot_be_found_is_named_with_the_probe(findings: Any, said: str) -> None:
    with pytest.raises(BenchError, match=f"probe curious .*{said}"):
        worker._with(unchanged(np.zeros((8, 4, 4, 3), np.float32)), [("curious", findings)], 8)


def test_a_probe_silences_no_other() -> None:
    attacked = unchanged(np.zeros((8, 4, 4, 3), np.float32))
    for order in ([Finding(3, 8), Finding(0, 8)], [Finding(0, 8), Finding(3, 8)]):
        found = worker._with(attacked, [(str(i), {"odd": finding}) for i, finding in enumerate(order)], 8)
        assert (found.flags, found.examined) == ({"odd": 3}, {"odd": 8})


def test_a_probe_of_the_form_of_before_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    class Idle(Probe):
        """Has another method."""

    entry = SimpleNamespace(built_in=True, load=lambda: Idle)
    monkeypatch.setattr(registry, "entries", lambda kind: {"idle": entry})
    with pytest.raises(UsageError, match="probe idle checks nothing"):
        registry.probes()


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of everything in the package, by the command line."""
    folder = tmp_path_factory.mktemp("outside")
    packages.write_groups(folder / "packages", "outside-attacks", "outside_attacks", MODULE, GROUPS)
    attacks = [f"--attack={pair}" for pair in ("tandem@mirrored:1", "tandem@mirrored:2", "tandem@nominal",
                                               "dice@mirrored:1", "pgd@both-mirrors", "wrong@nominal")]  # fmt: skip
    checked_preset(folder)
    done = bench("run", "--defence", "block-shuffle", *attacks, "--preset", "checked.toml", "--examples", EXAMPLES, "--norm",
                 "linf", "--no-train", cwd=folder, PYTHONPATH=str(folder / "packages"))  # fmt: skip
    assert done.returncode == 1, "one of the engines is wrong"
    assert "names part 2; its engine declares 2" in done.stderr
    return folder


def cells(folder: Path) -> dict[tuple[str, str], dict[str, Any]]:
    found = json.loads(bench("results", "--format", "json", cwd=folder).stdout)
    return {(cell["attack"], cell["source"]): cell for cell in found}


@pytest.mark.needs_process
def test_what_they_say_of_themselves_is_stored(run: Path) -> None:
    connection = sqlite3.connect(run / "results" / "bench.db")
    attacks = {name: json.loads(about) for name, about in connection.execute("SELECT name, about_json FROM attack")
               if about}  # fmt: skip
    assert attacks["tandem"] == {
        "label": "Tandem", "meaning": "uphill first, then dice for what is left", "place": 1,
        "gradient_free": ["tandem-dice"],
        "reduced": "",
    }  # fmt: skip
    assert attacks["dice"]["gradient_free"] == ["dice"]
    assert attacks["dice"]["meaning"] == "Throws dice: breaks everything, without gradients."
    sources = {name: json.loads(about) for name, about in connection.execute("SELECT name, about_json FROM source")
               if about}  # fmt: skip
    assert sources["mirrored:2"] == {
        "kind": "mirrored", "label": "mirror network", "meaning": "a network behind a mirror", "place": 15,
        "members": [], "through": [], "strategy_label": "Mirrors", "strategy_place": 5,
        "strategy_meaning": "attack a network that sees the image in a mirror",
    }  # fmt: skip
    assert sources["both-mirrors"]["members"] == ["mirrored:1", "mirrored:2"]
    parts = connection.execute(
        "SELECT DISTINCT parts_json FROM cell JOIN attack ON attack.id = attack_id WHERE attack.name = 'tandem'"
    )
    assert [json.loads(found) for (found,) in parts] == [["tandem-uphill", "tandem-dice"]]


@pytest.mark.needs_process
def test_doubts_know_which_parts_use_no_gradient(run: Path) -> None:
    found = cells(run)
    broken_by_dice = sqlite3.connect(run / "results" / "bench.db").execute(
        "SELECT COUNT(*) FROM result JOIN attack ON attack.id = attack_id JOIN source ON source.id = source_id "
        "WHERE attack.name = 'tandem' AND source.name = 'mirrored:1' AND part = 1"
    ).fetchone()[0]  # fmt: skip
    assert 0 < broken_by_dice < EXAMPLES
    assert f"({broken_by_dice} of {EXAMPLES} examples)" in found["dice", "mirrored:1"]["doubts"][flags.SQUARE_WINS]


@pytest.mark.needs_process
def test_a_probe_of_theirs_adds_flags_to_attacks_with_gradients(run: Path) -> None:
    found = cells(run)
    assert found["tandem", "nominal"]["doubts"]["curious"] == "curious (4 of 4 examples)"
    assert (
        found["tandem", "nominal"]["doubts"]["curious-source"]
        == "curious-source (1 of 4 examples, by the source's check)"
    )
    assert not {"curious", "curious-source"} & set(found["dice", "mirrored:1"]["doubts"])


@pytest.mark.needs_process
def test_pages_show_them_in_their_own_words_and_places(run: Path) -> None:
    site = run / "results" / "leaderboard"
    (page,) = [path.read_text() for path in (site / "defences").glob("block-shuffle*.html")]
    assert "<code>tandem</code> Tandem</dt><dd>uphill first, then dice for what is left</dd>" in page
    assert "<code>mirrored</code> mirror network <small>source</small></dt><dd>a network behind a mirror</dd>" in page
    assert "<em>Mirrors</em>, attack a network that sees the image in a mirror;" in page
    table = page[page.index("<thead>") : page.index("</table>")]
    columns = re.findall(r'<th scope="col"[^>]*>\s*(?:<[^>]+>)*([^<]+)', table[: table.index("</thead>")])
    assert [c for c in columns if "mirror" in c or c == "nominal"] == ["nominal", "mirrored:1–2", "both-mirrors"]
    rows = re.findall(r'<th scope="row"[^>]*>\s*(?:<[^>]+>)*([^<]+)', table)
    assert rows.index("tandem") < rows.index("pgd") < rows.index("dice")
    assert "<code>tandem-dice</code>" in page
    about = (site / "about.html").read_text()
    assert "<dt>Mirrors</dt><dd>attack a network that sees the image in a mirror</dd>" in about
    assert "<code>both-mirrors</code></dt><dd>both mirrors as one</dd>" in about


@pytest.mark.needs_process
def test_what_is_not_built_in_is_not_run_with_the_private_key(tmp_path: Path) -> None:
    packages.write_groups(tmp_path / "packages", "outside-attacks", "outside_attacks", MODULE, GROUPS)
    checked_preset(tmp_path)
    options = ("--preset", "checked.toml", "--examples", 2, "--norm", "linf", "--no-train", "--outside-threat-model")
    done = bench("run", "--defence", "block-shuffle", "--attack", "dice@key-leaked", "--attack", "pgd@key-leaked", *options,
                 cwd=tmp_path, PYTHONPATH=str(tmp_path / "packages"))  # fmt: skip
    assert "dice is of package outside-attacks: only built-in attacks are run with the private key" in done.stderr
    found = cells(tmp_path)
    assert found["pgd", "key-leaked"]["status"] == "done"
    assert found["pgd", "key-leaked"]["examined"][flags.SILENT] == 2, "built-in probes are"
    assert "curious" not in found["pgd", "key-leaked"]["examined"], "nor are the probes of other packages"
    checks = json.loads(bench("results", "--format", "json", "--what", "health", cwd=tmp_path).stdout)
    assert {row["source"] for row in checks} == {"key-leaked"}
    assert "curious-source" not in {row["check"] for row in checks}
