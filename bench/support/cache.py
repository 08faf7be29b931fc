"""Where `bench` keeps what it downloads and trains: `BENCH_HOME`, else a folder of the user's cache."""

from __future__ import annotations

import os
from pathlib import Path

from bench.errors import UsageError


def home() -> Path:
    """The cache folder, not necessarily there yet."""
    if chosen := os.environ.get("BENCH_HOME"):
        folder = Path(chosen).expanduser()
        if folder.exists() and not folder.is_dir():
            raise UsageError(f"BENCH_HOME is {chosen}, which is no folder: name a folder, which need not be there yet")
        return folder
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "bench"
