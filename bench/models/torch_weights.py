"""Weights of a PyTorch module from a file, and into the layer that computes through it."""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bench.api import UsageError
from bench.models.torch_factory import INSTALL, line_of, torch_library

if TYPE_CHECKING:
    import keras
    import torch

EXACT = 2**24  # whole numbers below it are exact in float32
SAFE = (2, 10)  # the first torch without known holes in weights_only (CVE-2025-32434, CVE-2026-24747)
LISTED = 5  # names that an error lists of what does not fit


def read_weights(path: Path) -> dict[str, np.ndarray]:
    """The arrays of a file by name: safetensors, or a `state_dict` as torch.save writes it. No code in it is run."""
    torch_library()
    if not path.is_file():
        raise UsageError(f"weights file {path} does not exist")
    content = _safetensors(path) if path.suffix == ".safetensors" else _state_dict(path)
    return {name: as_float32(value, str(path), name) for name, value in content.items()}


def put_state(model: keras.Model, state: Mapping[str, np.ndarray], where: Path) -> None:
    """Sets the weights of a model of network `torch` from arrays by their names in the state_dict, all or none."""
    from bench.models.torch_layer import TorchLayer

    (layer,) = [layer for layer in model.layers if isinstance(layer, TorchLayer)]
    given = dict(state)
    for tensor in layer.module.state:  # names of one and the same tensor
        names = [name for name in (tensor.name, *tensor.others) if name in given]
        for name in names[1:]:
            if not np.array_equal(given[name], given[names[0]]):
                raise UsageError(f"{where}: {names[0]} and {name} differ, and are one tensor in the module")
            del given[name]
        if names:
            given[tensor.name] = given.pop(names[0])
    _check_fit({name: tuple(variable.shape) for name, variable in layer.state.items()}, given, where)
    for name, variable in layer.state.items():
        variable.assign(given[name])


def _check_fit(wanted: Mapping[str, tuple[int, ...]], given: Mapping[str, np.ndarray], where: Path) -> None:
    both = [name for name in wanted if name in given]
    faults = {
        "missing": [name for name in wanted if name not in given],
        "unexpected": [name for name in given if name not in wanted],
        "of another shape": [
            f"{name} ({_sizes(given[name].shape)}, not {_sizes(wanted[name])})"
            for name in both
            if given[name].shape != wanted[name]
        ],
    }
    if any(faults.values()):
        said = "; ".join(f"{what}: {_listed(names)}" for what, names in faults.items() if names)
        raise UsageError(f"{where} does not fit the module: {said}")


def as_float32(value: torch.Tensor, where: str, name: str) -> np.ndarray:
    """A tensor as an array of float32; raises UsageError for one that is no such thing."""
    torch = torch_library()
    if value.is_complex() or value.is_quantized or value.layout != torch.strided:
        raise UsageError(f"{where}: {name} is of {value.dtype}, {value.layout}; plain numbers are taken")
    value = value.detach().cpu()
    if not (value.dtype.is_floating_point or value.dtype == torch.bool) and (value.abs() >= EXACT).any():
        raise UsageError(f"{where}: {name} has whole numbers of {EXACT} or more, which float32 does not hold exactly")
    array = np.array(value.to(torch.float32).numpy())
    if not np.isfinite(array).all():
        raise UsageError(f"{where}: {name} has NaN or infinite values")
    return array


def _safetensors(path: Path) -> Mapping[str, torch.Tensor]:
    try:
        import safetensors.torch
    except ImportError as error:
        raise UsageError(f"{path} needs the package safetensors ({error}): {INSTALL}") from None
    try:
        return safetensors.torch.load_file(path)
    except Exception as error:
        raise UsageError(f"{path} is no safetensors file, or is cut short: {line_of(error)}") from error


def _state_dict(path: Path) -> Mapping[str, torch.Tensor]:
    torch = torch_library()
    if tuple(map(int, torch.__version__.split(".")[:2])) < SAFE:
        raise UsageError(
            f"{path}: torch {torch.__version__} may run code that is in such a file; give safetensors, or install torch "
            f"{SAFE[0]}.{SAFE[1]} or newer"
        )
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise UsageError(
            f"{path} is no state_dict: it holds something else than tensors by name, such as code, which is not run; "
            "save module.state_dict(), or safetensors"
        ) from error
    except Exception as error:
        raise UsageError(f"{path} is no state_dict, or is cut short: {line_of(error)}") from error
    if not isinstance(content, Mapping) or not content:
        raise UsageError(f"{path} is no state_dict but an object of type {type(content).__name__}")
    for name, value in content.items():
        if not isinstance(name, str) or not isinstance(value, torch.Tensor):
            raise UsageError(
                f"{path} is no state_dict: {name!r} in it is {_kind(value)}, not a tensor; save module.state_dict() alone"
            )
    return content


def _kind(value: Any) -> str:
    return f"an object of type {type(value).__name__}"


def _listed(names: Sequence[str]) -> str:
    more = len(names) - LISTED
    return ", ".join(names[:LISTED]) + (f" and {more} more" if more > 0 else "")


def _sizes(shape: Sequence[int]) -> str:
    return "×".join(map(str, shape)) or "one number"
