"""Objects in memory: plug-ins of a script or a notebook, images as arrays, and a key that stays where it is."""

from __future__ import annotations

import dataclasses
import functools
import json
import pickle
import sys
from pathlib import Path
from typing import Any, Literal

import cloudpickle
import numpy as np
import pytest

import bench
from bench import in_memory, python_arguments, registry
from bench.api import Attacked, Defence, Engine, UsageError
from bench.data import datasets
from bench.keys import PrivateKey
from bench.support import code_digest
from tests.bench.test_wall import SECRET, SPY
from tests.processes import bench as bench_command
from tests.processes import run

# Classes of a script that is no importable module and has no main guard. The key comes by a file, the environment and the
# command line; of those the worker must have none.
SCRIPT = """
from __future__ import annotations
import dataclasses, json, pathlib, sys
from typing import Literal
import keras
import tensorflow as tf
import bench
from bench.api import Defence

@dataclasses.dataclass(frozen=True)
class RollSettings:
    by: int = 1
    where: Literal["left", "right"] = "left"

def rolled(images, by):
    return tf.roll(images, by, axis=2)

class MyDefence(Defence):
    \"\"\"Rolls the image sideways, as far as the key says.\"\"\"

    Settings = RollSettings
    keyed = True

    def transform(self, images, key, state):
        return rolled(images, self.settings.by * (key % 7))

class Broken(Engine):
    \"\"\"Fails.\"\"\"

    def run(self, source, batch, report):
        raise ValueError("broken on purpose")

tf.constant(1.0) + 1  # a notebook has computed before
images = np.load("images.npz")
x, y = images["images"].astype("float32") / 255, images["labels"]
keras.utils.set_random_seed(0)
model = keras.Sequential([
    keras.Input((8, 8, 3)), keras.layers.Conv2D(4, 3, activation="relu"), keras.layers.Flatten(), keras.layers.Dense(5)
])
model.save("dense.keras")
key = int(pathlib.Path("my.key").read_text().partition(":")[2])
kept = {}
try:
    bench.evaluate(MyDefence(RollSettings(2, "right")), [(Spy(), "user:dense"), (Broken, "user:dense")], classifier=model,
                   key=key, images=x, labels=y, sources="dense.keras", preset="smoke", norms="linf", quiet=True)
except bench.EvaluationFailed as failure:
    kept["problem"] = str(failure)
    kept["cells"] = json.loads(failure.result.cells().to_json(orient="records"))
    kept["repr"] = repr(failure.result)
result = bench.evaluate("none", "pgd@self", classifier=model, images=images["images"], labels=y, preset="smoke",
                        norms="linf", db="kept.db", quiet=True)
kept["rows"] = len(result.examples())
pathlib.Path("kept.json").write_text(json.dumps(kept))
"""


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the script was run."""
    folder = tmp_path_factory.mktemp("memory")
    (folder / "my.key").write_text(f"mine:{SECRET}\n")
    (folder / "my.key").chmod(0o600)
    generator = np.random.default_rng(0)
    np.savez(folder / "images.npz", images=generator.integers(0, 256, (4, 8, 8, 3), np.uint8), labels=np.arange(4))
    spy = SPY.replace(f"[{SECRET} ^ 0]", f"[{SECRET - 1} + len(batch.labels[:1])]")
    spy = spy.replace("from defences.block_shuffle import BlockShuffle", "")
    spy = spy.replace("type(d) is BlockShuffle", "type(d).__name__ == 'MyDefence'")
    (folder / "script.py").write_text(SCRIPT.replace("import dataclasses, json", f"{spy}\nimport dataclasses, json"))
    text = (folder / "script.py").read_text()
    future = "from __future__ import annotations\n"
    (folder / "script.py").write_text(future + text.replace(future, ""))
    done = run([sys.executable, "script.py", str(SECRET)], cwd=folder,
               environment={"BENCH_HOME": str(folder / "home"), "BENCH_KEY": f"mine:{SECRET}"})  # fmt: skip
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture
def kept(world: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((world / "kept.json").read_text())
    return found


@pytest.mark.needs_process
def test_a_spy_in_memory_finds_no_key_in_its_process(world: Path) -> None:
    assert (world / "spied.txt").read_text() == "nothing"


@pytest.mark.needs_process
def test_classes_of_a_script_are_attacked_and_attack(kept: dict[str, Any]) -> None:
    cells = {(cell["attack"], cell["source"]): cell for cell in kept["cells"]}
    assert cells["spy", "user:dense"]["status"] == "done"
    assert {cell["defence"] for cell in kept["cells"]} == {"my-defence"}
    assert "4 examples of images-" in kept["repr"]


@pytest.mark.needs_process
def test_cells_that_fail_are_told_and_the_others_are_kept(kept: dict[str, Any]) -> None:
    assert kept["problem"] == "my-defence linf broken@user:dense: ValueError: broken on purpose"
    assert {cell["attack"]: cell["status"] for cell in kept["cells"]}["broken"] == "failed"


@pytest.mark.needs_process
def test_images_in_memory_are_judged_again_later(world: Path, kept: dict[str, Any]) -> None:
    assert kept["rows"] == 8
    verified = bench_command("verify", "--db", "kept.db", cwd=world, BENCH_HOME=str(world / "home"))
    assert verified.returncode == 0, verified.stdout + verified.stderr
    assert "8 rows" in verified.stdout


@dataclasses.dataclass(frozen=True)
class DimSettings:
    """How dark."""

    by: float = 0.5
    mode: Literal["all", "half"] = "all"
    at: tuple[int, ...] = (1, 2)


class DimTheLights(Defence):
    """Makes the image darker."""

    Settings = DimSettings

    def transform(self, images: Any, key: int | None, state: Any) -> Any:
        return images * self.settings.by


class StandStill(Engine):
    """Does nothing."""

    def run(self, source: Any, batch: Any, report: Any) -> Attacked:
        raise NotImplementedError


def test_an_object_is_a_request_by_its_class_and_settings() -> None:
    found = in_memory.requested("defences", DimTheLights(DimSettings(0.25, "half", (3,))))
    assert found.text == "dim-the-lights[by=0.25,mode=half,at=3]"
    assert found.brought is not None
    with in_memory.installed([found.brought]):
        entry = registry.entry("defences", "dim-the-lights")
        assert (entry.description, entry.built_in) == ("Makes the image darker.", False)
        made = registry.defence(*registry.parse(found.text))
        assert made.settings == DimSettings(0.25, "half", (3,))
        assert made.version.startswith("1+"), "changed code is another version"
        assert in_memory.packed()
    assert in_memory.packed() == b""
    with pytest.raises(UsageError, match="unknown defence 'dim-the-lights'"):
        registry.entry("defences", "dim-the-lights")


def test_a_class_that_is_registered_goes_by_its_name() -> None:
    plugin = registry.engine_class("pgd")
    wanted = python_arguments.wanted("none", [(plugin(plugin.Settings(steps=3)), "nominal"), StandStill])
    assert wanted.attacks[0].startswith("pgd[")
    assert "steps=3," in wanted.attacks[0]
    assert wanted.attacks[0].endswith("]@nominal")
    assert wanted.attacks[1] == "stand-still"
    assert [one.name for one in wanted.plugins] == ["stand-still"]


def test_a_strategy_has_its_settings_in_the_spec() -> None:
    from bench import spec

    plugin = registry.strategy_class("transfer")
    wanted = python_arguments.wanted("block-shuffle", plugin(plugin.Settings(surrogates=4)))
    assert wanted.attacks == ("transfer",)
    assert wanted.over(spec.resolve("smoke")).strategies("block-shuffle")["transfer"]["surrogates"] == 4


class Jpeg(Defence):
    """Has the name of another."""

    def transform(self, images: Any, key: int | None, state: Any) -> Any:
        return images


class Stateful(Defence):
    """Has more than settings."""

    def __init__(self, settings: Any = None, strength: int = 1) -> None:
        super().__init__(settings)
        self.strength = strength

    def transform(self, images: Any, key: int | None, state: Any) -> Any:
        return images


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (Jpeg(), "'jpeg', and a defence of that name is registered already"),
        (Stateful(strength=2), r"values besides its settings \(strength\)"),
        (DimTheLights(DimSettings(mode="a,b")), "cannot be stored"),  # type: ignore[arg-type]
        (StandStill(), "StandStill is no Defence of bench.api"),
        (5, "int is no Defence of bench.api"),
    ],
)
def test_objects_that_no_process_could_make_again_are_refused(given: Any, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        bench.evaluate(given, "pgd@self", preset="smoke")


def local_class(key: int) -> type[Defence]:
    """A class that no module has, with a number in its code."""

    class Leaking(Defence):
        def transform(self, images: Any, _: int | None, state: Any) -> Any:
            return images + key

    return Leaking


@pytest.mark.parametrize("key", [SECRET, -SECRET, 2**40 + 12345])
def test_a_class_with_the_key_in_it_is_refused(key: int) -> None:
    found = in_memory.requested("defences", local_class(key))
    assert found.brought is not None
    with (
        pytest.raises(UsageError, match="the private key is among what it refers to"),
        in_memory.installed([found.brought], PrivateKey("mine", key).stands_in),
    ):
        pass
    with in_memory.installed([found.brought], PrivateKey("mine", key ^ 2**20).stands_in):
        assert in_memory.packed()


def test_a_private_key_object_goes_nowhere() -> None:
    key = PrivateKey("mine", SECRET)
    found = in_memory.requested("defences", local_class(key))  # type: ignore[arg-type]
    assert found.brought is not None
    with pytest.raises(UsageError, match="a private key is never pickled"), in_memory.installed([found.brought]):
        pass


def test_what_a_class_refers_to_is_part_of_its_version() -> None:
    one, same, other = (code_digest.of_class(local_class(key)) for key in (1, 1, 2))
    assert one == same != other
    assert code_digest.of_class(DimTheLights) != code_digest.of_class(Jpeg)


def decorated(number: int) -> type[Defence]:
    """A class with a number in everything that is no plain method."""

    class Decorated(Defence):
        @property
        def one(self) -> int:
            return number

        @functools.cached_property
        def two(self) -> int:
            return number

        @staticmethod
        @functools.cache
        def three() -> int:
            return number

        def transform(self, images: Any, key: int | None, state: Any) -> Any:
            return images

    return Decorated


@pytest.mark.parametrize("name", ["one", "two", "three"])
def test_decorated_functions_count_too(name: str) -> None:
    changed = decorated(1)
    setattr(changed, name, vars(decorated(2))[name])
    assert code_digest.of_class(decorated(1)) != code_digest.of_class(changed)


def test_another_process_installs_what_it_is_sent_once() -> None:
    found = in_memory.requested("defences", local_class(3))
    assert found.brought is not None
    packed = cloudpickle.dumps([found.brought])
    with in_memory.installed([]):
        in_memory.install(packed)
        plugin = registry.entry("defences", "leaking").load()
        in_memory.install(packed)
        assert registry.entry("defences", "leaking").load() is plugin
        registry.remove("defences", "leaking")
    with pytest.raises((AttributeError, pickle.PicklingError)):
        pickle.dumps(found.brought)


def test_floats_are_images_if_they_come_from_eight_bits() -> None:
    pixels = np.arange(192, dtype=np.uint8).reshape(1, 8, 8, 3)
    for kind in (np.float16, np.float32, np.float64):
        assert (datasets.as_bytes((pixels / 255).astype(kind)) == pixels).all()
    assert datasets.as_bytes(pixels) is pixels


X = np.zeros((2, 8, 8, 3), np.uint8)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"images": X + np.float32(0.5)}, "values that no 8-bit image has"),
        ({"images": X - np.float32(1)}, "values that no 8-bit image has"),
        ({"images": X * np.nan}, "values that no 8-bit image has"),
        ({"images": X.astype(int)}, "must be uint8"),
        ({"images": X[0]}, "must be N×H×W×3"),
        ({"labels": None}, "images is given alone"),
        ({"labels": [0]}, "one an image"),
        ({"labels": [0, -1]}, "labels are 0 and up"),
        ({"labels": [0, 5], "classes": 5}, "outside the 5 classes"),
        ({"dataset": "cifar10"}, "give one of them"),
        ({"train": True}, "images that were given as arrays have no others to train on"),
    ],
)
def test_images_that_cannot_be_are_refused(changes: dict[str, Any], said: str, own_home: Path) -> None:
    with pytest.raises(UsageError, match=said):
        bench.evaluate("none", "pgd@self", **{"preset": "smoke", "images": X, "labels": [0, 1], **changes})


def test_kept_images_have_a_name_of_their_own(own_home: Path) -> None:
    name = python_arguments.kept_images(X, [0, 1], ["cat", "dog"], None)
    assert python_arguments.kept_images(X / np.float32(255), [0, 1], ["cat", "dog"], None) == name
    assert python_arguments.kept_images(X, [0, 1], 3, None) != name
    dataset = datasets.load(name)
    assert (dataset.name, dataset.classes, len(dataset.test)) == (name, ("cat", "dog"), 2)
