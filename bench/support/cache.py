"""Where `bench` keeps what it downloads and trains: `BENCH_HOME`, else a folder of the user's cache."""

from __future__ import annotations

import os
from pathlib import Path


def home() -> Path:
    """The cache folder, not necessarily there yet."""
    if chosen := os.environ.get("BENCH_HOME"):
        return Path(chosen).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "bench"
