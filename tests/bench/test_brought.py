"""Classifiers brought from elsewhere: read as data, refused with one clear line, and used like those trained here."""

from __future__ import annotations

import json
import re
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

from bench import registry, spec
from bench.api import UsageError
from bench.data import datasets
from bench.evaluation import forecast, session
from bench.evaluation.rejudging import Elsewhere
from bench.evaluation.stored_board import Findings
from bench.evaluation.verify import verify
from bench.models import brought, keras_network, weights
from bench.models.architecture import Architecture
from bench.models.brought import Given
from bench.store.database import open_database
from tests import tiny, vaults
from tests.conftest import bench

layers = keras.layers
SHAPE = (32, 32, 3)


def convmixer(depth: int = 2, width: int = 8, patch: int = 4) -> keras.Model:
    """Patches, then depthwise and pointwise convolutions, each normalised: with weights of every kind."""
    keras.utils.set_random_seed(5)
    inputs = keras.Input(SHAPE)
    x = layers.BatchNormalization()(layers.Conv2D(width, patch, strides=patch, activation="gelu")(inputs))
    for _ in range(depth):
        mixed = layers.DepthwiseConv2D(5, padding="same", activation="gelu")(x)
        x = layers.Add()([layers.BatchNormalization()(mixed), x])
        x = layers.BatchNormalization()(layers.Conv2D(width, 1, activation="gelu")(x))
    model = keras.Model(inputs, layers.Dense(10)(layers.GlobalAveragePooling2D()(x)))
    random = np.random.default_rng(1)
    model.set_weights([np.abs(random.normal(0.5, 0.2, w.shape)).astype(np.float32) for w in model.get_weights()])
    return model


def sequential(*parts: Any, shape: tuple[int | None, ...] = SHAPE) -> keras.Model:
    return keras.Sequential([keras.Input(shape), *parts])


def plain(given: Given) -> brought.Brought:
    return brought.for_images(given, datasets.load("cifar10"))


def test_a_file_gives_the_models_own_logits_and_the_same_network_again(tmp_path: Path) -> None:
    model, images = convmixer(), datasets.load("cifar10").test.first(4).unit()
    model.save(tmp_path / "mixer.keras")
    found = plain(Given(str(tmp_path / "mixer.keras")))
    np.testing.assert_allclose(found.model(images), model(images), atol=1e-6)
    again = Architecture.read(json.loads(json.dumps(found.network.as_json()))).build(SHAPE, 10)
    weights.put_into(again, weights.arrays_of(found.model, {}), tmp_path)
    np.testing.assert_array_equal(again(images), found.model(images))
    assert found.network.cost(SHAPE, 10) > 8 * 8 * 8 * 4 * 4 * 3
    assert len(str(found.network)) < 200, "messages do not show the whole description"


def test_the_weights_and_the_network_are_its_identity(tmp_path: Path) -> None:
    model, other = convmixer(), convmixer()
    assert plain(Given(model)).digest == plain(Given(other)).digest
    changed = other.get_weights()
    changed[3] = changed[3] + 1e-3
    other.set_weights(changed)
    assert plain(Given(model)).digest != plain(Given(other)).digest
    relu, tanh = (sequential(layers.Flatten(), layers.Dense(10, activation=name)) for name in ("relu", "tanh"))
    tanh.set_weights(relu.get_weights())
    assert plain(Given(relu)).digest != plain(Given(tanh)).digest, "the same weights in another network"


@pytest.mark.parametrize("shape", [(3, 32, 32), (None, None, 3)], ids=["channels first", "any size"])
def test_other_layouts_of_the_input_are_read(shape: tuple[int | None, ...]) -> None:
    pooled = layers.GlobalAveragePooling2D(data_format="channels_first" if shape[0] == 3 else "channels_last")
    model, images = sequential(pooled, layers.Dense(10), shape=shape), datasets.load("cifar10").test.first(2).unit()
    given = images.transpose(0, 3, 1, 2) if shape[0] == 3 else images
    np.testing.assert_allclose(plain(Given(model)).model(images), model(given), atol=1e-6)


