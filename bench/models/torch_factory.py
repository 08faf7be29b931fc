"""The PyTorch module that a factory makes: code of the user's, named as `package.module:factory`."""

from __future__ import annotations

import importlib
import inspect
import os
import random
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from bench import in_memory
from bench.api import Shape, UsageError
from bench.models.architecture import NotInstalled
from bench.registry import did_you_mean

if TYPE_CHECKING:
    import torch

INSTALL = (
    "pip install 'bench-keyed-defences[torch]' (on a machine without a GPU, install the CPU build of torch first: "
    "it is much smaller)"
)


def torch_library() -> Any:
    """PyTorch; one clear line if it is not installed."""
    try:
        return importlib.import_module("torch")
    except ImportError as error:
        raise NotInstalled(f"network torch needs PyTorch, which cannot be imported here ({error}): {INSTALL}") from None


def check_name(factory: str) -> None:
    """Raises UsageError if it has not the form package.module:factory."""
    module, colon, name = factory.partition(":")
    if not (colon and name.isidentifier() and all(part.isidentifier() for part in module.split("."))):
        raise UsageError(
            f"network torch: factory is {factory!r}; give package.module:factory, a function that makes the module"
        )


def module_of(factory: str, shape: Shape, classes: int) -> torch.nn.Module:
    """What the factory gives, called with `shape` (rows, columns, channels) and `classes` where it takes them.

    Its random numbers come from Python's generator, which the harness seeds with Keras's.
    """
    torch = torch_library()
    function = _found(factory)
    given = {"shape": shape, "classes": classes}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(random.getrandbits(31))
        try:
            module = function(**{name: given[name] for name in _parameters(function) if name in given})
        except Exception as error:
            raise UsageError(f"network torch: {factory} failed: {line_of(error)}") from error
    if not isinstance(module, torch.nn.Module):
        raise UsageError(f"network torch: {factory} gave {_kind(module)}, not a torch.nn.Module")
    return module


def _found(factory: str) -> Callable[..., Any]:
    module_name, _, name = factory.partition(":")
    if module_name == in_memory.MEMORY:
        return in_memory.factory(name)
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())  # as `python -m` finds it; behind everything that is installed
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise UsageError(f"network torch: {module_name} cannot be imported: {line_of(error)}") from error
        raise NotInstalled(
            f"network torch: there is no module {error.name} (of {factory}); install it, or run where its file is"
        ) from None
    except Exception as error:
        raise UsageError(f"network torch: {module_name} cannot be imported: {line_of(error)}") from error
    function = getattr(module, name, None)
    if function is None:
        raise UsageError(f"network torch: {module_name} has no {name}{did_you_mean(name, vars(module))}")
    if not callable(function):
        raise UsageError(f"network torch: {factory} is {_kind(function)}, not a function that makes a module")
    return function


def _parameters(function: Callable[..., Any]) -> list[str]:
    try:
        return list(inspect.signature(function).parameters)
    except (TypeError, ValueError):  # what is not written in Python may have no signature
        return []


def _kind(value: object) -> str:
    return f"an object of type {type(value).__name__}"


def line_of(error: Exception) -> str:
    """An error in one line."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
