"""LINAC's fit, and its gradient, on a CPU: one image a thread, compiled by numba.

An image's weights and moments stay in the core's cache for the whole fit, and the gradient of four rows of a weight
matrix goes straight into their Adam update. An image never sees another, so the bits of its result do not depend on
its companions. docs/performance.md has what this wins over batched matmuls.

Layout. All the numbers of a network are one array θ of (L+1)×(rows+1)×columns: layer l has its matrix at the top
left of θ[l] and its bias in the last row. Sizes are padded with zeros to whole tiles; a padded unit has no input, no
output and no gradient, so it stays zero. The 16 further columns keep rows from falling into the same cache lines.

All of it is one file, because numba's cache on disk only sees a change in the file of the function itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from defences.linac_plan import BETA1, BETA2, EPSILON

if TYPE_CHECKING:
    from defences.linac import LinacConfig
    from defences.linac_plan import Plan

ROWS, COLUMNS = 4, 16  # of a tile: its sums fill the vector registers from AVX2 on, and hide the latency of an FMA
compiled = njit(nogil=True, cache=True, error_model="numpy", fastmath={"contract"})


class _Addresses:
    """Addresses of array elements inside generated code."""

    def __init__(self, context: Any, builder: Any, signature: Any, arguments: Any) -> None:
        self._context, self._builder, self._signature, self._arguments = context, builder, signature, arguments

    def corner(self, position: int) -> tuple[Any, Any]:
        """The address of a 2-D array's element at the two indices that follow it, and the array's strides."""
        make = self._context.make_array(self._signature.args[position])
        array = make(self._context, self._builder, self._arguments[position])
        strides = cgutils.unpack_tuple(self._builder, array.strides)
        address = self._builder.ptrtoint(array.data, ir.IntType(64))
        for index, stride in zip(self._arguments[position + 1 : position + 3], strides, strict=True):
            address = self._builder.add(address, self._builder.mul(index, stride))
        return address, strides

    def pointer(self, address: Any, stride: Any, row: int, kind: Any) -> Any:
        """A pointer to a `kind` so many rows further on."""
        offset = self._builder.mul(ir.Constant(ir.IntType(64), row), stride)
        return self._builder.inttoptr(self._builder.add(address, offset), kind.as_pointer())


def _tile(accumulate: bool) -> Callable[..., None]:
    """A matrix product of one tile, held in registers: numba alone does not vectorise it so."""

    @intrinsic
    def tile(
        context: Any, out: Any, oi: Any, oj: Any, a: Any, ai: Any, aj: Any, b: Any, bi: Any, bj: Any, depth: Any
    ) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            integer, scalar = ir.IntType(64), context.get_value_type(out.dtype)
            vector = ir.VectorType(scalar, COLUMNS)
            size = context.get_abi_sizeof(scalar)

            at = _Addresses(context, builder, signature, arguments)
            (out_at, out_strides), (a_at, a_strides), (b_at, b_strides) = at.corner(0), at.corner(3), at.corner(6)
            if accumulate:
                start = [builder.load(at.pointer(out_at, out_strides[0], r, vector), align=size) for r in range(ROWS)]
            else:
                start = [ir.Constant(vector, [0.0] * COLUMNS)] * ROWS
            before, body, after = builder.block, builder.append_basic_block(), builder.append_basic_block()
            builder.branch(body)
            builder.position_at_end(body)
            count, a_now, b_now = (builder.phi(integer) for _ in range(3))
            sums = [builder.phi(vector) for _ in range(ROWS)]
            name = f"llvm.fma.v{COLUMNS}f{8 * size}"
            fma = cgutils.get_or_insert_function(builder.module, ir.FunctionType(vector, [vector] * 3), name)
            right = builder.load(builder.inttoptr(b_now, vector.as_pointer()), align=size)
            undefined = ir.Constant(vector, ir.Undefined)
            lanes = ir.Constant(ir.VectorType(ir.IntType(32), COLUMNS), [0] * COLUMNS)
            new = []
            for r in range(ROWS):
                left = builder.load(at.pointer(a_now, a_strides[0], r, scalar), align=size)
                first = builder.insert_element(undefined, left, ir.Constant(ir.IntType(32), 0))
                new.append(builder.call(fma, [builder.shuffle_vector(first, undefined, lanes), right, sums[r]]))
            phis = [count, a_now, b_now, *sums]
            entering = [ir.Constant(integer, 0), a_at, b_at, *start]
            following = [
                builder.add(count, ir.Constant(integer, 1)),
                builder.add(a_now, a_strides[1]),
                builder.add(b_now, b_strides[0]),
                *new,
            ]
            for phi, enter, follow in zip(phis, entering, following, strict=True):
                phi.add_incoming(enter, before)
                phi.add_incoming(follow, body)
            builder.cbranch(builder.icmp_signed("<", following[0], arguments[9]), body, after)
            builder.position_at_end(after)
            for r in range(ROWS):
                builder.store(new[r], at.pointer(out_at, out_strides[0], r, vector), align=size)
            return context.get_dummy_value()

        return types.void(out, oi, oj, a, ai, aj, b, bi, bj, depth), generate

    return tile


def _transposition() -> Callable[..., None]:
    """The transpose of one tile, by shuffles."""

    @intrinsic
    def tile(context: Any, out: Any, oi: Any, oj: Any, a: Any, ai: Any, aj: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            scalar = context.get_value_type(out.dtype)
            size, lane = context.get_abi_sizeof(scalar), ir.IntType(32)
            wide, narrow = ir.VectorType(scalar, COLUMNS), ir.VectorType(scalar, ROWS)
            at = _Addresses(context, builder, signature, arguments)
            (out_at, out_strides), (a_at, a_strides) = at.corner(0), at.corner(3)

            def shuffle(left: Any, right: Any, lanes: list[int]) -> Any:
                return builder.shuffle_vector(left, right, ir.Constant(ir.VectorType(lane, len(lanes)), lanes))

            rows = [builder.load(at.pointer(a_at, a_strides[0], r, wide), align=size) for r in range(ROWS)]
            pairs = [n for c in range(COLUMNS) for n in (c, c + COLUMNS)]
            top, bottom = shuffle(rows[0], rows[1], pairs), shuffle(rows[2], rows[3], pairs)
            for c in range(COLUMNS):
                column = shuffle(top, bottom, [2 * c, 2 * c + 1, 2 * (c + COLUMNS), 2 * (c + COLUMNS) + 1])
                builder.store(column, at.pointer(out_at, out_strides[0], c, narrow), align=size)
            return context.get_dummy_value()

        return types.void(out, oi, oj, a, ai, aj), generate

    return tile


# multiply(out, oi, oj, a, ai, aj, b, bi, bj, depth), for a tile of 2-D arrays; the rows of b and out are contiguous:
# out[oi:+ROWS, oj:+COLUMNS] (+)= a[ai:+ROWS, aj:+depth] @ b[bi:+depth, bj:+COLUMNS].
multiply = _tile(accumulate=False)
multiply_add = _tile(accumulate=True)
# transpose(out, oi, oj, a, ai, aj): out[oi:+COLUMNS, oj:+ROWS] = a[ai:+ROWS, aj:+COLUMNS]ᵀ.
transpose = _transposition()


@compiled
def _fans(theta: np.ndarray, inputs: int, layer: int) -> tuple[int, int]:
    """The padded fan in and fan out of a layer."""
    hidden = theta.shape[2] - COLUMNS
    return (inputs if layer == 0 else hidden), (COLUMNS if layer == theta.shape[0] - 1 else hidden)


@compiled
def _forward(theta: np.ndarray, inputs: int, units: np.ndarray, depth: int) -> None:
    """units[0] (batch×columns) through the first `depth` layers; the output of layer l goes to units[l+1]."""
    last = theta.shape[0] - 1
    for layer in range(depth):
        fan_in, fan_out = _fans(theta, inputs, layer)
        before, after, matrix = units[layer], units[layer + 1], theta[layer]
        bias = matrix[matrix.shape[0] - 1]
        for o in range(0, fan_out, COLUMNS):
            for p in range(0, after.shape[0], ROWS):
                multiply(after, p, o, before, p, 0, matrix, 0, o, fan_in)
            for p in range(after.shape[0]):
                for c in range(o, o + COLUMNS):
                    value = after[p, c] + bias[c]
                    after[p, c] = 0 if layer != last and value < 0 else value  # a NaN goes through


@compiled
def _turn(out: np.ndarray, matrix: np.ndarray, rows: int, columns: int) -> None:
    """out[:columns, :rows] = the transpose of matrix[:rows, :columns]."""
    for i in range(0, rows, ROWS):
        for j in range(0, columns, COLUMNS):
            transpose(out, j, i, matrix, i, j)


@compiled
def _masked_turn(out: np.ndarray, matrix: np.ndarray, units: np.ndarray, columns: int) -> None:
    """The transpose of matrix (columns×batch) into out (batch×columns), zero where a ReLU was closed."""
    _turn(out, matrix, columns, out.shape[0])
    for p in range(out.shape[0]):
        for c in range(columns):
            out[p, c] = out[p, c] if units[p, c] > 0 else 0


@compiled
def _backward(
    theta: np.ndarray, inputs: int, units: np.ndarray, deltas: np.ndarray, layer: int, turned: np.ndarray
) -> None:
    """The loss's gradient at the sums of a layer, deltas[layer] (batch×columns), to those of the layer below it."""
    fan_in, fan_out = _fans(theta, inputs, layer)
    matrix, batch = theta[layer], deltas.shape[1]
    _turn(turned[0], deltas[layer], batch, fan_out)
    for i in range(0, fan_in, ROWS):
        for p in range(0, batch, COLUMNS):
            multiply(turned[1], i, p, matrix, i, 0, turned[0], 0, p, fan_out)
    _masked_turn(deltas[layer - 1], turned[1], units[layer], fan_in)


