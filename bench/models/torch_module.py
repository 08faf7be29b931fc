"""A PyTorch module as a function of images and weights, and its gradient: what the Keras layer computes through.

Arrays go in and out without a copy. A call has one of torch's threads, so that no sum depends on the number of cores; calls
go side by side instead, each with a copy of the module that shares its tensors.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import functools
import itertools
import threading
import weakref
import zlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bench.api import UsageError
from bench.models.torch_factory import line_of, torch_library
from bench.models.torch_weights import as_float32

if TYPE_CHECKING:
    import torch


@dataclasses.dataclass(frozen=True)
class StateTensor:
    """A parameter or buffer of a module, under its name in the `state_dict`."""

    name: str
    value: np.ndarray  # as float32
    dtype: torch.dtype
    parameter: bool
    trainable: bool
    others: tuple[str, ...] = ()
    """Further names of the same tensor."""


@dataclasses.dataclass(frozen=True)
class Recorded:
    """A forward pass with what its gradient needs."""

    inputs: Sequence[torch.Tensor]  # what there are gradients of: the images, in training the trainable weights too
    outputs: torch.Tensor  # B×classes
    buffers: Sequence[torch.Tensor]  # as a pass in training left them


class TorchModule:
    """A module, in eval mode but for calls that train; its parameters and buffers are given with every call."""

    def __init__(self, module: torch.nn.Module, channels_first: bool) -> None:
        self._torch = torch_library()
        self._device = "cuda" if self._torch.cuda.is_available() else "cpu"
        self._channels_first = channels_first
        self.state = state_of(module)
        self._template = _copied(module).to(self._device)
        self._free: list[torch.nn.Module] = []
        self._kept: dict[int, Recorded] = {}
        self._numbers = itertools.count(1)
        self._training = threading.Lock()

    @functools.cached_property
    def buffers(self) -> list[int]:
        """The places of the buffers among the state's tensors."""
        return [place for place, tensor in enumerate(self.state) if not tensor.parameter]

    @functools.cached_property
    def trainable(self) -> list[int]:
        """The places of what is trained."""
        return [place for place, tensor in enumerate(self.state) if tensor.trainable]

    @property
    def held(self) -> int:
        """How many forward passes wait for their gradient."""
        return len(self._kept)

    def forward(
        self, images: np.ndarray, values: Sequence[np.ndarray], training: bool, keep: bool
    ) -> tuple[np.ndarray, np.ndarray, list[np.ndarray]]:
        """Images (B×H×W×C) and the state's tensors to outputs (B×classes), the pass's number, and the buffers after it.

        With `keep` the pass is kept for `gradient`, as long as the array with its number lives.
        """
        done = self._run(images, values, training, keep)
        number = _aligned(next(self._numbers) if keep else 0)
        if keep:
            self._kept[int(number)] = done
            weakref.finalize(number, self._kept.pop, int(number), None)
        return self._array(done.outputs), number, [self._array(buffer) for buffer in done.buffers]

    def gradient(
        self, number: int, upstream: np.ndarray, images: np.ndarray, values: Sequence[np.ndarray], training: bool
    ) -> list[np.ndarray]:
        """The gradient at the images, in training at the trainable weights too, of a pass: kept, or done again."""
        kept = self._kept.pop(number, None) or self._run(images, values, training, True)
        if not kept.outputs.requires_grad:  # the module cuts the path back
            return [np.zeros(tuple(tensor.shape), np.float32) for tensor in kept.inputs]
        with self._one_thread():
            found = self._torch.autograd.grad(kept.outputs, kept.inputs, self._tensor(upstream), allow_unused=True)
        zeros = self._torch.zeros_like
        return [self._array(zeros(x) if g is None else g) for x, g in zip(kept.inputs, found, strict=True)]

    def same_in_every_place(self, size: int, shape: Sequence[int], values: Sequence[np.ndarray]) -> bool:
        """Whether an image has the same outputs and gradient, bit by bit, in every place of a batch of this size.

        Where it has not, sums are split up by where an image begins in memory.
        """
        random = np.random.default_rng(0)
        image, other = random.random((2, *shape), np.float32)
        for companion in (image, other):
            images = np.stack([image, *[companion] * (size - 2), image])
            outputs, number, _ = self.forward(images, values, training=False, keep=True)
            upstream = np.repeat(random.standard_normal((1, outputs.shape[1]), np.float32), size, axis=0)
            (gradient,) = self.gradient(int(number), upstream, images, values, training=False)
            places = slice(None) if companion is image else [0, -1]
            for found in (outputs[places], gradient[places]):
                if not np.array_equal(found, np.broadcast_to(found[:1], found.shape)):
                    return False
        return True

    def _run(self, images: np.ndarray, values: Sequence[np.ndarray], training: bool, record: bool) -> Recorded:
        torch = self._torch
        inputs = self._tensor(images)
        weights = [self._own(tensor, self._tensor(value)) for tensor, value in zip(self.state, values, strict=True)]
        wanted = [inputs, *([weights[place] for place in self.trainable] if training else [])]
        for tensor in wanted if record else ():
            tensor.requires_grad_()
        named = {tensor.name: weight for tensor, weight in zip(self.state, weights, strict=True)}
        with torch.set_grad_enabled(record), self._one_thread(), self._seeded(images, training):
            read = inputs.permute(0, 3, 1, 2).contiguous() if self._channels_first else inputs
            with self._copy(training) as module:
                outputs = torch.func.functional_call(module, named, (read,))
        after = [weights[place].to(torch.float32) for place in self.buffers] if training else []
        return Recorded(wanted, outputs, after)

    def _tensor(self, array: np.ndarray) -> torch.Tensor:
        return self._torch.from_numpy(np.asarray(array)).to(self._device)

    def _array(self, tensor: torch.Tensor) -> np.ndarray:
        return tensor.detach().cpu().contiguous().numpy()

    def _own(self, tensor: StateTensor, value: torch.Tensor) -> torch.Tensor:
        """A weight as the module has it; a buffer is a copy, as modules write to them."""
        if tensor.parameter:
            return value
        return value.clone() if tensor.dtype.is_floating_point else value.round().to(tensor.dtype)

    @contextlib.contextmanager
    def _copy(self, training: bool) -> Iterator[torch.nn.Module]:
        """A copy of the module that no other call uses meanwhile."""
        try:
            module = self._free.pop()
        except IndexError:
            module = _copied(self._template)
        if module.training != training:
            module.train(training)
        try:
            yield module
        finally:
            self._free.append(module)

    @contextlib.contextmanager
    def last_batch_alone(self) -> Iterator[None]:
        """Meanwhile the running statistics of batch normalisations are those of the last batch in training."""
        normalisations = [layer for _, layer in self._normalisations()]
        before = [layer.momentum for layer in normalisations]
        for layer in normalisations:
            layer.momentum = 1.0
        self._free.clear()  # copies of the module as it was
        try:
            yield
        finally:
            for layer, momentum in zip(normalisations, before, strict=True):
                layer.momentum = momentum
            self._free.clear()

    @property
    def running_statistics(self) -> list[tuple[str, str]]:
        """The names of the running means and variances of batch normalisations."""
        return [(f"{prefix}running_mean", f"{prefix}running_var") for prefix, _ in self._normalisations()]

    def _normalisations(self) -> list[tuple[str, Any]]:
        """The batch normalisations that have running statistics, each with what its state's names begin with."""
        kind = self._torch.nn.modules.batchnorm._BatchNorm
        found = [(name, layer) for name, layer in self._template.named_modules() if isinstance(layer, kind)]
        return [(f"{name}." if name else "", layer) for name, layer in found if layer.track_running_stats]

    @contextlib.contextmanager
    def _one_thread(self) -> Iterator[None]:
        before = self._torch.get_num_threads()
        self._torch.set_num_threads(1)
        try:
            yield
        finally:
            self._torch.set_num_threads(before)

    @contextlib.contextmanager
    def _seeded(self, images: np.ndarray, training: bool) -> Iterator[None]:
        """In training, random numbers (dropout) come from the batch itself: a training that goes on draws the same ones."""
        if not training:
            yield
            return
        with self._training, self._torch.random.fork_rng():
            self._torch.manual_seed(zlib.crc32(np.ascontiguousarray(images).data))
            yield


