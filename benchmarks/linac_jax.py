"""LINAC's transform as one would write it in JAX: haiku and optax, vmap over images, scan over steps, jit.

The peer that `benchmarks/linac.py` measures against. It needs the `benchmark` extra.
"""

from __future__ import annotations

from collections.abc import Callable

import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import optax

jax.config.update("jax_threefry_partitionable", False)


def transform(
    height: int,
    width: int,
    key: np.ndarray,
    hidden: int = 256,
    layers: int = 5,
    representation_layer: int = 2,
    frequencies: int = 5,
    epochs: int = 10,
    batch_pixels: int = 32,
    learning_rate: float = 1e-3,
    decay_floor: float = 1e-4,
) -> Callable[[np.ndarray], tuple[jax.Array, jax.Array]]:
    """A compiled function of standardised images (B×height×width×3): representations (B×…×hidden), losses (B×steps)."""
    encoding = _encoding(height, width, frequencies)

    def forward(inputs: jax.Array) -> list[jax.Array]:
        found = []
        for _ in range(layers):
            inputs = jax.nn.relu(hk.Linear(hidden)(inputs))
            found.append(inputs)
        return [*found, hk.Linear(3)(inputs)]

    network = hk.without_apply_rng(hk.transform(forward))
    rng, init_key = jax.random.split(key)
    pixels = height * width
    steps = pixels // batch_pixels
    order = _order(rng, pixels, steps, batch_pixels, epochs)
    optimiser = optax.adam(
        optax.cosine_decay_schedule(learning_rate, epochs * steps, decay_floor), b1=0.9, b2=0.99, eps=1e-8
    )
    initial = network.init(init_key, encoding)

    def loss(weights: hk.Params, inputs: jax.Array, targets: jax.Array) -> jax.Array:
        return jnp.mean(jnp.sum((network.apply(weights, inputs)[-1] - targets) ** 2, -1))

    def fit(image: jax.Array) -> tuple[jax.Array, jax.Array]:
        targets = image.reshape(pixels, 3)

        def step(carry: tuple, batch: jax.Array) -> tuple[tuple, jax.Array]:
            weights, state = carry
            value, gradient = jax.value_and_grad(loss)(weights, encoding[batch], targets[batch])
            updates, state = optimiser.update(gradient, state)
            return (optax.apply_updates(weights, updates), state), value

        (weights, _), losses = jax.lax.scan(step, (initial, optimiser.init(initial)), order)
        representation = network.apply(weights, encoding)[representation_layer]
        return representation.reshape(height, width, -1), losses

    return jax.jit(jax.vmap(fit))


def _encoding(height: int, width: int, frequencies: int) -> jax.Array:
    """What the network reads of every pixel: sines and cosines of its place (pixels×4·frequencies)."""
    x, y = jnp.meshgrid(jnp.linspace(-1, 1, width + 2)[1:-1], jnp.linspace(1, -1, height + 2)[1:-1])
    angles = jnp.stack([x, y], -1)[..., None, :] * (2.0 ** jnp.arange(frequencies) * jnp.pi)[:, None]
    angles = angles.reshape(height * width, -1)
    return jnp.concatenate([jnp.sin(angles), jnp.cos(angles)], -1)


def _order(rng: jax.Array, pixels: int, steps: int, batch_pixels: int, epochs: int) -> jax.Array:
    """The pixels of every step of the fit (epochs·steps×batch_pixels)."""
    rng, _ = jax.random.split(rng)
    rng, training_key = jax.random.split(rng)
    _, shuffle_key = jax.random.split(rng)
    shuffle = jax.random.permutation(shuffle_key, pixels)
    orders = [
        shuffle[jax.random.permutation(jax.random.split(jax.random.split(epoch_key)[1])[1], pixels)]
        for epoch_key in jax.random.split(training_key, epochs)
    ]
    return jnp.concatenate([o[: steps * batch_pixels].reshape(steps, batch_pixels) for o in orders])
