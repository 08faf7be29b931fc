"""Norms by name: the built-in ones, one from outside, and unknown ones nowhere."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from attacks.engines.autoattack import AutoAttack
from attacks.engines.fab import FabT
from attacks.engines.square import Square
from bench import norms, spec
from bench.api import Ball, Batch, BenchError, ModelSource, Norm, UsageError
from bench.executors.keyed import KeyedExecutor
from bench.models.adversary import Adversary
from bench.vault import referee
from leaderboard import words
from tests import packages
from tests.attacks.conftest import Network, a_batch
from tests.l1 import install_l1
from tests.processes import python


def forget() -> None:
    norms.entries.cache_clear()
    norms._made.cache_clear()


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Installs a norm `odd` that is this source of a class `Odd`, for this test."""

    def put(source: str, name: str = "odd") -> None:
        whole = "from bench.api import Norm\n" + source
        packages.write(tmp_path / "odd", "odd-pack", "norms", name, "odd_norm", whole, "Odd")
        monkeypatch.syspath_prepend(tmp_path / "odd")
        forget()

    yield put
    forget()
    sys.modules.pop("odd_norm", None)


@pytest.fixture
def l1(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Norm]:
    """L1, installed for this test."""
    monkeypatch.syspath_prepend(install_l1(tmp_path / "l1"))
    forget()
    yield norms.named("l1")
    forget()
    for module in ("l1_norm", "l1_ball"):
        sys.modules.pop(module, None)


def test_the_built_in_norms_are_registered_in_their_order() -> None:
    assert norms.names() == ("linf", "l2")
    assert [norms.named(name).label for name in norms.names()] == ["L∞", "L2"]
    assert [norms.named(name).latex for name in norms.names()] == [r"$L_\infty$", "$L_2$"]
    assert {entry.package for entry in norms.entries().values()} == {"bench-keyed-defences"}


@pytest.mark.parametrize("name", ["linf", "l2"])
def test_distances_are_those_of_a_loop_over_the_values(name: str) -> None:
    random = np.random.default_rng(0)
    images, adversarial = random.uniform(size=(2, 3, 4, 5, 3)).astype(np.float32)
    changes = [
        [abs(float(a) - float(b)) for a, b in zip(one.flat, other.flat, strict=True)]
        for one, other in zip(images, adversarial, strict=True)
    ]
    expected = {
        "linf": [max(values) for values in changes],
        "l2": [sum(value**2 for value in values) ** 0.5 for values in changes],
    }[name]
    found = norms.named(name).distance(images, adversarial)
    assert found.dtype == np.float64
    np.testing.assert_allclose(found, expected, rtol=1e-14)


@pytest.mark.needs_process
def test_norms_are_loaded_and_measure_without_tensorflow() -> None:
    code = (
        "import sys, numpy as np\n"
        "from bench import norms\n"
        "import attacks.norms\n"
        "ones = np.ones((1, 2, 2, 3), np.float32)\n"
        "print([float(norms.named(name).distance(ones, 0 * ones)[0]) for name in norms.names()])\n"
        "print([name for name in ('tensorflow', 'keras', 'ray') if name in sys.modules])\n"
    )
    done = python(code, check=True)
    assert done.stdout.splitlines() == [f"[1.0, {12**0.5}]", "[]"]


def preset(folder: Path, text: str) -> str:
    (folder / "own.toml").write_text(f"examples = 1\n{text}")
    return str(folder / "own.toml")


UNKNOWN = "unknown norm 'l7': did you mean 'l2'?; there are l2, linf"


def test_an_unknown_norm_is_refused_by_name_wherever_it_is_given(tmp_path: Path) -> None:
    images, labels = np.zeros((2, 4, 4, 3), np.float32), np.zeros(2, np.int32)
    for attempt in (
        lambda: norms.named("l7"),
        lambda: spec.resolve("smoke", norms=("l7",)),
        lambda: spec.resolve(preset(tmp_path, 'norms = ["l7"]\nepsilon = { linf = 0.1 }')),
        lambda: spec.resolve(preset(tmp_path, "epsilon = { linf = 0.1, l7 = 1 }"), norms=("linf",)),
        lambda: referee.check(images, images, "l7", 1.0),
        lambda: Batch(images, labels, np.zeros((2, 2), np.int32), "l7", 1.0),
        lambda: Adversary("l7", 0.1),
    ):
        with pytest.raises(UsageError) as caught:
            attempt()
        assert str(caught.value) == UNKNOWN
    with pytest.raises(UsageError, match="unknown norm '2'"):
        Adversary(2, 0.1)  # type: ignore[arg-type]


