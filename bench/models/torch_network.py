"""Classifiers of PyTorch behind a defence: a module that a factory makes, as a network like any other."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Literal, get_args

import keras

from bench.api import Network, Shape, UsageError
from bench.models import torch_factory
from bench.models.outputs import Output, as_logits, check_output
from bench.models.torch_layer import TorchLayer
from bench.models.torch_module import TorchModule
from bench.models.torch_weights import put_state as put_state
from bench.models.torch_weights import read_weights as read_weights

if TYPE_CHECKING:
    import torch

Channels = Literal["first", "last"]


@dataclasses.dataclass(frozen=True)
class TorchSettings:
    """A factory has to be given."""

    factory: str = ""
    """`package.module:factory`, a function of yours that is imported and called, with `shape` (rows, columns, channels)
    and `classes` if it takes them, and gives a torch.nn.Module."""
    channels: Channels = "first"
    """Whether the module reads images as B×C×H×W, `first`, or as B×H×W×C, `last`."""
    output: Output = "logits"
    """What the module gives: `logits`, or `probabilities`, whose logarithms are logits."""

    def __post_init__(self) -> None:
        torch_factory.check_name(self.factory)
        check_output("network torch", self.output)
        if self.channels not in get_args(Channels):
            raise UsageError(f"network torch: channels is {self.channels!r}; choose {' or '.join(get_args(Channels))}")


class TorchNetwork(Network):
    """A classifier of PyTorch that a function of yours makes: torch[factory=package.module:factory]."""

    Settings = TorchSettings
    settings: TorchSettings

    def build(self, shape: Shape, classes: int) -> keras.Model:
        module = TorchModule(self._module(shape, classes), self.settings.channels == "first")
        images = keras.Input(shape)
        outputs = TorchLayer(module, classes, name="torch")(images)
        return keras.Model(images, as_logits(outputs, self.settings.output))

    def code(self) -> str | None:
        return self.settings.factory

    def cost(self, shape: Shape, classes: int) -> int:
        module = self._module(shape, classes)
        from torch.utils.flop_counter import FlopCounterMode

        with FlopCounterMode(display=False) as counter:
            module(self._blank(shape))
        return counter.get_total_flops() // 2  # it counts multiplications and additions

    def _module(self, shape: Shape, classes: int) -> torch.nn.Module:
        """What the factory makes, in eval mode and float32, checked to give one number per class."""
        torch, factory = torch_factory.torch_library(), self.settings.factory
        module = torch_factory.module_of(factory, shape, classes).eval()
        if odd := [name for name, value in module.state_dict().items() if _is_complex(value)]:
            raise UsageError(f"network torch: {odd[0]} of {factory} is complex; real numbers are taken")
        blank = self._blank(shape)
        other = "last" if self.settings.channels == "first" else "first"
        read = f"an input of {_sizes(blank.shape)} (channels={self.settings.channels}; there is channels={other} too)"
        try:
            with torch.no_grad(), _kept_buffers(module.float()):
                given = module(blank)
        except Exception as error:
            line = torch_factory.line_of(error)
            raise UsageError(f"network torch: the module of {factory} fails on {read}: {line}") from error
        found = _sizes(given.shape) if isinstance(given, torch.Tensor) else f"an object of type {type(given).__name__}"
        if not isinstance(given, torch.Tensor) or tuple(given.shape) != (1, classes):
            raise UsageError(
                f"network torch: the module of {factory} gives {found} for {read}, where 1×{classes} is wanted: a number "
                "per class"
            )
        return module

    def _blank(self, shape: Shape) -> torch.Tensor:
        """One image of zeros as the module reads it."""
        rows, columns, channels = shape
        sizes = (channels, rows, columns) if self.settings.channels == "first" else shape
        return torch_factory.torch_library().zeros(1, *sizes)


@contextlib.contextmanager
def _kept_buffers(module: torch.nn.Module) -> Iterator[None]:
    """Meanwhile a module may write to its buffers; lazy ones are made by that."""
    lazy = torch_factory.torch_library().nn.parameter.is_lazy
    before = [(buffer, buffer.clone()) for buffer in module.buffers() if not lazy(buffer)]
    yield
    for buffer, value in before:
        buffer.copy_(value)


def _is_complex(value: object) -> bool:
    return isinstance(value, torch_factory.torch_library().Tensor) and value.is_complex()


def _sizes(shape: Sequence[int]) -> str:
    return "×".join(map(str, shape))
