"""LINAC's transform, ours against the same algorithm in JAX, in one process: images per second, gradient, memory.

    pip install -e '.[benchmark]'
    python -m benchmarks.linac                       # all of it
    python -m benchmarks.linac --batches 4 --widths 256 --repeats 5

The two take turns, and each keeps its best time: other load on the machine then hurts both alike. The time
of the CPU is given too: load hardly changes it.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial

import numpy as np

from bench.support import devices

KEY = -2314326399425823309


def best(functions: list[Callable[[], object]], repeats: int) -> list[tuple[float, float]]:
    """The shortest time of each function over rounds in which each runs once: seconds, and seconds of CPU."""
    times: list[list[tuple[float, float]]] = [[] for _ in functions]
    for _ in range(repeats):
        for function, found in zip(functions, times, strict=True):
            began, cpu_began = time.perf_counter(), time.process_time()
            function()
            found.append((time.perf_counter() - began, time.process_time() - cpu_began))
    return [(min(wall for wall, _ in found), min(cpu for _, cpu in found)) for found in times]


def flops(width: int, pixels: int = 1024, steps: int = 320, batch: int = 32) -> float:
    """Floating-point operations in the matrix products of fitting one image with five hidden layers, and K = 2."""
    hidden = 4 * width * width + 3 * width
    per_step = 2 * batch * (2 * (20 * width + hidden) + hidden)
    return steps * per_step + 2 * pixels * (20 * width + 2 * width * width)


def sgemm_peak() -> float:
    """What the machine's BLAS reaches on a large square product, in FLOP/s."""
    a = np.random.default_rng(0).normal(size=(2048, 2048)).astype(np.float32)
    return 2 * 2048**3 / best([lambda: a @ a], 10)[0][0]


def peak_memory(what: str) -> None:
    """Prints the peak resident memory of a fresh process that does `what`, and of one that only imports (Linux)."""
    prepare = (
        "import numpy as np\nfrom bench.support import devices\ndevices.configure()\nimport tensorflow as tf\n"
        "from defences import linac, linac_cpu\nimages = np.random.default_rng(0).random((64, 32, 32, 3), np.float32)\n"
    )
    report = "\nprint(open('/proc/self/status').read().split('VmHWM:')[1].split()[0])"
    runs = [
        subprocess.run([sys.executable, "-c", prepare + code + report], capture_output=True, text=True, check=True)
        for code in ("", what)
    ]
    used, idle = (int(run.stdout.split()[-1]) / 2**20 for run in reversed(runs))
    print(f"  {used:.2f} GiB in all, {idle:.2f} GiB of it before the first image")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 4, 16, 64])
    parser.add_argument("--widths", type=int, nargs="+", default=[256, 64])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--skip-gradient", action="store_true")
    parser.add_argument("--profile", action="store_true", help="only the parts of one step of ours")
    parser.add_argument("--tensorflow", action="store_true", help="only ours against our TensorFlow and XLA path")
    options = parser.parse_args()
    devices.configure()
    if options.profile:
        return profile(options.widths)
    if options.tensorflow:
        return against_tensorflow(options.widths, options.batches, options.repeats)

    from benchmarks.linac_jax import transform
    from defences import linac, threefry

    images = np.random.default_rng(0).normal(size=(64, 32, 32, 3)).astype(np.float32)
    peak = sgemm_peak()
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, sgemm peak {peak / 1e9:.0f} GFLOP/s")
    for width in options.widths:
        config = linac.LinacConfig(width=width)
        fitter = linac._fitter((1, 32, 32, 3), KEY, config)
        began = time.perf_counter()
        fitter.fit(images[:1], [2])
        print(f"width {width}: first call of ours {time.perf_counter() - began:.1f} s")
        theirs = transform(32, 32, threefry.key_words(KEY), hidden=width)
        for batch in options.batches:
            part = images[:batch]
            began = time.perf_counter()
            theirs(part)[0].block_until_ready()
            first = time.perf_counter() - began
            ours, jax = best(
                [partial(fitter.fit, part, [2]), lambda part=part, f=theirs: f(part)[0].block_until_ready()],
                options.repeats,
            )
            share = flops(width) * batch / ours[0] / peak
            print(
                f"  batch {batch:3}: ours {batch / ours[0]:6.2f} images/s ({share:4.0%} of sgemm peak), "
                f"JAX {batch / jax[0]:6.2f} (first call {first:.1f} s): {jax[0] / ours[0]:.2f} ×; a second of CPU: "
                f"ours {batch / ours[1]:5.2f} images, JAX {batch / jax[1]:5.2f}: {jax[1] / ours[1]:.2f} ×",
                flush=True,
            )
    if not options.skip_gradient:
        gradient()
        print("peak memory, a batch of 64 at paper settings")
        peak_memory(f"linac._fitter(images.shape, {KEY}, linac.LinacConfig()).fit(images, [2])")
        print("peak memory, forward and backward of 32 images at H = 64")
        peak_memory(
            f"images = images[:32]\nfitter = linac._fitter(images.shape, {KEY}, linac.LinacConfig(width=64))\n"
            "fitter.gradient(images, 2, fitter.fit(images, [2])[0][0])"
        )


