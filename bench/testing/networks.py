"""The contract of a network."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from bench import registry
from bench.api import BenchError, Network, Shape
from bench.models import weights
from bench.testing import comparing, costs, plugins
from bench.testing.contract import Subject, checks
from bench.testing.stand_ins import some_images

SEED, OTHER_SEED = 1, 2
FACTOR = 2.0
"""How far a network's cost may be from what is counted."""


@checks
def check_network(network: Network | type[Network] | str, *, shape: Shape = (32, 32, 3), classes: int = 10) -> None:
    """Raises ContractError, in one sentence, if a network does not keep to what `bench.api.Network` promises.

    It is an instance, a class, or a request such as `"wide-resnet[depth=10,width=1]"`; `shape` is that of what a
    transform gives it to read.
    """
    plugin, subject = plugins.made(network, "network", registry.network)
    plugins.check_plugin(plugin, subject)
    trial = NetworkTrial(plugin, subject, shape, classes)
    trial.check_limits()
    model = trial.built(SEED)
    trial.check_shapes(model)
    trial.check_weights(model)
    trial.check_inference(model)
    trial.check_kept(model)
    trial.check_prepare(model)
    trial.check_picture(model)
    trial.check_cost(model)


class NetworkTrial:
    """One network on inputs of one shape."""

    def __init__(self, network: Network, subject: Subject, shape: Shape, classes: int) -> None:
        self.network, self.subject, self.shape, self.classes = network, subject, shape, classes
        self.inputs = 2 * some_images(shape, 4, seed=1) - 1

    def built(self, seed: int) -> keras.Model:
        """A new model whose weights are drawn with this seed."""
        keras.utils.set_random_seed(seed)
        with self.subject.must(
            f"build a model for inputs of {'×'.join(map(str, self.shape))} and {self.classes} classes"
        ):
            return self.network.build(self.shape, self.classes)

    def check_limits(self) -> None:
        for name, most in self.network.limits.items():
            value: Any = getattr(self.network.settings, name, None)
            self.subject.require(
                value is not None, f"has a limit on {name}, which is none of its settings: limits must name settings"
            )
            values = value if isinstance(value, list | tuple) else [value]
            self.subject.require(
                all(one <= most for one in values),
                f"has {name} = {value}, above its own limit of {most}: raise the limit",
            )

    def check_shapes(self, model: keras.Model) -> None:
        self.subject.require(
            isinstance(model, keras.Model), f"builds {type(model).__name__}: it must build a keras.Model"
        )
        expected = ((None, *self.shape), (None, self.classes))
        found = (tuple(model.input_shape), tuple(model.output_shape))
        self.subject.require(
            found == expected,
            f"builds a model from {found[0]} to {found[1]}: it must go from {expected[0]} to {expected[1]}",
        )
        self.subject.require(
            bool(model.trainable_weights), "builds a model with nothing to train: it must have weights"
        )

    def check_weights(self, model: keras.Model) -> None:
        """The same weights from the same seed, under the same names, each by itself."""
        first, again = self.by_name(model), self.by_name(self.built(SEED))
        self.subject.require(
            first.keys() == again.keys(),
            "gives its weights other names when it is built again: layers must have the same names every time",
        )
        for name, value in first.items():
            self.subject.require(
                comparing.same(value, again[name]),
                f"builds another {name} under the same seed: all weights must come from Keras's generators, which the "
                "harness seeds",
            )

    def by_name(self, model: keras.Model) -> Mapping[str, np.ndarray]:
        try:
            return {name: np.asarray(value) for name, value in weights.weights_by_name(model).items()}
        except BenchError as error:
            self.subject.require(False, f"builds a model in which {error}")
            raise

    def classify(self, model: keras.Model) -> Callable[[np.ndarray], np.ndarray]:
        """The model in inference mode, compiled: inputs (B×shape) to logits."""
        signature = [tf.TensorSpec((None, *self.shape), tf.float32)]
        compiled = tf.function(lambda x: model(x, training=False), input_signature=signature)

        def logits(inputs: np.ndarray) -> np.ndarray:
            with self.subject.must("classify inputs in inference mode, inside a tf.function, for any batch size"):
                return np.asarray(compiled(tf.constant(inputs)))

        return logits

    def check_inference(self, model: keras.Model) -> None:
        require, logits = self.subject.require, self.classify(model)
        first = logits(self.inputs)
        require(
            first.dtype == np.float32 and bool(np.isfinite(first).all()),
            f"gives {first.dtype} logits, or such as are not finite: they must be finite float32",
        )
        require(
            comparing.same(first, logits(self.inputs)),
            "gives other logits for the same inputs: with training=False it must have no randomness",
        )
        company = np.concatenate([self.inputs[:1], 2 * some_images(self.shape, 3, seed=2) - 1])
        require(
            comparing.same(first[0], logits(company)[0]) and comparing.close(first[:1], logits(self.inputs[:1])),
            "gives other logits for an input in other company: with training=False they must depend on that input alone",
        )
        with tf.GradientTape() as tape:
            x = tf.constant(self.inputs)
            tape.watch(x)
            value = tf.reduce_sum(model(x, training=False)[:, 0])
        slope = tape.gradient(value, x)
        slopes = np.zeros(1) if slope is None else np.asarray(slope)
        require(
            bool(np.isfinite(slopes).all()) and bool(np.abs(slopes).max() > 0),
            "has no gradient from its logits to its inputs, or one that is zero or not finite: attacks must find one",
        )

    def check_kept(self, model: keras.Model) -> None:
        """Saved under their names and read into a new model, the weights give the same logits."""
        other = self.built(OTHER_SEED)
        with tempfile.TemporaryDirectory() as folder, self.subject.must("have weights that can be kept and read again"):
            path = Path(folder) / "weights.npz"
            np.savez(path, allow_pickle=False, **weights.arrays_of(model, {}))
            weights.put_into(other, weights.read_arrays(path), path)
        self.subject.require(
            comparing.same(self.classify(model)(self.inputs), self.classify(other)(self.inputs)),
            "gives other logits after its weights were kept and read into a new model: everything that determines them must "
            "be in its weights or settings",
        )

    def check_prepare(self, model: keras.Model) -> None:
        images = np.round(255 * some_images((*self.shape[:2], 3), 50, seed=3)).astype(np.uint8)
        before, given = self.by_name(model), images.copy()
        with self.subject.must("prepare a model by training images (N×H×W×3, uint8)"):
            self.network.prepare(model, given)
            first = self.by_name(model)
            self.network.prepare(model, given)
        self.subject.require(
            comparing.same(given, images), "changes the images in prepare: it must leave them as they are"
        )
        again = self.by_name(model)
        same = {n: v.shape for n, v in first.items()} == {n: v.shape for n, v in before.items()}
        self.subject.require(
            same and all(comparing.same(value, again[name]) for name, value in first.items()),
            "sets other weights when prepare is called again with the same images: it must be the same every time",
        )

    def check_picture(self, model: keras.Model) -> None:
        name = self.network.picture_layer()
        layers = {layer.name: layer for layer in model.layers}
        self.subject.require(
            name is None or (name in layers and len(layers[name].output.shape) == 4),
            f"has picture_layer {name!r}: it must be None, or the name of a layer whose output is laid out like the image",
        )

    def check_cost(self, model: keras.Model) -> None:
        with self.subject.must("say its cost"):
            cost, cheaper = self.network.cost(self.shape, self.classes), self.network.timed_by()
        self.subject.require(
            isinstance(cost, int) and cost > 0, f"has a cost of {cost!r}: it must be a whole number above 0"
        )
        counted = costs.multiplications(model, self.shape)
        self.subject.require(
            counted == 0 or 1 / FACTOR <= cost / counted <= FACTOR,
            f"has a cost of {cost:,}, and {counted:,} multiplications are counted in a forward pass over one input: cost "
            "must be about as many",
        )
        self.subject.require(
            isinstance(cheaper, Network) and _cost(cheaper, self.shape, self.classes) <= cost,
            "is timed by a network that costs more, or is none: timed_by must give a cheaper one of its kind, or itself",
        )


def _cost(network: Any, shape: Shape, classes: int) -> int:
    return int(network.cost(shape, classes))
