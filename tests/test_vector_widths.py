"""The switches by which tests are run at another vector width (`make widths`) do what they say."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.processes import run
from tools import vector_widths

TOOL = Path(vector_widths.__file__)
LOOK = """
import numpy as np, numba
@numba.njit(fastmath=True)
def total(values):
    found = np.float32(0)
    for value in values:
        found += value * value
    return found
total(np.ones(1000, np.float32))
(code,) = total.inspect_asm().values()
core = np._core._multiarray_umath
wide = [name for name in core.__cpu_dispatch__ if name.startswith("AVX512") or name == "X86_V4"]
print(any(core.__cpu_features__[name] for name in wide), "zmm" in code, "ymm" in code)
"""


@pytest.mark.needs_process
def test_nothing_wider_than_the_width_is_used() -> None:
    if "NPY_DISABLE_CPU_FEATURES" in os.environ:
        pytest.skip("these tests are kept to a width themselves")
    if "avx512" not in vector_widths.available():
        pytest.skip("this processor has no AVX-512")
    seen = [
        run([sys.executable, TOOL, width, sys.executable, "-c", LOOK], check=True).stdout
        for width in ("avx2", "avx512")
    ]
    assert seen == ["False False True\n", "True True True\n"]


def test_every_library_is_kept_to_the_width(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XLA_FLAGS", "--xla_other=1")
    chosen = vector_widths.settings("avx2")
    assert chosen["XLA_FLAGS"] == "--xla_other=1 --xla_cpu_max_isa=AVX2"
    assert (chosen["NUMBA_CPU_NAME"], chosen["ONEDNN_MAX_CPU_ISA"]) == ("haswell", "AVX2")
    assert vector_widths.settings("avx512") == {}


@pytest.mark.needs_process
def test_a_width_that_is_not_there_is_refused() -> None:
    done = run([sys.executable, TOOL, "avx1024", "true"], environment=dict(os.environ))
    assert done.returncode == 1
    assert f"this processor has the widths {', '.join(vector_widths.available())}" in done.stderr
