"""How TensorFlow uses this machine; called once, before the first computation of a process."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any


def tensorflow(training: bool = False) -> Any:
    """TensorFlow, imported without its chatter about GPU libraries that a machine without a GPU does not have.

    Its oneDNN kernels are made for batches: training is faster with them, and images that go through a network one by
    one, as attacks and the referee put them, are slower (docs/performance.md). The choice is made at the first import.
    """
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1" if training else "0")
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    with _stderr_closed():
        import tensorflow as tf

        tf.config.list_physical_devices()
    tf.get_logger().setLevel("ERROR")  # advice on how often functions are traced is nothing to a user
    return tf


@contextlib.contextmanager
def _stderr_closed() -> Iterator[None]:
    """What C++ code prints meanwhile is lost; errors are Python exceptions and come through."""
    if os.environ["TF_CPP_MIN_LOG_LEVEL"] < "3":
        yield
        return
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)


def configure(threads: int | None = None, training: bool = False) -> None:
    """One thread an operation and `threads` operations at once (as many as there are cores); GPU memory grows as needed.

    Images go through a network one by one, side by side (`bench.api.each_image`): threads inside an operation would
    only get in their way, and would make rounding depend on the number of cores. Where TensorFlow has computed something
    before, as in a notebook, it keeps the threads and the memory that it has.
    """
    tf = tensorflow(training)
    with contextlib.suppress(RuntimeError):
        tf.config.threading.set_intra_op_parallelism_threads(1)
        tf.config.threading.set_inter_op_parallelism_threads(threads or os.cpu_count() or 1)
        for gpu in tf.config.list_physical_devices("GPU"):
            tf.config.experimental.set_memory_growth(gpu, True)


def describe() -> str:
    """The device in a few words, for the record of a run."""
    tf = tensorflow()
    details = [tf.config.experimental.get_device_details(gpu) for gpu in tf.config.list_physical_devices("GPU")]
    return ", ".join(str(detail.get("device_name", "GPU")) for detail in details) or f"CPU, {os.cpu_count()} cores"