def test_probabilities_become_logits_that_give_them_again() -> None:
    model, images = convmixer(), datasets.load("cifar10").test.first(3).unit()
    soft = keras.Model(model.inputs, layers.Softmax()(model.outputs[0]))
    with pytest.raises(UsageError, match=r"its outputs are probabilities.*--probabilities"):
        plain(Given(soft))
    logits = plain(Given(soft, probabilities=True)).model(images)
    np.testing.assert_allclose(keras.ops.softmax(logits), soft(images), atol=1e-6)
    with pytest.raises(UsageError, match="leave --probabilities out"):
        plain(Given(model, probabilities=True))


class Doubled(keras.Layer):
    """A layer of somebody's own."""

    def call(self, inputs: Any) -> Any:
        return 2 * inputs


@keras.saving.register_keras_serializable("somebody")
class Noisy(keras.Layer):
    """Random whatever it is asked to be."""

    def call(self, inputs: Any) -> Any:
        return inputs + keras.random.normal(keras.ops.shape(inputs))


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ([layers.Flatten(), layers.Dense(3)], "gives 3 per image; it must give 10 logits, one per class"),
        ([layers.Conv2D(10, 3)], "gives 30×30×10 per image; it must give 10 logits"),
        ([layers.Lambda(lambda x: 2 * x), layers.Flatten(), layers.Dense(10)], "code inside \\(Lambda\\)"),
        ([Doubled(), layers.Flatten(), layers.Dense(10)], "a layer of its own, Doubled.*network of a package"),
        ([Noisy(), layers.Flatten(), layers.Dense(10)], "a layer of its own, .*Noisy"),
    ],
)
def test_a_file_that_does_not_fit_is_refused(parts: Sequence[Any], said: str, tmp_path: Path) -> None:
    sequential(*parts).save(tmp_path / "odd.keras")
    with pytest.raises(UsageError, match=said) as caught:
        plain(Given(str(tmp_path / "odd.keras"), option="--source"))
    assert str(caught.value).startswith(f"--source {tmp_path / 'odd.keras'}: ")
    assert "\n" not in str(caught.value)


def test_a_model_of_another_input_is_refused_with_both_shapes() -> None:
    model = sequential(layers.Flatten(), layers.Dense(10), shape=(16, 16, 48))
    with pytest.raises(
        UsageError, match=r"--classifier Sequential: the Keras model reads 16×16×48, .* here is 32×32×3"
    ):
        plain(Given(model))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda parts: parts.update(module="os", class_name="Dense"), "of module os"),
        (lambda parts: parts.update(module="keras_evil.layers"), "of module keras_evil.layers"),
        (lambda parts: parts.update(registered_name="evil>Dense"), "evil>Dense"),
        (lambda parts: parts.update(class_name="__lambda__"), "code inside"),
    ],
)
def test_a_description_that_names_code_is_refused_before_anything_is_built(change: Any, said: str) -> None:
    described = json.loads(
        keras_network.settings_of(sequential(layers.Flatten(), layers.Dense(10)), "logits")["config"]
    )
    change(next(p for p in keras_network._parts(described) if p.get("class_name") == "Dense"))
    with pytest.raises(UsageError, match=said):
        registry.network("keras", {"config": json.dumps(described)})


@pytest.mark.parametrize(
    ("content", "said"),
    [(b"no zip", "is no .keras file"), (None, "does not exist"), ({"other": "1"}, "config.json")],
)
def test_what_is_no_keras_file_is_refused(content: Any, said: str, tmp_path: Path) -> None:
    path = tmp_path / "odd.keras"
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif content is not None:
        with zipfile.ZipFile(path, "w") as archive:
            for name, text in content.items():
                archive.writestr(name, text)
    with pytest.raises(UsageError, match=said):
        keras_network.read_file(path)