def state_of(module: torch.nn.Module) -> list[StateTensor]:
    """A module's parameters and buffers as its `state_dict` has them, each tensor once."""
    torch = torch_library()
    names: dict[int, list[str]] = {}
    found = module.state_dict(keep_vars=True)
    for name, value in found.items():
        if not isinstance(value, torch.Tensor):
            raise UsageError(f"network torch: {name} of the module's state is no tensor; such modules are not taken")
        names.setdefault(id(value), []).append(name)
    return [_state_tensor(found[own[0]], *own) for own in names.values()]


def _state_tensor(value: torch.Tensor, name: str, *others: str) -> StateTensor:
    parameter = isinstance(value, torch_library().nn.Parameter)
    trainable = parameter and value.requires_grad
    return StateTensor(name, as_float32(value, "network torch", name), value.dtype, parameter, trainable, others)


def _copied(module: torch.nn.Module) -> torch.nn.Module:
    """A copy that shares the tensors."""
    tensors = itertools.chain(module.parameters(), module.buffers())
    try:
        return copy.deepcopy(module, {id(tensor): tensor for tensor in tensors})
    except Exception as error:
        raise UsageError(f"network torch: the module cannot be copied: {line_of(error)}") from error


def _aligned(number: int) -> np.ndarray:
    """A number at an address that TensorFlow takes over as it is: a copy would outlive the array, unseen."""
    room = np.empty(16, np.int64)
    start = -room.ctypes.data % 64 // 8
    room[start] = number
    return room[start : start + 1].reshape(())
