"""A model's weights as arrays by name, in .npz files of arrays and nothing else."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bench.api import BenchError, UsageError

if TYPE_CHECKING:
    import keras

_LAST_NUMBER = re.compile(r"_\d+$")


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """The arrays of a weights file; one clear line if it is no such file."""
    try:
        with np.load(path, allow_pickle=False) as file:
            return {name: file[name] for name in file.files}
    except FileNotFoundError:
        raise UsageError(f"weights file {path} does not exist") from None
    except (ValueError, OSError, EOFError, zipfile.BadZipFile, AttributeError) as error:
        raise UsageError(f"{path} is not a weights file, or is cut short: {error}") from error


def check_digest(weights: Path, found: str, expected: str) -> None:
    """Raises BenchError if a weights file is another than the one that was kept."""
    if found != expected:
        raise BenchError(
            f"{weights} is not what was saved (its sha256 differs): remove {weights.parent} and train it again"
        )


def arrays_of(model: keras.Model, state: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """A model's weights by name, and the defence's fitted state."""
    weights = {f"weight:{name}": np.asarray(variable) for name, variable in weights_by_name(model).items()}
    return {**weights, **{f"state:{name}": value for name, value in state.items()}}


def put_into(
    model: keras.Model, arrays: Mapping[str, np.ndarray], where: Path, partly: bool = False
) -> dict[str, np.ndarray]:
    """Sets a model's weights from arrays by name, all or none; returns the defence's state.

    `partly` leaves those alone whose shape is another: a start for a network that reads other channels.
    """
    given = {name.removeprefix("weight:"): value for name, value in arrays.items() if name.startswith("weight:")}
    wanted = weights_by_name(model)
    if odd := sorted(given.keys() ^ wanted.keys()):
        raise UsageError(
            f"{where} is of another architecture: {odd[0]} is {'not in it' if odd[0] in wanted else 'unexpected'}"
        )
    if partly:
        wanted = {name: variable for name, variable in wanted.items() if given[name].shape == tuple(variable.shape)}
    for name, variable in wanted.items():
        if given[name].shape != tuple(variable.shape):
            raise UsageError(
                f"{where} is of another architecture: {name} is {given[name].shape}, not {tuple(variable.shape)}"
            )
        if given[name].dtype.kind != "f" or not np.isfinite(given[name]).all():
            raise UsageError(f"{where}: {name} has NaN, infinite or non-float values")
    for name, variable in wanted.items():
        variable.assign(given[name].astype(np.float32))
    return {n.removeprefix("state:"): v.astype(np.float32) for n, v in arrays.items() if n.startswith("state:")}


def weights_by_name(model: keras.Model) -> dict[str, Any]:
    """A model's weights by the names of their layers: `block/conv/kernel`.

    A layer that was given no name gets one of Keras, such as `conv2d_7`, that counts what was built in this process
    before. Here such layers are counted within the model, so that the same network has the same names everywhere.
    """
    made_up = {layer.name for layer in model._flatten_layers() if _made_up(layer)}
    known: dict[str, str] = {}  # paths as Keras has them, and as they are named here
    count: dict[str, int] = {}
    named = {}
    for variable in model.weights:
        *layers, last = variable.path.split("/")
        path = name = ""
        for layer in layers:
            path += f"{layer}/"
            if path not in known:
                own = name + layer
                if layer in made_up:
                    kind = name + _LAST_NUMBER.sub("", layer)
                    count[kind] = count.get(kind, -1) + 1
                    own = f"{kind}_{count[kind]}" if count[kind] else kind
                known[path] = f"{own}/"
            name = known[path]
        named[name + last] = variable
    if len(named) != len(model.weights):
        raise BenchError(
            "two weights of the network have one name: give its layers, and their weights, names of their own"
        )
    return named


def _made_up(layer: keras.layers.Layer) -> bool:
    """Whether a layer's name is that of its class, as Keras names it."""
    return _LAST_NUMBER.sub("", layer.name).replace("_", "") == type(layer).__name__.replace("_", "").lower()