@compiled
def _error(units: np.ndarray, delta: np.ndarray, image: np.ndarray, batch: np.ndarray) -> float:
    """The loss of a mini-batch, and its gradient at the output (batch×columns)."""
    loss = image[0, 0] * 0
    scale = 1 / image.dtype.type(len(batch))
    for p in range(len(batch)):
        for c in range(3):
            error = units[p, c] - image[batch[p], c]
            loss += error * error
            delta[p, c] = (error + error) * scale
    return loss * scale


@compiled
def _bias_gradient(out: np.ndarray, delta: np.ndarray, batch: int, fan_out: int) -> None:
    out[:fan_out] = 0
    for p in range(batch):
        for c in range(fan_out):
            out[c] += delta[p, c]


@compiled
def _adam(
    theta: np.ndarray, first: np.ndarray, second: np.ndarray, gradient: np.ndarray, count: int, rate: np.ndarray
) -> None:
    """One Adam step on the first `count` numbers of a row. `rate` is a row of `_rates`."""
    step, correct1, correct2, keep1, new1, keep2, new2, epsilon = rate
    for c in range(count):
        g = gradient[c]
        m = keep1 * first[c] + new1 * g
        v = keep2 * second[c] + new2 * g * g
        first[c] = m
        second[c] = v
        theta[c] -= step * (m * correct1) / (np.sqrt(v * correct2) + epsilon)


