"""The errors a user can act on; plug-ins find them in `bench.api`."""

from __future__ import annotations


class BenchError(Exception):
    """Work that failed for a reason the user can act on: printed as one line, exit code 1."""


class UsageError(BenchError):
    """A request that breaks a rule, which the message names: printed as one line, exit code 2."""