def profile(widths: list[int]) -> None:
    """The shortest time of each part of one step, on one core, in µs and GFLOP/s."""
    from defences import linac, linac_cpu

    image = np.random.default_rng(0).normal(size=(1024, 3)).astype(np.float32)
    for width in widths:
        fitter = linac._fitter((1, 32, 32, 3), KEY, linac.LinacConfig(width=width))
        assert isinstance(fitter, linac_cpu.CpuFitter)
        state, units, deltas, turned = fitter._buffers()
        scratch = np.zeros((1, linac_cpu.ROWS + 1, state.shape[3]), np.float32)
        step = (state, scratch, units, deltas, turned, fitter._encoding, image, fitter._order[0], fitter._rates[0])
        layer = 2 * 32 * width * width
        parts: dict[str, tuple[Callable[[], object], float]] = {
            "forward, all layers": (partial(linac_cpu._forward, state[0], 20, units, 6), 4 * layer),
            "backward, a hidden layer": (partial(linac_cpu._backward, state[0], 20, units, deltas, 2, turned), layer),
            "its transposition": (partial(linac_cpu._turn, turned[0], deltas[2], 32, width), 0),
            "numpy's BLAS, forward": (partial(np.matmul, units[1, :, :width], state[0, 1, :width, :width]), layer),
            "numpy's BLAS, backward": (partial(np.matmul, deltas[1, :, :width], state[0, 1, :width, :width].T), layer),
            "numpy's BLAS, gradient": (partial(np.matmul, units[1, :, :width].T, deltas[1, :, :width]), layer),
            "the whole step": (partial(linac_cpu._step, *step), 12 * layer),
        }
        print(f"width {width}, products of the hidden layers only")
        for name, (function, work) in parts.items():
            function()
            seconds = best([function], 500)[0][0]
            print(f"  {name:26} {seconds * 1e6:7.1f} µs {work / seconds / 1e9:6.1f} GFLOP/s")


def against_tensorflow(widths: list[int], batches: list[int], repeats: int) -> None:
    """Ours on the CPU against the path for GPUs on the same CPU, with all threads it wants."""
    from defences import linac, linac_plan, linac_tensorflow

    images = np.random.default_rng(0).normal(size=(max(batches), 32, 32, 3)).astype(np.float32)
    for width in widths:
        config = linac.LinacConfig(width=width)
        ours = linac._fitter((1, 32, 32, 3), KEY, config)
        theirs = linac_tensorflow.TensorFlowFitter(linac_plan.make(KEY, config, 32, 32), config)
        for batch in batches:
            theirs.fit_bucket = batch
            part = images[:batch]
            began = time.perf_counter()
            theirs.fit(part, [2])
            first = time.perf_counter() - began
            ours.fit(part[:1], [2])
            (wall, cpu), (wall_tf, cpu_tf) = best([partial(f.fit, part, [2]) for f in (ours, theirs)], repeats)
            print(
                f"width {width}, batch {batch:3}: ours {batch / wall:6.2f} images/s, XLA {batch / wall_tf:6.2f} (first "
                f"call {first:.1f} s): {wall_tf / wall:.2f} ×; a second of CPU: {batch / cpu:5.2f} and "
                f"{batch / cpu_tf:5.2f}: {cpu_tf / cpu:.2f} ×",
                flush=True,
            )


def gradient() -> None:
    """Forward and backward through the defence on a tape, in a graph: 32 images at H = 64."""
    import tensorflow as tf

    from defences.linac import Linac, LinacConfig

    defence = Linac(LinacConfig(width=64))
    images = tf.random.stateless_uniform((32, 32, 32, 3), (0, 0))

    @tf.function(input_signature=[tf.TensorSpec((None, 32, 32, 3))])
    def slope(x: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            tape.watch(x)
            value = tf.reduce_sum(defence.transform(x, KEY, {}))
        return tape.gradient(value, x)

    began = time.perf_counter()
    slope(images[:1])
    print(f"gradient, width 64: first call {time.perf_counter() - began:.1f} s")
    wall, cpu = best([lambda: slope(images)], 3)[0]
    print(f"  32 images, forward and backward: {32 / wall:.1f} images/s, {32 / cpu:.1f} per second of CPU")


if __name__ == "__main__":
    main()
