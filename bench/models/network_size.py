"""How large a network is, found before any of it is built: what somebody describes may need more memory than there is.

The network is put together without a value in its weights, which tells every shape. It must have exactly the weights of
the file that comes with it, so it is no larger than what was sent; and what its layers compute is limited as well.
"""

from __future__ import annotations

import json
import math
import random
import threading
import zipfile
from pathlib import Path

import numpy as np

from bench.api import BenchError, Shape, UsageError
from bench.models.architecture import Architecture
from bench.models.weights import weights_by_name

MOST_VALUES = 2**26  # that a layer may give per image
MOST_MULTIPLICATIONS = 10**12  # of a forward pass over one image
MOST_LAYERS = 2000

Shapes = dict[str, tuple[int, ...]]


def check(network: Architecture, shape: Shape, classes: int, weights: Path) -> None:
    """Raises UsageError unless the network has the weights of this file, and computes no more than it may."""
    given = {name.removeprefix("weight:"): size for name, size in _given(weights).items() if name.startswith("weight:")}
    wanted = _measured(network, shape, classes)
    odd = sorted(name for name in given.keys() | wanted.keys() if given.get(name) != wanted.get(name))
    if odd:
        size = 4 * sum(map(math.prod, wanted.values())) / 2**20
        raise UsageError(
            f"network {network}, of {size:,.0f} MiB, has other weights than the file: {odd[0]} is "
            f"{_sizes(wanted.get(odd[0]))}, and in the file {_sizes(given.get(odd[0]))}"
        )


def _given(weights: Path) -> Shapes:
    """The shapes of the arrays in a weights file, by their names, from their headers."""
    found: Shapes = {}
    headers = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    try:
        with zipfile.ZipFile(weights) as packed:
            for info in packed.infolist():
                with packed.open(info) as stream:
                    found[info.filename.removesuffix(".npy")] = headers[np.lib.format.read_magic(stream)](stream)[0]
    except (ValueError, KeyError, OSError, EOFError, zipfile.BadZipFile) as error:
        raise UsageError(f"{weights} is not a weights file, or is cut short: {error}") from error
    return found


def _measured(network: Architecture, shape: Shape, classes: int) -> Shapes:
    """The shapes of a network's weights, by name.

    In a thread of its own, as Keras would otherwise fill the weights in later, whenever it fills in others.
    """
    found: Shapes = {}
    problem: list[Exception] = []

    def measure() -> None:
        import keras

        try:
            _check_description(network)
            with keras.StatelessScope(initialize_variables=False):
                model = network.build(shape, classes)
                found.update({name: tuple(one.shape) for name, one in weights_by_name(model).items()})
                _check_work(network, model, shape, classes)
        except Exception as error:
            problem.append(error)

    drawn = random.getstate()  # Keras draws the seeds of weights from it, also of those that get no value
    thread = threading.Thread(target=measure)
    thread.start()
    thread.join()
    random.setstate(drawn)
    if problem:
        if isinstance(problem[0], BenchError):
            raise UsageError(str(problem[0])) from problem[0]
        reason = " ".join(str(problem[0]).split())[:300]
        raise UsageError(f"network {network} cannot be measured before it is built: {reason}") from problem[0]
    return found


def _check_description(network: Architecture) -> None:
    layers = json.dumps(dict(network.settings)).count("class_name")
    if layers > MOST_LAYERS:
        raise UsageError(
            f"network {network} has {layers} parts; {MOST_LAYERS} are the most that is taken from elsewhere"
        )


def _check_work(network: Architecture, model: object, shape: Shape, classes: int) -> None:
    for layer in model._flatten_layers():  # type: ignore[attr-defined]
        for node in getattr(layer, "_inbound_nodes", []):
            for output in node.outputs:
                values = math.prod(side or 1 for side in output.shape[1:])
                if values > MOST_VALUES:
                    raise UsageError(
                        f"network {network}: layer {layer.name} gives {values:,} values per image; {MOST_VALUES:,} are the "
                        "most that is taken from elsewhere"
                    )
    if (cost := network.cost(shape, classes)) > MOST_MULTIPLICATIONS:
        raise UsageError(
            f"network {network} takes {cost:,} multiplications per image; {MOST_MULTIPLICATIONS:,} are the most that is "
            "taken from elsewhere"
        )


def _sizes(shape: tuple[int, ...] | None) -> str:
    return "missing" if shape is None else "×".join(map(str, shape)) or "one number"