def test_a_preset_says_its_norms_or_their_epsilons(tmp_path: Path) -> None:
    both = spec.resolve(preset(tmp_path, "epsilon = { l2 = 1, linf = 0.1 }"))
    assert (both.norms, dict(both.epsilon)) == (("linf", "l2"), {"linf": 0.1, "l2": 1.0})
    assert spec.resolve(preset(tmp_path, "epsilon = { linf = 0.1 }")).norms == ("linf",)
    for text, said in {
        "": "it must be a list of norms",
        'norms = "linf"\nepsilon = { linf = 1 }': "norms is 'linf'; it must be a list of norms",
        "norms = [2]": "it must be a list of norms",
        'norms = ["linf", "l2"]\nepsilon = { linf = 1 }': "has no epsilon for norm l2",
    }.items():
        with pytest.raises(UsageError) as caught:
            spec.resolve(preset(tmp_path, text))
        assert said in str(caught.value)
    with pytest.raises(UsageError, match="--epsilon belongs to one norm, not to linf, l2: give one --norm with it"):
        spec.resolve("smoke", epsilon="0.1")


def test_the_paper_is_reproduced_in_its_own_norms(l1: Norm) -> None:
    from bench.reproduction.sizes import sizes

    resolved = spec.resolve("smoke", norms=("l1",), epsilon="3")
    with pytest.raises(UsageError, match="the paper has nothing in norm l1: reproduce in linf or l2"):
        sizes(resolved)


ODD = '''
class Odd(Norm):
    """Odd."""
    name, label, latex = "odd", "Odd", "odd"
    def distance(self, images, adversarial): ...
    def ball(self): ...
'''


@pytest.mark.parametrize(
    ("source", "name", "said"),
    [
        (
            ODD.replace('"odd"', '"even"', 1),
            "odd",
            "calls itself 'even': the name of a norm is that of its entry point",
        ),
        (ODD.replace('"odd"', '"far-too-long"', 1), "far-too-long", "1 to 10 lower-case letters"),
        (ODD.replace(', label, latex = "odd", "Odd"', ' , latex = "odd"'), "odd", "cannot be made: .*label"),
        ("class Odd:\n    pass\n", "odd", r"is no subclass of bench\.api\.Norm"),
        ("import nowhere\n", "odd", "cannot be loaded"),
    ],
)
def test_a_norm_that_breaks_a_rule_is_named_with_its_package(
    install: Callable[..., None], source: str, name: str, said: str
) -> None:
    install(source, name)
    with pytest.raises(BenchError, match=f"norm '{name}' of package odd-pack .*{said}"):
        norms.named(name)
    assert norms.named("linf").label == "L∞"


def test_two_norms_of_one_name_are_an_error_that_names_both(install: Callable[..., None]) -> None:
    install(ODD, "l2")
    with pytest.raises(BenchError, match=r"two norms are called 'l2'.*(odd-pack.*bench-keyed|bench-keyed.*odd-pack)"):
        norms.named("l2")


def test_without_metadata_it_is_said_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    forget()
    monkeypatch.setattr("importlib.metadata.entry_points", lambda **_: ())
    with pytest.raises(BenchError, match=r"no norms are registered.*install it again"):
        norms.named("linf")
    monkeypatch.undo()
    assert norms.named("linf").name == "linf"


def test_norms_from_outside_stand_after_the_built_in_ones_and_unknown_ones_last(l1: Norm) -> None:
    assert norms.names() == ("linf", "l2", "l1")
    assert sorted(["zz", "l1", "l0", "l2", "linf"], key=norms.place) == ["linf", "l2", "l1", "l0", "zz"]
    assert words.norm("l1") == "L1"
    assert words.norm("l0") == "l0 (norm not installed here)"


