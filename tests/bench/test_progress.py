"""Progress: one estimate of the time left, in lines and in bars."""

from __future__ import annotations

import io
import logging

import pytest
from rich.console import Console

from bench.support import progress
from bench.support.progress import Reporter, Tracker, duration, progress_lines


class Clock:
    """A clock that is set by hand."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(progress, "monotonic", clock)
    return clock


def test_the_time_left_follows_the_speed_after_the_first_piece(clock: Clock) -> None:
    tracker = Tracker("work", 10)
    clock.now += 500  # loading and compiling
    tracker.advance(2)
    assert tracker.seconds_left is None
    clock.now += 6
    tracker.advance(2)
    assert tracker.seconds_left == pytest.approx(6 / 2 * 6)
    clock.now += 3
    assert tracker.seconds_left == pytest.approx(15), "it counts down in between"
    clock.now += 21
    assert tracker.seconds_left == pytest.approx(30 / 2 * 6), "what is late is slower than it seemed"
    assert tracker.share == pytest.approx(0.4)


def test_what_was_done_before_makes_nothing_look_faster(clock: Clock) -> None:
    tracker = Tracker("guesses", 100)
    tracker.advance(1)
    tracker.skip(50)
    clock.now += 10
    tracker.advance(1)
    assert tracker.seconds_left == pytest.approx(10 * 48)


def test_a_resumed_training_is_timed_from_where_it_goes_on(clock: Clock) -> None:
    tracker = Tracker("training", 10)
    clock.now += 1
    tracker.reach(6.5, "epoch 7/10")
    clock.now += 2
    tracker.reach(7.0, "epoch 7/10")
    assert tracker.seconds_left == pytest.approx(12)


def test_lines_come_now_and_then_and_say_what_is_left(clock: Clock) -> None:
    said: list[str] = []
    with progress_lines(said.append)("training linac", 100) as tracker:
        for step in range(100):
            clock.now += 1
            tracker.advance(1, f"step {step}")
    assert said[0] == "training linac: step 15, 16%, about 1 min 24 s left"
    assert 5 <= len(said) <= 6
    assert len({line.partition("about")[2] for line in said}) == len(said)


def test_nothing_is_said_of_what_is_quickly_done(clock: Clock) -> None:
    said: list[str] = []
    with progress_lines(said.append)("quick", 3) as tracker:
        tracker.advance(3)
        clock.now += 60
        tracker.advance(0)
    assert said == []


def test_a_terminal_has_bars_with_the_same_time_left(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = io.StringIO()
    reporter = Reporter()
    monkeypatch.setattr(
        reporter, "_console", Console(file=shown, force_terminal=True, width=120, color_system=None, highlight=False)
    )
    with reporter.track("attacking", 10) as outer, reporter.track("training [bold]", 4) as inner:
        for _ in range(2):
            clock.now += 30
            outer.advance(1, "pgd@nominal")
            inner.advance(1)
        reporter.say("done: a cell [red]")
        assert reporter._bars is not None
        reporter._bars.refresh()
    text = shown.getvalue()
    assert "attacking: pgd@nominal" in text
    assert "training [bold]" in text
    assert f"about {duration(240)} left" in text
    assert "done: a cell [red]" in text
    assert reporter._bars is None


def test_what_the_store_logs_is_a_line_among_the_others(capsys: pytest.CaptureFixture[str]) -> None:
    Reporter()
    logging.getLogger("bench").warning("the database is [locked]")
    assert "the database is [locked]" in capsys.readouterr().err
    Reporter(quiet=True)
    logging.getLogger("bench").warning("the database is locked")
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("seconds", "text"), [(42.9, "42 s"), (185, "3 min 5 s"), (7800, "2 h 10 min"), (12 * 86400, "12 days")]
)
def test_durations_read_well(seconds: float, text: str) -> None:
    assert duration(seconds) == text
