"""Flags: signs that an attack's result may flatter the defence. What they are called, what they mean, how many are few.

An engine or a probe counts, per flag, the examples it concerns (`Attacked.flags`), and a probe on how many it looked. A flag
that concerns more than a few of them is published as a doubt (`bench.evaluation.doubts`).
"""

from __future__ import annotations

from collections.abc import Mapping

ZERO_GRADIENT = "zero-gradient"
NON_FINITE_GRADIENT = "non-finite-gradient"
STILL_LOSS = "loss-never-moved"
RANDOMISED = "randomised-source"
SOFTMAX = "softmax-logits"
SATURATED = "saturated-logits"
NO_DLR = "dlr-undefined"
SQUARE_WINS = "square-beats-gradients"
NOISE_WINS = "noise-beats-gradients"
SURVIVES_ONE = "survives-epsilon-one"
WRONG_GRADIENT = "gradient-mismatch"
UNSTABLE_LOSS = "unstable-loss"
NOT_REDUCED = "loss-not-reduced"
UNFINISHED = "more-steps-break-more"
ONE_STEP_WINS = "one-step-beats-iterations"
DOES_NOT_FALL = "larger-epsilon-breaks-no-more"
SILENT = "success-not-as-claimed"
NOT_CARRIED_OVER = "never-carries-over"

MEANINGS: dict[str, str] = {
    ZERO_GRADIENT: "At least half of the gradients were exactly zero: the source hides them (by quantising, say), "
    "and a gradient attack cannot see where to go. Attack through a differentiable stand-in (BPDA) or with square.",
    NON_FINITE_GRADIENT: "Gradients were infinite or not a number: the source is numerically unstable, and those values "
    "were taken as zero.",
    STILL_LOSS: "The loss had the same value at every step: the attack did not get anywhere at all.",
    RANDOMISED: "The source gives other logits for the same images when it is asked again: attack it in expectation "
    "over its randomness (aa with version rand), and evaluate it more than once.",
    SOFTMAX: "The source's logits lie in [0,1] and sum to 1: they are probabilities, whose cross-entropy has hardly a "
    "gradient. Give the attack the logits before the softmax.",
    SATURATED: "The logits of clean images are so far apart that the largest probability is exactly 1 in float32: the "
    "cross-entropy has lost its value, and soon its gradient. Losses on margins or ratios of logits are not affected.",
    NO_DLR: "With fewer than 4 classes the DLR loss is undefined: the cross-entropy was used in its place.",
    SQUARE_WINS: "Square, which uses no gradient, broke examples that every gradient attack beside or before it left "
    "standing: the gradients mislead, or their attacks had too few steps.",
    NOISE_WINS: "A few draws of random noise broke examples on the source that this gradient attack left standing: the "
    "gradients mislead.",
    SURVIVES_ONE: "On the source, PGD left examples standing even at epsilon 1.0 in L-inf, where any image at all may be "
    "shown: the gradients, not the epsilon, keep the attack from succeeding.",
    WRONG_GRADIENT: "The gradient does not say how the loss changes: over a sixteenth of epsilon it is off by half or more. "
    "It is of a stand-in (BPDA), if that is meant, or the source is shattered, and attacks are led astray.",
    UNSTABLE_LOSS: "A tiny random change of the image moves the loss by more than twice what its gradient allows: the "
    "source is unstable, and steps along its gradient jump about.",
    NOT_REDUCED: "The loss was not brought down: what the attack gives back does no more than the image it began with.",
    UNFINISHED: "More steps break more: the attack was not at its end, and stronger than it looks.",
    ONE_STEP_WINS: "A single step broke examples that many steps left standing: the iterations are led astray.",
    DOES_NOT_FALL: "At four times epsilon PGD broke nothing more on the source, or not even what it had broken: the "
    "gradients, not the epsilon, keep it from succeeding.",
    SILENT: "What the attack says of its success is not so: the source answers otherwise about the images it gave back.",
    NOT_CARRIED_OVER: "The attack succeeds on its source, and not one of those images deceives the defended model: the "
    "source is too unlike it, and says nothing of how robust it is.",
}

SATURATION = 16.64
"""A gap between two logits, 24 ln 2, from which on the smaller probability is lost in float32 next to the larger: 1 + e^-gap
rounds to 1, so the cross-entropy is exactly 0."""

FEW = 0.02
"""A flag on gradients, or on what beat them, is a doubt above this share of the examples; any other from one on."""
SOME = 0.1
"""Of what chance and kinks of an honest network bring about now and then, a doubt needs a larger share of the examples."""
_TOLERATED = {
    **dict.fromkeys(
        (ZERO_GRADIENT, NON_FINITE_GRADIENT, STILL_LOSS, SATURATED, SQUARE_WINS, NOISE_WINS, ONE_STEP_WINS), FEW
    ),
    **dict.fromkeys((WRONG_GRADIENT, UNSTABLE_LOSS, NOT_REDUCED, UNFINISHED, DOES_NOT_FALL), SOME),
}


def is_doubt(name: str, found: int, examined: int) -> bool:
    """Whether a flag that so many of the examined examples show makes a result doubtful.

    One example alone is no share of few: where a share is tolerated, it takes two.
    """
    share = _TOLERATED.get(name, 0.0)
    return found > share * examined and found > (share > 0)


def doubtful(flags: Mapping[str, int], examples: int) -> dict[str, str]:
    """The flags that make the result of so many examples doubtful, with their meaning."""
    return {name: MEANINGS.get(name, name) for name, count in flags.items() if is_doubt(name, count, examples)}
