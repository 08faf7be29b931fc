"""A notebook over `bench.evaluate`, as a script: editors with notebooks run it cell by cell, Python runs it as it is."""

# %% A shipped defence under two attacks, on a few of the shipped test images.
import numpy as np
import tensorflow as tf

import bench
from bench.api import Attacked, Defence, Engine

result = bench.evaluate(
    defence="block-shuffle", attacks=["pgd@nominal", "pgd@bypass"], preset="smoke", examples=4, norms="linf"
)
print(result)

# %% What each attack left, as a table, and the examples that one of them broke.
print(result.cells()[["attack", "source", "accuracy", "low", "high"]])
answers = result.examples()
print(answers[(answers["source"] == "bypass") & ~answers["correct"]][["example", "label", "pred", "margin"]])


# %% A defence of one's own: a class of this notebook, which no package registers.
class Posterise(Defence):
    """Leaves eight shades of every colour."""

    gradient = "bpda"  # rounding has no gradient: backward, it is taken for nothing

    def transform(self, images, key, state):
        return images + tf.stop_gradient(tf.round(images * 7) / 7 - images)


# %% An attack of one's own: the sign of one gradient, which is what PGD should beat.
def cross_entropy(logits, labels):
    return tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)


class OneStep(Engine):
    """One step of size epsilon along the sign of the gradient."""

    def run(self, source, batch, report):
        images, labels = tf.constant(batch.images), tf.constant(batch.labels)
        found = source.gradient(cross_entropy, images, labels)
        moved = tf.clip_by_value(images + batch.epsilon * tf.sign(found.gradient), 0.0, 1.0).numpy()
        logits = source.logits(tf.constant(moved)).numpy()
        right = logits[np.arange(len(moved)), batch.labels]
        logits[np.arange(len(moved)), batch.labels] = -np.inf
        margin = right - logits.max(axis=1)
        none, once = np.full(len(moved), -1), np.ones(len(moved), np.int64)
        return Attacked(moved, margin < 0, margin, none, none, gradients=once, queries=once)


# %% A classifier of one's own behind it, trained here on images that tell their class by their colour.
import keras  # noqa: E402

random = np.random.default_rng(0)
labels = random.integers(0, 3, 600)
images = random.integers(0, 200, (600, 16, 16, 3), dtype=np.uint8)
images[np.arange(600), :, :, labels] += 40
keras.utils.set_random_seed(0)
model = keras.Sequential(
    [
        keras.Input((16, 16, 3)),
        keras.layers.Conv2D(8, 3, strides=2, activation="relu"),
        keras.layers.GlobalAveragePooling2D(),
        keras.layers.Dense(3),
    ]
)
model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
seen = Posterise().transform(tf.constant(images[:500] / np.float32(255)), None, {})
model.fit(seen.numpy(), labels[:500], epochs=30, verbose=0)

# %% All of it together; the store is temporary, and the pages stay.
mine = bench.evaluate(
    defence=Posterise(),
    attacks=["pgd@self", (OneStep(), "self")],
    classifier=model,
    images=images[500:512],
    labels=labels[500:512],
    preset="smoke",
    norms="linf",
)
print(mine)
print(mine.doubts())
print("pages:", mine.site("notebook-pages"))
