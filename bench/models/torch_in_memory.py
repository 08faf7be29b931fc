"""A PyTorch module in memory as a factory: other processes make it anew, and get its weights as they get any other's.

A set-up goes to them with every task, so the weights stay behind where the module can draw new ones by itself.
"""

from __future__ import annotations

import copy
import functools
import hashlib
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import cloudpickle

from bench.api import UsageError
from bench.in_memory import Factory
from bench.support import code_digest

if TYPE_CHECKING:
    import torch

_PLAIN = (bool, float, int, str, tuple, type(None))


def is_module(given: Any) -> bool:
    """Whether it is a torch.nn.Module; torch is not imported to find that out."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(given, torch.nn.Module)


def outputs(module: torch.nn.Module) -> int | None:
    """How many classes a module seems to know: what its last linear layer gives."""
    found = [int(part.out_features) for part in module.modules() if hasattr(part, "out_features")]
    return found[-1] if found else None


def name_of(module: torch.nn.Module) -> str:
    """A name for what a module computes, whatever its weights: its class's, with a digest of its structure and code."""
    digest = hashlib.sha256()
    for part in _described(module):
        digest.update(part.encode() + b"\0")
    return f"{type(module).__name__}_{digest.hexdigest()[:12]}"


def _described(module: torch.nn.Module) -> Iterator[str]:
    for name, part in module.named_modules():
        kind = type(part)
        yield f"{name} {kind.__module__}.{kind.__qualname__}"
        if not kind.__module__.startswith("torch."):
            yield code_digest.of_class(kind)
        for attribute, value in sorted(vars(part).items()):
            if isinstance(value, _PLAIN) and attribute != "training":
                yield f"{attribute}={value!r}"
    for name, tensor in module.state_dict().items():
        yield f"{name} {tuple(tensor.shape)}"


def factory_of(module: torch.nn.Module) -> Factory:
    """What makes such a module again, with weights of its own."""
    try:
        copied = copy.deepcopy(module).cpu()
        for parameter in _drawn_again(copied):
            parameter.data = parameter.data.new_zeros(()).expand(parameter.shape)
        return Factory(name_of(module), functools.partial(_made, cloudpickle.dumps(copied)))
    except Exception as error:
        raise UsageError(
            f"{type(module).__name__} cannot be sent to the processes that attack ({error}): name a factory that makes "
            "it, 'torch:package.module:factory@FILE'"
        ) from error


def _drawn_again(module: torch.nn.Module) -> list[torch.nn.Parameter]:
    """The parameters of everything in a module that draws them anew when it is told so."""
    parts = [part for part in module.modules() if hasattr(part, "reset_parameters")]
    return [parameter for part in parts for parameter in part.parameters(recurse=False)]


def _made(packed: bytes) -> torch.nn.Module:
    module: torch.nn.Module = cloudpickle.loads(packed)
    for parameter in _drawn_again(module):
        parameter.data = parameter.data.clone(memory_format=_contiguous())
    for part in module.modules():
        if hasattr(part, "reset_parameters"):
            part.reset_parameters()
    return module


def _contiguous() -> Any:
    return sys.modules["torch"].contiguous_format
