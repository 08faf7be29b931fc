"""Which commit this code is of."""

from __future__ import annotations

import subprocess
from pathlib import Path


def git_commit() -> str | None:
    """The commit of the checkout that this code is in, if it is in one."""
    try:
        found = subprocess.run(
            ["git", "rev-parse", "HEAD"], cwd=Path(__file__).parent, capture_output=True, text=True, timeout=5
        )
        return found.stdout.strip() or None if found.returncode == 0 else None
    except (OSError, subprocess.TimeoutExpired):
        return None
