"""Progress for people: bars with an ETA on a terminal, plain lines now and then elsewhere. All of it on stderr."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Iterator

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn

SECONDS_BETWEEN_LINES = 15.0


class Reporter:
    """One overall bar and one line for what is going on now."""

    def __init__(self, *, quiet: bool = False) -> None:
        self._console = Console(stderr=True, quiet=quiet, highlight=False, soft_wrap=True)
        self._bars: Progress | None = None
        self._task: TaskID | None = None
        self._total, self._done, self._began, self._last, self._what = 0.0, 0.0, 0.0, 0.0, ""
        logging.getLogger("bench").handlers[:] = [_Spoken(self)]  # what the store has to say of its troubles

    def say(self, text: str) -> None:
        self._console.print(escape(text))

    @contextlib.contextmanager
    def track(self, what: str, total: float) -> Iterator[None]:
        """Shows the progress of a piece of work until the block ends."""
        self._total, self._done, self._began, self._last, self._what = (
            total,
            0.0,
            time.monotonic(),
            time.monotonic(),
            what,
        )
        if not self._console.is_terminal:
            yield
            return
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.percentage:>3.0f} %"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
        )
        with Progress(*columns, console=self._console, transient=True) as self._bars:
            self._task = self._bars.add_task(escape(what), total=total)
            try:
                yield
            finally:
                self._bars, self._task = None, None

    def advance(self, amount: float, what: str | None = None) -> None:
        if not self._done:
            self._began = time.monotonic()  # whatever came before, such as training a source, tells nothing of the rest
        self._done += amount
        self._what = what or self._what
        if self._bars is not None and self._task is not None:
            self._bars.update(self._task, completed=self._done, description=escape(self._what))
        elif (
            not self._console.is_terminal
            and time.monotonic() - self._last > SECONDS_BETWEEN_LINES
            and 0 < self._done < self._total
        ):
            self._last = time.monotonic()
            left = (self._last - self._began) * (self._total - self._done) / self._done
            self.say(f"{self._what}: {self._done / self._total:.0%}, about {duration(left)} left")


def told(what: str, total: float, say: Callable[[str], None]) -> Callable[[float], None]:
    """For work that can only speak: call it with what was done since, and it says now and then how much time is left."""
    done = first = 0.0
    began = last = time.monotonic()

    def advance(amount: float) -> None:
        nonlocal done, first, began, last
        done += amount
        if not first:
            first, began = amount, time.monotonic()  # the first piece has compiled what the others only run
        elif time.monotonic() - last > SECONDS_BETWEEN_LINES and done < total:
            last = time.monotonic()
            left = (last - began) / (done - first) * (total - done)
            say(f"{what}: {done / total:.0%}, about {duration(left)} left")

    return advance


class _Spoken(logging.Handler):
    """Log records as lines among the progress."""

    def __init__(self, reporter: Reporter) -> None:
        super().__init__()
        self._reporter = reporter

    def emit(self, record: logging.LogRecord) -> None:
        self._reporter.say(record.getMessage())


def duration(seconds: float) -> str:
    """'42 s', '3 min 5 s', '2 h 10 min' or '12 days'."""
    whole = int(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    if whole < 72 * 3600:
        return f"{whole // 3600} h {whole % 3600 // 60} min"
    return f"{whole // 86400:,} days"
