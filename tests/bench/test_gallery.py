"""The computed figures: what they show is what the defences and models themselves give, and no key is in them."""

from __future__ import annotations

import dataclasses
import re
import xml.etree.ElementTree
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pytest

from bench import registry, spec
from bench.api import BenchError, UsageError
from bench.data import datasets
from bench.data.datasets import Split
from bench.keys import PUBLISHED_ID, PUBLISHED_KEY
from bench.models import catalogue
from bench.models.catalogue import NotTrained
from bench.reproduction import gallery
from bench.vault.here import VaultHere
from leaderboard import svg
from leaderboard.figures import Figure
from leaderboard.svg import Axis, Point
from tests import tiny, vaults
from tests.processes import python

NUMBER = 1234567890123456789
SECRET = vaults.with_key("mine", NUMBER)
PUBLISHED = vaults.published()
FITTED = tuple(name for name in gallery.NAMES if name != "figure4")


@pytest.fixture
def small(tmp_path: Path) -> spec.Spec:
    """The tiny world's preset on its own twelve test images."""
    tiny.make(tmp_path)
    return spec.resolve(str(tmp_path / "tiny.toml"), dataset=str(tmp_path / "mine.npz"), examples=12)


def make(name: str, chosen: spec.Spec, key: VaultHere | None = PUBLISHED, may_train: bool = False) -> Figure:
    (figure,) = gallery.make(name, chosen, key, may_train, lambda text: None)
    return figure


def linac(chosen: spec.Spec, **changes: Any) -> Any:
    return registry.defence("linac", {**chosen.defences["linac"], **changes})


def reconstructed(chosen: spec.Spec, images: Split, key: int) -> np.ndarray:
    """What the variant of the defence that gives the image back makes of images (N×H×W×3, standardised)."""
    import tensorflow as tf

    variant = linac(chosen, representation_layer=chosen.defences["linac"]["layers"])
    return np.asarray(variant.transform(tf.constant(images.unit()), key, {}))


def standardised(images: Split) -> np.ndarray:
    return (images.images / 255 - [0.4914, 0.4822, 0.4465]) / [0.2471, 0.2435, 0.2616]


def texts(figure: Figure) -> list[str]:
    tree = xml.etree.ElementTree.fromstring(svg.standalone(figure.chart))
    return [element.text for element in tree.iter("{http://www.w3.org/2000/svg}text") if element.text]


def never(*_: Any, **__: Any) -> NoReturn:
    raise AssertionError("computed again")


def test_the_fit_gets_better_and_its_last_error_is_the_reconstructions(small: spec.Spec) -> None:
    curve, histogram = make("figure10", small), make("figure11", small)
    mean = curve.data["mean"]
    assert list(curve.data["steps"]) == list(range(32))  # one epoch of 1024 pixels, 32 a step
    assert mean.iloc[-8:].mean() < 0.75 * mean.iloc[0]
    images = datasets.load(small.dataset).examples(12)
    error = np.square(standardised(images) - reconstructed(small, images, PUBLISHED_KEY)).sum(3).mean((1, 2))
    assert f"{error.mean():.4f}" in histogram.caption
    assert histogram.data["images"].sum() == 12
    for (low, high), count in zip(histogram.data[["from", "to"]].values, histogram.data["images"], strict=True):
        assert abs(count - ((error >= low) & (error < high)).sum()) <= 1  # an error on an edge


def test_what_was_fitted_is_kept(small: spec.Spec, monkeypatch: pytest.MonkeyPatch, own_home: Path) -> None:
    first = {name: make(name, small) for name in FITTED}
    monkeypatch.setattr("defences.linac.fit", never)
    for name, figure in first.items():
        again = make(name, small)
        assert (again.chart, again.caption) == (figure.chart, figure.caption)
        assert again.data.equals(figure.data)
    with pytest.raises(AssertionError, match="computed again"):
        make("figure12", dataclasses.replace(small, defences={"linac": {**small.defences["linac"], "width": 20}}))
    kept = sorted((own_home / "gallery").iterdir())
    for path in kept:
        path.write_bytes(b"not an array")
    with pytest.raises(BenchError, match="remove it"):
        make("figure10", small)


