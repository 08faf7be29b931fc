"""Progress that a test can look at."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from bench.support.progress import Tracker


class Recorded:
    """Tracks pieces of work, and keeps what became of each."""

    def __init__(self) -> None:
        self.trackers: list[Tracker] = []

    @contextlib.contextmanager
    def track(self, what: str, total: float) -> Iterator[Tracker]:
        self.trackers.append(Tracker(what, total))
        yield self.trackers[-1]

    def done(self) -> dict[str, float]:
        """The total of every piece of work, which must all have been done."""
        for tracker in self.trackers:
            assert tracker.done == tracker.total, f"{tracker.what}: {tracker.done} of {tracker.total}"
        return {tracker.what: tracker.total for tracker in self.trackers}
