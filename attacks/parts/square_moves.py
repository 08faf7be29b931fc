"""What Square proposes in the built-in norms (Andriushchenko et al., 2020): a start, and a change inside a random window.

Every number drawn is uniform in [0,1) and belongs to one example. Images are B×H×W×C.
"""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from attacks.parts import draws
from attacks.parts.sums import fold_sum, image_sum, spread
from bench.api import SquareMoves

TINY = 1e-12


def signs(drawn: tf.Tensor) -> tf.Tensor:
    """−1 or 1, evenly."""
    return tf.where(drawn < 0.5, -1.0, 1.0)


def corners(drawn: tf.Tensor, length: int, side: tf.Tensor) -> tf.Tensor:
    """The first row (or column) of a window, so that it fits: B to B, int32."""
    return tf.cast(drawn * tf.cast(length - side + 1, tf.float32), tf.int32)


def offsets(corner: tf.Tensor, length: int) -> tf.Tensor:
    """Each row's (or column's) place in the window: B to B×length."""
    return tf.range(length)[None, :] - corner[:, None]


def window(rows: tf.Tensor, columns: tf.Tensor, side: tf.Tensor) -> tf.Tensor:
    """1 for each pixel in the window and 0 for the others, from offsets B×H and B×W: B×H×W×1."""
    tall = tf.cast((rows >= 0) & (rows < side), tf.float32)
    wide = tf.cast((columns >= 0) & (columns < side), tf.float32)
    return (tall[:, :, None] * wide[:, None, :])[..., None]


def raw_sides(shares: np.ndarray, height: int, width: int, least: int) -> np.ndarray:
    """The side of a square that has these shares of the image's area, at least `least`, rounded, so that it fits."""
    sides = np.round(np.sqrt(shares * height * width)).astype(np.int32)
    return np.clip(sides, least, min(height, width))


class LinfMoves(SquareMoves):
    """Squares of one colour at the edge of the ball."""

    per_step = 2

    def sides(self, shares: np.ndarray) -> np.ndarray:
        return raw_sides(shares, self.height, self.width, 1)

    def start(self, origin: tf.Tensor, seeds: tf.Tensor, epsilon: tf.Tensor) -> tf.Tensor:
        """Vertical stripes of ±epsilon."""
        stripes = signs(draws.uniform(seeds, [1, self.width, self.channels]))
        return self.ball.project(origin + epsilon * stripes, origin, epsilon)

    def propose(
        self, images: tf.Tensor, origin: tf.Tensor, epsilon: tf.Tensor, drawn: tf.Tensor, side: tf.Tensor
    ) -> tf.Tensor:
        """A window set to ±epsilon, one sign per channel."""
        rows = offsets(corners(drawn[:, 0], self.height, side), self.height)
        columns = offsets(corners(drawn[:, 1], self.width, side), self.width)
        colour = epsilon * signs(drawn[:, None, None, 2:])
        inside = window(rows, columns, side)
        return self.ball.project(inside * (origin + colour) + (1.0 - inside) * images, origin, epsilon)