def test_engines_say_in_one_line_that_they_cannot_work_in_a_norm(l1: Norm) -> None:
    network = Network()
    source, batch = ModelSource("network", network), a_batch(network, norm="l1", epsilon=1.0)
    for engine, missing in (
        (Square(), "square_moves"),
        (FabT(), "profile"),
        (AutoAttack(), "profile and no square_moves"),
    ):
        with pytest.raises(UsageError) as caught:
            engine.run(source, batch, lambda _: None)
        name = type(engine).__name__
        assert str(caught.value) == f"{name} cannot work in norm 'l1': its ball has no {missing} (bench.api.Ball)"
    rest = AutoAttack(AutoAttack.Settings(parts=("apgd-ce", "apgd-t"), steps=3)).run(source, batch, lambda _: None)
    assert (l1.distance(batch.images, rest.images) <= 1.0 + referee.TOLERANCE).all()


def test_attacks_with_the_private_key_run_in_built_in_norms_only(l1: Norm) -> None:
    task = types.SimpleNamespace(index=0, engine="square", strategy="query", batch=types.SimpleNamespace(norm="l1"))
    tasks = iter([task, None])
    (outcome,) = KeyedExecutor(None, print).run(lambda: next(tasks), lambda *_: None)  # type: ignore[arg-type, return-value]
    assert outcome is not None
    assert outcome.error == "l1 is of package l1-pack: only built-in attacks are run with the private key"


def a_ball(name: str) -> Ball:
    return norms.named(name).ball()


def test_adversarial_training_works_in_a_norm_from_outside(l1: Norm) -> None:
    random = np.random.default_rng(0)
    images = random.uniform(size=(6, 8, 8, 3)).astype(np.float32)
    weights = tf.constant(random.normal(size=(192, 4)).astype(np.float32))
    targets = tf.one_hot([0, 1, 2, 3, 0, 1], 4)

    def logits(batch: tf.Tensor) -> tf.Tensor:
        return tf.reshape(batch, [-1, 192]) @ weights

    def loss(batch: tf.Tensor) -> np.ndarray:
        return tf.nn.softmax_cross_entropy_with_logits(targets, logits(batch)).numpy()

    for norm, epsilon in (("l1", 2.0), ("l2", 0.5), ("linf", 0.03)):
        moved = (
            Adversary(norm, epsilon, steps=5).attack(logits, tf.constant(images), targets, tf.constant([1, 2])).numpy()
        )
        assert (norms.named(norm).distance(images, moved) <= epsilon * (1 + 1e-5)).all()
        assert (loss(tf.constant(moved)) > loss(tf.constant(images))).all()


def test_adversarial_training_keeps_its_own_formulas() -> None:
    """They are not those of attacks, and weights were trained with them."""
    change = np.random.default_rng(0).normal(size=(3, 4, 4, 3)).astype(np.float32)
    length = np.sqrt((change.astype(float) ** 2).sum(axis=(1, 2, 3), keepdims=True))
    linf, l2 = a_ball("linf"), a_ball("l2")
    np.testing.assert_array_equal(linf.training_direction(tf.constant(change)), np.sign(change))
    np.testing.assert_array_equal(
        linf.training_shrink(tf.constant(change), 0.1), np.clip(change, -np.float32(0.1), np.float32(0.1))
    )
    np.testing.assert_allclose(l2.training_direction(tf.constant(change)), change / length, rtol=1e-6)
    np.testing.assert_allclose(l2.training_shrink(tf.constant(change), 0.1), 0.1 * change / length, rtol=1e-6)
    drawn = tf.random.stateless_uniform(change.shape, [1, 2], -1.0, 1.0).numpy()
    np.testing.assert_array_equal(linf.training_start(tf.constant(change), tf.constant([1, 2])), drawn)
    sizes = np.sqrt((drawn.astype(float) ** 2).sum(axis=(1, 2, 3), keepdims=True))
    np.testing.assert_allclose(l2.training_start(tf.constant(change), tf.constant([1, 2])), drawn / sizes, rtol=1e-6)
