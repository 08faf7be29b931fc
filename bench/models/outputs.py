"""What a network gives, made logits: attacks and the referee compute with nothing else."""

from __future__ import annotations

from typing import Any, Literal, get_args

from bench.api import UsageError

Output = Literal["logits", "probabilities"]
SMALLEST = 1e-30
"""What a probability of zero counts as; the gradient there is zero."""


def check_output(network: str, output: str) -> None:
    """Refuses any other word than those of `Output`."""
    if output not in get_args(Output):
        raise UsageError(f"{network}: output is {output!r}; choose {' or '.join(get_args(Output))}")


def as_logits(values: Any, output: Output) -> Any:
    """Logits as they are, and the logarithms of probabilities (B×classes): as logits they give the same probabilities."""
    import keras

    values = keras.ops.cast(values, "float32")
    return values if output == "logits" else keras.ops.log(keras.ops.maximum(values, SMALLEST))
