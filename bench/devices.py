"""How TensorFlow uses this machine; called once, before the first computation of a process."""

from __future__ import annotations

import os


def configure() -> None:
    """One thread an operation and as many operations at once as there are cores; GPU memory grows as needed.

    Images go through a network one by one, side by side (`bench.api.each_image`): threads inside an operation would
    only get in their way, and would make rounding depend on the number of cores.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(os.cpu_count() or 1)
    for gpu in tf.config.list_physical_devices("GPU"):
        tf.config.experimental.set_memory_growth(gpu, True)


def describe() -> str:
    """The device in a few words, for the record of a run."""
    import tensorflow as tf

    gpus = [tf.config.experimental.get_device_details(g).get("device_name", g.name) for g in tf.config.list_physical_devices("GPU")]
    return ", ".join(gpus) or f"CPU, {os.cpu_count()} cores"