def test_answers_that_change_are_refused() -> None:
    images, model = datasets.load("cifar10").test.first(4).unit(), convmixer()
    found = plain(Given(model))

    class Odd:
        """Answers as the model does, and something else."""

        def __init__(self, change: Any) -> None:
            self.change, self.calls = change, 0

        def __call__(self, inputs: Any, training: bool) -> np.ndarray:
            self.calls += 1
            return self.change(np.asarray(found.model(inputs)), self.calls)

    for change, said in (
        (lambda logits, calls: logits * calls, "differently each time: it has randomness"),
        (lambda logits, calls: logits - logits.mean(axis=0) * len(logits), "depend on the others of its batch"),
        (lambda logits, calls: logits * np.nan, "NaN or infinite logits"),
    ):
        with pytest.raises(UsageError, match=said):
            brought.check(brought.Brought(found.network, Odd(change), {}), Given(model), images)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("brought")
    tiny.make(folder)
    convmixer().save(folder / "mixer.keras")
    sequential(layers.Flatten(), layers.Dense(10)).save(folder / "dense.keras")
    return folder


def call(world: Path, *words: str, home: str = "home") -> Any:
    return bench(*words, cwd=world, BENCH_HOME=str(world / home))


WORLD = ("--preset", "tiny.toml", "--dataset", "mine.npz", "--defence", "block-shuffle", "--classifier", "mixer.keras")


@pytest.mark.needs_process
def test_every_kind_of_source_is_made_against_a_brought_classifier(world: Path) -> None:
    run = ("run", *WORLD, "--attack", "pgd@nominal", "--attack", "aa@bypass", "--attack", "mt@bypass",
           "--attack", "square@bypass", "--attack", "pgd@surrogate:1", "--attack", "pgd@user:dense",
           "--source", "dense.keras", "--attack", "pgd@user:fast-cnn", "--source", "fast-cnn[widths=4+4]",
           "--attack", "square@query", "--outside-threat-model")  # fmt: skip
    done = call(world, *run)
    assert done.returncode == 0, done.stderr
    cells = json.loads(call(world, "results", "--format", "json").stdout)
    assert len(cells) == 9
    assert {cell["status"] for cell in cells} == {"done"}
    kept = [json.loads(path.read_text()) for path in world.glob("home/artifacts/*/artifact.json")]
    networks = {(one["spec"].get("key"), one["spec"]["recipe"].get("network", {}).get("name")) for one in kept}
    assert ("attacker:1383227977468296715", "keras") in networks, "a surrogate has the classifier's own network"
    assert (None, "fast-cnn") in networks, "and a network to train was trained"
    assert "8 there already" in call(world, *run).stdout
    verified = call(world, "verify")
    assert "36 rows judged again, 0 problems" in verified.stdout, "with the dataset from where the run had it"