@compiled
def _step(
    state: np.ndarray,
    gradient: np.ndarray,
    units: np.ndarray,
    deltas: np.ndarray,
    turned: np.ndarray,
    encoding: np.ndarray,
    image: np.ndarray,
    batch: np.ndarray,
    rate: np.ndarray,
) -> float:
    """One step of the fit on `state` (θ and Adam's two moments: 3×(L+1)×(rows+1)×columns); gives the loss before it.

    `gradient` either has the shape of θ, and keeps the whole gradient, or only room for a tile's rows.
    """
    theta, first, second = state[0], state[1], state[2]
    inputs, bias_row = encoding.shape[1], theta.shape[1] - 1
    for p in range(len(batch)):
        units[0, p, :inputs] = encoding[batch[p]]
    _forward(theta, inputs, units, theta.shape[0])
    loss = _error(units[theta.shape[0]], deltas[theta.shape[0] - 1], image, batch)
    keep = gradient.shape[1] == theta.shape[1]
    for layer in range(theta.shape[0] - 1, -1, -1):
        fan_in, fan_out = _fans(theta, inputs, layer)
        if layer > 0:
            _backward(theta, inputs, units, deltas, layer, turned)
        slopes = gradient[layer if keep else 0]
        before, delta = units[layer].T, deltas[layer]
        for i in range(0, fan_in, ROWS):
            row = i if keep else 0
            for o in range(0, fan_out, COLUMNS):
                multiply(slopes, row, o, before, i, 0, delta, 0, o, len(batch))
            for r in range(ROWS):
                _adam(theta[layer, i + r], first[layer, i + r], second[layer, i + r], slopes[row + r], fan_out, rate)
        slope = slopes[slopes.shape[0] - 1]
        _bias_gradient(slope, delta, len(batch), fan_out)
        _adam(theta[layer, bias_row], first[layer, bias_row], second[layer, bias_row], slope, fan_out, rate)
    return loss