def bump(side: int) -> np.ndarray:
    """Two hills of opposite sign, one above the other, of length 1 in all: side×side.

    A hill is a pile of nested rectangles around its middle, the r-th of height 1/(r+1)².
    """

    def hill(height: int, width: int) -> np.ndarray:
        ring = np.maximum(
            np.abs(np.arange(height) - height // 2)[:, None], np.abs(np.arange(width) - width // 2)[None, :]
        )
        weights = 1.0 / (np.arange(max(height, width) // 2 + 1) + 1.0) ** 2
        pile = np.cumsum(weights[::-1])[::-1][ring]
        return pile / np.sqrt((pile**2).sum())

    above = side // 2
    whole = np.concatenate([*([hill(above, side)] if above else []), -hill(side - above, side)])
    return whole / np.sqrt((whole**2).sum())


class L2Moves(SquareMoves):
    """Bumps: mass is moved from one window to another, and the whole rescaled to the edge of the ball."""

    per_step = 5

    def sides(self, shares: np.ndarray) -> np.ndarray:
        sides = raw_sides(shares, self.height, self.width, 3)
        # The hills need a middle row: a side is odd.
        return np.minimum(sides + (sides % 2 == 0), min(self.height, self.width))

    def start(self, origin: tf.Tensor, seeds: tf.Tensor, epsilon: tf.Tensor) -> tf.Tensor:
        """A grid of five by five bumps, each turned at random, with a sign per channel."""
        side = max(min(self.height, self.width) // 5, 1)
        tall, wide = self.height // side, self.width // side
        drawn = draws.uniform(seeds, [tall, wide, self.channels + 1])
        shape = tf.constant(bump(side), tf.float32)
        turned = tf.where((drawn[..., :1] < 0.5)[..., None], shape, tf.transpose(shape))  # B×tall×wide×side×side
        tiles = turned[..., None] * signs(drawn[..., 1:])[:, :, :, None, None, :]
        grid = tf.reshape(tf.transpose(tiles, [0, 1, 3, 2, 4, 5]), [-1, tall * side, wide * side, self.channels])
        above, left = (self.height - tall * side) // 2, (self.width - wide * side) // 2
        below, right = self.height - tall * side - above, self.width - wide * side - left
        return self._rescaled(tf.pad(grid, [[0, 0], [above, below], [left, right], [0, 0]]), origin, epsilon)

    def propose(
        self, images: tf.Tensor, origin: tf.Tensor, epsilon: tf.Tensor, drawn: tf.Tensor, side: tf.Tensor
    ) -> tf.Tensor:
        """The first window gets a new bump and what the second one had; the second is emptied."""
        rows = offsets(corners(drawn[:, 0], self.height, side), self.height)
        columns = offsets(corners(drawn[:, 1], self.width, side), self.width)
        into = window(rows, columns, side)
        emptied = window(
            offsets(corners(drawn[:, 2], self.height, side), self.height),
            offsets(corners(drawn[:, 3], self.width, side), self.width),
            side,
        )
        delta = images - origin
        kept = (1.0 - tf.maximum(into, emptied)) * delta
        inside = into * delta
        new = self._bumps(rows, columns, drawn[:, 4], side) * signs(drawn[:, None, None, 5:])
        new = into * (new + inside / (self._lengths(inside) + TINY))
        # What the two windows had stays in its channel; only the ball's unused mass is shared by the channels (the
        # paper's algorithm 3 gives every channel its own length).
        unused = tf.maximum(tf.square(epsilon) - image_sum(tf.square(delta)), 0.0) / self.channels
        mass = spread(unused) + self._masses(delta - kept)
        new = new / (self._lengths(new) + TINY) * tf.sqrt(mass)
        return self._rescaled(new + kept, origin, epsilon)

    def _lengths(self, delta: tf.Tensor) -> tf.Tensor:
        """The length of each channel: B×H×W×C to B×1×1×C."""
        return tf.sqrt(self._masses(delta))

    def _masses(self, delta: tf.Tensor) -> tf.Tensor:
        """The sum of squares of each channel: B×H×W×C to B×1×1×C."""
        squares = tf.reshape(tf.square(delta), [-1, self.height * self.width, self.channels])
        return fold_sum(squares)[:, None, None, :]

    def _bumps(self, rows: tf.Tensor, columns: tf.Tensor, turn: tf.Tensor, side: tf.Tensor) -> tf.Tensor:
        """Each example's bump in its window, half of them turned; values outside mean nothing. B×H×W×1."""
        rows, columns = (tf.clip_by_value(place, 0, side - 1) for place in (rows, columns))
        table, width = self._table()
        turned = (turn < 0.5)[:, None, None]
        down, across = rows[:, :, None], columns[:, None, :]
        place = tf.where(turned, across * width + down, down * width + across)
        return tf.gather(tf.gather(table, side), place)[..., None]

    def _table(self) -> tuple[tf.Tensor, int]:
        """The bumps of every side, each in the corner of a square: (sides+1)×(width·width)."""
        width = min(self.height, self.width)
        table = np.zeros((width + 1, width, width), np.float32)
        for side in range(1, width + 1):
            table[side, :side, :side] = bump(side)
        return tf.constant(table.reshape(width + 1, width * width)), width

    def _rescaled(self, delta: tf.Tensor, origin: tf.Tensor, epsilon: tf.Tensor) -> tf.Tensor:
        """To the edge of the ball, then into [0,1]."""
        return self.ball.project(origin + epsilon * self.ball.steepest(delta), origin, epsilon)
