"""The contract of a defence."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping

import keras
import numpy as np
import tensorflow as tf

from bench import registry
from bench.api import Defence, Shape, UsageError
from bench.testing import comparing, plugins, secrets
from bench.testing.contract import Subject, checks
from bench.testing.stand_ins import some_images

KEY, OTHER_KEY = 4_653_201_948_205_771_937, -2_971_215_073_104_885_323
FIRST_KEY, LAST_KEY = -(2**63), 2**63 - 1
TOLERANCE = 0.05
"""How far an exact gradient may be from finite differences, as a share of its length."""


@checks
def check_defence(
    defence: Defence | type[Defence] | str, *, shape: Shape = (32, 32, 3), images: np.ndarray | None = None
) -> None:
    """Raises ContractError, in one sentence, if a defence does not keep to what `bench.api.Defence` promises.

    It is an instance, a class, or a request such as `"mirror[share=0.25]"`; `shape` is that of the images it is tried
    on, and `images` (N×shape, float32, in [0,1]) are what it is fitted to, forty made-up ones unless you give others.
    """
    plugin, subject = plugins.made(defence, "defence", registry.defence)
    plugins.check_plugin(plugin, subject)
    trial = DefenceTrial(plugin, subject, shape, some_images(shape, 40) if images is None else images)
    trial.check_declarations()
    trial.check_fit()
    trial.check_output()
    trial.check_repeatable()
    trial.check_company()
    trial.check_compiled()
    trial.check_key()
    trial.check_gradient()
    trial.check_bypass()
    trial.check_reconstruction()


class DefenceTrial:
    """One defence on images of one shape."""

    def __init__(self, defence: Defence, subject: Subject, shape: Shape, training: np.ndarray) -> None:
        self.defence, self.subject, self.shape, self.training = defence, subject, shape, training
        self.images = some_images(shape, 4, seed=1)
        self.key = KEY if defence.keyed else None
        self.state: Mapping[str, np.ndarray] = {}
        with subject.must("say the shape of what it gives (output_shape)"):
            self.output_shape = tuple(defence.output_shape(shape))

    def transformed(self, images: np.ndarray, key: int | None, defence: Defence | None = None) -> np.ndarray:
        size = "×".join(map(str, images.shape))
        with self.subject.must(f"transform images of {size}{' under any signed 64-bit key' if key else ''}"):
            given = (defence or self.defence).transform(tf.constant(images), key, self.state)
            return np.asarray(given)

    def check_declarations(self) -> None:
        kind = type(self.defence)
        self.subject.require(isinstance(kind.keyed, bool), f"has keyed = {kind.keyed!r}: it must be True or False")
        self.subject.require(
            self.defence.gradient in ("exact", "bpda"),
            f"has gradient = {self.defence.gradient!r}: it must be 'exact', or 'bpda' where it is a stand-in",
        )

    def check_fit(self) -> None:
        """What it learns is all in what `fit` gives, which is kept in float32 and read again in another process."""
        given = self.training.copy()
        with self.subject.must(f"fit {len(given)} images of {'×'.join(map(str, self.shape))}"):
            first, second = (self.defence.fit(given) for _ in range(2))
        arrays = isinstance(first, dict) and all(
            isinstance(name, str) and isinstance(value, np.ndarray) for name, value in first.items()
        )
        self.subject.require(arrays, "gives something else than arrays by name from fit: it must give a dict of arrays")
        self.subject.require(
            comparing.same(given, self.training), "changes the images it fits: it must copy them first"
        )
        for name, value in first.items():
            repeated = name in second and comparing.same(value, second[name])
            self.subject.require(
                repeated,
                f"learns another '{name}' from the same images: fit must be the same every time, by seeds of its own",
            )
            kept = value.astype(np.float32)
            self.subject.require(
                bool(np.isfinite(kept).all()), f"learns a '{name}' that is not finite: fit must give finite numbers"
            )
            self.state = {**self.state, name: kept}

    def check_output(self) -> None:
        black_and_white = np.stack([np.zeros(self.shape, np.float32), np.ones(self.shape, np.float32)])
        for images, which in ((self.images, "images"), (black_and_white, "a black and a white image")):
            out = self.transformed(images, self.key)
            self.subject.require(
                out.shape == (len(images), *self.output_shape),
                f"gives {out.shape} for {images.shape}, and its output_shape says {self.output_shape}: they must agree",
            )
            self.subject.require(out.dtype == np.float32, f"gives {out.dtype}: transform must give float32")
            self.subject.require(
                bool(np.isfinite(out).all()), f"gives NaN or infinity for {which}: transform must give finite numbers"
            )

    def check_repeatable(self) -> None:
        """The same from the same images and key, and from a new object, as other processes make one."""
        out = self.transformed(self.images, self.key)
        self.subject.require(
            comparing.same(out, self.transformed(self.images, self.key)),
            "gives other numbers when it transforms the same images again: it must give the same bits, "
            "with all randomness from the key or from seeds of its own",
        )
        with self.subject.must("be made from its settings alone"):
            new = type(self.defence)(self.defence.settings)
        self.subject.require(
            comparing.same(out, self.transformed(self.images, self.key, new)),
            "gives other numbers than a new object with its settings and state: what fit learns must all be in the "
            "arrays that it gives, not in the object",
        )

    def check_company(self) -> None:
        out = self.transformed(self.images, self.key)
        company = np.concatenate([self.images[:1], some_images(self.shape, 3, seed=2)])
        alone = self.transformed(self.images[:1], self.key)
        holds = comparing.same(out[0], self.transformed(company, self.key)[0]) and comparing.close(out[:1], alone)
        self.subject.require(
            holds,
            "transforms an image otherwise in other company: an image's output must depend on that image alone, "
            "not on the rest of the batch",
        )

    def check_compiled(self) -> None:
        with self.subject.must("work inside a tf.function with an unknown batch size, as attacks call it"):
            compiled = tf.function(
                lambda images: self.defence.transform(images, self.key, self.state),
                input_signature=[tf.TensorSpec((None, *self.shape), tf.float32)],
            )
            shape = compiled.get_concrete_function().structured_outputs.shape
            out = np.asarray(compiled(tf.constant(self.images)))
            alone = np.asarray(compiled(tf.constant(self.images[:1])))
        self.subject.require(
            tuple(shape[1:]) == self.output_shape,
            f"gives a tensor of shape {shape} inside a tf.function: all but the batch size must be known there, "
            f"{self.output_shape} (tf.ensure_shape says so)",
        )
        expected = self.transformed(self.images, self.key)
        self.subject.require(
            comparing.close(expected, out) and comparing.close(expected[:1], alone),
            "gives other numbers inside a tf.function than outside: they must be the same but for rounding",
        )

    def check_key(self) -> None:
        out = self.transformed(self.images, self.key)
        if not self.defence.keyed:
            self.subject.require(
                comparing.same(out, self.transformed(self.images, OTHER_KEY)),
                "has keyed = False and gives other numbers under a key: it must ignore the key, or declare keyed = True",
            )
            return
        self.subject.require(
            not comparing.same(out, self.transformed(self.images, OTHER_KEY)),
            "has keyed = True and gives the same under another key: its output must depend on the key",
        )
        self.subject.require(
            comparing.same(out, self.transformed(self.images, KEY)),
            "gives other numbers under a key after it was used with another: it must give the same for the same key, "
            "and keep nothing of any",
        )
        for key in (FIRST_KEY, LAST_KEY):
            self.transformed(self.images, key)
        self.transformed(self.images, KEY)
        place = secrets.place_of(KEY, self.defence, {"what fit gave": self.state})
        self.subject.require(
            place is None,
            f"holds the key after use, in {place}: a defence must keep no key, in any form, outside the call of transform",
        )

    def check_gradient(self) -> None:
        images, key = self.images[:2], self.key
        upstream = np.random.default_rng(7).normal(size=(2, *self.output_shape)).astype(np.float32)
        with self.subject.must("have a gradient: transform must be differentiable, or have a stand-in (BPDA)"):
            with tf.GradientTape() as tape:
                x = tf.constant(images)
                tape.watch(x)
                value = tf.reduce_sum(self.defence.transform(x, key, self.state) * upstream)
            found = tape.gradient(value, x)
        self.subject.require(
            found is not None,
            "has no gradient (nothing leads from what transform gives back to the images): compute with TensorFlow, "
            "or give it one by tf.custom_gradient",
        )
        gradient = np.asarray(found)
        self.subject.require(
            bool(np.isfinite(gradient).all()), "has a gradient with NaN or infinity: it must be finite"
        )
        self.subject.require(
            bool(np.abs(gradient).max() > 0),
            "has a gradient that is zero everywhere, which hides it from attacks: give transform a stand-in backward "
            "(such as the identity) and declare gradient = 'bpda'",
        )
        if self.defence.gradient == "exact":
            off = comparing.off_from_differences(
                lambda x: self.transformed(x, key), images, gradient, upstream, TOLERANCE
            )
            self.subject.require(
                off <= TOLERANCE,
                f"has gradient = 'exact' and one that is {100 * off:.0f} % off from finite differences: it must be the "
                "true gradient, or be declared gradient = 'bpda'",
            )

    def check_bypass(self) -> None:
        try:
            model = self.defence.bypass(self.shape)
        except NotImplementedError as error:
            self.subject.require(
                not self.defence.keyed, f"has no bypass ({error}): a keyed defence must have one, for PBA"
            )
            return
        except Exception as error:
            self.subject.require(False, f"must give a bypass, and fails with {type(error).__name__}: {error}")
        self.subject.require(
            isinstance(model, keras.Model)
            and tuple(model.input_shape) == (None, *self.shape)
            and tuple(model.output_shape) == (None, *self.output_shape),
            f"has a bypass of {getattr(model, 'input_shape', '?')} to {getattr(model, 'output_shape', '?')}: it must be a "
            f"Keras model from {(None, *self.shape)} to {(None, *self.output_shape)}",
        )
        self.subject.require(
            not self.defence.keyed or bool(model.trainable_weights),
            "has a bypass with nothing to train: it must have weights that can learn to stand for the transform",
        )

    def check_reconstruction(self) -> None:
        given = self.defence.reconstruction()
        if given is None:
            return
        try:
            settings = plugins.settings_from(self.defence, json.loads(json.dumps(dict(given))))
        except (TypeError, ValueError, UsageError) as error:
            self.subject.require(
                False, f"has a reconstruction whose settings do not fit ({error}): it must give its own"
            )
        with self.subject.must("be made with the settings of its reconstruction"):
            variant = type(self.defence)(settings)
            shape = tuple(variant.output_shape(self.shape))
        self.subject.require(
            dataclasses.is_dataclass(settings) and shape == self.shape,
            f"has a reconstruction that gives {shape}: it must give an image back, {self.shape}",
        )