def test_many_images_are_fitted_in_parts_that_are_kept(small: spec.Spec, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = make("figure10", small)
    monkeypatch.setattr("bench.reproduction.gallery.fits.CHUNK", 5)
    assert make("figure10", small).data.equals(whole.data)
    monkeypatch.setattr("defences.linac.fit", never)
    assert len(make("figure11", dataclasses.replace(small, examples=10)).data) == 30  # the first two parts of three


def test_reconstructions_are_key_dependent_and_lossy(small: spec.Spec) -> None:
    from bench.attacker_keys import attacker_key

    right, other = make("figure12", small), make("figure13", small)
    dataset = datasets.load(small.dataset)
    assert sorted(set(right.data["label"])) == sorted({dataset.classes[i] for i in dataset.test.labels})
    assert list(right.data["example"]) == list(other.data["example"])
    places = right.data["example"].to_numpy()
    images = Split(dataset.test.images[places], dataset.test.labels[places])
    for figure, key in ((right, PUBLISHED_KEY), (other, attacker_key(1))):
        wanted = np.square(standardised(images) - reconstructed(small, images, key)).sum(3).mean((1, 2))
        np.testing.assert_allclose(figure.data["squared_error"], wanted, rtol=1e-3)
    assert str(right.chart).count("<image") == 3 * len(places)
    assert right.chart != other.chart


def test_a_grid_has_a_square_a_channel_and_a_colour_a_transform(small: spec.Spec) -> None:
    import tensorflow as tf

    from bench.reproduction.gallery import activations

    assert (activations.columns(256), activations.columns(32)) == (16, 8)
    shown = np.random.default_rng(0).uniform(0, 1, (3, 4, 5, 6)).astype(np.float32)
    sheet = activations.grid(shown)
    brightest = np.percentile(shown, 98.0)
    for channel in range(6):
        row, column = divmod(channel, 8 if activations.columns(6) == 8 else 4)
        square = sheet[1 + 5 * row : 5 + 5 * row, 1 + 6 * column : 6 + 6 * column]
        wanted = np.clip(shown[:, :, :, channel] / brightest, 0, 1).transpose(1, 2, 0)
        np.testing.assert_allclose(square[..., :3] / 255, wanted, atol=0.003)
        assert (square[..., 3] == 255).all()
    images = datasets.load(small.dataset).test.first(3)
    transformed = linac(small).transform(tf.constant(images.unit()), PUBLISHED_KEY, {}).numpy()
    for name, number in (("figure14", slice(0, 3)), ("figure15", 0), ("figure16", 1), ("figure17", 2)):
        frame = make(name, small).data
        mine = frame[frame["colour"] == "red"]["mean"]
        first = transformed[number] if isinstance(number, int) else transformed[0]
        np.testing.assert_allclose(mine, first.mean((0, 1)), rtol=1e-4, atol=1e-6)
        assert len(frame) == 3 * 16


def shuffled_by_hand(image: np.ndarray, frame: Any) -> np.ndarray:
    result = np.empty_like(image)
    for top in range(0, image.shape[0], 4):
        for left in range(0, image.shape[1], 4):
            for row, column, from_row, from_column in frame.to_numpy():
                result[top + row, left + column] = image[top + from_row, left + from_column]
    return result


def test_the_shuffle_is_the_defences_own(small: spec.Spec) -> None:
    import tensorflow as tf

    figure, hidden = make("figure5", small), make("figure5", small, SECRET)
    assert not figure.data.equals(hidden.data)
    image = datasets.load(small.dataset).test.first(1).unit()
    defence = registry.defence("block-shuffle", {})

    def by_defence(key: int) -> np.ndarray:
        out = defence.transform(tf.constant(image), key, {}).numpy()[0]
        return out * np.array([0.2471, 0.2435, 0.2616]) + np.array([0.4914, 0.4822, 0.4465])

    np.testing.assert_allclose(shuffled_by_hand(image[0], figure.data), by_defence(PUBLISHED_KEY), atol=1e-5)
    # Under a secret key the figure shows another permutation than the defence's.
    assert np.abs(shuffled_by_hand(image[0], hidden.data) - by_defence(NUMBER)).max() > 0.05


def test_a_secret_key_is_never_computed_with(small: spec.Spec, monkeypatch: pytest.MonkeyPatch) -> None:
    import defences.linac
    from bench.attacker_keys import PAPER_KEYS

    real, used = defences.linac.fit, list[int]()

    def fit(images: np.ndarray, key: int, config: Any) -> Any:
        used.append(key)
        return real(images, key, config)

    monkeypatch.setattr(defences.linac, "fit", fit)
    for name in FITTED:
        figure = make(name, small, SECRET)
        text = figure.caption + figure.title + str(figure.chart) + figure.data.to_csv()
        for number in (NUMBER, PUBLISHED_KEY, *PAPER_KEYS):
            assert str(abs(number)) not in text, name
        if name != "figure13":  # it is of another key anyway
            assert "stands in for the private one" in figure.caption, name
    assert used
    assert set(used) <= set(PAPER_KEYS)
    for name in FITTED:
        figure = make(name, small)
        assert str(abs(PUBLISHED_KEY)) not in figure.caption + str(figure.chart) + figure.data.to_csv()


def test_no_key_is_the_published_one(small: spec.Spec) -> None:
    assert make("figure5", small, None).data.equals(make("figure5", small, PUBLISHED).data)
    impostor = vaults.with_key(PUBLISHED_ID, 5)  # a secret is a secret whatever it is called
    assert make("figure5", small, impostor).data.equals(make("figure5", small, SECRET).data)


@pytest.mark.parametrize("name", FITTED)
def test_a_chart_stands_alone(small: spec.Spec, name: str) -> None:
    figure = make(name, small)
    assert figure.name == name
    assert texts(figure)
    assert len(figure.data)
    for uri in re.findall(r'href="([^"]+)"', str(figure.chart)):
        assert uri.startswith("data:image/png;base64,")


def test_a_logarithmic_scale_has_decades_of_the_same_height() -> None:
    points = [Point(x, 10.0**-x, 10.0**-x / 2, 10.0**-x * 2) for x in (0, 1, 2)]
    chart = str(svg.log_band(points, Axis("x", 0, 2, []), title="t", y_label="y"))
    (line,) = re.findall(r'<polyline[^>]+points="([^"]+)"', chart)
    first, second, third = (float(pair.split(",")[1]) for pair in line.split())
    assert second - first == pytest.approx(third - second, abs=0.2)
    assert second > first
    wide = [Point(x, 1.0, -1.0, 3.0) for x in (0, 1)]
    below = str(svg.log_band(wide, Axis("x", 0, 1, []), title="t", y_label="y"))
    (band,) = re.findall(r'<polygon[^>]+points="([^"]+)"', below)
    assert max(float(pair.split(",")[1]) for pair in band.split()) == svg.HEIGHT - svg.BOTTOM  # cut off at the floor


def test_a_map_shows_a_boundary_where_it_is() -> None:
    from bench.reproduction.gallery.maps import Plane, classes_around

    examples = Split(np.full((2, 4, 4, 3), 128, np.uint8), np.array([0, 1], np.int32))
    right, up = np.zeros((4, 4, 3)), np.zeros((4, 4, 3))
    right[0, 0, 0], up[1, 1, 1] = 1, 1
    plane = Plane(examples, np.arange(2), np.stack([right, -right]), up, 0.4 * np.arange(-4, 5) / 4)

    def predict(images: np.ndarray) -> np.ndarray:
        moved = images - np.float32(128 / 255)
        return 2 * (moved[:, 0, 0, 0] > 0.15).astype(int) + (moved[:, 1, 1, 1] > 0.25)

    found = [classes_around(plane, example, predict, lambda done: None) for example in range(2)]
    across = np.where(plane.offsets > 0.15, 2, 0)
    upwards = np.where(plane.offsets[::-1] > 0.25, 1, 0)
    np.testing.assert_array_equal(found[0], across[None, :] + upwards[:, None])
    np.testing.assert_array_equal(found[1], across[None, ::-1] + upwards[:, None])


@pytest.fixture
def shipped() -> spec.Spec:
    """The smoke preset, whose nominal, defended and bypass models ship, with small maps."""
    return dataclasses.replace(spec.resolve("smoke", examples=20), gallery={"map_points": 3})


@pytest.mark.slow
def test_maps_of_the_shipped_models(shipped: spec.Spec, monkeypatch: pytest.MonkeyPatch) -> None:
    from bench.evaluation import contest

    figure = make("figure4", shipped)
    frame = figure.data
    assert list(frame["model"].unique()) == ["nominal", "surrogate:1", "linac", "bypass", "at-l2"]
    assert len(frame) == 5 * 5 * 9
    assert "left out" not in figure.caption
    assert "makes at-l2 err" in figure.caption
    ready = contest.prepare(shipped, "linac", PUBLISHED, None, False, lambda text: None)
    verdict = ready.referee.judge(ready.images, ready.examples.labels, ready.images, "l2", 0.0)
    centre = frame[(frame["model"] == "linac") & (frame["horizontal"] == 0) & (frame["vertical"] == 0)]
    assert len(centre) == 5
    assert list(centre["class"]) == [ready.dataset.classes[verdict.pred[place]] for place in centre["example"]]
    assert "nominal" in " ".join(texts(figure))
    assert str(abs(PUBLISHED_KEY)) not in figure.caption + str(figure.chart) + frame.to_csv()
    monkeypatch.setattr("bench.reproduction.gallery.maps.classes_around", never)
    monkeypatch.setattr("attacks.parts.engine.BatchEngine.run", never)
    assert make("figure4", shipped).chart == figure.chart


@pytest.mark.slow
def test_the_defended_model_under_a_secret_key_is_not_mapped(shipped: spec.Spec) -> None:
    from bench.models import artifacts, weights

    defence = registry.defence("linac", shipped.defences["linac"])
    wanted = [
        catalogue.spec_for(shipped, datasets.load("cifar10"), "linac", defence, name) for name in ("published", "mine")
    ]
    there = artifacts.find(wanted[0].fingerprint)
    assert there is not None
    with pytest.raises(NotTrained, match="not trained yet"):
        make("figure4", shipped, SECRET)
    artifacts.save(wanted[1].fingerprint, wanted[1].as_json(), weights.read_arrays(there.weights), there.record)
    figure = make("figure4", shipped, SECRET)
    assert "linac" not in set(figure.data["model"])
    assert re.search(r"C \([^)]+\) is left out: its key is a secret", figure.caption)


def test_what_makes_no_sense_is_refused(shipped: spec.Spec) -> None:
    with pytest.raises(UsageError, match="did you mean 'figure4'"):
        make("figure44", shipped)
    for odd in (4, 1, "many"):
        with pytest.raises(UsageError, match="odd number"):
            make("figure4", dataclasses.replace(shipped, gallery={"map_points": odd}))


@pytest.mark.needs_process
def test_the_names_are_known_without_tensorflow() -> None:
    code = (
        "import sys; import bench.reproduction.gallery as g; assert g.NAMES; "
        "print([m for m in ('tensorflow', 'keras', 'numba') if m in sys.modules])"
    )
    done = python(code, check=True)
    assert done.stdout.strip() == "[]"
