"""The paper's figures that are computed, not counted: decision maps, Block Pixel Shuffle, LINAC's fits and transforms.

A figure that needs a key shows the published one or an attacker's, never a user's secret. The site does not import this.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from bench import registry
from bench.api import UsageError

if TYPE_CHECKING:
    from bench.spec import Spec
    from bench.vault.base import Vault
    from leaderboard.figures import Figure

NAMES = (
    "figure4", "figure5", "figure10", "figure11", "figure12", "figure13", "figure14", "figure15", "figure16", "figure17",
)  # fmt: skip


def make(name: str, spec: Spec, key: Vault | None, may_train: bool, say: Callable[[str], None]) -> list[Figure]:
    """The charts of a figure of the paper, for a defence under `key`; what takes long is cached, and `say` tells of it."""
    if name not in NAMES:
        raise UsageError(f"unknown figure '{name}'{registry.did_you_mean(name, NAMES)}; there are {', '.join(NAMES)}")
    from bench.reproduction.gallery import activations, fit_errors, map_figure, reconstructions, shuffle

    makers: dict[str, Callable[[], Figure]] = {
        "figure4": lambda: map_figure.figure4(spec, key, may_train, say),
        "figure5": lambda: shuffle.figure5(spec, key),
        "figure10": lambda: fit_errors.figure10(spec, key, say),
        "figure11": lambda: fit_errors.figure11(spec, key, say),
        "figure12": lambda: reconstructions.figure12(spec, key),
        "figure13": lambda: reconstructions.figure13(spec, key),
        "figure14": lambda: activations.figure14(spec, key),
        "figure15": lambda: activations.of_keys("figure15", 0, spec, key),
        "figure16": lambda: activations.of_keys("figure16", 1, spec, key),
        "figure17": lambda: activations.of_keys("figure17", 2, spec, key),
    }
    return [makers[name]()]
