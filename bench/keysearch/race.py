"""Stopping hopeless keys early, with an exact bound on stopping the right one.

The test. Images are drawn at random, with replacement, so a key that is right on a share p of all images is right on
each drawn image with probability p, independently. After n images, S of them right, the key is dropped if S ≤ c(n). The
boundary c is fixed before the race: at every look, c(n) is the largest number with

    P(a key of accuracy `floor` has been dropped at n or before)  ≤  error · (1 − 2^(−n / HALF_LIFE)).

The left side is computed, not estimated: `boundary` carries along the distribution of S over the keys still in the
race (a recursion over n), and takes from it what the boundary cuts off. So:

The bound. A key of accuracy `floor` is dropped, at any of the looks, with probability at most `error`. A better key is
dropped no more often: give both the same uniform numbers u, an image being right where u < p; the better key is then right
wherever the other is, has at least its S at every look, and goes only where the other has gone. The bound is per key. As
there is one right key, it is also the probability that a whole search loses it, however many keys it tries.

Half of the error is spent on the first HALF_LIFE images, where most keys go, half of the rest on the next, and so on.
"""

from __future__ import annotations

import dataclasses

import numpy as np

HALF_LIFE = 32


@dataclasses.dataclass(frozen=True)
class Race:
    """The rules of a race over so many images."""

    floor: float  # the accuracy from which on a key must not be lost
    error: float  # the probability to lose such a key all the same
    images: int
    look_every: int = 4

    def looks(self) -> list[int]:
        """After how many images a key is looked at; the last look is after all of them."""
        return [*range(self.look_every, self.images, self.look_every), self.images]

    def boundary(self) -> dict[int, int]:
        """c(n) for every look but the last, where there is nothing left to save; −1 where no key can be dropped yet."""
        looks, cuts, lost = set(self.looks()[:-1]), {}, 0.0
        racing = np.zeros(self.images + 1)  # P(S = s, not dropped), for a key of accuracy `floor`
        racing[0] = 1.0
        for n in range(1, self.images):
            racing = racing * (1 - self.floor) + np.concatenate([[0.0], racing[:-1]]) * self.floor
            if n in looks:
                tail = lost + np.cumsum(racing[: n + 1])
                cuts[n] = int(np.searchsorted(tail, self.error * (1 - 2 ** (-n / HALF_LIFE)), side="right")) - 1
                if cuts[n] >= 0:
                    lost = float(tail[cuts[n]])
                    racing[: cuts[n] + 1] = 0.0
        return cuts