@pytest.mark.needs_process
def test_its_results_are_verified_exported_and_imported(world: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    smoke = ("--preset", "smoke", "--examples", "3", "--norm", "linf", "--db", "smoke.db")
    attacks = ("--attack", "pgd[steps=2]@nominal", "--attack", "square[queries=5]@nominal")
    done = call(world, "run", "--defence", "block-shuffle", "--classifier", "mixer.keras", *smoke, *attacks)
    assert done.returncode == 0, done.stderr
    verified = call(world, "verify", "--db", "smoke.db")
    assert verified.returncode == 0, verified.stdout + verified.stderr
    assert "9 rows judged again, 0 problems" in verified.stdout
    assert call(world, "export", "all.zip", "--db", "smoke.db", "--with-weights").returncode == 0
    imported = call(world, "import", "all.zip", "--db", "elsewhere.db", home="other")
    assert imported.returncode == 0, imported.stderr
    found = verified_elsewhere(world, monkeypatch)
    assert (found.rows, found.unjudged) == (9, {})
    monkeypatch.setattr(keras_network.KerasNetwork, "code", lambda self: "somebody:model")
    assert "is run only if you name it: --factory somebody:model" in verified_elsewhere(world, monkeypatch).unjudged[1]
    found = verified_elsewhere(world, monkeypatch, Elsewhere(factories=frozenset({"somebody:model"})))
    assert (found.rows, found.unjudged) == (9, {})


def verified_elsewhere(world: Path, monkeypatch: pytest.MonkeyPatch, trusted: Elsewhere | None = None) -> Findings:
    """What a verification finds where the results were imported."""
    monkeypatch.setenv("BENCH_HOME", str(world / "other"))
    database = open_database(str(world / "elsewhere.db"), create=False)
    try:
        return verify(database, world / "elsewhere.images", vaults.published(), elsewhere=trusted)
    finally:
        database.dispose()


@pytest.mark.needs_process
def test_a_key_search_knows_a_brought_classifier_by_its_run(world: Path) -> None:
    search = ("keysearch", *WORLD, "--random", "3", "--images", "20", "--slack", "0")
    refused = call(world, *search, home="new")
    assert refused.returncode == 2
    assert "--classifier mixer.keras was never judged here with the key" in refused.stderr


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"classifier": Given("gone.keras")}, "--classifier gone.keras does not exist"),
        ({"classifier": Given("model.h5")}, "give a file that ends in .keras, or torch:package.module:factory"),
        ({"classifier": Given("dense.keras", Path("w.npz"))}, "--weights w.npz is for torch:"),
        ({"classifier": Given("dense.keras", probabilities=True)}, "leave --probabilities out"),
        ({"classifier": Given("torch:models:net")}, "its weights are missing: give --weights FILE.safetensors"),
        ({"classifier": Given("torch:models:net@a.pt", Path("b.pt"))}, "its weights are given twice"),
        ({"classifier": Given("dense.keras"), "defences": ("none", "linac")}, "--classifier belongs to one defence"),
        ({"own_models": ("no-such-network",)}, "unknown network 'no-such-network'"),
    ],
)
def test_bad_input_is_refused_before_anything_is_written(
    world: Path, changes: dict[str, Any], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(world)
    chosen = spec.resolve("tiny.toml", dataset="mine.npz")
    given = {"spec": chosen, "defences": ("block-shuffle",), "attacks": ("pgd@bypass",), "vault": vaults.published()}
    with pytest.raises(UsageError, match=re.escape(said)) as caught:
        session.planned(session.Request(**{**given, **changes}))
    assert "\n" not in str(caught.value)


def test_a_plan_times_its_network_and_does_not_train_it(world: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(world)
    chosen = spec.resolve("tiny.toml", dataset="mine.npz")
    said: list[str] = []
    trained = {}
    for name, given in {"trained": None, "brought": Given("dense.keras")}.items():
        wanted = session.Request(chosen, ("block-shuffle",), ("pgd@bypass",), vaults.published(), classifier=given)
        (found,) = forecast.forecasts(wanted, session.planned(wanted), None, said.append)
        trained[name] = found.training.models
    assert trained == {"trained": 2, "brought": 1}, "the bypass, and a classifier that is not brought"
    assert any(line.startswith("timing keras[config=sha256:") for line in said)


@pytest.mark.needs_process
def test_a_refused_classifier_ends_with_2_and_nothing_is_written(world: Path) -> None:
    done = bench("run", *WORLD, "--probabilities", "--attack", "pgd@bypass", "--db", "new/bad.db", cwd=world,
                 BENCH_HOME=str(world / "bad-home"))  # fmt: skip
    assert done.returncode == 2, done.stderr
    assert done.stderr.startswith("error: --classifier mixer.keras: its outputs are no probabilities")
    assert len(done.stderr.strip().splitlines()) == 1
    assert not (world / "new").exists()
    assert not (world / "bad-home" / "artifacts").exists()
