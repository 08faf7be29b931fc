"""A benchmark and leaderboard harness for key-based adversarial defences.

    import bench

    result = bench.evaluate(defence="block-shuffle", attacks=["pgd", "pba"], preset="smoke")
    result.best_known["linf"]

Everything but the errors is imported on first use: `import bench` is quick, and imports no TensorFlow.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from bench.errors import BenchError as BenchError
from bench.errors import UsageError as UsageError

if TYPE_CHECKING:
    from bench.keys import PrivateKey as PrivateKey
    from bench.python_api import EvaluationFailed as EvaluationFailed
    from bench.python_api import evaluate as evaluate
    from bench.result import Accuracy as Accuracy
    from bench.result import Result as Result

__version__ = "0.1.0"

_ON_USE = {
    "Accuracy": "bench.result",
    "EvaluationFailed": "bench.python_api",
    "PrivateKey": "bench.keys",
    "Result": "bench.result",
    "evaluate": "bench.python_api",
}

if not TYPE_CHECKING:  # a type checker would take any name for one that is there

    def __getattr__(name: str) -> Any:
        if name not in _ON_USE:
            raise AttributeError(f"module 'bench' has no attribute '{name}'")
        return getattr(importlib.import_module(_ON_USE[name]), name)

    def __dir__() -> list[str]:
        return sorted({*globals(), *_ON_USE})
