"""How TensorFlow uses this machine; called once, before the first computation of a process."""

from __future__ import annotations

import os


def quiet() -> None:
    """No chatter from TensorFlow's C++ side, such as a line about every missing GPU library; before its first import."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")


def configure() -> None:
    """One thread an operation and as many operations at once as there are cores; GPU memory grows as needed.

    Images go through a network one by one, side by side (`bench.api.each_image`): threads inside an operation would
    only get in their way, and would make rounding depend on the number of cores.
    """
    quiet()
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(os.cpu_count() or 1)
    for gpu in tf.config.list_physical_devices("GPU"):
        tf.config.experimental.set_memory_growth(gpu, True)


def describe() -> str:
    """The device in a few words, for the record of a run."""
    import tensorflow as tf

    details = [tf.config.experimental.get_device_details(gpu) for gpu in tf.config.list_physical_devices("GPU")]
    return ", ".join(str(detail.get("device_name", "GPU")) for detail in details) or f"CPU, {os.cpu_count()} cores"
