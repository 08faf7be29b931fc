"""From the options of a run to its executor; Ray is imported only if it is asked for."""

from __future__ import annotations

from collections.abc import Callable

from bench.api import UsageError
from bench.executors.local import LocalCrew
from bench.executors.pool import Crew, Executor, Limits

NAMES = ("local", "ray")


def executor(
    name: str, limits: Limits, say: Callable[[str], None], address: str | None = None, gpus: float = 0.0
) -> Executor:
    """The executor of this name; `address` and `gpus` (for each worker) are Ray's."""
    crew: Crew
    if name == "ray":
        from bench.executors.ray import RayCrew

        crew = RayCrew(limits, address, gpus)
    else:
        if address or gpus:
            raise UsageError("--ray-address and --gpus-per-worker belong to --executor ray")
        crew = LocalCrew(limits)
    return Executor(crew, limits, say)
