"""Reads the classifier that the paper's authors published, and carries its weights over into our network.

The file is a pickled pair (params, state) of mappings, module name → array name → numpy array, on its own or inside
an .npy file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from bench.api import BenchError, Shape, UsageError
from bench.models.architecture import Architecture
from bench.support.unpickle import load_arrays

if TYPE_CHECKING:
    import keras

ROOT = "wide_res_net/~/"
NETWORK = "wide-resnet"
UNUSED = ("hidden", "counter")
"""What an exponential moving average keeps besides the `average` that the network uses."""


def load(path: Path) -> dict[str, np.ndarray]:
    """The checkpoint's arrays as 'module:name' → array."""
    try:
        with path.open("rb") as stream:
            pair = _read_pair(stream)
    except FileNotFoundError:
        raise UsageError(f"checkpoint {path} does not exist") from None
    except BenchError as error:
        raise BenchError(f"checkpoint {path}: {error}") from None
    except Exception as error:  # a damaged header can raise anything
        raise BenchError(f"checkpoint {path} cannot be read, or is cut short: {error}") from error
    if not isinstance(pair, tuple | list) or len(pair) != 2 or not all(isinstance(part, Mapping) for part in pair):
        raise BenchError(f"checkpoint {path} is no pair of mappings (params, state)")
    arrays: dict[str, np.ndarray] = {}
    for name, array in (entry for part in pair for entry in _flatten(part)):
        if name in arrays:
            raise BenchError(f"checkpoint {path} has {name} twice")
        arrays[name] = array
    return arrays


def _read_pair(stream: IO[bytes]) -> Any:
    """The unpickled object; the one inside, if it is in an .npy file."""
    in_npy = stream.read(6) == b"\x93NUMPY"
    stream.seek(0)
    if not in_npy:
        return load_arrays(stream, encoding="latin1")
    version = np.lib.format.read_magic(stream)
    reader = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    reader(stream)  # its shape is in the pickle too
    inside = load_arrays(stream, encoding="latin1")
    return inside.tolist() if isinstance(inside, np.ndarray) else inside


def _flatten(modules: Mapping[Any, Any]) -> Iterator[tuple[str, np.ndarray]]:
    for module, parts in modules.items():
        if not isinstance(parts, Mapping):
            raise BenchError(f"checkpoint: {module} is a {type(parts).__name__}, not a mapping of arrays")
        for name, value in parts.items():
            if not isinstance(value, np.ndarray | np.generic):
                raise BenchError(f"checkpoint: {module}:{name} is a {type(value).__name__}, not an array")
            yield f"{module}:{name}", np.asarray(value)


def network(architecture: Architecture, shape: Shape, classes: int, arrays: Mapping[str, np.ndarray]) -> keras.Model:
    """The network with the weights of a checkpoint, as `load` gave it, each array used once."""
    if architecture.name != NETWORK:
        raise UsageError(f"a checkpoint of this form is of a {NETWORK}, and the preset's network is {architecture}")
    model = architecture.build(shape, classes)
    import_into(model, arrays)
    return model


def import_into(model: keras.Model, arrays: Mapping[str, np.ndarray]) -> None:
    """Sets all weights from the arrays; all or none."""
    wanted = {source: variable for layer in model.layers for source, variable in _sources(layer)}
    unused = {f"{name.rpartition(':')[0]}:{part}" for name in wanted if "_ema:" in name for part in UNUSED}
    if missing := sorted(wanted.keys() - arrays.keys()):
        raise UsageError(f"checkpoint: {missing[0]} is missing ({len(missing)} in all); it is of another network")
    if odd := sorted(arrays.keys() - wanted.keys() - unused):
        raise UsageError(
            f"checkpoint: {odd[0]} has no place in the network ({len(odd)} in all); it is of another network"
        )
    ready = []
    for name, variable in wanted.items():
        array, shape = arrays[name], tuple(variable.shape)
        # Normalisation keeps its channels last among axes of length 1.
        found = array.shape[-1:] if len(shape) == 1 and array.shape[:-1] == (1,) * (array.ndim - 1) else array.shape
        if found != shape:
            raise UsageError(f"checkpoint: {name} is {array.shape}, where the network has {shape}")
        if array.dtype.kind != "f" or not np.isfinite(array).all():
            raise BenchError(f"checkpoint: {name} has NaN, infinite or non-float values")
        ready.append((variable, array.reshape(shape)))
    for variable, array in ready:
        variable.assign(array.astype(np.float32))


def _sources(layer: keras.layers.Layer) -> Iterator[tuple[str, keras.Variable]]:
    """The checkpoint's name for every variable of a layer. Our 'block-part' is its 'block/~/part'."""
    module = ROOT + layer.name.replace("-", "/~/")
    names = {"kernel": ":w", "bias": ":b", "gamma": ":scale"}
    averages = {"moving_mean": "/~/mean_ema:average", "moving_variance": "/~/var_ema:average"}
    for variable in layer.weights:
        yield module + {**names, **averages}[variable.name], variable
