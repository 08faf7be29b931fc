"""Runs a command at another vector width than the processor's widest, for other widths round otherwise:

    python tools/vector_widths.py avx2 python -m pytest tests/defences
    python tools/vector_widths.py                          # says which widths this processor has

`make widths` runs the numerical tests at every width that there is. What computes here, and what keeps it to AVX2:

    numpy's functions         NPY_DISABLE_CPU_FEATURES, by the names that the installed numpy has
    numpy's matrix products   OPENBLAS_CORETYPE
    numba                     NUMBA_CPU_NAME, NUMBA_CPU_FEATURES
    TensorFlow's products     ONEDNN_MAX_CPU_ISA (the rest of its kernels is compiled for one width)
    XLA                       XLA_FLAGS=--xla_cpu_max_isa
"""

from __future__ import annotations

import os
import sys

from numpy._core import _multiarray_umath as numpy_core  # type: ignore[attr-defined]

WIDTHS = ("avx2", "avx512")


def available() -> list[str]:
    """The widths that this processor has, of those that tests are run at."""
    features = numpy_core.__cpu_features__
    return [width for width, feature in zip(WIDTHS, ("AVX2", "AVX512F"), strict=True) if features[feature]]


def settings(width: str) -> dict[str, str]:
    """The environment variables that keep everything to a width; none for the widest."""
    if width == "avx512":
        return {}
    wider = [name for name in numpy_core.__cpu_dispatch__ if name.startswith("AVX512") or name == "X86_V4"]
    there = [name for name in wider if numpy_core.__cpu_features__[name]]
    return {
        "NPY_DISABLE_CPU_FEATURES": " ".join(there),
        "OPENBLAS_CORETYPE": "Haswell",
        "NUMBA_CPU_NAME": "haswell",
        "NUMBA_CPU_FEATURES": "",
        "ONEDNN_MAX_CPU_ISA": "AVX2",
        "XLA_FLAGS": f"{os.environ.get('XLA_FLAGS', '')} --xla_cpu_max_isa=AVX2".strip(),
    }


def main() -> None:
    if len(sys.argv) == 1:
        print(" ".join(available()))
        return
    width, *command = sys.argv[1:]
    if width not in available() or not command:
        sys.exit(f"usage: vector_widths.py WIDTH COMMAND…; this processor has the widths {', '.join(available())}")
    os.environ.update(settings(width))
    os.execvp(command[0], command)


if __name__ == "__main__":
    main()
