"""Carries a Keras classifier over to PyTorch: the same graph, the same weights, in PyTorch's own layout."""

from __future__ import annotations

from typing import Any

import keras
import torch
from torch import nn
from torch.nn import functional


class Carried(nn.Module):
    """A functional Keras model as a PyTorch module: B×3×H×W in [0,1] to B×classes."""

    def __init__(self, model: keras.Model) -> None:
        super().__init__()
        self.order: list[tuple[str, list[str], str]] = []  # layer, inputs, output
        self.layers = nn.ModuleDict()
        names: dict[int, str] = {id(tensor): f"input{number}" for number, tensor in enumerate(model.inputs)}
        for operation in model.operations:
            if isinstance(operation, keras.layers.InputLayer):
                continue
            for node in operation._inbound_nodes:
                if not all(id(tensor) in names for tensor in node.input_tensors):
                    continue  # the layer is used in another model too
                name = operation.name.replace(".", "_")
                self.layers[name] = carried(operation)
                self.order.append((name, [names[id(tensor)] for tensor in node.input_tensors], name))
                names.update({id(tensor): name for tensor in node.output_tensors})
        self.output = names[id(model.outputs[0])]
        self.eval()
        for parameter in self.parameters():
            parameter.requires_grad_(False)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        values = {"input0": images}
        for name, inputs, output in self.order:
            values[output] = self.layers[name](*[values[key] for key in inputs])
        return values[self.output]


def carried(layer: Any) -> nn.Module:
    """One layer; the kinds that our classifiers are made of."""
    builders = {
        "Rescaling": _rescaling,
        "Normalization": _normalization,
        "Conv2D": _convolution,
        "BatchNormalization": _batch_norm,
        "Dense": _dense,
        "Add": lambda layer: _Add(),
        "GlobalAveragePooling2D": lambda layer: _Mean(),
        "Activation": lambda layer: _ACTIVATIONS[layer.activation.__name__](),
        "ReLU": lambda layer: nn.ReLU(),
        "Silu": lambda operation: nn.SiLU(),
        "Mean": lambda operation: _Mean(),
        "Flatten": lambda layer: _Flatten(),
    }
    kind = type(layer).__name__
    if kind not in builders:
        raise SystemExit(f"layer {layer.name!r} is a {kind}: carry.py knows {', '.join(builders)}")
    return builders[kind](layer)


class _Add(nn.Module):
    def forward(self, *values: torch.Tensor) -> torch.Tensor:
        return sum(values[1:], values[0])


class _Mean(nn.Module):
    def forward(self, values: torch.Tensor) -> torch.Tensor:
        return values.mean(dim=(2, 3))


class _Flatten(nn.Module):
    def forward(self, values: torch.Tensor) -> torch.Tensor:
        return values.permute(0, 2, 3, 1).flatten(1) if values.dim() == 4 else values.flatten(1)


class _Affine(nn.Module):
    """A scale and an offset for every channel."""

    def __init__(self, scale: Any, offset: Any) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.as_tensor(scale, dtype=torch.float32).reshape(1, -1, 1, 1))
        self.offset = nn.Parameter(torch.as_tensor(offset, dtype=torch.float32).reshape(1, -1, 1, 1))

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        return values * self.scale + self.offset


class _SamePadded(nn.Module):
    """A convolution with TensorFlow's padding, which puts the odd row below and to the right."""

    def __init__(self, convolution: nn.Conv2d) -> None:
        super().__init__()
        self.convolution = convolution

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        padding: list[int] = []
        sizes = zip(values.shape[2:], self.convolution.kernel_size, self.convolution.stride, strict=True)
        for length, kernel, stride in reversed(list(sizes)):
            total = max((-(-length // stride) - 1) * stride + kernel - length, 0)
            padding += [total // 2, total - total // 2]
        return self.convolution(functional.pad(values, padding) if any(padding) else values)


_ACTIVATIONS = {"silu": nn.SiLU, "swish": nn.SiLU, "relu": nn.ReLU, "linear": nn.Identity}


def _rescaling(layer: Any) -> nn.Module:
    return _Affine(layer.scale, layer.offset)


def _normalization(layer: Any) -> nn.Module:
    scale = 1 / keras.ops.convert_to_numpy(layer.variance) ** 0.5
    return _Affine(scale, -keras.ops.convert_to_numpy(layer.mean) * scale)


def _convolution(layer: Any) -> nn.Module:
    kernel = torch.tensor(layer.kernel.numpy()).permute(3, 2, 0, 1).contiguous()
    convolution = nn.Conv2d(kernel.shape[1], kernel.shape[0], kernel.shape[2:], layer.strides, bias=layer.use_bias)
    convolution.weight.data = kernel
    if layer.use_bias:
        convolution.bias.data = torch.tensor(layer.bias.numpy())
    if layer.padding != "same":
        return convolution
    if layer.strides == (1, 1) and all(size % 2 for size in layer.kernel_size):
        convolution.padding = tuple(size // 2 for size in layer.kernel_size)
        return convolution
    return _SamePadded(convolution)


def _batch_norm(layer: Any) -> nn.Module:
    """As PyTorch's own, in inference: BatchNorm2d in eval mode."""
    norm = nn.BatchNorm2d(layer.moving_mean.shape[0], eps=layer.epsilon)
    norm.running_mean = torch.tensor(layer.moving_mean.numpy())
    norm.running_var = torch.tensor(layer.moving_variance.numpy())
    if layer.gamma is not None:
        norm.weight.data = torch.tensor(layer.gamma.numpy())
    if layer.beta is not None:
        norm.bias.data = torch.tensor(layer.beta.numpy())
    return norm


def _dense(layer: Any) -> nn.Module:
    weight = torch.tensor(layer.kernel.numpy()).T.contiguous()
    dense = nn.Linear(weight.shape[1], weight.shape[0], bias=layer.use_bias)
    dense.weight.data = weight
    if layer.use_bias:
        dense.bias.data = torch.tensor(layer.bias.numpy())
    activation = _ACTIVATIONS[layer.activation.__name__]()
    return nn.Sequential(dense, activation)
