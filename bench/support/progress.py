"""Progress for people: bars with the time left on a terminal, a line now and then elsewhere. All of it on stderr."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from time import monotonic
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, ProgressColumn, Task, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bars
from rich.text import Text

from bench.support.printable import markup

SECONDS_BETWEEN_LINES = 15.0

Say = Callable[[str], None]


class Tracker:
    """A piece of work of known size: how much of it is done, what is being done now, and how long the rest takes."""

    def __init__(self, what: str, total: float, show: Callable[[Tracker], None] = lambda tracker: None) -> None:
        self.what, self.total, self.done, self.detail = what, total, 0.0, ""
        self._show = show
        self._began: float | None = None
        self._last = monotonic()
        self._timed = 0.0

    def advance(self, amount: float, detail: str = "") -> None:
        """So much more is done."""
        self._last = monotonic()
        if self._began is not None:
            self._timed += amount
        elif amount > 0:
            self._began = self._last  # the first piece has also loaded and compiled what the others only run
        self._moved(amount, detail)

    def reach(self, done: float, detail: str = "") -> None:
        """So much is done in all."""
        self.advance(done - self.done, detail)

    def skip(self, amount: float) -> None:
        """So much was done before: it says nothing about how long the rest takes."""
        self._moved(amount, "")

    def _moved(self, amount: float, detail: str) -> None:
        self.done += amount
        self.detail = detail or self.detail
        self._show(self)

    @property
    def share(self) -> float:
        return min(self.done / self.total, 1.0) if self.total else 1.0

    @property
    def seconds_left(self) -> float | None:
        """At the speed so far; None while there is nothing to tell it from."""
        if self._began is None or not self._timed or self._last == self._began:
            return None
        now, left = monotonic(), max(self.total - self.done, 0.0)
        seconds = (self._last - self._began) / self._timed * left - (now - self._last)
        return seconds if seconds >= 0 else (now - self._began) / self._timed * left  # late: the wait counts as well

    @property
    def title(self) -> str:
        return f"{self.what}: {self.detail}" if self.detail else self.what

    def __str__(self) -> str:
        """'training linac: epoch 3/10, loss 0.412, 24%, about 5 min 3 s left'."""
        left = self.seconds_left
        told = f"{self.title}{', ' if self.detail else ': '}{self.share:.0%}"
        return told if left is None else f"{told}, about {duration(left)} left"


class Track(Protocol):
    """Shows the progress of a piece of work until the block ends."""

    def __call__(self, what: str, total: float) -> AbstractContextManager[Tracker]: ...


@contextlib.contextmanager
def untracked(what: str, total: float) -> Iterator[Tracker]:
    """For work whose progress nobody looks at."""
    yield Tracker(what, total)


def progress_lines(say: Say) -> Track:
    """Progress where there is only a way to say something: a line now and then."""

    @contextlib.contextmanager
    def track(what: str, total: float) -> Iterator[Tracker]:
        last = monotonic()

        def show(tracker: Tracker) -> None:
            nonlocal last
            if monotonic() - last > SECONDS_BETWEEN_LINES and tracker.share < 1:
                last = monotonic()
                say(str(tracker))

        yield Tracker(what, total, show)

    return track


class Reporter:
    """What a command says while it works."""

    def __init__(self, *, quiet: bool = False) -> None:
        self._console = Console(stderr=True, quiet=quiet, highlight=False, soft_wrap=True)
        self._bars: Bars | None = None
        logging.getLogger("bench").handlers[:] = [_Lines(self)]  # what the store has to say of its troubles

    def say(self, text: str) -> None:
        self._console.print(markup(text))

    def track(self, what: str, total: float) -> AbstractContextManager[Tracker]:
        """Shows the progress of a piece of work until the block ends; a piece inside another has a bar of its own."""
        if not self._console.is_terminal:
            return progress_lines(self.say)(what, total)
        return self._bar(what, total)

    @contextlib.contextmanager
    def _bar(self, what: str, total: float) -> Iterator[Tracker]:
        with self._shown() as bars:
            tracker = Tracker(what, total, lambda tracker: bars.update(
                task, completed=tracker.done, total=tracker.total, description=markup(tracker.title)
            ))  # fmt: skip
            task = bars.add_task(markup(what), total=total, tracker=tracker)
            try:
                yield tracker
            finally:
                bars.remove_task(task)

    @contextlib.contextmanager
    def _shown(self) -> Iterator[Bars]:
        """The bars on the terminal: one display, whatever the number of them."""
        if self._bars is not None:
            yield self._bars
            return
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.percentage:>3.0f} %"),
            TimeElapsedColumn(),
            _TimeLeft(),
        )
        with Bars(*columns, console=self._console, transient=True) as self._bars:
            try:
                yield self._bars
            finally:
                self._bars = None


class _TimeLeft(ProgressColumn):
    """The tracker's own estimate, so that a bar and a line never disagree."""

    def render(self, task: Task) -> Text:
        left = task.fields["tracker"].seconds_left
        return Text("" if left is None else f"about {duration(left)} left")


class _Lines(logging.Handler):
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