@compiled
def _evaluate(theta: np.ndarray, units: np.ndarray, encoding: np.ndarray, layer: int, out: np.ndarray) -> None:
    """What layer `layer` gives for every pixel, into out (pixels×channels)."""
    for start in range(0, len(encoding), units.shape[1]):
        count = min(units.shape[1], len(encoding) - start)
        units[0, :count, : encoding.shape[1]] = encoding[start : start + count]
        _forward(theta, encoding.shape[1], units, layer + 1)
        out[start : start + count] = units[layer + 1, :count, : out.shape[1]]


@compiled
def _fit(
    state: np.ndarray,
    checkpoints: np.ndarray,
    units: np.ndarray,
    deltas: np.ndarray,
    turned: np.ndarray,
    encoding: np.ndarray,
    image: np.ndarray,
    order: np.ndarray,
    rates: np.ndarray,
    losses: np.ndarray,
) -> None:
    """The whole fit of one image (pixels×3), with a copy of `state` where an epoch begins, if it is asked for."""
    scratch = np.empty((1, ROWS + 1, state.shape[3]), state.dtype)
    for step in range(len(order)):
        if len(checkpoints) and step % (len(order) // len(checkpoints)) == 0:
            checkpoints[step // (len(order) // len(checkpoints))] = state
        losses[step] = _step(state, scratch, units, deltas, turned, encoding, image, order[step], rates[step])


@compiled
def _adam_adjoint(
    to_theta: np.ndarray,
    to_m: np.ndarray,
    to_v: np.ndarray,
    m: np.ndarray,
    v: np.ndarray,
    gradient: np.ndarray,
    count: int,
    rate: np.ndarray,
    scratch: np.ndarray,
) -> None:
    """Backwards through `_adam` on the first `count` numbers of a row, in place.

    `to_theta`, `to_m` and `to_v` are the derivatives of what we differentiate with respect to (θ, m, v) after the
    step; the last two become those before the step. m and v are the moments after the step; `gradient` is turned into
    the derivative with respect to itself. A second moment of zero means that the gradient has been zero all along;
    its number does not move, and nothing flows back through it.

    Four loops, because a compiler only vectorises one over few arrays: any two might overlap.
    """
    step, correct1, correct2, keep1, new1, keep2, new2, epsilon = rate
    pull, bend = scratch[0], scratch[1]
    for c in range(count):
        root = np.sqrt(v[c] * correct2)
        inverse = 1 / (root + epsilon)
        pull[c] = step * correct1 * to_theta[c] * inverse
        bend[c] = inverse * correct2 / (root + root) if root > 0 else 0
    for c in range(count):
        to_v[c] += pull[c] * m[c] * bend[c]
    for c in range(count):
        bar = to_m[c] - pull[c]
        to_m[c] = keep1 * bar
        gradient[c] = new1 * bar + 2 * new2 * gradient[c] * to_v[c]
    for c in range(count):
        to_v[c] *= keep2


@compiled
def _update_adjoint(adjoint: np.ndarray, kept: np.ndarray, inputs: int, rate: np.ndarray, scratch: np.ndarray) -> None:
    """Backwards through a step's update of every layer. adjoint: 3×…; kept: an entry of the tape."""
    bias_row = adjoint.shape[2] - 1
    for layer in range(adjoint.shape[1]):
        fan_in, fan_out = _fans(adjoint[0], inputs, layer)
        for i in range(fan_in + 1):
            row = i if i < fan_in else bias_row
            _adam_adjoint(
                adjoint[0, layer, row], adjoint[1, layer, row], adjoint[2, layer, row],
                kept[2, layer, row], kept[3, layer, row], kept[0, layer, row], fan_out, rate, scratch,
            )  # fmt: skip


@compiled
def _add_outer(out: np.ndarray, left: np.ndarray, right: np.ndarray, count: int, fan_in: int, fan_out: int) -> None:
    """out (rows×columns) += leftᵀ (fan in × count) @ right (count × fan out)."""
    for i in range(0, fan_in, ROWS):
        for o in range(0, fan_out, COLUMNS):
            multiply_add(out, i, o, left.T, i, 0, right, 0, o, count)


@compiled
def _curvature(
    out: np.ndarray,
    theta: np.ndarray,
    direction: np.ndarray,
    units: np.ndarray,
    deltas: np.ndarray,
    r_units: np.ndarray,
    r_deltas: np.ndarray,
    turned: np.ndarray,
    inputs: int,
    batch: np.ndarray,
    image_adjoint: np.ndarray,
) -> None:
    """out += (the Hessian of a mini-batch's loss) · direction, and what `direction` means for the image's pixels.

    Pearlmutter's R-operator: `r_units` and `r_deltas` are the derivatives of `units` and `deltas` along `direction`.
    """
    last, bias_row = theta.shape[0] - 1, theta.shape[1] - 1
    for layer in range(last + 1):
        fan_in, fan_out = _fans(theta, inputs, layer)
        after = r_units[layer + 1]
        for o in range(0, fan_out, COLUMNS):
            for p in range(0, after.shape[0], ROWS):
                multiply(after, p, o, units[layer], p, 0, direction[layer], 0, o, fan_in)
                if layer > 0:
                    multiply_add(after, p, o, r_units[layer], p, 0, theta[layer], 0, o, fan_in)
            for p in range(after.shape[0]):
                for c in range(o, o + COLUMNS):
                    value = after[p, c] + direction[layer, bias_row, c]
                    after[p, c] = value if layer == last or units[layer + 1, p, c] > 0 else 0
    scale = 2 / theta.dtype.type(len(batch))
    for p in range(len(batch)):
        for c in range(3):
            change = scale * r_units[last + 1, p, c]
            r_deltas[last, p, c] = change
            image_adjoint[batch[p], c] -= change
    for layer in range(last, -1, -1):
        fan_in, fan_out = _fans(theta, inputs, layer)
        if layer > 0:
            _turn(turned[0], r_deltas[layer], r_deltas.shape[1], fan_out)
            _turn(turned[2], deltas[layer], deltas.shape[1], fan_out)
            for i in range(0, fan_in, ROWS):
                for p in range(0, deltas.shape[1], COLUMNS):
                    multiply(turned[1], i, p, theta[layer], i, 0, turned[0], 0, p, fan_out)
                    multiply_add(turned[1], i, p, direction[layer], i, 0, turned[2], 0, p, fan_out)
            _masked_turn(r_deltas[layer - 1], turned[1], units[layer], fan_in)
            _add_outer(out[layer], r_units[layer], deltas[layer], len(batch), fan_in, fan_out)
        _add_outer(out[layer], units[layer], r_deltas[layer], len(batch), fan_in, fan_out)
        for p in range(len(batch)):
            for c in range(fan_out):
                out[layer, bias_row, c] += r_deltas[layer, p, c]


@compiled
def _evaluate_adjoint(
    out: np.ndarray,
    theta: np.ndarray,
    units: np.ndarray,
    deltas: np.ndarray,
    turned: np.ndarray,
    encoding: np.ndarray,
    layer: int,
    upstream: np.ndarray,
) -> None:
    """out += the derivative with respect to θ of the sum of upstream (pixels×channels) times what `layer` gives."""
    inputs, bias_row = encoding.shape[1], theta.shape[1] - 1
    for start in range(0, len(encoding), units.shape[1]):
        count = min(units.shape[1], len(encoding) - start)
        units[0, :count, :inputs] = encoding[start : start + count]
        _forward(theta, inputs, units, layer + 1)
        deltas[layer] = 0
        for p in range(count):
            for c in range(upstream.shape[1]):
                if layer == theta.shape[0] - 1 or units[layer + 1, p, c] > 0:
                    deltas[layer, p, c] = upstream[start + p, c]
        for below in range(layer, -1, -1):
            fan_in, fan_out = _fans(theta, inputs, below)
            if below > 0:
                _backward(theta, inputs, units, deltas, below, turned)
            _add_outer(out[below], units[below], deltas[below], count, fan_in, fan_out)
            for p in range(count):
                for c in range(fan_out):
                    out[below, bias_row, c] += deltas[below, p, c]


@compiled
def _fit_adjoint(
    state: np.ndarray,
    checkpoints: np.ndarray,
    tape: np.ndarray,
    tape_units: np.ndarray,
    tape_deltas: np.ndarray,
    r_units: np.ndarray,
    r_deltas: np.ndarray,
    turned: np.ndarray,
    encoding: np.ndarray,
    image: np.ndarray,
    order: np.ndarray,
    rates: np.ndarray,
    layer: int,
    upstream: np.ndarray,
    image_adjoint: np.ndarray,
) -> None:
    """Backwards through evaluation and fit of one image; adds to image_adjoint (pixels×3).

    `state` comes in fitted, with its `checkpoints` (epochs×3×…). An epoch's steps are done again from its checkpoint
    and kept on the tape (steps of an epoch × (gradient, θ before, m after, v after) × …), then walked back.
    """
    adjoint = np.zeros_like(state)
    _evaluate_adjoint(adjoint[0], state[0], r_units, r_deltas, turned, encoding, layer, upstream)
    r_units[:], r_deltas[:] = 0, 0
    scratch = np.empty((2, state.shape[3]), state.dtype)
    length = len(tape)
    for epoch in range(len(checkpoints) - 1, -1, -1):
        state[:] = checkpoints[epoch]
        for step in range(length):
            now = epoch * length + step
            tape[step, 1] = state[0]
            _step(
                state,
                tape[step, 0],
                tape_units[step],
                tape_deltas[step],
                turned,
                encoding,
                image,
                order[now],
                rates[now],
            )
            tape[step, 2:] = state[1:]
        for step in range(length - 1, -1, -1):
            now = epoch * length + step
            kept = tape[step]
            _update_adjoint(adjoint, kept, encoding.shape[1], rates[now], scratch)
            _curvature(
                adjoint[0], kept[1], kept[0], tape_units[step], tape_deltas[step], r_units, r_deltas, turned,
                encoding.shape[1], order[now], image_adjoint,
            )  # fmt: skip


def _round_up(number: int, multiple: int) -> int:
    return -(-number // multiple) * multiple


def _zeros(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """A zeroed array that begins with a cache line."""
    size = math.prod(shape)
    memory = np.zeros(size + 64 // dtype.itemsize, dtype)
    skip = -memory.ctypes.data % 64 // dtype.itemsize
    return memory[skip : skip + size].reshape(shape)


class CpuFitter:
    """Fits images one by one, as many at a time as there are threads; float32, or float64 for tests."""

    def __init__(self, plan: Plan, config: LinacConfig, threads: int, dtype: type = np.float32) -> None:
        self._config, self._threads, self._dtype = config, threads, np.dtype(dtype)
        self._encoding: np.ndarray = plan.encoding.astype(dtype)
        self._order = plan.order
        constants = [BETA1, 1 - BETA1, BETA2, 1 - BETA2, EPSILON]
        self._rates: np.ndarray = np.concatenate([plan.rates, np.tile(constants, (len(plan.rates), 1))], 1).astype(
            dtype
        )
        hidden = _round_up(config.width, COLUMNS)
        rows = max(hidden, self._encoding.shape[1])
        self._theta = _zeros((config.layers + 1, rows + 1, hidden + COLUMNS), self._dtype)
        for layer, matrix in enumerate(plan.weights):
            self._theta[layer, : matrix.shape[0], : matrix.shape[1]] = matrix

    def fit(self, images: np.ndarray, layers: Sequence[int]) -> tuple[list[np.ndarray], np.ndarray]:
        """Standardised images (B×H×W×3): what each of `layers` gives (B×H×W×channels), and losses (B×steps)."""
        outputs = [self._empty(images, layer) for layer in layers]
        losses = np.empty((len(images), len(self._order)), self._dtype)

        def one(index: int) -> None:
            state, units, deltas, turned = self._buffers()
            none = np.empty((0, *state.shape), self._dtype)
            image = self._flat(images[index])
            _fit(state, none, units, deltas, turned, self._encoding, image, self._order, self._rates, losses[index])
            for layer, out in zip(layers, outputs, strict=True):
                _evaluate(state[0], units, self._encoding, layer, out[index].reshape(len(image), -1))

        self._each(one, len(images))
        return outputs, losses

    def gradient(self, images: np.ndarray, layer: int, upstream: np.ndarray) -> np.ndarray:
        """The derivative of the sum of upstream (B×H×W×channels) times `fit`'s output at `layer`, like images.

        Needs (4·steps an epoch + 3·epochs) copies of the network in memory for every thread, whatever B.
        """
        out = np.zeros(images.shape, self._dtype)
        epochs, steps = self._config.epochs, len(self._order) // self._config.epochs

        def one(index: int) -> None:
            state, units, deltas, turned = self._buffers()
            checkpoints = _zeros((epochs, *state.shape), self._dtype)
            tape = _zeros((steps, 4, *state.shape[1:]), self._dtype)
            tape_units, tape_deltas = (_zeros((steps, *part.shape), self._dtype) for part in (units, deltas))
            image = self._flat(images[index])
            losses = np.empty(len(self._order), self._dtype)
            _fit(state, checkpoints, units, deltas, turned, self._encoding, image, self._order, self._rates, losses)
            _fit_adjoint(
                state, checkpoints, tape, tape_units, tape_deltas, units, deltas, turned, self._encoding, image,
                self._order, self._rates, layer, self._flat(upstream[index]), out[index].reshape(len(image), 3),
            )  # fmt: skip

        self._each(one, len(images))
        return out

    def _empty(self, images: np.ndarray, layer: int) -> np.ndarray:
        channels = 3 if layer == self._config.layers else self._config.width
        return np.empty((*images.shape[:3], channels), self._dtype)

    def _flat(self, image: np.ndarray) -> np.ndarray:
        """H×W×C as pixels×C."""
        return np.ascontiguousarray(image, self._dtype).reshape(-1, image.shape[-1])

    def _buffers(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """A thread's state at step 0, and its work space: units, deltas, and transposed deltas."""
        state = _zeros((3, *self._theta.shape), self._dtype)
        state[0] = self._theta
        layers, _, columns = self._theta.shape
        batch = _round_up(self._config.batch_pixels, COLUMNS)
        # The encoding may be wider than a hidden layer.
        columns = max(columns, _round_up(self._encoding.shape[1], COLUMNS))
        units = _zeros((layers + 1, batch, columns), self._dtype)
        deltas = _zeros((layers, batch, columns), self._dtype)
        return state, units, deltas, _zeros((3, columns, batch), self._dtype)

    def _each(self, one: Callable[[int], None], count: int) -> None:
        if count == 1 or self._threads == 1:
            for index in range(count):
                one(index)
        else:
            # A pool a call: threads do not survive a fork, and starting them takes less than a thousandth of a fit.
            with ThreadPoolExecutor(self._threads) as pool:
                list(pool.map(one, range(count)))
